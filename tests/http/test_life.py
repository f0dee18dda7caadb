"""The life of a session: asleep, frozen, kept, and never lost, whatever dies in the middle of whatever step."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Iterator

import httpx
import pytest

from berth import SLOWNESS, Broker, Session, wait_until
from fake_engine import FakeContainer, FakeEngine


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


def state(broker: Broker, session_id: str) -> str:
    return next((s["state"] for s in broker.sessions() if s["session_id"] == session_id), "closed")


def ops(broker: Broker, **query: Any) -> list[str]:
    answer = broker.client.get("/events", params={"follow": "false", "after": 0} | query)
    assert answer.status_code == 200, answer.text
    return [event["op"] for event in answer.json()["events"]]


# ---- on demand

@pytest.mark.san
def test_asleep_and_awake_by_hand(sandbox: Session) -> None:
    sandbox.write("/workspace/f", b"kept")
    before = sandbox.container()
    assert sandbox.request("POST", "/hibernate").json()["state"] == "hibernated"
    assert sandbox.request("POST", "/hibernate").json()["state"] == "hibernated", "asleep already"
    assert not sandbox.broker.engine.running(before)
    assert sandbox.read("/workspace/f") == b"kept"
    assert sandbox.broker.archive(sandbox.id, "read", path="f").status_code == 200
    assert not sandbox.broker.engine.running(before), "what the host can answer wakes nobody"
    awake = sandbox.request("POST", "/wake").json()
    assert awake["state"] == "running" and awake["alive"]
    assert sandbox.container() == before and sandbox.stdout("cat f") == "kept"
    assert ops(sandbox.broker, session=sandbox.id) == ["opened", "hibernated", "woken"]


def test_tells_what_runs_and_when_it_is_closed(sandbox: Session) -> None:
    def detail(session: Session) -> dict[str, Any]:
        listed = sandbox.broker.client.get("/sessions", params={"detail": "true"}).json()["sessions"]
        told = session.request("GET", "", params={"detail": "true"}).json()
        assert [s for s in listed if s["session_id"] == session.id][0].keys() == told.keys()
        return told

    more = {"frozen", "over_quota", "running_commands", "running", "expires_at"}
    assert not more & sandbox.inspect().keys(), "only when it is asked for"
    idle = detail(sandbox)
    assert (idle["running_commands"], idle["running"], idle["frozen"], idle["over_quota"]) == (0, None, False, False)
    timeout = sandbox.broker.client.get("/policy").json()["idle_timeout"]
    assert abs(idle["expires_at"] - (idle["last_activity"] + timeout)) < 2 * SLOWNESS
    long = "é" * 200
    runs = [sandbox.request("POST", "/runs", json={"argv": argv}).json()["run_id"] for argv in (["sleep", "601"], ["sh", "-c", "sleep 602", long])]
    busy = detail(sandbox)
    assert (busy["running_commands"], busy["expires_at"]) == (2, None)
    assert busy["running"].startswith("sh -c 'sleep 602' ") and len(busy["running"].encode()) < 200 and "\ufffd" not in busy["running"]
    for run in reversed(runs):
        sandbox.request("POST", f"/runs/{run}/stop")
        sandbox.request("GET", f"/runs/{run}", params={"wait": 20})
        assert detail(sandbox)["running"] == ("sleep 601" if run == runs[1] else None)
    with ThreadPoolExecutor(1) as pool:
        waited_for = pool.submit(lambda: sandbox.stdout("while [ ! -e go ]; do sleep 0.05; done; echo done"))
        wait_until(lambda: detail(sandbox)["running_commands"] == 1, what="a command that is waited for counts")
        sandbox.write("/workspace/go", b"")
        assert waited_for.result() == "done\n"


def test_one_in_use_is_not_put_to_sleep(sandbox: Session) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: sandbox.stdout("touch begun; while [ ! -e go ]; do sleep 0.05; done; echo done"))
        wait_until(lambda: (sandbox.workspace / "begun").exists(), what="it runs")
        answer = sandbox.request("POST", "/hibernate")
        sandbox.write("/workspace/go", b"")
        assert answer.status_code == 409 and "in use" in answer.json()["detail"]
        assert running.result() == "done\n"
    assert sandbox.request("POST", "/hibernate").status_code == 200


def test_whoever_has_no_token_puts_nobody_to_sleep(sandbox: Session) -> None:
    for path in ("hibernate", "wake", "keepalive"):
        answer = sandbox.broker.http.post(f"/sessions/{sandbox.id}/{path}", json={"seconds": 1})
        assert answer.status_code == 401
        assert sandbox.broker.client.post(f"/sessions/nobody/{path}", json={"seconds": 1}).status_code == 404


@pytest.mark.parametrize("seconds", [-1, 1.5, "soon", None, 2592001, 9223372036854775808])
def test_a_keepalive_takes_whole_seconds_within_a_month(sandbox: Session, seconds: Any) -> None:
    assert sandbox.request("POST", "/keepalive", json={"seconds": seconds}).status_code == 422


def test_nothing_without_a_root_is_put_to_sleep_for_good(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(engine=fake, workspace_root=None, persist_containers=False)
    session = broker.open("s")
    assert session.request("POST", "/hibernate").status_code == 409
    assert session.run(["say", "alive"])["stdout"] == "alive\n"


# ---- idleness

def test_five_cycles_of_idle_sleep_keep_every_file(make_broker: Callable[..., Broker]) -> None:
    """W1: the one goes to sleep for the other, by itself, five times each."""
    broker = make_broker(max_sessions=1, max_open_sessions=2, evict_idle_after=0)
    ours = broker.open("ours")
    other = broker.open("other")
    for i in range(5):
        ours.write(f"/workspace/w{i}", str(i).encode())
        ours.stdout(f"echo {i} > e{i}; mkdir d{i}")
        other.stdout("true")
        assert state(broker, "ours") == "hibernated"
        attached = broker.open("ours", attach=True)
        assert attached.token == ours.token
        for k in range(i + 1):
            assert ours.read(f"/workspace/w{k}") == str(k).encode() and ours.stdout(f"cat e{k}; test -d d{k}") == f"{k}\n"
    for unknown in ("ours2", "never"):
        assert broker.client.post("/sessions", json={"session_id": unknown, "attach": True}).status_code == 404
        assert not broker.workspace_of(unknown).exists()


def test_a_renewed_expiry_holds_over_kill_9(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(engine=fake, cleanup_interval=1)
    kept, left = broker.open("kept"), broker.open("left")
    said = kept.request("POST", "/keepalive", json={"seconds": 3600}).json()
    assert said["session_id"] == "kept" and 3590 < said["expires_at"] - time.time() < 3610
    assert broker.client.put("/policy", json={"idle_timeout": 1}).status_code == 200  # not before: each may idle for a second by then
    broker.crash()
    wait_until(lambda: state(broker, "left") == "closed", 10, "the other is closed for idleness")
    assert state(broker, "kept") == "running"
    assert left.post_run(["say", "x"]).status_code == 410
    assert kept.request("POST", "/keepalive", json={"seconds": 0}).status_code == 200
    wait_until(lambda: state(broker, "kept") == "closed", 10, "taken back")
    wait_until(lambda: ops(broker, op="reaped") == ["reaped", "reaped"], what="told, once each is gone")


def test_a_keepalive_at_the_last_moment_is_kept_or_refused(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    """The race with its own timer: whoever was told 200 is there afterwards."""
    broker = make_broker(engine=fake, idle_timeout=2, max_sessions=100)

    def open_and_renew(i: int) -> int:
        broker.open(f"s{i}")
        until = time.monotonic() + 1.5 + i * 0.04
        while time.monotonic() < until:
            threading.Event().wait(0.005)
        return broker.client.post(f"/sessions/s{i}/keepalive", json={"seconds": 600}).status_code

    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(open_and_renew, range(40)))
    assert set(answers) <= {200, 404} and 200 in answers, answers
    wait_until(lambda: len(broker.sessions()) == answers.count(200), 10, "the others are closed")
    assert {s["session_id"] for s in broker.sessions()} == {f"s{i}" for i in range(40) if answers[i] == 200}


def test_commands_at_the_idle_moment_all_succeed(make_broker: Callable[..., Broker]) -> None:
    """L1: a command that comes when the other is being put to sleep runs, or wakes it."""
    broker = make_broker(max_sessions=2, max_open_sessions=3, evict_idle_after=0)
    sessions = [broker.open(f"s{i}") for i in range(3)]
    assert [sessions[i % 3].stdout(f"echo {i}") for i in range(30)] == [f"{i}\n" for i in range(30)]
    assert broker.http.get("/healthz").json()["sessions"] == 2


# ---- freezing

def test_frozen_when_idle_and_thawed_in_a_moment(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(freeze_after=1)
    session = broker.open("s")
    session.stdout("echo warm > /tmp/only-in-memory")
    container = session.container()
    paused = lambda: broker.engine.inspect(container)["State"]["Paused"]  # noqa: E731
    wait_until(paused, 10, "frozen")
    assert state(broker, "s") == "running" and broker.http.get("/healthz").json()["sessions"] == 1, "it holds memory, so it counts"
    begun = time.monotonic()
    assert broker.sessions(usage=True)[0]["usage"] is None and time.monotonic() - begun < 0.5 * SLOWNESS
    session.write("/workspace/f", b"by the host")
    assert paused(), "what the host can answer thaws nobody"
    begun = time.monotonic()
    assert session.stdout("cat /tmp/only-in-memory f") == "warm\nby the host"
    taken = time.monotonic() - begun
    assert ops(broker, session="s").count("thawed") == 1 and taken < 0.5 * SLOWNESS, f"{taken * 1000:.0f} ms"
    wait_until(paused, 10, "frozen again")
    assert session.request("POST", "/hibernate").json()["state"] == "hibernated"
    assert session.stdout("cat f") == "by the host"
    wait_until(paused, 10, "and again")
    broker.crash()
    assert session.stdout("cat f") == "by the host", "a frozen one is adopted"
    wait_until(paused, 10, "once more")
    broker.engine.unpause(container)
    broker.engine.kill(container)
    assert session.stdout("cat f") == "by the host", "a frozen one that died is healed"
    assert {"frozen", "thawed"} <= set(ops(broker, session="s"))


def test_what_runs_is_not_frozen(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(freeze_after=1)
    session = broker.open("s")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: session.stdout("touch begun; sleep 4; touch late; while [ ! -e go ]; do sleep 0.05; done; echo done"))
        wait_until(lambda: (session.workspace / "begun").exists(), what="it runs")
        before = ops(broker, op="frozen")  # it may have idled for a second until it did
        wait_until(lambda: (session.workspace / "late").exists(), 20, "it has run for long")
        assert ops(broker, op="frozen") == before
        session.write("/workspace/go", b"")
        assert running.result() == "done\n"


def test_one_that_somebody_else_froze_counts_as_frozen(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(engine=fake, freeze_after=1)
    session = broker.open("s")
    fault = fake.fault("POST", "/containers/[^/]+/pause", (409, {"message": "Container is already paused"}))
    fake.one().state = "paused"
    wait_until(lambda: ops(broker, op="frozen") == ["frozen"], 10)
    assert fault.hit == 1 and "freeze_failed" not in broker.log()
    assert session.run(["say", "x"])["stdout"] == "x\n" and fake.one().state == "running"


# ---- clocks

@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
def test_a_clock_that_jumps_an_hour_closes_nobody(fake: FakeEngine, make_broker: Callable[..., Broker], tmp_path: Path, jump_ms: int) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    broker = make_broker(engine=fake, start=False, idle_timeout=600, workspace_ttl=1200, cleanup_interval=1)
    broker.env["BERTH_TEST_CLOCK"] = str(clock)
    broker.start()
    session = broker.open("s")
    broker.open("closed").close()
    kept = broker.open("kept")
    assert kept.request("POST", "/keepalive", json={"seconds": 900}).status_code == 200

    clock.write_text(str(jump_ms))
    wait_until(lambda: "clock.jumped" in broker.log(), 10, "it was seen")
    sweeps = broker.log()
    assert session.run(["say", "here"])["stdout"] == "here\n"
    assert {s["session_id"] for s in broker.sessions()} == {"s", "kept"}
    assert abs(session.inspect()["idle_seconds"]) < 60
    assert broker.workspace_of("closed").exists(), sweeps

    broker.kill9()
    clock.write_text(str(-jump_ms))  # and back twice as far while nobody looks
    broker.start()
    wait_until(lambda: broker.log().count("clock.jumped") >= 2, 5, "told from time that passed")
    assert session.inspect()["idle_seconds"] < 60
    assert abs(session.inspect()["last_activity"] - (time.time() - jump_ms / 1000)) < 60, "moved along"
    assert {s["session_id"] for s in broker.sessions()} == {"s", "kept"}
    assert broker.workspace_of("closed").exists()
    broker.terminate()


# ---- death in the middle

def holding(fake: FakeEngine, method: str, path: str) -> tuple[threading.Event, threading.Event, threading.Event]:
    """Hold the next such call, before it is done: (it is there, let it go, it is done)."""
    there, go = threading.Event(), threading.Event()

    def hold(engine: FakeEngine, exchange: Any) -> bool:
        there.set()
        go.wait(30)
        return False

    return there, go, fake.fault(method, path, hold).over


def kill_at(broker: Broker, fake: FakeEngine, method: str, path: str, work: Callable[[], httpx.Response]) -> None:
    """kill -9 while the engine is at that call of `work`; the engine does it all the same, and has done it when this returns."""
    there, go, done = holding(fake, method, path)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(work)
        assert there.wait(20 * SLOWNESS), f"no {method} {path}"
        broker.kill9()
        go.set()
        assert asked.exception(20 * SLOWNESS), "nobody was told that it is done"
    assert done.wait(20 * SLOWNESS), "the engine does it all the same"


@pytest.mark.parametrize("step", ["containers/create", "containers/[^/]+/start", "containers/[^/]+/attach"])
@pytest.mark.parametrize("persist", [True, False])
def test_killed_while_opening_it_never_was(fake: FakeEngine, make_broker: Callable[..., Broker], step: str, persist: bool) -> None:
    broker = make_broker(engine=fake, persist_containers=persist)
    kill_at(broker, fake, "POST", "/" + step, lambda: broker.client.post("/sessions", json={"session_id": "s"}))
    broker.start()
    wait_until(lambda: not fake.ours(), 10, "its container is removed")
    assert broker.sessions() == [] and not (broker.root / "s").exists()
    wait_until(lambda: not list((broker.root / ".slots").iterdir()), 10, "its slot is removed")
    assert broker.client.post("/sessions", json={"session_id": "s", "attach": True}).status_code == 404
    assert broker.open("s").run(["say", "new"])["stdout"] == "new\n"
    assert len(fake.ours()) == 1


def test_killed_while_reopening_its_files_stay(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(engine=fake)
    session = broker.open("s")
    session.write("/workspace/f", b"old")
    session.close()
    kill_at(broker, fake, "POST", "/containers/[^/]+/start", lambda: broker.client.post("/sessions", json={"session_id": "s"}))
    broker.start()
    assert broker.sessions() == [] and broker.archive("s", "read", path="f").json()["content"] == "old"
    assert broker.open("s").read("/workspace/f") == b"old"
    wait_until(lambda: len(fake.ours()) == 1, 10, "one container")


@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.parametrize("verb", ["hibernate", "close", "purge", "wake"])
def test_killed_in_the_middle_of_a_transition(fake: FakeEngine, make_broker: Callable[..., Broker], verb: str, persist: bool) -> None:
    broker = make_broker(engine=fake, persist_containers=persist)
    session = broker.open("s")
    session.write("/workspace/f", b"precious")
    call = ("POST", "/containers/[^/]+/(stop|kill)") if persist and verb != "purge" else ("DELETE", "/containers/[^/]+")
    if verb == "wake":
        assert session.request("POST", "/hibernate").status_code == 200
        call = ("POST", "/containers/[^/]+/start")
    work = {
        "hibernate": lambda: session.request("POST", "/hibernate"),
        "wake": lambda: session.request("POST", "/wake"),
        "close": lambda: session.close(),
        "purge": lambda: session.close(purge=True),
    }[verb]
    kill_at(broker, fake, *call, work)
    broker.start()
    assert [s["session_id"] for s in broker.sessions()] == ["s"], "nobody was told that it is closed"
    assert session.read("/workspace/f") == b"precious"
    assert session.run(["say", "again"])["stdout"] == "again\n"
    wait_until(lambda: len(fake.ours()) == 1, 10, "one container")
    assert session.close(purge=True).status_code == 204
    assert not fake.ours() and not (broker.root / "s").exists() and not list((broker.root / ".slots").iterdir())


def test_a_purge_that_was_begun_is_finished(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    """Killed between the mark and the end: the files are to go, so they go."""
    broker = make_broker(engine=fake)
    session = broker.open("s")
    session.write("/workspace/f", b"x")
    session.close()
    kill_at(broker, fake, "DELETE", "/containers/[^/]+", lambda: broker.purge("s"))
    broker.start()
    wait_until(lambda: not (broker.root / "s").exists() and not list((broker.root / ".slots").iterdir()), 10, "gone")
    wait_until(lambda: "recover.purged" in broker.log(), 10, "said so")
    assert not fake.ours() and broker.purge("s").status_code == 404
    assert broker.open("s").files("read", "/workspace/f").status_code == 404


def test_a_second_container_that_was_seen_while_its_session_was_busy_is_gone_soon(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    """Made by a broker that died before it was told so. The comparison at the start meets the session while it is healed."""
    broker = make_broker(engine=fake)
    session = broker.open("s")
    broker.kill9()
    gone, second = fake.one(), FakeContainer("5" * 64, "second", fake.one().body)
    fake.made = {second.id: second}
    healing, go, _ = holding(fake, "POST", "/containers/create")
    compared = fake.fault("GET", "/containers/json", lambda engine, exchange: healing.wait(20 * SLOWNESS) and False)
    broker.start()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: session.run(["say", "x"]))
        assert compared.over.wait(20 * SLOWNESS), "nothing was compared"
        go.set()
        assert running.result()["stdout"] == "x\n"
    wait_until(lambda: second.id not in fake.made, 10, "the second one is removed")
    assert fake.one().id != gone.id and session.run(["say", "y"])["stdout"] == "y\n"


def test_an_opening_whose_name_was_lost_is_named_again(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    """As after a power cut: the commit is there, the link is not."""
    broker = make_broker(engine=fake)
    session, closed = broker.open("s"), broker.open("closed")
    for one in (session, closed):
        one.write("/workspace/f", one.id.encode())
    closed.close()
    broker.kill9()
    (broker.root / "s").unlink()
    (broker.root / "closed").unlink()
    broker.start()
    assert session.read("/workspace/f") == b"s"
    assert broker.archive("s", "read", path="f").json()["content"] == "s"
    assert broker.open("closed").read("/workspace/f") == b"closed"


def test_a_full_disk_refuses_what_it_must_and_loses_nothing(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    """The database cannot grow: openings and closings are 507, commands and files go on, and all is well when there is room."""
    import resource

    broker = make_broker(engine=fake)
    session = broker.open("s")
    size = max((broker.home / "state" / name).stat().st_size for name in ("berth.db", "berth.db-wal"))
    _, hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    try:
        assert size > 4096
        refused = broker.client.post("/sessions", json={"session_id": "t"})
        assert refused.status_code == 507, refused.text
        assert session.run(["say", "on"])["stdout"] == "on\n"
        assert session.request("POST", "/keepalive", json={"seconds": 60}).status_code == 507
    finally:
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
    assert broker.open("t").run(["say", "well"])["stdout"] == "well\n"
    broker.crash()
    assert {s["session_id"] for s in broker.sessions()} == {"s", "t"}
    assert session.run(["say", "on"])["stdout"] == "on\n"


# ---- many

@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory: twenty thousand directories are the disk's work of minutes on a busy machine."""
    folder = Path(tempfile.mkdtemp(prefix="berth-many-", dir="/dev/shm"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def many(memory: Path, fake: FakeEngine, make_broker: Callable[..., Broker]) -> Iterator[Callable[[str], Broker]]:
    made: list[Broker] = []

    def make(name: str) -> Broker:
        made.append(make_broker(engine=fake, start=False, workspace_root=str(memory / name)))
        made[-1].root = memory / name
        made[-1].root.mkdir(mode=0o711)
        return made[-1].start()

    yield make
    for broker in made:
        if broker.process is not None:
            broker.kill9()  # nobody closes ten thousand sessions


@pytest.mark.paced
def test_ten_thousand_asleep_cost_little(many: Callable[[str], Broker]) -> None:
    """Rows and slots made directly; the engine knows nothing of them."""
    broker, few = many("many"), many("few")
    first = broker.open("first")
    first.request("POST", "/hibernate")

    def page_of(one: Broker) -> float:
        begun = time.perf_counter()
        assert len(one.client.get("/sessions?limit=100").json()["sessions"]) == 100
        return time.perf_counter() - begun

    def fill(broker: Broker, begin: int, end: int) -> None:
        broker.terminate()
        database = sqlite3.connect(broker.home / "state" / "berth.db")
        now = int(time.time() * 1000)
        for i in range(begin, end):
            slot = f"{i:016x}"
            (broker.root / ".slots" / slot / "workspace").mkdir(parents=True)
            os.symlink(f".slots/{slot}", broker.root / f"many-{i}")
            database.execute("INSERT INTO slot (slot, ref, runtime, uid, gid, last_run) VALUES (?, '', 'python', -1, -1, 0)", (slot,))
            database.execute("INSERT INTO opening (id, last) VALUES (?, 1)", (f"many-{i}",))
            database.execute(
                "INSERT INTO session (id, opening, nonce, tenant, runtime, slot, state, created_at_unix_ms, last_activity_unix_ms)"
                " VALUES (?, 1, ?, ?, 'python', ?, 2, ?, ?)", (f"many-{i}", f"{i:032x}", f"tenant-{i % 50}", slot, now, now),
            )
            database.execute("INSERT INTO workspace (id, slot, tenant, runtime, created_at_unix_ms, last_use_unix_ms) VALUES (?, ?, ?, 'python', ?, ?)", (f"many-{i}", slot, f"tenant-{i % 50}", now, now))
        database.commit()
        database.close()

    fill(few, 0, 100)
    few.start()
    fill(broker, 0, 10_000)
    begun = time.monotonic()
    broker.start()
    ready = time.monotonic() - begun
    pairs = [(page_of(few), page_of(broker)) for _ in range(60)]  # side by side: a busy moment is both's
    small, large = (sorted(taken)[15] for taken in zip(*pairs))
    rss_mb = broker.rss_kb() / 1024
    print(f"ready {ready:.2f} s, page {small * 1e3:.2f} -> {large * 1e3:.2f} ms, {rss_mb:.1f} MB, {broker.fd_count()} descriptors")
    assert ready < 2 * SLOWNESS
    assert large < 1.5 * small + 0.0005
    assert broker.is_sanitized() or rss_mb < 40
    assert broker.fd_count() < 100
    seen, after = 0, ""
    while True:
        answer = broker.client.get("/sessions", params={"limit": 1000} | ({"after": after} if after else {})).json()
        seen += len(answer["sessions"])
        after = answer["next_after"]
        if after is None:
            break
    assert seen == 10_001
    assert broker.client.get("/sessions?limit=1&after=nobody").status_code == 404
    token = broker.client.post("/sessions", json={"session_id": "many-7777", "attach": True}).json()["token"]
    assert broker.http.post("/sessions/many-7777/run", json={"argv": ["say", "up"], "run_id": "0" * 32}, headers={"X-Sandbox-Token": token}).json()["stdout"] == "up\n"
