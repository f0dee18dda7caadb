"""The main road, once: what must work on every engine and in every build before anything else is worth looking at."""

from __future__ import annotations

from typing import Callable

import httpx
import pytest

from berth import Broker, Session, at_pace, wait_until

pytestmark = pytest.mark.san


def test_healthz_needs_no_token(broker: Broker) -> None:
    answer = broker.http.get("/healthz")
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"
    assert answer.json()["runtimes"] == ["python"]


def test_a_wrong_token_opens_nothing(broker: Broker) -> None:
    before = len(broker.containers())
    answer = broker.http.post("/sessions", json={}, headers={"X-Sandbox-Token": "wrong"})
    assert answer.status_code == 401
    assert len(broker.containers()) == before


def test_a_program_runs_and_its_streams_stay_apart(sandbox: Session) -> None:
    result = sandbox.python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)")
    assert (result["stdout"], result["stderr"], result["exit_code"]) == ("out\n", "err\n", 7)
    assert not result["timed_out"] and not result["output_limited"]


def test_the_sandbox_and_the_host_see_the_same_files(sandbox: Session) -> None:
    content = bytes(range(256)) * 16
    sandbox.write("/workspace/deep/er/data.bin", content)
    assert sandbox.stdout("wc -c < deep/er/data.bin").strip() == "4096"
    sandbox.stdout("printf 'from inside' > note.txt")
    assert sandbox.read("/workspace/note.txt") == b"from inside"
    assert sandbox.read("/workspace/deep/er/data.bin") == content


def test_a_closed_workspace_is_read_from_the_archive_without_a_container(broker: Broker, session: Callable[..., Session]) -> None:
    s = session()
    s.write("/workspace/kept.txt", b"one\ntwo\n")
    assert s.close().status_code == 204
    answer = broker.archive(s.id, "read", path="kept.txt")
    assert answer.status_code == 200 and answer.json()["content"] == "one\ntwo"
    assert not any(broker.engine.running(c["Id"]) for c in broker.containers())


def test_purge_removes_container_and_files(broker: Broker, session: Callable[..., Session]) -> None:
    s = session()
    s.write("/workspace/gone.txt", b"x")
    container = s.container()
    assert s.close(purge=True).status_code == 204
    assert not broker.engine.exists(container)
    assert broker.archive(s.id, "read", path="gone.txt").status_code == 404
    assert not s.workspace.exists()


def test_a_deadline_ends_a_run(sandbox: Session) -> None:
    result = sandbox.sh("echo begun; sleep 600", timeout_seconds=at_pace(0.5))
    assert result["timed_out"] and result["exit_code"] is None
    assert result["stdout"] == "begun\n"


def test_a_killed_broker_finds_its_sessions_again(broker: Broker, session: Callable[..., Session]) -> None:
    s = session()
    s.stdout("echo before > f; sleep 600 >/dev/null 2>&1 & echo $! > pid")
    container = s.container()
    broker.crash()
    assert s.stdout("cat f") == "before\n"
    assert s.container() == container
    assert s.stdout("kill -0 $(cat pid) && echo alive") == "alive\n"


@pytest.mark.podman
def test_a_dead_container_is_replaced_and_the_files_are_there(broker: Broker, session: Callable[..., Session]) -> None:
    s = session()
    s.stdout("echo kept > f")
    broker.engine.kill(s.container())
    assert wait_until(lambda: s.post_run(["cat", "f"]).status_code == 200, what="the session heals")
    assert s.stdout("cat f") == "kept\n"


@pytest.mark.podman
def test_the_whole_road(broker: Broker, client: httpx.Client, session: Callable[..., Session]) -> None:
    s = session()
    assert s.stdout("echo hello") == "hello\n"
    s.write("/workspace/a.txt", b"A")
    assert s.read("/workspace/a.txt") == b"A"
    assert [x["session_id"] for x in client.get("/sessions").json()["sessions"]].count(s.id) == 1
    assert s.close().status_code == 204
    assert broker.archive(s.id, "read", path="a.txt").json()["content"] == "A"
    again = session(s.id)
    assert again.stdout("cat a.txt") == "A"
