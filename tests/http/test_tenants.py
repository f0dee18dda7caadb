"""Tenants: what they hold, what they may, and that one of them cannot keep another waiting."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

import pytest

from berth import SLOWNESS, Broker, at_pace, wait_until
from fake_engine import FakeEngine


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


@pytest.fixture
def make(fake: FakeEngine, make_broker: Callable[..., Broker]) -> Callable[..., Broker]:
    return lambda **settings: make_broker(engine=fake, **{"max_sessions": 500} | settings)


@pytest.fixture
def broker(make: Callable[..., Broker]) -> Broker:
    return make()


def put(broker: Broker, tenant: str, **ceilings: Any) -> dict[str, Any]:
    answer = broker.client.put(f"/tenants/{tenant}", json=ceilings)
    assert answer.status_code == 200, answer.text
    return answer.json()


def tenants(broker: Broker) -> dict[str, dict[str, Any]]:
    return {t["tenant"]: t for t in broker.client.get("/tenants").json()["tenants"]}


def rush(broker: Broker, tenant: str, count: int, **body: Any) -> list[int]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda i: broker.client.post("/sessions", json={"tenant": tenant} | body).status_code, range(count)))


@pytest.mark.san
def test_what_they_hold_is_told(broker: Broker) -> None:
    assert tenants(broker) == {}
    a = broker.open("a1", tenant="a")
    broker.open("a2", tenant="a").request("POST", "/hibernate")
    broker.open("b1", tenant="b")
    broker.open("n")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: a.post_run(["sleep"], run_id="0" * 32))
        wait_until(lambda: tenants(broker)["a"]["running_commands"] == 1, 5, "counted")
        assert a.stop_run("0" * 32).status_code == 204
        running.result()
    told = tenants(broker)
    assert sorted(told) == ["a", "b"]
    assert (told["a"]["open_sessions"], told["a"]["resident_sessions"], told["a"]["running_commands"]) == (2, 1, 0)
    assert told["a"]["max_open_sessions"] is None
    broker.purge("b1")
    wait_until(lambda: sorted(tenants(broker)) == ["a"], 5, "who holds nothing is not told")


def test_ceilings_are_kept_and_changed_one_by_one(broker: Broker) -> None:
    put(broker, "a", max_open_sessions=7, max_disk_bytes=1 << 40)
    assert put(broker, "a", max_running_commands=2)["max_open_sessions"] == 7
    assert put(broker, "a", max_open_sessions=None)["max_open_sessions"] is None
    broker.crash()
    told = tenants(broker)["a"]
    assert (told["max_open_sessions"], told["max_running_commands"], told["max_disk_bytes"]) == (None, 2, 1 << 40)
    put(broker, "a", max_running_commands=None, max_disk_bytes=None)
    wait_until(lambda: tenants(broker) == {}, 5)
    broker.crash()
    assert tenants(broker) == {}


@pytest.mark.parametrize("body", [{"max_open_sessions": -1}, {"max_open_sessions": "many"}, {"max_open_sessions": 1.5}, {"max_opn": 1}, {"max_disk_bytes": 1 << 63}, [], {"max_open_sessions": 1, "max_running_commands": True and "x"}])
def test_what_is_no_ceiling_changes_nothing(broker: Broker, body: Any) -> None:
    assert broker.client.put("/tenants/a", json=body).status_code == 422
    assert tenants(broker) == {}


@pytest.mark.parametrize("tenant", ["..%2Fx", "%2e%2e", "a%00b", "-a", "a" * 65, "A%CC%81"])
def test_what_is_no_tenant_is_refused(broker: Broker, tenant: str) -> None:
    assert broker.client.put(f"/tenants/{tenant}", json={"max_open_sessions": 1}).status_code in (400, 404, 422)
    assert tenants(broker) == {}


def test_the_open_ceiling_is_exact_in_a_rush(broker: Broker) -> None:
    put(broker, "a", max_open_sessions=3)
    for _ in range(5):
        answers = rush(broker, "a", 30)
        assert sorted(answers) == [200] * 3 + [429] * 27
        assert tenants(broker)["a"]["open_sessions"] == 3
        for session in broker.sessions():
            broker.purge(session["session_id"])
    assert rush(broker, "b", 5) == [200] * 5


def test_its_own_ceiling_goes_before_the_policys(make: Callable[..., Broker]) -> None:
    broker = make(max_sessions_per_tenant=1)
    put(broker, "big", max_open_sessions=3)
    assert sorted(rush(broker, "big", 6)) == [200] * 3 + [429] * 3
    assert sorted(rush(broker, "small", 6)) == [200] + [429] * 5


def test_resident_ones_are_exact_also_at_an_attach_and_a_wake(broker: Broker) -> None:
    put(broker, "a", max_resident_sessions=2)
    sessions = [broker.open(f"s{i}", tenant="a") for i in range(2)]
    for session in sessions:
        assert session.request("POST", "/hibernate").status_code == 200
    sessions += [broker.open("s2", tenant="a"), broker.open("s3", tenant="a")]
    refused = broker.client.post("/sessions", json={"tenant": "a"})
    assert refused.status_code == 429 and "'a'" in refused.json()["detail"]
    assert sessions[0].post_run(["say", "x"]).status_code == 429, "an implicit wake"
    assert broker.client.post("/sessions", json={"session_id": "s1", "attach": True}).status_code == 429
    assert sessions[0].request("POST", "/wake").status_code == 429
    sessions[2].request("POST", "/hibernate")
    with ThreadPoolExecutor(30) as pool:
        answers = list(pool.map(lambda i: sessions[i % 3].post_run(["say", "x"]).status_code, range(30)))
    assert answers.count(200) >= 10 and set(answers) == {200, 429}
    assert tenants(broker)["a"]["resident_sessions"] == 2
    assert broker.open("other", tenant="b").run(["say", "x"])["exit_code"] == 0


def test_room_is_made_among_its_own(make: Callable[..., Broker]) -> None:
    broker = make(evict_idle_after=0)
    put(broker, "a", max_resident_sessions=1)
    other = broker.open("other", tenant="b")
    broker.open("s0", tenant="a")
    broker.open("s1", tenant="a")
    states = {s["session_id"]: s["state"] for s in broker.sessions()}
    assert states == {"other": "running", "s0": "hibernated", "s1": "running"}
    assert other.run(["say", "x"])["exit_code"] == 0


def test_commands_of_one_tenant_wait_for_their_turn_and_no_other_does(broker: Broker) -> None:
    put(broker, "a", max_running_commands=1)
    a, b = broker.open("a1", tenant="a"), broker.open("b1", tenant="b")
    with ThreadPoolExecutor(4) as pool:
        holding = pool.submit(lambda: a.post_run(["sleep"], run_id="0" * 32))
        wait_until(lambda: tenants(broker)["a"]["running_commands"] == 1, 5)
        waits = pool.submit(lambda: a.post_run(["say", "next"]))
        assert a.post_run(["say", "late"], timeout_seconds=0.5).json()["timed_out"] is True
        assert b.run(["say", "x"])["stdout"] == "x\n"
        assert not waits.done()
        a.stop_run("0" * 32)
        assert waits.result(5 * SLOWNESS).json()["stdout"] == "next\n"
        holding.result(5 * SLOWNESS)
    assert tenants(broker)["a"]["running_commands"] == 0


def test_a_failed_opening_gives_everything_back(fake: FakeEngine, broker: Broker) -> None:
    put(broker, "a", max_open_sessions=1, max_resident_sessions=1)
    fake.fault("POST", "/containers/create", (500, {"message": "no"}), times=10)
    for _ in range(10):
        assert broker.client.post("/sessions", json={"tenant": "a"}).status_code == 502
    assert (tenants(broker)["a"]["open_sessions"], tenants(broker)["a"]["resident_sessions"]) == (0, 0)
    broker.open("s", tenant="a")


def test_the_disk_is_measured_and_holds_openings_back(make: Callable[..., Broker]) -> None:
    broker = make(cleanup_interval=1)
    session = broker.open("s", tenant="a")
    session.write("/workspace/big", b"x" * 300_000)
    (session.workspace / "deep").mkdir()
    (session.workspace / "deep" / "more").write_bytes(b"y" * 300_000)
    (session.workspace / "away").symlink_to("/")
    put(broker, "a", max_disk_bytes=500_000)
    wait_until(lambda: (tenants(broker)["a"]["disk_bytes"] or 0) >= 600_000, 10, "measured")
    assert tenants(broker)["a"]["disk_bytes"] < 1_000_000
    refused = broker.client.post("/sessions", json={"tenant": "a"})
    assert refused.status_code == 429 and "disk" in refused.json()["detail"]
    assert session.run(["say", "still"])["stdout"] == "still\n"
    session.request("POST", "/hibernate")
    assert session.post_run(["say", "x"]).status_code == 429
    assert session.files("remove", "/workspace/big").status_code == 204, "the host removes without waking"
    wait_until(lambda: session.post_run(["say", "x"]).status_code == 200, 10, "room again")
    assert broker.open("other", tenant="b")


def test_one_that_floods_does_not_keep_another_waiting(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    """Starts are given in turn by tenant: the newcomer waits for one start, not for forty."""
    broker = make(max_workers=1)
    took = 0.1
    all_wait = threading.Event()
    fake.fault("POST", "/containers/create", lambda e, x: all_wait.wait(30 * SLOWNESS) and threading.Event().wait(took) and False, times=1000)
    with ThreadPoolExecutor(45) as pool:
        flood = [pool.submit(lambda: broker.client.post("/sessions", json={"tenant": "flood"}, timeout=60).status_code) for _ in range(40)]
        wait_until(lambda: tenants(broker).get("flood", {}).get("open_sessions") == 40, 10, "all wait")
        begun = time.monotonic()
        all_wait.set()
        broker.open("small", tenant="small")
        waited = time.monotonic() - begun
        done = sum(f.done() for f in flood)
        assert [f.result() for f in flood] == [200] * 40
    assert waited < 5 * took + 0.5 * SLOWNESS and done < 20, f"{waited:.2f} s, {done} before it"


@pytest.mark.parametrize("flooding", ["flood", None])
def test_one_that_floods_commands_leaves_places_for_others(fake: FakeEngine, make: Callable[..., Broker], flooding: str | None) -> None:
    """Four fifths of the places are all that one may take; a second flood leaves one as well, and whoever comes runs at once."""
    broker = make(max_running_commands=10)
    first, second, small = broker.open("f", tenant=flooding), broker.open("g", tenant="second"), broker.open("s", tenant="small")

    def held() -> int:
        return sum(len(c.agent.running) for c in fake.ours())

    with ThreadPoolExecutor(30) as pool:
        waiting = [(first, f"{i:032x}") for i in range(20)]
        floods = [pool.submit(lambda at=at: at[0].post_run(["sleep"], run_id=at[1], timeout_seconds=at_pace(50))) for at in waiting]
        wait_until(lambda: held() == 8, 5, "its share")
        assert small.run(["say", "x"], timeout_seconds=at_pace(5))["stdout"] == "x\n"
        refused = first.request("POST", "/runs", json={"argv": ["say", "x"]})
        assert refused.status_code == 429 and "share" in refused.json()["detail"], refused.text
        waiting += [(second, f"{i + 20:032x}") for i in range(5)]
        floods += [pool.submit(lambda at=at: at[0].post_run(["sleep"], run_id=at[1], timeout_seconds=at_pace(50))) for at in waiting[20:]]
        wait_until(lambda: held() == 9, 5, "the second flood has one")
        for i in range(20):
            assert small.run(["say", "x"], timeout_seconds=at_pace(5))["stdout"] == "x\n"
        assert held() == 9, "the last place is for those who have none"
        for session, run_id in waiting:
            assert session.stop_run(run_id).status_code == 204
        for one in floods:
            one.result(10 * SLOWNESS)
    assert first.run(["say", "x"])["stdout"] == "x\n"


def test_nobodys_sessions_alone_may_run_as_many_as_there_are_places(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    broker = make(max_running_commands=4)
    session = broker.open("s")
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(lambda i=i: session.post_run(["sleep"], run_id=f"{i:032x}")) for i in range(4)]
        wait_until(lambda: len(fake.one().agent.running) == 4, 5, "all of them")
        for i in range(4):
            session.stop_run(f"{i:032x}")
        for one in running:
            one.result(10 * SLOWNESS)


def test_one_that_gives_up_gives_its_turn_away(fake: FakeEngine, make: Callable[..., Broker]) -> None:
    """The broker stops while openings wait for their turn: all end, nothing is left."""
    broker = make(max_workers=1)
    go = threading.Event()
    fake.fault("POST", "/containers/create", lambda e, x: bool(go.wait(20)) and False)
    with ThreadPoolExecutor(10) as pool:
        waiting = [pool.submit(lambda: broker.client.post("/sessions", json={"tenant": "a"})) for _ in range(10)]
        wait_until(lambda: tenants(broker).get("a", {}).get("open_sessions") == 10, 10)
        begun = time.monotonic()
        broker.terminate()
        assert time.monotonic() - begun < 15 * SLOWNESS
        go.set()
        for one in waiting:
            assert one.exception(10) or one.result().status_code == 503
    broker.start()
    assert broker.sessions() == []
    wait_until(lambda: not fake.ours(), 10)
