"""A real engine that fails: away, restarted, with somebody else's hands on the containers. And a broker that dies meanwhile."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Iterator

import httpx
import pytest

from berth import IMAGE, SLOWNESS, Broker, Engine, OwnEngine, Session, new_id, new_run_id, wait_until


def alive(session: Session, pid: str) -> bool:
    return session.sh(f"kill -0 {pid}")["exit_code"] == 0


def background(session: Session) -> str:
    """Start a process that goes on, and give its number."""
    return session.stdout("sleep 3600 >/dev/null 2>&1 </dev/null & echo $!").strip()


def resident(broker: Broker) -> int:
    count: int = broker.http.get("/healthz").json()["sessions"]
    return count


# ---- somebody else's hands

HANDS: dict[str, Callable[[Engine, str], None]] = {
    "killed": lambda engine, container: engine.kill(container),
    "stopped": lambda engine, container: engine.stop(container),
    "removed": lambda engine, container: engine.remove(container),
    "paused": lambda engine, container: engine.pause(container),
    "restarted": lambda engine, container: engine.call("POST", f"/containers/{container}/restart?t=0") and None,
    "renamed": lambda engine, container: engine.call("POST", f"/containers/{container}/rename?name={new_id('odd')}") and None,
    "killed and paused away": lambda engine, container: (engine.pause(container), engine.unpause(container), engine.kill(container)) and None,
}


@pytest.mark.parametrize("how", HANDS)
@pytest.mark.parametrize("moment", ["at once", "when known"])
def test_whatever_is_done_to_the_container_the_next_run_answers(broker: Broker, session: Callable[..., Session], how: str, moment: str) -> None:
    s = session()
    s.stdout("echo kept > f; echo installed > /root/installed")
    before = resident(broker)
    container = s.container()
    HANDS[how](broker.engine, container)
    if how == "paused":
        wait_until(lambda: f"event=sandbox.paused container={container}" in broker.log(), 5, "the broker knows")
    elif moment == "when known" and how != "renamed":
        wait_until(lambda: not s.inspect()["alive"], 5, "the broker knows")
    begun = time.monotonic()
    answer = s.post_run(["cat", "f"], timeout_seconds=20)
    took = time.monotonic() - begun
    # A run that was sent before the death was known may have run: it must not be repeated, so 410 is honest then.
    assert answer.status_code == 200 or (answer.status_code == 410 and moment == "at once"), answer.text
    assert took < 10 * SLOWNESS, f"{took:.1f} s"
    if answer.status_code == 410:
        answer = s.post_run(["cat", "f"])
    assert answer.json()["stdout"] == "kept\n"
    assert resident(broker) == before
    if how == "removed":
        assert s.container() != container
    else:
        assert s.container() == container, "what was installed in it is not thrown away"
        assert s.stdout("cat /root/installed") == "installed\n"


def test_many_that_find_it_dead_start_it_once(broker: Broker, session: Callable[..., Session]) -> None:
    for how in ("killed", "removed"):
        s = session()
        s.stdout("echo kept > f")
        before = len(broker.containers())
        HANDS[how](broker.engine, s.container())
        wait_until(lambda: not s.inspect()["alive"], 5, "the broker knows")
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda _: s.stdout("cat f"), range(20)))
        assert answers == ["kept\n"] * 20
        assert len(broker.containers()) == before and s.container()


def test_a_paused_one_is_closed_and_purged_quickly(broker: Broker, session: Callable[..., Session]) -> None:
    for purge in (False, True):
        s = session()
        container = s.container()
        broker.engine.pause(container)
        begun = time.monotonic()
        assert s.close(purge=purge).status_code == 204
        assert time.monotonic() - begun < 6 * SLOWNESS
        assert broker.engine.exists(container) is not purge
        assert not broker.engine.running(container)


def test_stop_is_quick(broker: Broker, session: Callable[..., Session]) -> None:
    s = session()
    s.stdout("(trap '' TERM; sleep 600) >/dev/null 2>&1 &")
    begun = time.monotonic()
    assert s.close().status_code == 204
    assert time.monotonic() - begun < 3 * SLOWNESS


def test_a_container_that_was_removed_frees_its_place(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(max_sessions=2, cleanup_interval=1)
    a, b = broker.open("a"), broker.open("b")
    broker.engine.remove(a.container())
    # The session is open still, and owed a container; closing it gives the place back without one.
    assert broker.client.post("/sessions", json={"session_id": "c"}).status_code == 429
    assert a.close().status_code == 204
    c = broker.open("c")
    assert c.stdout("echo ok") == "ok\n" and b.stdout("echo ok") == "ok\n"
    assert len(broker.containers()) == 2


def test_an_image_that_is_gone_is_named_and_comes_back(make_broker: Callable[..., Broker], engine: Engine) -> None:
    repository = new_id("berth-gone")
    engine.call("POST", f"/images/{IMAGE}/tag?repo={repository}&tag=latest")
    try:
        broker = make_broker(runtimes=f"python={repository}:latest", prewarm=False)
        s = broker.open("x")
        engine.call("DELETE", f"/images/{repository}:latest?noprune=1")
        assert s.stdout("echo kept > f; echo runs on") == "runs on\n"
        engine.remove(s.container())
        begun = time.monotonic()
        answer = s.post_run(["cat", "f"])
        if answer.status_code == 410:  # sent before the death was known
            answer = s.post_run(["cat", "f"])
        assert answer.status_code == 502 and repository in answer.text, answer.text
        answer = broker.client.post("/sessions", json={"session_id": "y"})
        assert answer.status_code == 502 and repository in answer.text, answer.text
        assert time.monotonic() - begun < 30 * SLOWNESS
        assert s.read("/workspace/f") == b"kept\n", "files need no container"
        engine.call("POST", f"/images/{IMAGE}/tag?repo={repository}&tag=latest")
        assert s.stdout("cat f") == "kept\n"
    finally:
        engine.http.delete(f"/images/{repository}:latest?noprune=1")


def test_a_foreign_container_with_our_name_survives(broker: Broker, session: Callable[..., Session], engine: Engine) -> None:
    session_id = new_id()
    foreign = []
    for name, labels in ((f"berth-{session_id}", {}), (new_id("foreign"), {"berth.install": "another", "berth.slot": "0" * 32})):
        body = {"Image": IMAGE, "Cmd": ["sleep", "600"], "Labels": labels, "HostConfig": {"NetworkMode": "none"}}
        made = engine.call("POST", f"/containers/create?name={name}", json=body).json()["Id"]
        foreign.append(made)
        engine.call("POST", f"/containers/{made}/start")
    try:
        s = session(session_id)
        assert s.stdout("echo ok") == "ok\n"
        broker.crash()
        assert s.stdout("echo ok") == "ok\n"
        engine.kill(s.container())
        wait_until(lambda: s.post_run(["true"]).status_code == 200, what="it heals")
        assert s.close(purge=True).status_code == 204
        assert all(engine.running(c) for c in foreign)
    finally:
        for container in foreign:
            engine.remove(container)


# ---- the broker dies


@pytest.mark.san
def test_a_killed_broker_goes_on_where_it_was(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(max_sessions=2, max_sessions_per_tenant=1)
    a, b = broker.open("a", tenant="one"), broker.open("b", tenant="two")
    kept = background(a)
    a.write("/workspace/f", b"kept")
    containers = {s.id: s.container() for s in (a, b)}
    numbers = a.events()["latest_seq"]
    with ThreadPoolExecutor(1) as pool:
        cut = pool.submit(a.post_run, ["sh", "-c", "echo $$ > waited; sleep 3600; :"], run_id=new_run_id())
        wait_until(lambda: a.workspace.joinpath("waited").exists() and a.read("/workspace/waited").endswith(b"\n"), what="the waited-for command runs")
        waited = a.read("/workspace/waited").decode().strip()
        broker.kill9()
        with pytest.raises(httpx.HTTPError):
            cut.result(10 * SLOWNESS)
    broker.start()
    assert {s["session_id"] for s in broker.sessions()} == {"a", "b"}
    assert a.inspect()["session_id"] == "a" and b.inspect()["tenant"] == "two"
    assert a.stdout("cat f") == "kept" and b.stdout("echo ok") == "ok\n"
    assert {s.id: s.container() for s in (a, b)} == containers
    assert alive(a, kept), "a background process goes on"
    assert waited.isdigit()
    wait_until(lambda: not alive(a, waited), 5, "a command that nobody waits for any more is ended")
    # Numbers without a gap, before and after.
    events = a.events()
    assert [e["seq"] for e in events["events"]] == list(range(1, events["latest_seq"] + 1))
    assert events["latest_seq"] > numbers
    # Ceilings count what is there.
    assert broker.client.post("/sessions", json={"session_id": "c"}).status_code == 429
    assert b.close().status_code == 204
    assert broker.client.post("/sessions", json={"session_id": "c", "tenant": "one"}).status_code == 429
    c = broker.open("c", tenant="two")
    broker.crash()
    assert c.stdout("echo ok") == "ok\n" and resident(broker) == 2
    assert broker.client.post("/sessions", json={"session_id": "d"}).status_code == 429


def test_a_clean_stop_ends_what_runs_and_finds_it_again(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    s = broker.open("x")
    s.stdout("echo installed > /root/installed")
    container = s.container()
    broker.terminate()
    assert not broker.engine.running(container)
    broker.start()
    assert s.stdout("cat /root/installed") == "installed\n" and s.container() == container
    broker.terminate()
    broker.settings["on_stop"] = "keep"
    broker.start()
    kept = background(s)
    broker.terminate()
    assert broker.engine.running(container)
    broker.start()
    assert alive(s, kept) and s.container() == container


@pytest.mark.parametrize("on_stop", ["stop", "keep"])
def test_a_stop_in_the_middle_of_commands_is_quick_and_answers(make_broker: Callable[..., Broker], on_stop: str) -> None:
    broker = make_broker(on_stop=on_stop)
    sessions = [broker.open(f"n{number}") for number in range(3)]
    with ThreadPoolExecutor(6) as pool:
        held = [pool.submit(s.post_run, ["sh", "-c", "trap '' TERM; touch begun; sleep 600"]) for s in sessions for _ in range(2)]
        for s in sessions:
            wait_until(lambda: s.files("stat", "/workspace/begun").status_code == 200, what="its command runs")
        begun = time.monotonic()
        broker.terminate()
        assert time.monotonic() - begun < 12 * SLOWNESS
        for answer in held:
            assert answer.exception(5 * SLOWNESS) or answer.result().status_code in (410, 503)
    broker.start()
    for s in sessions:
        assert s.stdout("rm begun; echo ok") == "ok\n"
        wait_until(lambda: s.stdout("cat /proc/[0-9]*/comm | grep -c '^sleep$'; :").strip() == "0", 5, "the stopped commands are gone")


def test_two_brokers_on_one_engine_do_not_meet(make_broker: Callable[..., Broker]) -> None:
    one, two = make_broker(), make_broker()
    sessions = [broker.open("same-name") for broker in (one, two)]
    for number, s in enumerate(sessions):
        s.stdout(f"echo {number} > f")
    containers = [s.container() for s in sessions]
    kept = [background(s) for s in sessions]
    one.crash()
    two.restart()
    one.kill9()
    two.crash()
    assert two.engine.running(containers[0]), "what a dead broker left is no other's to end"
    one.start()
    assert [s.stdout("cat f") for s in sessions] == ["0\n", "1\n"]
    assert [s.container() for s in sessions] == containers
    assert alive(sessions[0], kept[0])
    assert sessions[0].close(purge=True).status_code == 204
    assert sessions[1].stdout("cat f") == "1\n"


def test_containers_without_a_session_are_removed_and_kept_ones_stay_stopped(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    s, closed = broker.open("x"), broker.open("closed")
    kept = closed.container()
    assert closed.close().status_code == 204
    told = broker.engine.inspect(s.container())
    labels = {"berth.install": told["Config"]["Labels"]["berth.install"], "berth.slot": "f" * 32}
    mounts = [{"Type": "bind", "Source": str(broker.home), "Target": "/x", "ReadOnly": True}]
    orphan = broker.engine.call("POST", "/containers/create", json={"Image": IMAGE, "Cmd": ["sleep", "600"], "Labels": labels, "HostConfig": {"NetworkMode": "none", "Mounts": mounts}}).json()["Id"]
    broker.engine.call("POST", f"/containers/{orphan}/start")
    broker.engine.call("POST", f"/containers/{kept}/start")
    broker.crash()
    wait_until(lambda: not broker.engine.exists(orphan), 15, "the orphan is removed")
    wait_until(lambda: not broker.engine.running(kept), 15, "the kept one is stopped again")
    assert broker.engine.exists(kept)
    assert s.stdout("echo ok") == "ok\n"


# ---- H4: the engine's socket goes away


class CuttableEngine(Engine):
    """The tests' engine behind a socket of our own that can be taken away, its connections with it."""

    def __init__(self, real: Engine) -> None:
        super().__init__(real.address)
        self.dir = Path(tempfile.mkdtemp(prefix="berth-cut-", dir="/tmp"))
        self.dir.chmod(0o711)
        self.path = str(self.dir / "engine.sock")
        self.address = f"unix://{self.path}"
        self.open: set[socket.socket] = set()
        self.lock = threading.Lock()
        self.listener: socket.socket | None = None

    def restore(self) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen(128)
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def cut(self) -> None:
        listener, self.listener = self.listener, None
        Path(self.path).unlink()
        if listener:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self.lock:
            ends = list(self.open)
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            server.connect(self.socket)
            with self.lock:
                if self.listener is not listener:  # cut meanwhile, and not among those that were
                    client.close()
                    server.close()
                    return
                self.open.update((client, server))
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        try:
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        with self.lock:
            self.open.discard(source)

    def close(self) -> None:
        if self.listener:
            self.cut()
        super().close()
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture
def cuttable(engine: Engine) -> Iterator[CuttableEngine]:
    made = CuttableEngine(engine)
    yield made
    made.close()


