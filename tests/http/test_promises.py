"""What Berth promises in numbers: exit statuses arrive, ceilings are exact, and a broker killed at any moment loses nothing it acknowledged."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Callable

import httpx
import pytest

from berth import Broker, Session, new_id, new_run_id, wait_until

FILE_SIZE = 96 * 1024  # more than one frame, more than one write


def test_three_hundred_times_seven(sandbox: Session) -> None:
    statuses = Counter(sandbox.sh("exit 7")["exit_code"] for _ in range(300))
    assert statuses == {7: 300}


def test_three_hundred_times_seven_eight_at_once(sandbox: Session) -> None:
    with ThreadPoolExecutor(8) as pool:
        statuses = Counter(pool.map(lambda _: sandbox.sh("exit 7")["exit_code"], range(300)))
    assert statuses == {7: 300}


@pytest.mark.timeout(300)
def test_a_hundred_opens_at_a_ceiling_of_twenty_give_twenty(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(max_sessions=20)
    start = threading.Barrier(100)

    def open_one(number: int) -> int:
        start.wait()
        return broker.client.post("/sessions", json={"session_id": f"n{number}"}, timeout=240).status_code

    with ThreadPoolExecutor(100) as pool:
        statuses = Counter(pool.map(open_one, range(100)))
    assert statuses == {200: 20, 429: 80}
    assert len(broker.sessions()) == 20
    assert broker.http.get("/healthz").json()["sessions"] == 20
    assert sum(broker.engine.running(c["Id"]) for c in broker.containers()) == 20


def test_a_ceiling_of_open_sessions_and_of_a_tenant_is_exact(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(max_sessions=6, max_sessions_per_tenant=3)
    start = threading.Barrier(20)

    def open_one(number: int) -> tuple[str, int]:
        tenant = "ab"[number % 2]
        start.wait()
        return tenant, broker.client.post("/sessions", json={"session_id": f"n{number}", "tenant": tenant}).status_code

    with ThreadPoolExecutor(20) as pool:
        answers = Counter(pool.map(open_one, range(20)))
    assert answers == {("a", 200): 3, ("b", 200): 3, ("a", 429): 7, ("b", 429): 7}
    assert Counter(s["tenant"] for s in broker.sessions()) == {"a": 3, "b": 3}


class _Load:
    """Three clients that open, close, run and write without pause, and remember exactly what was acknowledged to them."""

    def __init__(self, broker: Broker, sessions: list[Session]) -> None:
        self.broker = broker
        self.sessions = sessions
        self.opened: dict[str, Session] = {}  # acknowledged as open, and no close begun
        self.closed: set[str] = set()  # acknowledged as closed
        self.versions: dict[tuple[str, str], list[int]] = {}  # of a file: every version sent, the acknowledged ones first
        self.acknowledged: dict[tuple[str, str], int] = {}
        self.over = threading.Event()
        self.done = Counter[str]()
        self.failures: list[str] = []
        self.threads = [threading.Thread(target=self._loop, args=(step,)) for step in (self._open_and_close, self._run, self._write)]

    def _loop(self, step: Callable[[], None]) -> None:
        while not self.over.is_set():
            try:
                step()
            except httpx.HTTPError:
                return  # the broker was killed under us
            except AssertionError as error:
                self.failures.append(str(error))
                return

    def _open_and_close(self) -> None:
        session_id = new_id("load")
        self.opened[session_id] = self.broker.open(session_id)
        self.done["open"] += 1
        if random.random() < 0.5:
            session = self.opened.pop(session_id)
            answer = session.close(purge=True)
            assert answer.status_code == 204, f"close: {answer.status_code} {answer.text}"
            self.closed.add(session_id)

    def _run(self) -> None:
        session = random.choice(self.sessions)
        answer = session.post_run(["sh", "-c", "echo line >> ran; echo out; exit 3"], run_id=new_run_id())
        assert answer.status_code == 200, f"run: {answer.status_code} {answer.text}"
        assert answer.json()["exit_code"] == 3 and answer.json()["stdout"] == "out\n", answer.text
        self.done["run"] += 1

    def _write(self) -> None:
        session = random.choice(self.sessions)
        key = (session.id, f"file{random.randrange(3)}")
        version = self.acknowledged.get(key, 0) + 1
        self.versions.setdefault(key, []).append(version)
        session.write(f"/workspace/{key[1]}", _content(version))
        self.acknowledged[key] = version
        self.done["write"] += 1


def _content(version: int) -> bytes:
    return (b"%08d" % version) * (FILE_SIZE // 8)


def _kill_in_the_middle(broker: Broker, sessions: list[Session], tokens: dict[str, str], opened_first: bool) -> Counter[str]:
    load = _Load(broker, sessions)
    for thread in load.threads:
        thread.start()
    if opened_first:
        wait_until(lambda: load.done["open"] or load.failures, 30, "one was opened")
    wait_until(lambda: (load.done["run"] and load.done["write"]) or load.failures, 30, "the load is there")
    # The moment of the kill is what is random here, not something that is waited for.
    time.sleep(random.uniform(0.02, 0.7))
    load.over.set()
    broker.kill9()
    for thread in load.threads:
        thread.join(60)
        assert not thread.is_alive(), "a client hangs although the broker is gone"
    assert not load.failures, load.failures
    broker.start()

    # No lost session: all that was acknowledged is there, with the same token; what was closed stays closed.
    listed = {s["session_id"]: s for s in broker.sessions()}
    for session in [*sessions, *load.opened.values()]:
        assert session.id in listed, f"{session.id} was open and is lost"
        assert session.request("GET", "").status_code == 200, f"the token of {session.id} is lost"
    assert not load.closed & listed.keys(), "closed sessions came back"
    for session in sessions:
        assert session.token == tokens[session.id]
        assert session.stdout("echo alive") == "alive\n"

    # No half file: what lies there is one version, whole, and not older than the last acknowledged.
    for (session_id, name), versions in load.versions.items():
        session = next(s for s in sessions if s.id == session_id)
        path = broker.workspace_of(session_id) / name
        if not path.exists():
            assert (session_id, name) not in load.acknowledged, f"{path} was acknowledged and is lost"
            continue
        data = path.read_bytes()
        assert len(data) == FILE_SIZE, f"{path} is {len(data)} bytes long"
        version = int(data[:8])
        assert data == _content(version), f"{path} mixes versions"
        assert version in versions and version >= load.acknowledged.get((session_id, name), 0), f"{path} went back to version {version}"
        assert session.read(f"/workspace/{name}") == data
        names = [entry["name"] for entry in session.files("list", "/workspace").json()]
        assert not [n for n in names if n.startswith(".berth-")], names

    # Events go on without a gap. (What each of them says is another test's.)
    for session in sessions:
        events = session.events()
        numbers = [event["seq"] for event in events["events"]]
        assert len(numbers) >= min(200, events["latest_seq"])
        assert numbers == list(range(events["latest_seq"] - len(numbers) + 1, events["latest_seq"] + 1))

    # No orphan: each container belongs to a session that is there.
    def orphans() -> list[str]:
        known = {str(broker.workspace_of(s["session_id"]).resolve()) for s in broker.sessions()}
        return [c["Id"] for c in broker.containers() if not known & {m.get("Source") for m in c.get("Mounts") or []}]

    wait_until(lambda: not orphans(), 15, "no container without a session")
    for session_id in listed.keys() - {s.id for s in sessions}:
        assert broker.purge(session_id).status_code == 204
    return load.done


def _kill_often(broker: Broker, times: int) -> None:
    sessions = [broker.open(new_id("kept")) for _ in range(2)]
    tokens = {s.id: s.token for s in sessions}
    done = Counter[str]()
    for left in range(times, 0, -1):
        for session in sessions:
            for number in range(3):
                answer = session.files("remove", f"/workspace/file{number}")
                assert answer.status_code in (204, 404), answer.text
        # On a slow machine no opening may end between two kills: then the last one waits for it.
        done += _kill_in_the_middle(broker, sessions, tokens, left == 1 and not done["open"])
    # The test has tested something only if the load was there.
    assert done["run"] >= times and done["write"] >= times and done["open"] >= 1, done


@pytest.mark.timeout(240)
def test_a_broker_killed_in_the_middle_loses_nothing(make_broker: Callable[..., Broker]) -> None:
    _kill_often(make_broker(max_sessions=None), 6)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_broker_killed_fifty_times_loses_nothing(make_broker: Callable[..., Broker]) -> None:
    _kill_often(make_broker(max_sessions=None), 50)
