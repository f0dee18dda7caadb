"""A snapshot restored while its session is open: all of it or nothing, and the session goes on as it was, at work or asleep."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

import httpx
import pytest
from berth import SLOWNESS, Broker, Session, wait_until
from fake_engine import Fault, FakeEngine
from runs import start


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


def snapshot(session: Session) -> str:
    """Of a workspace whose only file says "old"; it says "new" afterwards, and there is another one."""
    session.write("/workspace/f", b"old")
    made = session.request("POST", "/snapshots", json={})
    assert made.status_code == 200, made.text
    session.write("/workspace/f", b"new")
    session.write("/workspace/later", b"x")
    return made.json()["snapshot_id"]


def restore(session: Session, snapshot_id: str) -> httpx.Response:
    return session.request("POST", f"/snapshots/{snapshot_id}/restore")


def held(fake: FakeEngine, method: str, path: str) -> tuple[threading.Event, threading.Event, Fault]:
    """The next such request is begun (the first says so), and done when the second is set."""
    there, go = threading.Event(), threading.Event()

    def hold(engine: FakeEngine, exchange: Any) -> bool:
        there.set()
        go.wait(30 * SLOWNESS)
        return False

    return there, go, fake.fault(method, path, hold)


def slots(broker: Broker) -> set[str]:
    return set(os.listdir(broker.root / ".slots"))


def is_restored(session: Session) -> bool:
    """Whole: what the name leads to and what the session works on are one, and all of it old or all of it new."""
    names = sorted(os.listdir(session.workspace))
    assert session.read("/workspace/f") == (session.workspace / "f").read_bytes()
    assert (names, session.read("/workspace/f")) in ((["f"], b"old"), (["f", "later"], b"new"))
    return names == ["f"]


@pytest.mark.san
@pytest.mark.parametrize("persist", [True, False])
def test_at_work_it_is_at_work_again_and_asleep_it_sleeps_on(fake: FakeEngine, make_broker: Callable[..., Broker], persist: bool) -> None:
    broker = make_broker(engine=fake, persist_containers=persist)
    session = broker.open("s")
    taken = snapshot(session)
    before = broker.sessions()[0]
    assert restore(session, taken).status_code == 200
    assert is_restored(session) and len(fake.ours()) == 1
    now = broker.sessions()[0]
    assert now["state"] == before["state"] and session.run(["say", "hello"])["stdout"] == "hello\n"
    # What is written now is in what is mounted now, and the old slot is gone: the session's and the snapshot's are left.
    session.write("/workspace/f", b"new")
    session.write("/workspace/later", b"x")
    assert len(slots(broker)) == 2
    assert session.request("POST", "/hibernate").status_code == 200
    assert restore(session, taken).status_code == 200
    assert broker.sessions()[0]["state"] == "hibernated" and len(fake.ours()) == 0
    assert is_restored(session) and session.run(["say", "awake"])["stdout"] == "awake\n"
    broker.crash()
    assert is_restored(session) and session.run(["say", "again"])["stdout"] == "again\n"
    assert session.close(purge=True).status_code == 204
    wait_until(lambda: slots(broker) == set(), 10, "all slots gone")


def test_what_ran_is_ended_with_that_cause(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    session = broker.open("s")
    taken = snapshot(session)
    watched = start(session, ["sleep", "100"])
    done = start(session, ["true"])
    assert done.end()["exit_code"] == 0
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: session.post_run(["sh", "-c", "touch began; sleep 100"]))
        wait_until(lambda: (session.workspace / "began").exists(), 10, "it runs")
        assert restore(session, taken).status_code == 200
        assert waiting.result(20 * SLOWNESS).status_code in (409, 410, 502), "nobody waits for what was ended"
    view = watched.view()
    assert view["state"] == "ended" and view["lost"] and view["cause"] == "workspace restored", view
    assert is_restored(session)
    assert session.stdout("cat f; pwd") == "old/workspace\n"
    # Records go along: known after a restart, and forgotten for good when they are deleted.
    broker.restart()
    assert watched.view()["cause"] == "workspace restored" and done.view()["exit_code"] == 0
    assert start(session, ["true"]).end()["exit_code"] == 0


@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.parametrize("step", [("DELETE", "/containers/[^/]+"), ("POST", "/containers/create"), ("POST", "/containers/[^/]+/start")])
def test_killed_in_the_middle_it_is_whole(fake: FakeEngine, make_broker: Callable[..., Broker], step: tuple[str, str], persist: bool) -> None:
    broker = make_broker(engine=fake, persist_containers=persist)
    session = broker.open("s")
    taken = snapshot(session)
    there, go, fault = held(fake, *step)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: restore(session, taken))
        assert there.wait(20 * SLOWNESS), f"no {step}"
        broker.kill9()
        go.set()
        assert asked.exception(20 * SLOWNESS), "nobody was told that it is done"
    assert fault.over.wait(20 * SLOWNESS), "the engine does it all the same"
    broker.start()
    assert is_restored(session) == (step[0] == "POST")
    assert session.run(["say", "again"])["stdout"] == "again\n"
    wait_until(lambda: len(fake.ours()) == 1, 10, "one container")
    wait_until(lambda: len(slots(broker)) == 2, 10, "the other slot is removed")
    assert restore(session, taken).status_code == 200 and is_restored(session)


def test_what_the_engine_makes_late_for_a_dead_broker_goes(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    """A request of the broker that was killed is still being carried out: after the next one has looked at all containers, and before it makes one itself."""
    broker = make_broker(engine=fake, persist_containers=False)
    session = broker.open("s")
    taken = snapshot(session)
    there, go, _ = held(fake, "POST", "/containers/create")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: restore(session, taken))
        assert there.wait(20 * SLOWNESS)
        broker.kill9()
        assert asked.exception(20 * SLOWNESS)
    looked = fake.count("GET", "/containers/json")
    broker.start()
    wait_until(lambda: fake.count("GET", "/containers/json") > looked, what="it looks at what is there")
    go.set()
    wait_until(lambda: len(fake.ours()) == 1, what="the late one is there")
    assert session.run(["say", "again"])["stdout"] == "again\n"
    wait_until(lambda: [c.state for c in fake.ours()] == ["running"], 10, "only the session's own is left")


def test_a_death_between_the_name_and_the_rows_is_completed(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(engine=fake)
    session = broker.open("s")
    snapshot(session)
    broker.kill9()
    # What the kernel has seen of a restore by then: a whole slot, and the name that leads to it.
    slot = broker.root / ".slots" / "0123456789abcdef"
    (slot / "workspace").mkdir(parents=True)
    (slot / "workspace" / "f").write_bytes(b"old")
    (broker.root / "s").unlink()
    (broker.root / "s").symlink_to(".slots/0123456789abcdef")
    broker.start()
    assert is_restored(session)
    session.write("/workspace/g", b"written")
    assert (slot / "workspace" / "g").read_bytes() == b"written"
    wait_until(lambda: len(slots(broker)) == 2, 10, "what was there before is removed")
    broker.crash()
    assert session.read("/workspace/g") == b"written" and len(slots(broker)) == 2


def test_an_engine_that_refuses_leaves_all_as_it_was(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(engine=fake)
    session = broker.open("s")
    taken = snapshot(session)
    there = slots(broker)
    fault = fake.fault("DELETE", "/containers/[^/]+", (500, {"message": "no"}), times=1000)
    assert restore(session, taken).status_code >= 500
    fault.times = 0
    assert not is_restored(session) and slots(broker) == there
    assert session.run(["say", "here"])["stdout"] == "here\n"
    assert restore(session, taken).status_code == 200 and is_restored(session)


def test_who_may_and_what_is_none(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(engine=fake)
    session = broker.open("s")
    other = broker.open("other")
    taken = snapshot(session)
    headers = {"X-Sandbox-Token": other.token}
    assert broker.http.post(f"/sessions/s/snapshots/{taken}/restore", headers=headers).status_code == 401
    assert restore(other, taken).status_code == 404, "another's snapshot"
    assert restore(session, "0" * 16).status_code == 404 and restore(session, "x").status_code == 404
    assert not is_restored(session)
    assert broker.client.post(f"/workspaces/s/snapshots/{taken}/restore").status_code == 200, "the service's, while it is open"
    assert is_restored(session)


@pytest.mark.san
def test_restores_writes_commands_and_sleep_at_once(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    """Whatever comes in between: the session works afterwards, on what its name leads to."""
    broker = make_broker(engine=fake, cleanup_interval=1)
    session = broker.open("s")
    taken = snapshot(session)
    odd: list[Any] = []

    def often(work: Callable[[], httpx.Response], allowed: tuple[int, ...]) -> None:
        for _ in range(15):
            status = work().status_code
            if status not in allowed:
                odd.append(status)

    def once_more() -> httpx.Response:
        """A copy of what is there at some moment, and away with it."""
        made = session.request("POST", "/snapshots", json={})
        return session.request("DELETE", f"/snapshots/{made.json()['snapshot_id']}") if made.status_code == 200 else made

    threads = [
        threading.Thread(target=often, args=(lambda: restore(session, taken), (200,))),
        threading.Thread(target=often, args=(lambda: session.files_write("/workspace/f", b"old"), (204, 409))),
        threading.Thread(target=often, args=(lambda: session.request("PUT", "/content", params={"path": "f"}, content=b"old"), (200, 201, 204, 409))),
        threading.Thread(target=often, args=(lambda: session.files("read", "/workspace/f"), (200, 409))),
        threading.Thread(target=often, args=(lambda: broker.archive("s", "read_bytes", path="f"), (200,))),
        threading.Thread(target=often, args=(once_more, (204,))),
        threading.Thread(target=often, args=(lambda: session.post_run(["say", "x"]), (200, 409, 410, 502, 503))),
        threading.Thread(target=often, args=(lambda: session.request("POST", "/hibernate"), (200, 409))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not odd, odd
    assert restore(session, taken).status_code == 200 and is_restored(session)
    assert session.run(["say", "well"])["stdout"] == "well\n"
    wait_until(lambda: len(slots(broker)) == 2, 10, "no slot is left")
    wait_until(lambda: len(fake.ours()) <= 1, 10, "no container is left")


# ---- what is in the middle of being read or written


FILES, FILE_BYTES = 6, 8 << 20  # more than sockets hold


def fill(session: Session) -> dict[str, bytes]:
    """Files beside those of snapshot(), which it does not hold."""
    content = {f"large/{i}": os.urandom(1 << 16) * (FILE_BYTES >> 16) for i in range(FILES)}
    (session.workspace / "large").mkdir()
    for name, data in content.items():
        (session.workspace / name).write_bytes(data)
    return content


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
def test_who_reads_what_was_there_before_reads_it_whole(fake: FakeEngine, make_broker: Callable[..., Broker], is_open: bool) -> None:
    broker = make_broker(engine=fake, cleanup_interval=1)
    session = broker.open("s")
    taken = snapshot(session)
    content = fill(session)
    if not is_open:
        session.close()
    kind = "sessions" if is_open else "workspaces"
    with broker.client.stream("GET", f"/{kind}/s/archive") as answer, broker.client.stream("GET", f"/{kind}/s/content", params={"path": "large/0"}) as one:
        assert answer.status_code == one.status_code == 200
        pieces, piece = answer.iter_bytes(), one.iter_bytes()
        got, whole = next(pieces), next(piece)
        assert broker.client.post(f"/workspaces/s/snapshots/{taken}/restore").status_code == 200
        assert len(slots(broker)) == 3, "what is read stays until it is"
        assert broker.client.get(f"/{kind}/s/content", params={"path": "f"}).content == b"old"
        assert broker.client.get(f"/{kind}/s/content", params={"path": "large/0"}).status_code == 404
        got += b"".join(pieces)
        whole += b"".join(piece)
    assert whole == content["large/0"]
    with tarfile.open(fileobj=io.BytesIO(got)) as tar:
        assert {m.name: tar.extractfile(m).read() for m in tar if m.isfile()} == content | {"f": b"new", "later": b"x"}  # type: ignore[union-attr]
    wait_until(lambda: len(slots(broker)) == 2, 10, "it goes once nobody reads it")
    assert os.listdir(broker.root / "s" / "workspace") == ["f"]


@pytest.mark.parametrize("what", ["content", "archive"])
def test_an_upload_into_what_is_replaced_meanwhile_is_not_said_to_be_there(fake: FakeEngine, make_broker: Callable[..., Broker], what: str) -> None:
    broker = make_broker(engine=fake, cleanup_interval=1)
    session = broker.open("s")
    taken = snapshot(session)
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        for name in ("a", "b"):
            info = tarfile.TarInfo(name)
            info.size = 1 << 20
            tar.addfile(info, io.BytesIO(bytes(1 << 20)))
    restored: list[int] = []

    def parts() -> Iterator[bytes]:
        yield body.getvalue()[: 1 << 20]
        wait_until(lambda: any(name.startswith(".berth-") for name in os.listdir(session.workspace)) or what == "content", 10, "it has begun to arrive")
        restored.append(restore(session, taken).status_code)
        yield body.getvalue()[1 << 20 :]

    answer = session.request("PUT", f"/{what}", params={"path": "up"}, content=parts())
    assert restored == [200]
    assert answer.status_code == 409 and "replaced" in answer.json()["detail"], answer.text
    assert is_restored(session)
    wait_until(lambda: len(slots(broker)) == 2, 10, "what was there before is removed")
    assert session.request("PUT", f"/{what}", params={"path": "up"}, content=body.getvalue()).status_code in (200, 201)
    assert (session.workspace / "up").exists()