def assert_refused_for_now(answer: httpx.Response, begun: float) -> None:
    assert answer.status_code == 503, f"{answer.status_code} {answer.text}"
    assert int(answer.headers["retry-after"]) >= 1
    assert "detail" in answer.json()
    assert time.monotonic() - begun < 2 * SLOWNESS


def assert_answers_without_engine(broker: Broker, s: Session) -> None:
    """All that needs no engine, and the clear refusal of what does."""
    begun = time.monotonic()
    assert broker.http.get("/healthz").status_code == 200
    assert [x["session_id"] for x in broker.sessions()] == [s.id]
    assert [x["session_id"] for x in broker.sessions(usage=True)] == [s.id]
    assert s.inspect()["session_id"] == s.id and s.inspect(usage=True)
    assert s.read("/workspace/f") == b"kept\n"
    assert [e["name"] for e in s.files("list", "/workspace").json()] == ["f"]
    assert s.events()["latest_seq"] >= 1
    assert broker.archive(s.id, "read", path="f").json()["content"] == "kept"
    assert broker.archive(s.id, "ls", path="").status_code == 200
    assert broker.client.get("/policy").status_code == 200
    assert s.stop_run(new_run_id()).status_code == 204
    assert time.monotonic() - begun < 5 * SLOWNESS
    for ask in (lambda: s.post_run(["true"]), lambda: broker.client.post("/sessions", json={"session_id": "other"}), lambda: s.exec("true")):
        begun = time.monotonic()
        assert_refused_for_now(ask(), begun)


