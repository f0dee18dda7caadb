"""The switches of a deployment, each seen from outside: ceilings, sleep, sweeps, users, and what goes without a root."""

from __future__ import annotations

import base64
import contextlib
import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any, Callable

import pytest

from berth import IMAGE, SLOWNESS, Broker, Session, at_pace, new_run_id, wait_until

WEEK_MS = 7 * 24 * 3600 * 1000


def call(s: Session, op: str, **body: Any) -> Any:
    answer = s.request("POST", f"/{op}", json=body)
    assert answer.status_code == 200, f"{op} {body}: {answer.status_code} {answer.text}"
    return answer.json()


def open_status(broker: Broker, session_id: str, **body: Any) -> tuple[int, str]:
    answer = broker.client.post("/sessions", json={"session_id": session_id} | body)
    return answer.status_code, answer.json().get("detail", "")


def states(broker: Broker) -> dict[str, str]:
    return {s["session_id"]: s["state"] for s in broker.sessions()}


# ---- ceilings and sleep


def test_a_full_house_puts_the_idlest_to_sleep_and_wakes_it_when_needed(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(max_sessions=2, evict_idle_after=0)
    first, second = broker.open("first"), broker.open("second")
    first.write("/workspace/kept.txt", b"kept\n")
    second.stdout("true")
    broker.open("third")
    assert states(broker) == {"first": "hibernated", "second": "running", "third": "running"}
    # What the host can answer wakes nobody, on either wire, and counts as activity.
    assert first.read("/workspace/kept.txt") == b"kept\n"
    assert call(first, "read", path="kept.txt") == {"content": "kept"}
    assert call(first, "write", path="more.txt", content_b64="eA==")["error"] is None
    assert call(first, "edit", path="kept.txt", old_string="kept", new_string="still kept")["error"] is None
    assert call(first, "exists", path="kept.txt") == {"exists": True} and len(call(first, "ls", path=".")) == 2
    assert states(broker)["first"] == "hibernated"
    # What it cannot, does; the token is the same, and somebody else sleeps.
    assert call(first, "read", path="/etc/hostname")["content"]
    assert states(broker) == {"first": "running", "second": "hibernated", "third": "running"}
    assert first.stdout("cat kept.txt") == "still kept\n"


def test_who_cannot_be_woken_is_told_429_and_keeps_what_the_host_has(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(max_sessions=1, evict_idle_after=0)
    asleep = broker.open("asleep")
    asleep.write("/workspace/f", b"f")
    busy = broker.open("busy")
    run = threading.Thread(target=busy.sh, args=("sleep 600",), kwargs={"run_id": (run_id := new_run_id())})
    run.start()
    # Asked before the run is there, the one asleep would be woken in the place of the idle one, and the run then refused.
    wait_until(lambda: busy.request("GET", "/runs", params={"state": "running"}).json()["runs"], what="the run has its place")
    assert asleep.exec("true").status_code == 429
    for op, body in (("read", {"path": "/etc/hostname"}), ("ls", {"path": "/"}), ("grep", {"pattern": "x", "path": "/srv"})):
        answer = asleep.request("POST", f"/{op}", json=body)
        assert answer.status_code == 429 and answer.json()["detail"].startswith("Cannot wake session asleep: Session limit of 1 reached")
    assert call(asleep, "read", path="f") == {"content": "f"}
    assert open_status(broker, "third")[0] == 429
    busy.stop_run(run_id)
    run.join()
    wait_until(lambda: asleep.exec("true").status_code == 200, what="woken")


def test_the_open_ceiling_closes_the_longest_asleep_or_refuses(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(max_sessions=1, max_open_sessions=2, evict_idle_after=0)
    for name in ("one", "two", "three"):
        broker.open(name)
    assert states(broker) == {"two": "hibernated", "three": "running"}
    assert broker.archive("one", "ls", path=".").status_code == 200  # closed, not purged

    broker = make_broker(max_sessions=2, max_open_sessions=2)
    broker.open("one"), broker.open("two")
    status, why = open_status(broker, "three")
    assert status == 429 and "2 open sessions" in why


def test_a_tenants_ceiling_counts_those_asleep(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(max_sessions=1, evict_idle_after=0, max_sessions_per_tenant=2)
    broker.open("a", tenant="t"), broker.open("b", tenant="t")
    status, why = open_status(broker, "c", tenant="t")
    assert status == 429 and "'t'" in why and "2 of 2" in why
    assert open_status(broker, "d", tenant="u")[0] == 200
    assert broker.purge("a").status_code == 204
    assert open_status(broker, "c", tenant="t")[0] == 200


def test_eviction_needs_a_root_and_the_open_ceiling_the_others(make_broker: Callable[..., Broker]) -> None:
    for settings in ({"evict_idle_after": 5, "workspace_root": None}, {"max_sessions": 3, "max_open_sessions": 2}):
        status, said = make_broker(start=False, **settings).fail_to_start()
        assert status != 0 and "SANDBOXD_" in said


def test_one_command_slot_is_waited_for_by_everything_that_runs_inside(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(max_running_commands=1, execute_timeout=at_pace(3))
    s = broker.open("narrow")
    s.write("/workspace/f", b"f")
    run = threading.Thread(target=s.sh, args=("echo begun > begun; sleep 600",), kwargs={"run_id": (run_id := new_run_id())})
    run.start()
    wait_until(lambda: s.workspace.joinpath("begun").exists(), what="the slot taken")
    assert call(s, "read", path="f") == {"content": "f"}  # the host needs none
    began = time.monotonic()
    waited = call(s, "read", path="/etc/hostname")["content"]
    assert not waited.startswith("[Error") or f"{at_pace(3)}s service ceiling" in waited
    assert time.monotonic() - began < 8 * SLOWNESS
    s.stop_run(run_id)
    run.join()
    assert call(s, "read", path="/etc/hostname")["content"]


def test_the_execute_timeout_bounds_both_wires_inside_a_200(make_broker: Callable[..., Broker]) -> None:
    s = make_broker(execute_timeout=at_pace(1)).open("short")
    for body in ({}, {"timeout_seconds": 60}, {"timeout_seconds": 0}):
        answer = s.exec("echo begun; sleep 600", **body).json()
        assert answer == {"output": "begun\n", "exit_code": 124, "truncated": False}
    assert s.sh("sleep 600", timeout_seconds=60)["timed_out"]


# ---- users


@pytest.mark.parametrize("settings", [{"sandbox_uid": 1234}, {"sandbox_uid": 1234, "native_files": False}], ids=["host", "native files off"])
def test_a_sandbox_of_another_user_owns_what_is_written_for_it(make_broker: Callable[..., Broker], settings: dict[str, Any]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root runs sandboxes as somebody else")
    broker = make_broker(**settings)
    policy = broker.client.get("/policy").json()
    assert policy["sandbox_uid"] == 1234 and policy["native_writes"] is False
    s = broker.open("user")
    assert call(s, "write", path="made/by.txt", content_b64=base64.b64encode(b"content\n").decode()) == {"path": "/workspace/made/by.txt", "error": None}
    assert call(s, "edit", path="made/by.txt", old_string="con", new_string="in")["error"] is None
    assert s.stdout("id -u; stat -c '%u %a' made made/by.txt; cat made/by.txt; echo more >> made/by.txt") == "1234\n1234 755\n1234 644\nintent\n"
    assert s.files_write("/workspace/native.txt", b"x").status_code == 409  # the client goes on through /run
    # What its user may not, it may not through us either.
    assert call(s, "write", path="/etc/motd", content_b64="eA==")["path"] is None
    assert call(s, "read", path="/etc/shadow")["content"] == "Error: File '/etc/shadow' not found"
    secret = s.workspace / "secret"
    secret.write_text("the operator's\n")
    secret.chmod(0o600)
    assert call(s, "read", path="secret")["content"] == "Error: File 'secret' not found"
    assert call(s, "write", path="secret/x", content_b64="eA==")["path"] is None
    assert call(s, "grep", pattern="operator")["matches"] == []
    assert secret.read_text() == "the operator's\n"


def test_an_owner_stays_the_owner_over_restarts(make_broker: Callable[..., Broker]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root runs sandboxes as somebody else")
    for persist in (True, False):
        broker = make_broker(sandbox_uid=1234, persist_containers=persist)
        s = broker.open("user")
        broker.restart()
        assert call(s, "write", path="after.txt", content_b64="eA==")["error"] is None
        assert s.stdout("stat -c %u after.txt") == "1234\n"
        assert call(s, "write", path="later.txt", content_b64="eA==")["error"] is None
        assert s.stdout("stat -c %u later.txt") == "1234\n"


# ---- without a root


def test_without_a_root_everything_goes_through_the_sandbox_or_says_why_not(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(workspace_root=None, persist_containers=False)
    policy = broker.client.get("/policy").json()
    assert not (policy["native_files"] or policy["native_writes"] or policy["native_realpath"])
    s = broker.open("rootless")
    assert call(s, "write", path="src/a.txt", content_b64=base64.b64encode(b"alpha\n").decode())["error"] is None
    assert call(s, "edit", path="src/a.txt", old_string="alpha", new_string="beta")["occurrences"] == 1
    assert s.stdout("cat src/a.txt") == "beta\n"
    for op in ("read", "stat", "list", "realpath", "mkdir", "remove"):
        assert s.files(op, "/workspace/src").status_code == 409
    for op in ("ls", "tree", "read", "read_bytes"):
        answer = broker.archive("rootless", op, path=".")
        assert answer.status_code == 409 and "workspace_root" in answer.json()["detail"]
    (only,) = broker.client.post("/workspaces/trees", json={"sessions": ["rootless"]}).json()["results"]
    assert only["status_code"] == 409 and only["tree"] is None
    assert broker.client.post("/sessions", json={"session_id": "never", "attach": True}).status_code == 404


def test_without_a_root_a_dead_sandbox_is_gone_and_says_so_everywhere(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(workspace_root=None, persist_containers=False)
    s = broker.open("rootless")
    s.stdout("echo lost > f")
    (container,) = broker.containers()
    broker.engine.kill(container["Id"])
    wait_until(lambda: not s.inspect()["alive"], what="the death seen")
    assert s.post_run(["true"]).status_code == 410
    for op, body in (("read", {"path": "f"}), ("ls", {"path": "."}), ("write", {"path": "f", "content_b64": ""})):
        assert s.request("POST", f"/{op}", json=body).status_code == 410


# ---- sweeps


def at(broker: Broker, clock: Path, ms: int) -> None:
    """That much time has passed: twice the number, see util/clock.h."""
    clock.write_text(f"{ms} {ms}")
    os.utime(clock, (time.time() + ms / 1000, time.time() + ms / 1000))


def known_workspaces(broker: Broker) -> set[str]:
    with contextlib.closing(sqlite3.connect(f"file:{broker.home}/state/berth.db?mode=ro", uri=True)) as db:
        return {row[0] for row in db.execute("SELECT id FROM workspace")}


def clocked(make_broker: Callable[..., Broker], tmp_path: Path, **settings: Any) -> tuple[Broker, Path]:
    clock = tmp_path / "clock"
    clock.write_text("0")
    broker = make_broker(start=False, cleanup_interval=1, **settings)
    broker.env["BERTH_TEST_CLOCK"] = str(clock)
    return broker.start(), clock


def test_a_workspace_nobody_opened_for_its_time_is_swept_and_no_other(make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    broker, clock = clocked(make_broker, tmp_path, workspace_ttl=24 * 3600)
    for name in ("closed", "open"):
        broker.open(name).write("/workspace/f", b"f")
    assert broker.client.delete("/sessions/closed").status_code == 204
    at(broker, clock, WEEK_MS)
    wait_until(lambda: not (broker.root / "closed").exists(), what="the closed one's files gone")
    assert (broker.root / "open" / "workspace" / "f").exists()
    # A folder that no row knows, old as it may be, counts as used when it is first seen.
    stranger = broker.root / "stranger" / "workspace"
    stranger.mkdir(parents=True)
    os.utime(stranger.parent, (0, 0))
    wait_until(lambda: known_workspaces(broker) >= {"stranger"}, what="a sweep has seen it")
    assert stranger.exists()
    at(broker, clock, 2 * WEEK_MS)
    wait_until(lambda: not stranger.exists(), what="the stranger's gone in its turn")
    assert (broker.root / "open" / "workspace" / "f").exists()


def test_a_stopped_container_is_swept_after_its_time_and_its_files_stay(make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    broker, clock = clocked(make_broker, tmp_path, persist_containers=True, container_ttl=24 * 3600)
    s = broker.open("kept")
    s.write("/workspace/f", b"f")
    running = broker.open("running").container()
    container = s.container()
    assert s.close().status_code == 204
    wait_until(lambda: broker.engine.exists(container) and not broker.engine.running(container), what="stopped")
    at(broker, clock, WEEK_MS)
    wait_until(lambda: not broker.engine.exists(container), what="the stopped one gone")
    assert broker.engine.running(running)
    assert broker.open("kept").stdout("cat f") == "f"


def test_idle_sessions_are_closed_and_busy_ones_stay(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(idle_timeout=at_pace(1), cleanup_interval=1)
    broker.open("idle")
    busy = broker.open("busy")
    run = threading.Thread(target=busy.sh, args=("sleep 600",), kwargs={"run_id": (run_id := new_run_id())})
    run.start()
    wait_until(lambda: "idle" not in states(broker), what="the idle one closed")
    assert "busy" in states(broker)
    busy.stop_run(run_id)
    run.join()
    wait_until(lambda: "busy" not in states(broker), what="the other, once it is idle")


def test_two_runtimes_and_what_each_may(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(runtimes=f"python={IMAGE},small={IMAGE};mem_limit=64m;pids_limit=40;description=A small one", default_runtime="small")
    runtimes = {r["alias"]: r for r in broker.client.get("/policy").json()["runtimes"]}
    assert runtimes["small"]["mem_limit"] == "64m" and runtimes["small"]["description"] == "A small one" and runtimes["python"]["mem_limit"] == "1g"
    small = broker.open("s")
    assert small.info["runtime"] == "small"
    assert broker.engine.inspect(small.container())["HostConfig"]["Memory"] == 64 * 1024 * 1024
    assert broker.client.post("/sessions", json={"session_id": "s", "reuse": True, "runtime": "python"}).status_code == 409
    status, why = open_status(broker, "x", runtime="ruby")
    assert status == 400 and "python, small" in why
