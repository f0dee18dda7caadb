"""Containers started ahead: quick to be had, never seen, never left behind."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

import httpx
import pytest

from berth import IMAGE, SLOWNESS, Broker, Engine, new_id, wait_until
from fake_engine import FakeEngine


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


@pytest.fixture
def make(fake: FakeEngine, make_broker: Callable[..., Broker]) -> Callable[..., Broker]:
    return lambda **settings: make_broker(engine=fake, **{"max_sessions": 500} | settings)


def running(fake: FakeEngine) -> int:
    return sum(c.state == "running" for c in fake.ours())


@pytest.mark.san
def test_one_that_is_adopted_shows_nothing_of_where_it_came_from(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(pool="python=2")
    wait_until(lambda: len([c for c in broker.containers() if c["State"] == "running"]) == 2, 30, "two ahead")
    assert broker.http.get("/healthz").json()["sessions"] == 0 and broker.sessions() == [], "counted apart"
    warm = {c["Id"] for c in broker.containers()}
    pooled = broker.open("pooled", tenant="a")
    assert pooled.container() in warm
    cold = broker.open("cold")
    cold.close()
    cold = broker.open("cold")
    look = "hostname; env | sort | grep -v HOSTNAME; pwd; ls -A; id; stat -c '%u:%g %a' . /tmp; df -P /tmp | tail -1 | cut -d' ' -f1; ls -A /tmp"
    assert pooled.stdout(look) == cold.stdout(look)
    wait_until(lambda: broker.engine.inspect(pooled.container())["Name"] == "/berth-pooled", 10, "named, after the answer")
    pooled.write("/workspace/f", b"mine")
    assert pooled.stdout("cat f") == "mine"
    assert pooled.close(purge=True).status_code == 204
    assert broker.open("pooled").files("read", "/workspace/f").status_code == 404, "a slot is used once"


def test_it_is_filled_again_and_never_beyond(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    broker = make(pool="python=4")
    for round in range(3):
        wait_until(lambda: running(fake) == 4 + 6 * round, 10, "full")
        with ThreadPoolExecutor(6) as pool:
            opened = list(pool.map(lambda i: broker.open(f"s{round}-{i}"), range(6)))
        assert [s.run(["say", s.id])["stdout"] for s in opened] == [f"{s.id}\n" for s in opened]
        assert len({str(s.workspace.resolve()) for s in opened}) == 6


def test_it_stays_out_of_the_way_of_whoever_waits(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    broker = make(pool="python=20", max_workers=2)
    took = 0.05
    fake.fault("POST", "/containers/create", lambda e, x: threading.Event().wait(took) and False, times=1000)
    existing = broker.open("s")
    existing.close()
    with ThreadPoolExecutor(8) as pool:
        begun = time.monotonic()
        list(pool.map(lambda i: broker.open(f"new{i}"), range(8)))
        assert time.monotonic() - begun < 8 * took + 1 * SLOWNESS
    wait_until(lambda: running(fake) == 28, 20, "then it fills up")


def test_other_limits_and_other_images_drain_it(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    broker = make(pool="python=3")
    wait_until(lambda: running(fake) == 3, 10)
    before = {c.id for c in fake.ours()}
    assert broker.client.put("/policy", json={"mem_limit": "300m"}).status_code == 200
    session = broker.open("s")
    wait_until(lambda: running(fake) == 4 and not before & {c.id for c in fake.ours()}, 10, "made anew")
    assert session.run(["say", "x"])["exit_code"] == 0
    assert all(c.body["HostConfig"]["Memory"] == 300 << 20 for c in fake.ours())


def test_another_image_under_the_same_name_drains_it(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    broker = make(pool="python=3")
    wait_until(lambda: running(fake) == 3, 10)
    before = {c.id for c in fake.ours()}
    fault = fake.fault("GET", "/images/.+/json", (404, {"message": "No such image"}), times=2)
    wait_until(lambda: fault.hit == 2, 15, "it looked twice")
    assert {c.id for c in fake.ours()} == before, "an image that is gone is no other"
    fake.image_id = "sha256:another"
    wait_until(lambda: running(fake) == 3 and not before & {c.id for c in fake.ours()}, 15, "made anew")
    assert "pool.image_changed" in broker.log()
    assert broker.open("s").run(["say", "x"])["stdout"] == "x\n"


@pytest.fixture
def name(engine: Engine) -> Iterator[str]:
    """A name of the sandbox image that is this test's."""
    repository = new_id("berth-anew")
    engine.call("POST", f"/images/{IMAGE}/tag?repo={repository}&tag=latest")
    yield f"{repository}:latest"
    engine.http.delete(f"/images/{repository}:latest?force=1")