@pytest.mark.san
def test_while_the_engine_is_away_the_rest_answers_and_then_all_does(cuttable: CuttableEngine, make_broker: Callable[..., Broker]) -> None:
    cuttable.restore()
    broker = make_broker(engine=cuttable, max_sessions=2)
    s = broker.open("x")
    kept = s.stdout("echo kept > f; sleep 3600 >/dev/null 2>&1 </dev/null & echo $!").strip()
    container = s.container()
    for _ in range(2):
        cuttable.cut()
        assert_answers_without_engine(broker, s)
        assert resident(broker) == 1, "a refused opening holds no place"
        cuttable.restore()
        begun = time.monotonic()
        wait_until(lambda: s.post_run(["true"]).status_code == 200, 10, "runs again")
        assert time.monotonic() - begun < 10 * SLOWNESS
        assert s.container() == container and alive(s, kept), "it never stopped"
    assert broker.open("other").stdout("echo ok") == "ok\n"
    # A session that is closed meanwhile is closed; its container is dealt with later.
    cuttable.cut()
    assert broker.client.delete("/sessions/other").status_code == 204
    assert [x["session_id"] for x in broker.sessions()] == ["x"]
    cuttable.restore()
    wait_until(lambda: sum(broker.engine.running(c["Id"]) for c in broker.containers()) == 1, 15, "the other's container is stopped")


