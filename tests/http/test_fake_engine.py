"""What a real engine does only on bad days, done on order: refusals, answers that never come, streams cut in the middle, an agent that lies."""

from __future__ import annotations

import re
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

import pytest

import fake_engine as fake_agent
from berth import IMAGE, SLOWNESS, Broker, at_pace, wait_until
from fake_engine import ERR, EXIT, HELLO_ACK, OUT, ROUTES, STARTED, USAGE_REPLY, Exchange, FakeAgent, FakeEngine, engine_frame, exit_frame, frame


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


@pytest.fixture
def make(fake: FakeEngine, make_broker: Callable[..., Broker]) -> Callable[..., Broker]:
    return lambda **settings: make_broker(engine=fake, **settings)


@pytest.fixture
def broker(make: Callable[..., Broker]) -> Broker:
    return make()


def nothing_left(broker: Broker, fake: FakeEngine) -> bool:
    return not fake.ours() and broker.sessions() == [] and broker.http.get("/healthz").json()["sessions"] == 0


@pytest.mark.san
def test_the_whole_road_uses_the_closed_list_of_verbs(fake: FakeEngine, broker: Broker) -> None:
    s = broker.open("road")
    assert s.run(["say", "hello"])["stdout"] == "hello\n"
    assert s.run(["exit", "7"])["exit_code"] == 7
    assert s.inspect(usage=True)["usage"]["memory_bytes"] == 1_000_000
    assert broker.sessions(usage=True)[0]["usage"]["pids"] == 1
    s.write("/workspace/f", b"x")
    broker.crash()
    assert s.run(["say", "again"])["stdout"] == "again\n"
    assert s.close().status_code == 204
    assert broker.client.get("/isolation").status_code == 200
    assert broker.purge("road").status_code == 204
    assert fake.ours() == []
    with fake.lock:
        asked = set(fake.requests)
    for method, path in asked:
        assert any(method == m and re.fullmatch(p, path) for m, p, _ in ROUTES), f"{method} {path} is none of its verbs"
        for never in ("/stats", "/exec", "/archive", "/logs", "/top", "/copy", "/export", "/commit"):
            assert never not in path