def tag_anew(engine: Engine, name: str) -> str:
    """Another image under the same name, as a build or a pull leaves it. Returns its id."""
    container = engine.call("POST", "/containers/create", json={"Image": name, "Cmd": ["true"]}).json()["Id"]
    repository, _, tag = name.partition(":")
    made = engine.call("POST", "/commit", params={"container": container, "repo": repository, "tag": tag, "changes": "ENV ANEW=yes"}, json={}).json()["Id"]
    engine.remove(container)
    return made


def test_an_image_that_is_tagged_anew_is_what_the_next_sessions_get(engine: Engine, name: str, make_broker: Callable[..., Broker]) -> None:
    pooled, plain = make_broker(pool="python=2", runtimes=f"python={name}"), make_broker(runtimes=f"python={name}")

    def images() -> list[str]:
        return [c["ImageID"] for c in pooled.containers() if c["State"] == "running"]

    wait_until(lambda: len(images()) == 2, 30, "two ahead")
    before = pooled.open("before")
    old = engine.inspect(before.container())["Image"]
    new = tag_anew(engine, name)
    assert new != old and plain.open("cold").stdout("echo $ANEW") == "yes\n", "at once without a pool"
    wait_until(lambda: sorted(images()) == sorted([old, new, new]), 40, "the pool is made anew")
    session = pooled.open("after")
    assert session.stdout("echo $ANEW") == "yes\n" and engine.inspect(session.container())["Image"] == new
    assert before.stdout("echo $ANEW") == "\n", "what is open stays what it is"