def test_a_purge_without_engine_is_refused_and_loses_nothing(cuttable: CuttableEngine, make_broker: Callable[..., Broker]) -> None:
    cuttable.restore()
    broker = make_broker(engine=cuttable)
    s = broker.open("x")
    s.write("/workspace/f", b"kept\n")
    cuttable.cut()
    answer = broker.purge("x")
    assert answer.status_code == 503 and answer.headers["retry-after"], answer.text
    assert s.read("/workspace/f") == b"kept\n"
    cuttable.restore()
    wait_until(lambda: broker.purge("x").status_code == 204, 10, "purged")
    assert broker.containers() == [] and not s.workspace.exists()


def test_an_engine_that_is_missing_at_the_start_is_waited_for(cuttable: CuttableEngine, make_broker: Callable[..., Broker]) -> None:
    cuttable.restore()
    broker = make_broker(engine=cuttable)
    s = broker.open("x")
    s.stdout("echo kept > f")
    cuttable.cut()
    broker.kill9()
    said_before = len(broker.log())
    broker.start()
    wait_until(lambda: "event=engine.away" in broker.log()[said_before:], what="it is said")
    assert_answers_without_engine(broker, s)
    broker.terminate()
    broker.start()
    assert_answers_without_engine(broker, s)
    cuttable.restore()
    wait_until(lambda: s.post_run(["true"]).status_code == 200, 10, "runs again")
    assert broker.open("other").stdout("echo ok") == "ok\n"