def test_a_refused_create_leaves_nothing(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    broker = make(max_sessions=1)
    fake.fault("POST", "/containers/create", (500, {"message": "no space left on device"}), times=3)
    for _ in range(3):
        answer = broker.client.post("/sessions", json={"session_id": "x"})
        assert answer.status_code == 502 and "no space left" in answer.text, answer.text
        assert broker.client.post("/sessions", json={"session_id": "x", "attach": True}).status_code == 404, "no workspace is left either"
    assert nothing_left(broker, fake)
    assert broker.open("x").run(["say", "ok"])["stdout"] == "ok\n"


@pytest.mark.san
def test_a_refused_start_leaves_nothing(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    broker = make(max_sessions=1)
    fault = fake.fault("POST", "/containers/[^/]+/start", (500, {"message": "OCI runtime create failed"}), times=2)
    for _ in range(2):
        answer = broker.client.post("/sessions", json={"session_id": "x"})
        assert answer.status_code == 502 and "OCI runtime" in answer.text, answer.text
        assert nothing_left(broker, fake)
    assert fault.hit == 2
    assert broker.open("x").run(["say", "ok"])["stdout"] == "ok\n"
    assert len(fake.ours()) == 1


def test_an_image_that_is_nowhere_is_named_and_holds_no_place(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    broker = make(max_sessions=2, runtimes=f"python={IMAGE},bad=no/such:tag", prewarm=False)
    fake.fault("POST", "/images/create", (404, {"message": "pull access denied for no/such"}), times=100)
    fake.fault("POST", "/containers/create", lambda e, x: b"no/such:tag" in x.body and (x.reply(404, {"message": "No such image: no/such:tag"}) or True), times=100)
    begun = time.monotonic()
    for number in range(10):
        answer = broker.client.post("/sessions", json={"session_id": f"n{number}", "runtime": "bad"})
        assert 400 <= answer.status_code <= 502 and "no/such" in answer.text, answer.text
    assert time.monotonic() - begun < 5 * SLOWNESS
    assert nothing_left(broker, fake)
    broker.open("a"), broker.open("b")
    assert broker.client.post("/sessions", json={}).status_code == 429


def test_a_create_whose_answer_was_lost_leaves_one_container_at_most(fake: FakeEngine, broker: Broker) -> None:
    """The engine made it, and the connection broke: nobody knows its id."""

    def make_and_hang_up(engine: FakeEngine, exchange: Exchange) -> bool:
        engine.create(exchange)
        exchange.hang_up()
        return True

    fault = fake.fault("POST", "/containers/create", make_and_hang_up)
    answer = broker.client.post("/sessions", json={"session_id": "x"})
    assert fault.hit == 1
    assert answer.status_code == 503 and answer.headers["retry-after"], answer.text
    # Without anything happening in between: no event, no restart.
    wait_until(lambda: not fake.ours(), 10, "the container that nobody has is removed")
    assert broker.open("x").run(["say", "ok"])["stdout"] == "ok\n"
    assert len(fake.ours()) == 1


def test_a_heal_whose_create_was_lost_ends_with_one_container(fake: FakeEngine, broker: Broker) -> None:
    s = broker.open("x")
    s.write("/workspace/f", b"kept")
    with fake.lock:
        gone = fake.made.pop(fake.one().id)
    fake.die(gone)
    wait_until(lambda: not s.inspect()["alive"], what="its death is known")

    def make_and_hang_up(engine: FakeEngine, exchange: Exchange) -> bool:
        engine.create(exchange)
        exchange.hang_up()
        return True

    fake.fault("POST", "/containers/create", make_and_hang_up)
    assert s.post_run(["say", "ok"]).status_code == 503
    assert s.run(["say", "ok"])["stdout"] == "ok\n"
    wait_until(lambda: len(fake.ours()) == 1, 10, "the second one is removed")
    assert s.run(["say", "ok"])["stdout"] == "ok\n" and fake.one().state == "running"
    assert s.read("/workspace/f") == b"kept"


def test_a_create_that_answers_late_holds_only_itself(fake: FakeEngine, broker: Broker) -> None:
    other = broker.open("other")
    go = threading.Event()

    def slowly(engine: FakeEngine, exchange: Exchange) -> bool:
        go.wait(30)
        return False

    fake.fault("POST", "/containers/create", slowly)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(broker.open, "slow")
        wait_until(lambda: fake.count("POST", "/containers/create") == 2, what="it is being made")
        for _ in range(20):
            begun = time.monotonic()
            assert other.run(["say", "ok"])["stdout"] == "ok\n"
            assert [s["session_id"] for s in broker.sessions(usage=True)] == ["other"]
            assert broker.http.get("/healthz").status_code == 200
            assert time.monotonic() - begun < 0.3 * SLOWNESS
        assert broker.client.post("/sessions", json={"session_id": "slow", "reuse": True}).status_code == 409
        go.set()
        assert opening.result(10 * SLOWNESS).run(["say", "late"])["stdout"] == "late\n"
    assert len(fake.ours()) == 2


def test_it_stops_while_the_engine_does_not_answer(fake: FakeEngine, broker: Broker) -> None:
    go = threading.Event()
    fake.fault("POST", "/containers/create", lambda e, x: bool(go.wait(60)) and False)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(lambda: broker.client.post("/sessions", json={"session_id": "stuck"}))
        wait_until(lambda: fake.count("POST", "/containers/create") == 1, what="it is being made")
        begun = time.monotonic()
        broker.terminate()
        assert time.monotonic() - begun < 10 * SLOWNESS
        assert opening.exception(10 * SLOWNESS) or opening.result().status_code in (502, 503)
    go.set()
    wait_until(lambda: len(fake.ours()) == 1, what="the engine makes it all the same")
    broker.start()
    wait_until(lambda: not fake.ours(), 10, "the next start removes it")
    assert broker.sessions() == []


def test_killed_between_create_and_start(fake: FakeEngine, broker: Broker) -> None:
    fake.fault("POST", "/containers/[^/]+/start", lambda e, x: threading.Event().wait(5) and False)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(lambda: broker.client.post("/sessions", json={"session_id": "x"}))
        wait_until(lambda: fake.count("POST", "/containers/[^/]+/start") == 1, what="it is being started")
        broker.kill9()
        assert opening.exception(10 * SLOWNESS)
    broker.start()
    wait_until(lambda: not fake.ours(), 15, "the half-made container is removed")
    assert broker.open("x").run(["say", "ok"])["stdout"] == "ok\n"
    assert len(fake.ours()) == 1


LISTS: dict[str, tuple[int, Any]] = {
    "error": (500, {"message": "database is locked"}),
    "null": (200, None),
    "object": (200, {"message": "odd"}),
    "null inside": (200, [None]),
    "without labels": (200, [{"Id": "x"}]),
}


@pytest.mark.parametrize("case", LISTS)
def test_a_list_that_fails_is_not_an_empty_one(fake: FakeEngine, broker: Broker, case: str) -> None:
    s = broker.open("kept")
    closed = broker.open("closed")
    assert closed.close().status_code == 204
    assert len(fake.ours()) == 2
    broker.kill9()
    fault = fake.fault("GET", "/containers/json", LISTS[case], times=2)
    broker.start()
    wait_until(lambda: fault.hit == 2, 10, "it asks again")
    assert s.run(["say", "ok"])["stdout"] == "ok\n"
    assert len(fake.ours()) == 2 and broker.http.get("/healthz").json()["sessions"] == 1
    assert fake.count("POST", "/containers/create") == 2, "nothing was made anew"


def test_containers_of_others_are_left_alone_whatever_the_engine_lists(fake: FakeEngine, broker: Broker) -> None:
    s = broker.open("mine")
    body = dict(fake.one().body)
    strangers = []
    for number, labels in enumerate(({}, {"berth.install": "another"}, {"berth.install": "another", "berth.slot": fake.one().labels["berth.slot"]})):
        stranger = fake_agent.FakeContainer(f"{number}" * 64, f"stranger{number}", body | {"Labels": labels}, state="running")
        fake.made[stranger.id] = stranger
        strangers.append(stranger)
    everything = [{"Id": c.id, "Names": ["/" + c.name], "State": c.state, "Labels": c.labels} for c in fake.made.values()]
    fault = fake.fault("GET", "/containers/json", (200, everything), times=3)
    broker.crash()
    fake.cut_events()
    wait_until(lambda: fault.hit >= 2, 10, "it compares")
    assert s.run(["say", "ok"])["stdout"] == "ok\n"
    assert all(c.id in fake.made and c.state == "running" for c in strangers)
    for c in strangers:
        del fake.made[c.id]


def test_a_name_that_is_taken_does_not_matter(fake: FakeEngine, broker: Broker) -> None:
    s = broker.open("x")
    body = fake.one().body | {"Labels": {}}
    assert broker.purge("x").status_code == 204
    stranger = fake_agent.FakeContainer("f" * 64, "berth-x", body, state="running")
    fake.made[stranger.id] = stranger
    s = broker.open("x")
    assert s.run(["say", "ok"])["stdout"] == "ok\n"
    assert broker.purge("x").status_code == 204
    assert list(fake.made) == [stranger.id] and stranger.state == "running"
    del fake.made[stranger.id]


# ---- an engine that takes the call and says nothing


@pytest.fixture
def go() -> Iterator[threading.Event]:
    """Until it is set, the engine says nothing."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.san
@pytest.mark.parametrize("step", ["create", "[^/]+/start"])
def test_an_opening_that_the_engine_never_answers_is_given_up(fake: FakeEngine, make: Callable[..., Broker], go: threading.Event, step: str) -> None:
    broker = make(engine_timeout=at_pace(1))
    other = broker.open("other")
    late: list[Any] = []

    def silently(engine: FakeEngine, exchange: Exchange) -> bool:
        go.wait(60)
        if step == "create":
            exchange.query["name"] = ["late"]
            late.append(engine.create(exchange))
        return True

    fake.fault("POST", f"/containers/{step}", silently)
    begun = time.monotonic()
    answer = broker.client.post("/sessions", json={"session_id": "x"})
    taken = time.monotonic() - begun
    assert answer.status_code == 503 and answer.headers["retry-after"] and f"within {at_pace(1)} s" in answer.json()["detail"], answer.text
    assert 0.9 * at_pace(1) < taken < 6 * SLOWNESS, f"{taken:.1f} s"
    assert [s["session_id"] for s in broker.sessions()] == ["other"] and broker.http.get("/healthz").json()["sessions"] == 1
    assert not (broker.root / "x").exists() and len(list((broker.root / ".slots").iterdir())) == 1
    # The next one is served while the engine still sits on the first.
    again = broker.open("x")
    assert again.run(["say", "mine"])["stdout"] == "mine\n" and other.run(["say", "ok"])["stdout"] == "ok\n"
    again.write("/workspace/f", b"kept")
    go.set()
    if step == "create":
        wait_until(lambda: late, 5, "it is made after all")
        wait_until(lambda: late[0].id not in fake.made, 15, "and found, and removed")
    assert len(fake.ours()) == 2
    assert again.run(["say", "still"])["stdout"] == "still\n" and again.read("/workspace/f") == b"kept"


@pytest.mark.parametrize("times", [1, 2])
def test_a_wake_that_the_engine_never_answers_loses_nothing(fake: FakeEngine, make: Callable[..., Broker], go: threading.Event, times: int) -> None:
    """A container that does not start in time is replaced; when that one does not either, the session sleeps on."""
    broker = make(engine_timeout=at_pace(1))
    s = broker.open("x")
    s.write("/workspace/f", b"kept")
    assert s.request("POST", "/hibernate").status_code == 200
    fake.fault("POST", "/containers/[^/]+/start", lambda e, x: bool(go.wait(60)) and False, times=times)
    begun = time.monotonic()
    answer = s.post_run(["say", "x"])
    assert time.monotonic() - begun < 10 * SLOWNESS
    assert answer.status_code == (200 if times == 1 else 503), answer.text
    if times == 2:
        assert answer.headers["retry-after"] and broker.sessions()[0]["state"] == "hibernated"
    assert s.read("/workspace/f") == b"kept"
    assert s.run(["say", "up"])["stdout"] == "up\n"
    go.set()
    wait_until(lambda: len(fake.ours()) == 1, 15, "one container")
    assert s.run(["say", "still"])["stdout"] == "still\n" and s.read("/workspace/f") == b"kept"


# ---- streams that are cut

HALF = frame(OUT, 1, 0, b"partial\n")
CUTS: dict[str, bytes] = {
    "nothing": b"",
    "half of the engine's header": engine_frame(b"x" * 100)[:3],
    "the engine's header alone": engine_frame(b"x" * 100)[:8],
    "half of the agent's header": engine_frame(HALF[:17]),
    "half of a payload": engine_frame(HALF)[:-4],
}


@pytest.mark.san
@pytest.mark.parametrize("case", CUTS)
def test_a_stream_that_ends_in_the_middle_is_no_success(fake: FakeEngine, broker: Broker, case: str) -> None:
    s = broker.open("cut")
    container = fake.one()

    def cut(agent: FakeAgent, run: int, argv: list[str]) -> bool:
        agent.on_start = None
        agent.send(frame(OUT, run, 0, b"begun\n"))
        agent.send_raw(CUTS[case])
        agent.cut()
        return True

    container.agent.on_start = cut
    answer = s.post_run(["say", "x"])
    assert answer.status_code == 410, f"{answer.status_code} {answer.text}"
    assert s.events()["events"][-1]["detail"] == "sandbox gone" and not s.events()["events"][-1]["ok"]
    assert s.run(["say", "ok"])["stdout"] == "ok\n"
    assert fake.one() is container and container.agent.links == 2, "the container was well: only the stream was new"


def test_a_run_that_was_never_begun_is_tried_again(fake: FakeEngine, broker: Broker) -> None:
    """The link was dead before anything was sent: the client does not notice."""
    s = broker.open("dead")
    fake.die(fake.one())
    assert s.run(["say", "ok"])["stdout"] == "ok\n"
    fake.die(fake.one(), silently=True)
    assert s.run(["exit", "5"])["exit_code"] == 5
    assert len(fake.ours()) == 1


def test_events_that_end_are_asked_for_again(fake: FakeEngine, broker: Broker) -> None:
    s = broker.open("x")
    wait_until(lambda: fake.streams, what="it listens")
    lists = fake.count("GET", "/containers/json")
    for _ in range(3):
        fake.cut_events()
        wait_until(lambda: fake.streams, 5, "it listens again")
    wait_until(lambda: fake.count("GET", "/containers/json") > lists, 5, "and compares")
    fault = fake.fault("GET", "/events", (500, {"message": "shutting down"}), times=2)
    fake.cut_events()
    fake.one().state = "exited"  # while nobody listens
    fake.one().agent.cut()
    wait_until(lambda: fault.hit == 2 and fake.streams, 10, "it listens again")
    # Ended, unless a comparison that had listed it as running before has started it again by now.
    wait_until(lambda: s.inspect()["alive"] == (fake.one().state == "running"), 10, "what is said of it is true")
    assert s.run(["say", "ok"])["stdout"] == "ok\n" and s.inspect()["alive"]


def test_events_that_are_nonsense_harm_nobody(fake: FakeEngine, broker: Broker) -> None:
    s = broker.open("x")
    wait_until(lambda: fake.streams, what="it listens")
    for text in (b"null", b"[]", b"{}", b'{"Action":7}', b'{"Action":"die"}', b'{"Action":"die","Actor":null}', b'{"Action":"die","Actor":{"ID":"unknown"}}', b"\xff\xfe", b"[" * 100_000, b'{"Action":"die","Actor":{"ID":"' + b"x" * 5000 + b'"}}'):
        stream = wait_until(lambda: fake.streams and fake.streams[-1], 5, "it listens")
        try:
            stream.sendall(f"{len(text) + 1:x}\r\n".encode() + text + b"\n\r\n")
        except OSError:
            pass
        assert s.run(["say", "ok"])["stdout"] == "ok\n"
    assert len(fake.ours()) == 1


INSPECTS: dict[str, tuple[int, Any]] = {
    "null": (200, None),
    "empty": (200, {}),
    "state null": (200, {"Id": "x", "State": None}),
    "list": (200, []),
    "error": (500, {"message": "x" * 100_000}),
}


@pytest.mark.parametrize("case", INSPECTS)
def test_an_inspect_that_is_nonsense_is_an_error_for_a_moment(fake: FakeEngine, broker: Broker, case: str) -> None:
    s = broker.open("x")
    s.write("/workspace/f", b"kept")
    fake.fault("GET", "/containers/[0-9a-f]{64}/json", INSPECTS[case])
    fake.one().agent.cut()
    wait_until(lambda: not s.inspect()["alive"], what="the link is seen to be dead")
    answer = s.post_run(["say", "ok"])
    assert answer.status_code in (200, 502, 503), answer.text
    assert s.run(["say", "ok"])["stdout"] == "ok\n"
    assert s.read("/workspace/f") == b"kept" and len(fake.ours()) == 1


def test_an_engine_that_is_slow_to_answer_a_listing_delays_nobody(fake: FakeEngine, broker: Broker) -> None:
    s = broker.open("x")
    fake.fault("GET", "/containers/.*", lambda e, x: bool(time.sleep(1)) and False, times=3)
    fake.cut_events()
    for _ in range(10):
        begun = time.monotonic()
        assert len(broker.sessions(usage=True)) == 1
        assert s.run(["say", "ok"])["stdout"] == "ok\n"
        assert time.monotonic() - begun < 0.3 * SLOWNESS


# ---- an agent that lies


def bad_crc() -> bytes:
    data = bytearray(frame(OUT, 1, 0, b"hello"))
    data[-1] ^= 1
    return bytes(data)


def with_header(**changes: int) -> bytes:
    fields = {"magic": fake_agent.MAGIC, "version": 1, "type": OUT, "flags": 0, "run": 1, "length": 5, "offset": 0, "crc": 0, "reserved": 0} | changes
    header = fake_agent.HEADER.pack(*fields.values())
    fields["crc"] = fake_agent.crc32c(header + b"hello")
    return fake_agent.HEADER.pack(*fields.values()) + b"hello"


LIES: dict[str, Callable[[int], bytes]] = {
    "zeros": lambda run: b"\0" * 70_000,
    "text": lambda run: b"GET / HTTP/1.1\r\n\r\n" * 10,
    "wrong checksum": lambda run: bad_crc(),
    "another version": lambda run: with_header(version=9),
    "a huge length": lambda run: with_header(length=0xFFFFFFFF),
    "reserved bits": lambda run: with_header(reserved=1),
    "unknown flags": lambda run: with_header(flags=0x8000),
    "a type of ours": lambda run: frame(fake_agent.START, run, 0, b"x" * 40),
    "an unknown type": lambda run: frame(200, run),
    "output that goes back": lambda run: frame(OUT, run, 0, b"aaaa") + frame(OUT, run, 1, b"bb"),
    "output far ahead": lambda run: frame(OUT, run, 2**63, b"aaaa"),
    "output at the end of numbers": lambda run: frame(OUT, run, 2**64 - 2, b"aaaa"),
    "output beyond its credit": lambda run: b"".join(frame(ERR, run, n * 65536, b"x" * 65536) for n in range(8)),
    "an exit that contradicts itself": lambda run: exit_frame(run, 0, signal=9),
    "an exit out of range": lambda run: exit_frame(run, 100_000),
    "an exit with wrong sums": lambda run: frame(OUT, run, 0, b"aaaa") + exit_frame(run, 0, out=2),
    "a short exit": lambda run: frame(EXIT, run, 0, b"x"),
    "two exits": lambda run: exit_frame(run, 3) + exit_frame(run, 0),
    "output after the exit": lambda run: exit_frame(run, 3) + frame(OUT, run, 0, b"more"),
    "another nonce": lambda run: frame(HELLO_ACK, 0, 0, struct.pack("<QIIIIII", 12345, 1, 0, 0, 3, 0, 0)),
    "a greeting with too many runs": lambda run: frame(HELLO_ACK, 0, 0, struct.pack("<QIIIIII", 12345, 1, 0, 0, 3, 0xFFFFFFFF, 0)),
    "usage nobody asked for": lambda run: frame(USAGE_REPLY, 0, 77, struct.pack("<qqqq", 1, 1, 1, 1)),
    "started twice": lambda run: frame(STARTED, run) * 3,
}


@pytest.mark.san
def test_an_agent_that_lies_costs_its_own_run_only(fake: FakeEngine, broker: Broker) -> None:
    """Whatever it says: the run that was on ends with an answer, no other session notices, the session heals."""
    s, other = broker.open("lied-to"), broker.open("other")
    container = next(c for c in fake.ours() if c.name == "berth-lied-to")
    descriptors = broker.fd_count()
    for name, lie in LIES.items():

        def tell(agent: FakeAgent, run: int, argv: list[str]) -> bool:
            agent.on_start = None
            agent.send(lie(run))
            agent.send(exit_frame(run, 0))
            return True

        container.agent.on_start = tell
        answer = s.post_run(["say", "x"], timeout_seconds=10)
        if answer.status_code == 200:
            # A lie that changes nothing may pass, and what it said of its own run is its own.
            assert set(answer.json()) == {"stdout", "stderr", "exit_code", "timed_out", "output_limited", "output_limit"}, name
        else:
            assert answer.status_code == 410, f"{name}: {answer.status_code} {answer.text}"
        assert other.run(["say", "fine"])["stdout"] == "fine\n", name
        if answer.status_code == 200:
            # A lie behind the end may be read only now, and then the command of this moment is the one that was on.
            assert s.post_run(["say", "ok"]).status_code in (200, 410), name
        assert s.run(["say", "ok"])["stdout"] == "ok\n", name
        broker.assert_healthy()
    for kind in (3, 7, 255):
        links = container.agent.links
        container.agent.send_raw(bytes([kind]) + b"\0\0\0\0\0\0\x05hello")
        # The comparison that follows a healing has taken it up again, if it comes just now.
        wait_until(lambda: not s.inspect()["alive"] or container.agent.links > links, what="the link is given up")
        assert s.run(["say", "ok"])["stdout"] == "ok\n"
    assert len(fake.ours()) == 2
    # Each new stream took the place of the old one.
    wait_until(lambda: broker.fd_count() <= descriptors + 4, 5, "no stream is left open")


def test_lies_outside_any_run_end_the_link_only(fake: FakeEngine, broker: Broker) -> None:
    s = broker.open("x")
    container = fake.one()
    links = container.agent.links
    container.agent.send(b"\0" * 100 + b"garbage" * 100)
    # A comparison of the broker's start that comes this late has taken it up again already.
    wait_until(lambda: not s.inspect()["alive"] or container.agent.links > links, 5, "the link is given up")
    assert s.run(["say", "ok"])["stdout"] == "ok\n"
    assert container.agent.links == links + 1 and fake.one() is container


def test_another_user_than_before_is_an_attack(fake: FakeEngine, broker: Broker) -> None:
    """The first greeting was taken before anything ran. A later one that names another user was made up inside."""
    s = broker.open("x")
    container = fake.one()

    def as_another(kind: int, run: int, offset: int, payload: bytes) -> None:
        if kind == fake_agent.HELLO:
            nonce = struct.unpack_from("<Q", payload)[0]
            container.agent.send(frame(HELLO_ACK, 0, 0, struct.pack("<QIIIIII", nonce, 1, 1000, 1000, 3, 0, 0)))

    container.agent.take = as_another  # type: ignore[method-assign]
    container.agent.cut()
    wait_until(lambda: not s.inspect()["alive"], what="the link is seen to be dead")
    s.post_run(["say", "x"])
    wait_until(lambda: container.id not in fake.made or container.state != "running", 10, "it is killed")
    assert s.run(["say", "ok"])["stdout"] == "ok\n"
    assert fake.one() is not container


@pytest.mark.parametrize("flags", [0, 1, 2])
def test_a_runtime_that_cannot_hold_runs_is_refused_by_name(fake: FakeEngine, broker: Broker, flags: int) -> None:
    def unfit(agent: FakeAgent) -> None:
        def take(kind: int, run: int, offset: int, payload: bytes) -> None:
            if kind == fake_agent.HELLO:
                nonce = struct.unpack_from("<Q", payload)[0]
                agent.send(frame(HELLO_ACK, 0, 0, struct.pack("<QIIIIII", nonce, 1, 0, 0, flags, 0, 0)))

        agent.take = take  # type: ignore[method-assign]

    fake.agent_setup = unfit
    answer = broker.client.post("/sessions", json={"session_id": "x"})
    assert answer.status_code == 502 and "runtime" in answer.text, answer.text
    assert nothing_left(broker, fake)


def test_an_agent_that_does_not_greet_is_given_up(fake: FakeEngine, broker: Broker) -> None:
    fake.agent_setup = lambda agent: setattr(agent, "answer_hello", False)
    begun = time.monotonic()
    answer = broker.client.post("/sessions", json={"session_id": "x"})
    assert answer.status_code == 502, answer.text
    assert time.monotonic() - begun < 30 * SLOWNESS
    assert nothing_left(broker, fake)


def test_an_agent_that_does_not_end_a_run_loses_its_container(fake: FakeEngine, broker: Broker) -> None:
    """EXIT does not come although the deadline is over: the container is killed, and it is said."""
    s = broker.open("x")
    container = fake.one()
    container.agent.on_start = lambda agent, run, argv: True
    begun = time.monotonic()
    result = s.run(["say", "x"], timeout_seconds=1)
    assert result["timed_out"] and result["exit_code"] is None
    assert time.monotonic() - begun < 8 * SLOWNESS
    assert container.state != "running" or container.id not in fake.made
    if container.id in fake.made:
        container.agent.on_start = None
    assert s.run(["say", "ok"])["stdout"] == "ok\n"
