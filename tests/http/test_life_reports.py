"""What other products lost in the life of a session (groups C and L of the field reports), as far as no other file has it."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Iterator

import pytest

from berth import SLOWNESS, Broker, wait_until
from fake_engine import USAGE, FakeAgent, FakeEngine


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


@pytest.fixture
def make(fake: FakeEngine, make_broker: Callable[..., Broker]) -> Callable[..., Broker]:
    return lambda **settings: make_broker(engine=fake, **{"max_sessions": 100} | settings)


def test_a_list_waits_for_no_statistics(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    """C3: agents that never say what they use."""

    def mute(agent: FakeAgent) -> None:
        take = agent.take
        agent.take = lambda kind, *rest: None if kind == USAGE else take(kind, *rest)  # type: ignore[method-assign]

    fake.agent_setup = mute
    broker = make()
    for i in range(10):
        broker.open(f"s{i}")
    asked: list[float] = []
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            assert len(broker.sessions(usage=True)) == 10

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        for _ in range(20):
            begun = time.monotonic()
            assert len(broker.sessions()) == 10
            asked.append(time.monotonic() - begun)
        begun = time.monotonic()
        assert all(s["usage"] is None for s in broker.sessions(usage=True))
        assert time.monotonic() - begun < 2 * SLOWNESS, "all are asked at once, and not waited for"
    finally:
        over.set()
        poller.join()
    assert sorted(asked)[18] < 0.3 * SLOWNESS


def test_idleness_closes_and_takes_no_files(make: Callable[..., Broker]) -> None:
    """L2: whoever slept or idled for too long comes back to everything; no time to live is none."""
    broker = make(cleanup_interval=1)
    for name in ("slept", "idled"):
        broker.open(name).write("/workspace/f", name.encode())
    assert broker.client.put("/policy", json={"idle_timeout": 1}).status_code == 200
    assert broker.client.post("/sessions/slept/hibernate").status_code in (200, 404)
    wait_until(lambda: broker.sessions() == [], 15, "closed for idleness")
    assert broker.client.put("/policy", json={"idle_timeout": 3600}).status_code == 200
    for name in ("slept", "idled"):
        assert broker.archive(name, "read", path="f").json()["content"] == name
        assert broker.open(name, attach=True).read("/workspace/f") == name.encode()


@pytest.mark.parametrize("pool", ["python=2", None])
def test_the_same_id_again_at_once_is_new(fake: FakeEngine, make: Callable[..., Broker], pool: str | None) -> None:
    """L5, thirty times: what is purged is gone when it is said, and the id is free."""
    broker = make(pool=pool)
    for i in range(30):
        session = broker.open("same")
        assert session.files("read", "/workspace/f").status_code == 404, i
        session.write("/workspace/f", b"old")
        assert session.run(["say", "x"])["stdout"] == "x\n"
        assert session.close(purge=True).status_code == 204
    wait_until(lambda: len(fake.ours()) == (2 if pool else 0), 10, "nothing is left")


def test_asleep_and_awake_back_to_back(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    """L5: the command that follows a stop at once wakes it again, thirty times."""
    session = make().open("s")
    for i in range(30):
        assert session.request("POST", "/hibernate").status_code == 200
        assert session.run(["say", str(i)])["stdout"] == f"{i}\n"
    assert len(fake.ours()) == 1


def test_twenty_are_stopped_side_by_side(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    """L6: a stop of the broker takes as long as the engine needs for the slowest, not for all of them in a row."""
    broker = make()
    for i in range(20):
        broker.open(f"s{i}")
    stops: Any = fake.fault("POST", "/containers/[^/]+/(stop|kill)", lambda e, x: threading.Event().wait(1) and False, times=20)
    begun = time.monotonic()
    broker.terminate()
    taken = time.monotonic() - begun
    assert stops.hit == 20 and taken < 1 + 6 * SLOWNESS, f"{taken:.1f} s"
    assert all(c.state != "running" for c in fake.ours())
    broker.start()
    assert broker.client.post("/sessions/s7/wake").json()["state"] == "running"