# ---- the engine itself dies


@pytest.mark.engine_faults
@pytest.mark.timeout(240)
def test_an_engine_that_is_killed_and_keeps_its_containers(make_engine: Callable[..., OwnEngine], make_broker: Callable[..., Broker]) -> None:
    own = make_engine(live_restore=True)
    broker = make_broker(engine=own)
    s, other = broker.open("x"), broker.open("other")
    kept = s.stdout("echo kept > f; sleep 3600 >/dev/null 2>&1 </dev/null & echo $!").strip()
    containers = [s.container(), other.container()]
    assert other.close(purge=True).status_code == 204
    for _ in range(2):
        own.kill_engine()
        assert_answers_without_engine(broker, s)
        own.start_engine()
        wait_until(lambda: s.post_run(["true"]).status_code == 200, 10, "runs again")
        assert s.container() == containers[0] and alive(s, kept)
    # Both at once.
    own.kill_engine()
    broker.kill9()
    broker.start()
    assert_answers_without_engine(broker, s)
    own.start_engine()
    wait_until(lambda: s.post_run(["true"]).status_code == 200, 10, "runs again")
    assert s.container() == containers[0] and alive(s, kept)
    assert len(broker.containers()) == 1


@pytest.mark.engine_faults
@pytest.mark.timeout(240)
def test_an_engine_that_is_killed_with_its_containers(make_engine: Callable[..., OwnEngine], make_broker: Callable[..., Broker]) -> None:
    own = make_engine(live_restore=False)
    broker = make_broker(engine=own, max_sessions=2)
    s = broker.open("x")
    s.stdout("echo kept > f; echo installed > /root/installed")
    container = s.container()
    own.kill_engine()
    assert_answers_without_engine(broker, s)
    own.start_engine()
    wait_until(lambda: s.post_run(["true"]).status_code == 200, 10, "it is healed")
    assert s.stdout("cat f /root/installed") == "kept\ninstalled\n" and s.container() == container
    # A stop as an operator does it, in the middle of a command.
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(s.post_run, ["sh", "-c", "touch begun; sleep 60"])
        wait_until(lambda: s.files("stat", "/workspace/begun").status_code == 200, what="the command runs")
        own.stop_engine()
        answer = held.result(20 * SLOWNESS)
        assert answer.status_code == 410 or answer.json()["exit_code"] not in (0, None), answer.text
    own.start_engine()
    wait_until(lambda: s.post_run(["true"]).status_code == 200, 10, "it is healed")
    assert s.stdout("cat f") == "kept\n" and resident(broker) == 1 and len(broker.containers()) == 1
    assert json.dumps(broker.sessions()).count('"x"') == 1