def test_members_that_died_are_not_given_to_anybody(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    broker = make(pool="python=3")
    wait_until(lambda: running(fake) == 3, 10)
    for container in fake.ours():
        fake.die(container)
    assert broker.open("s").run(["say", "alive"])["stdout"] == "alive\n"
    wait_until(lambda: running(fake) == 4, 40, "replaced")


def test_whoever_hung_up_leaves_nothing_half(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    broker = make()
    fake.fault("POST", "/containers/create", lambda e, x: threading.Event().wait(0.5) and False)
    with pytest.raises(httpx.TimeoutException):
        broker.client.post("/sessions", json={"session_id": "s"}, timeout=0.1)
    wait_until(lambda: [s["session_id"] for s in broker.sessions()] == ["s"], 10, "finished, and kept for the next")
    assert broker.open("s", reuse=True).run(["say", "x"])["stdout"] == "x\n"
    assert len(fake.ours()) == 1


def test_whoever_hung_up_on_an_opening_that_fails_leaves_nothing_at_all(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    broker = make()
    fake.fault("POST", "/containers/create", lambda e, x: threading.Event().wait(0.5) or (x.reply(500, {"message": "no"}) or True))
    with pytest.raises(httpx.TimeoutException):
        broker.client.post("/sessions", json={"session_id": "s"}, timeout=0.1)
    wait_until(lambda: broker.client.get("/events?follow=false&op=refused").json()["events"], 10, "undone")
    assert broker.sessions() == [] and not fake.ours() and not (broker.root / "s").exists()
    wait_until(lambda: not list((broker.root / ".slots").iterdir()), 5)
    assert broker.client.post("/sessions", json={"session_id": "s", "attach": True}).status_code == 404


def test_fifty_at_once_are_started_side_by_side(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    """An engine that takes half a second each, however many: two rounds of max_workers, not fifty in a row."""
    broker = make(max_workers=32)
    fake.fault("POST", "/containers/create", lambda e, x: threading.Event().wait(0.5) and False, times=50)
    with ThreadPoolExecutor(50) as pool:
        begun = time.monotonic()
        opened = list(pool.map(lambda i: broker.open(f"s{i}"), range(50)))
        taken = time.monotonic() - begun
    assert len({s.id for s in opened}) == 50 and running(fake) == 50
    assert taken < 1 + 2.5 * SLOWNESS, f"{taken:.1f} s"


def test_a_stop_takes_it_along_and_a_death_is_cleaned_up_after(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    broker = make(pool="python=5")
    wait_until(lambda: running(fake) == 5, 10)
    broker.terminate()
    assert not fake.ours() and not list((broker.root / ".slots").iterdir())
    broker.start()
    wait_until(lambda: running(fake) == 5, 10)
    old = {c.id for c in fake.ours()}
    broker.crash()
    wait_until(lambda: running(fake) == 5 and not old & {c.id for c in fake.ours()}, 15, "nobody's: removed, and made anew")
    wait_until(lambda: len(list((broker.root / ".slots").iterdir())) == 5, 10, "their slots as well")


def test_a_stop_does_not_wait_for_an_engine_that_removes_nothing(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    """Ten members, none of which goes: they are left behind within the bound of a stop, and the next start removes them."""
    broker = make(pool="python=10")
    wait_until(lambda: running(fake) == 10, 20)
    go = threading.Event()
    fake.fault("DELETE", "/containers/[^/]+", lambda e, x: bool(go.wait(60)) and False, times=100)
    left = {c.id for c in fake.ours()}
    try:
        broker.terminate(25)
    finally:
        go.set()
    broker.settings["pool"] = None
    broker.start()
    wait_until(lambda: not left & {c.id for c in fake.ours()}, 15, "removed")
    wait_until(lambda: not list((broker.root / ".slots").iterdir()), 10, "and their slots")


@pytest.mark.parametrize("step", ["containers/create", "containers/[^/]+/start"])
def test_killed_while_filling(fake: FakeEngine, make: Callable[..., Broker], step: str) -> None:
    there, go = threading.Event(), threading.Event()
    fault = fake.fault("POST", f"/{step}", lambda e, x: there.set() or (bool(go.wait(20)) and False))
    broker = make(pool="python=2")
    assert there.wait(10 * SLOWNESS)
    broker.kill9()
    go.set()
    assert fault.over.wait(5 * SLOWNESS), "the engine does it all the same"
    left = fake.ours()[0].id
    broker.start()
    wait_until(lambda: running(fake) == 2 and len(fake.ours()) == 2 and left not in fake.made, 15, "two, and no third")
    wait_until(lambda: len(list((broker.root / ".slots").iterdir())) == 2, 10, "and no third slot")


def test_killed_at_any_moment_of_an_adoption(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    """Whoever was told that it is open has it; whatever was not told is whole, or is not there."""
    broker = make(pool="python=8")
    told: dict[str, str] = {}
    for round in range(8):
        wait_until(lambda: running(fake) >= 8 + len(broker.sessions()), 20)
        stop = threading.Event()

        def opening(thread: int) -> None:
            number = 0
            while not stop.is_set():
                name = f"r{round}-{thread}-{number}"
                try:
                    answer = broker.client.post("/sessions", json={"session_id": name})
                except httpx.HTTPError:
                    return
                if answer.status_code == 200:
                    told[name] = answer.json()["token"]
                number += 1
                if number == 3:
                    return

        with ThreadPoolExecutor(3) as pool:
            working = [pool.submit(opening, i) for i in range(3)]
            threading.Event().wait(0.002 * (round + 1))
            broker.kill9()
            stop.set()
            for one in working:
                one.result()
        broker.start()
        open_now = {s["session_id"] for s in broker.sessions()}
        assert set(told) <= open_now
        for name in open_now:
            assert broker.archive(name, "ls", path="/").status_code == 200
        names = {p.name for p in broker.root.iterdir() if not p.name.startswith(".")}
        assert names == open_now, "a name is a session's"
    for name, token in told.items():
        answer = broker.http.post(f"/sessions/{name}/run", json={"argv": ["say", name], "run_id": "0" * 32}, headers={"X-Sandbox-Token": token})
        assert answer.json()["stdout"] == f"{name}\n"
    wait_until(lambda: len(fake.ours()) == 8 + len(broker.sessions()), 20, "one each, and the pool")


def test_a_burst_beyond_the_pool(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(pool="python=5", max_sessions=30)
    wait_until(lambda: len([c for c in broker.containers() if c["State"] == "running"]) == 5, 60)
    with ThreadPoolExecutor(20) as pool:
        opened = list(pool.map(lambda i: broker.open(f"s{i}"), range(20)))
        assert list(pool.map(lambda s: s.stdout("echo $$ >/dev/null; echo ok"), opened)) == ["ok\n"] * 20


def test_a_hundred_at_once_with_twenty_ahead_all_succeed(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    broker = make(pool="python=20", max_sessions=200)
    wait_until(lambda: running(fake) == 20, 20, "the pool is full")
    with ThreadPoolExecutor(100) as pool:
        opened = list(pool.map(lambda i: broker.open(f"s{i}"), range(100)))
        assert list(pool.map(lambda s: s.run(["say", "ok"])["stdout"], opened)) == ["ok\n"] * 100
    wait_until(lambda: running(fake) == 120, 20, "a container each, and the pool is full again")


def test_an_unknown_alias_is_a_wrong_setting(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(start=False, pool="nosuch=2", runtimes=f"python={IMAGE}")
    status, said = broker.fail_to_start()
    assert status == 2 and "SANDBOXD_POOL" in said
