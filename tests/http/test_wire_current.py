"""The current wire beside the recorded tables: shapes, numbers, what only a live broker shows."""

from __future__ import annotations

import json
import time
from typing import Any, Callable, Iterator

import httpx
import pytest

from berth import SLOWNESS, Broker, Session, new_id, new_run_id, wait_until

pytestmark = pytest.mark.san

KEYS_OF_A_SESSION = ["session_id", "runtime", "tenant", "alive", "state", "created_at", "last_activity", "idle_seconds", "usage"]


@pytest.fixture(scope="module")
def shared(module_broker: Broker) -> Iterator[Session]:
    """One session for all tests that leave it as it was."""
    s = module_broker.open(new_id("shared"))
    yield s
    module_broker.purge(s.id)


def test_the_index_lists_the_routes_that_are_there(broker: Broker) -> None:
    index = broker.http.get("/").json()
    assert list(index) == ["service", "health", "docs_url", "openapi_url", "ui_url", "endpoints"]
    assert index["health"] == broker.http.get("/healthz").json()
    assert index["endpoints"] == sorted(set(index["endpoints"]))
    assert {"/healthz", "/sessions", "/sessions/{session_id}/run", "/isolation"} <= set(index["endpoints"])
    for path in index["endpoints"]:
        assert broker.http.request("HEAD", path.replace("{session_id}", "x").replace("{run_id}", "0" * 32)).status_code == 405, path
    assert broker.http.get(index["docs_url"]).headers["content-type"].startswith("text/html")


def test_openapi_names_every_route_with_its_caller(broker: Broker) -> None:
    document = broker.http.get("/openapi.json").json()
    assert set(document["paths"]) == {"/", *broker.http.get("/").json()["endpoints"]}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            concrete = path.replace("{session_id}", "nosuch").replace("{run_id}", "0" * 32)
            answer = broker.http.request(method, concrete, json={} if method in ("post", "put") else None)
            assert (answer.status_code == 401) == ("security" in operation), (method, path, answer.status_code)


def test_keys_come_in_the_contracts_order(broker: Broker, sandbox: Session) -> None:
    opened = broker.client.post("/sessions", json={"session_id": sandbox.id, "reuse": True}).json()
    assert list(opened) == ["session", "token"] and list(opened["session"]) == KEYS_OF_A_SESSION
    assert list(broker.client.get("/sessions").json()) == ["sessions", "limit", "open_limit", "tenant_limit"]
    assert list(broker.http.get("/healthz").json()) == ["status", "sessions", "limit", "open_sessions", "open_limit", "runtimes"]
    result = sandbox.run(["true"])
    assert list(result) == ["stdout", "stderr", "exit_code", "timed_out", "output_limited", "output_limit"]
    assert list(sandbox.events()["events"][0]) == ["seq", "at", "op", "target", "ok", "detail", "duration_ms"]


def test_answers_are_compact_and_keep_their_characters(shared: Session) -> None:
    answer = shared.post_run(["printf", "%s", 'né "日本" 🐍\x7f'])
    assert answer.content.startswith('{"stdout":"né \\"日本\\" 🐍\x7f","stderr":"",'.encode())
    assert answer.headers["content-type"] == "application/json"


def test_usage_is_sampled_when_it_is_asked_for(broker: Broker, sandbox: Session) -> None:
    assert broker.client.get(f"/sessions/{sandbox.id}").json()["usage"] is None
    usage = wait_until(lambda: sandbox.inspect(usage=True)["usage"], what="it says in time what it uses")
    assert list(usage) == ["memory_bytes", "memory_limit_bytes", "cpu_percent", "pids"]
    assert usage["memory_bytes"] > 0 and usage["pids"] >= 1 and usage["memory_limit_bytes"] == 1 << 30
    sandbox.stdout("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")

    def listed() -> dict[str, Any] | None:
        return next(s["usage"] for s in broker.sessions(usage=True) if s["session_id"] == sandbox.id)

    assert wait_until(listed, what="and in the list")["cpu_percent"] >= 0


def test_times_are_of_this_world_and_idleness_grows(sandbox: Session) -> None:
    first = sandbox.request("GET", "").json()
    assert abs(first["created_at"] - time.time()) < 120
    assert first["last_activity"] >= first["created_at"]
    wait_until(lambda: sandbox.request("GET", "").json()["idle_seconds"] > first["idle_seconds"], what="it is idle for longer")
    assert sandbox.request("GET", "").json()["last_activity"] == first["last_activity"], "looking is no activity"
    sandbox.run(["true"])
    assert sandbox.request("GET", "").json()["last_activity"] > first["last_activity"]


def test_events_come_after_a_number_and_their_targets_are_cut(sandbox: Session) -> None:
    sandbox.run(["true", "x y", "it's"])
    sandbox.run(["true", "🐍" * 300])
    sandbox.files("read", "/workspace/nope\0")
    events = sandbox.events()["events"]
    assert [e["seq"] for e in events] == [1, 2, 3]
    assert events[0]["target"] == "true 'x y' 'it'\"'\"'s'"
    assert events[1]["target"] == "true '" + "🐍" * 194 + "…"
    assert (events[2]["op"], events[2]["target"], events[2]["ok"], events[2]["detail"]) == ("read", "/workspace/nope\ufffd", False, "ValueError")
    after = sandbox.request("GET", "/events?after=1&after=2").json()
    assert [e["seq"] for e in after["events"]] == [3] and after["latest_seq"] == 3, "the last of a repeated key counts"


@pytest.mark.parametrize("value", ["1", "yes", "TRUE", "on", "t", "0", "no", "off", "F"])
def test_query_booleans_are_taken_laxly(broker: Broker, value: str) -> None:
    assert broker.client.get("/sessions", params={"usage": value}).status_code == 200


@pytest.mark.parametrize("value", ["", "2", "maybe", " true"])
def test_other_query_booleans_are_refused(broker: Broker, shared: Session, value: str) -> None:
    for method, path, key in (("GET", "/sessions", "usage"), ("GET", f"/sessions/{shared.id}", "usage"), ("DELETE", f"/sessions/{shared.id}", "purge")):
        answer = broker.client.request(method, path, params={key: value})
        assert answer.status_code == 422
        assert [(e["type"], e["loc"]) for e in answer.json()["detail"]] == [("bool_parsing", ["query", key])]
    assert shared.request("GET", "").status_code == 200, "it was not closed"


def test_purge_works_on_a_closed_session_without_starting_anything(broker: Broker, session: Callable[..., Session]) -> None:
    s = session()
    s.write("/workspace/f", b"x")
    assert s.close().status_code == 204
    assert broker.client.delete(f"/sessions/{s.id}").status_code == 404, "it is closed already"
    assert broker.purge(s.id).status_code == 204
    assert not (broker.root / s.id).exists()
    assert broker.purge(s.id).status_code == 404


@pytest.mark.parametrize(
    ("env", "status"),
    [({"A": "a  b\n'\"$HOME`id`é"}, 200), ({"a b": "x"}, 200), ({"": "x"}, 422), ({"A": "x\0y"}, 422), ({"A": None}, 422), ([], 422), ("A=1", 422), (None, 422)],
)
def test_env_is_passed_as_data_or_refused(shared: Session, env: Any, status: int) -> None:
    answer = shared.request("POST", "/run", json={"argv": ["printenv", "A"], "env": env, "run_id": new_run_id()})
    assert answer.status_code == status
    if isinstance(env, dict) and status == 200 and "A" in env:
        assert answer.json()["stdout"] == env["A"] + "\n"


@pytest.mark.parametrize("timeout", [0, -1, "soon", "", [], "nan", False])
def test_deadlines_that_are_none_are_refused(shared: Session, timeout: Any) -> None:
    assert shared.post_run(["true"], timeout_seconds=timeout).status_code == 422


@pytest.mark.parametrize("timeout", [1e12, 10**40, "30", True, None, 1e-9 + 30])
def test_deadlines_are_clamped_to_the_services(shared: Session, timeout: Any) -> None:
    assert shared.run(["true"], timeout_seconds=timeout)["exit_code"] == 0


def test_a_number_that_no_double_holds_is_refused(shared: Session) -> None:
    body = '{"argv":["true"],"run_id":"%s","timeout_seconds":1e400}' % new_run_id()
    assert shared.request("POST", "/run", content=body, headers={"Content-Type": "application/json"}).status_code == 422


def test_an_argument_with_a_nul_runs_nothing_and_leaves_an_event(sandbox: Session) -> None:
    answer = sandbox.post_run(["sh", "-c", "echo x > ran\0"])
    assert answer.status_code == 422
    assert not (sandbox.workspace / "ran").exists()
    assert [(e["op"], e["ok"], e["detail"]) for e in sandbox.events()["events"]] == [("run", False, "refused")]


def test_a_program_that_is_not_there_says_so(shared: Session) -> None:
    result = shared.run(["nosuchprogram"])
    assert (result["exit_code"], result["stderr"]) == (127, "sh: 1: nosuchprogram: not found\n")
    result = shared.run(["/etc"])
    assert (result["exit_code"], result["stderr"]) == (126, "sh: 1: /etc: Permission denied\n")


@pytest.mark.parametrize("size", [100, 200_000, 3_000_000])
def test_output_of_every_size_is_the_same_json(shared: Session, size: int) -> None:
    """Small output is sent in one piece, larger is streamed from memory, the largest from a file."""
    unit = "€🐍\x01\"z"
    script = f"import sys; sys.stdout.write({unit!r} * {size // 10}); sys.stderr.buffer.write(b'\\xff' + b'e' * 3)"
    answer = shared.post_run(["python3", "-c", script])
    assert ("content-length" in answer.headers) == (size < 100_000)
    result = json.loads(answer.content)
    assert result["stdout"] == unit * (size // 10)
    assert result["stderr"] == "\ufffdeee"
    assert result["exit_code"] == 0


def test_a_run_of_one_id_is_refused_while_it_runs(broker: Broker, sandbox: Session) -> None:
    run_id = new_run_id()
    with httpx.Client(base_url=broker.url, headers={"X-Sandbox-Token": sandbox.token}, timeout=60) as other:
        import threading

        first: list[httpx.Response] = []
        body = {"argv": ["sh", "-c", "touch begun; sleep 30"], "run_id": run_id}
        thread = threading.Thread(target=lambda: first.append(other.post(f"/sessions/{sandbox.id}/run", json=body)))
        thread.start()
        wait_until((sandbox.workspace / "begun").exists, what="the first one runs")
        assert sandbox.post_run(["true"], run_id=run_id).status_code == 409
        assert sandbox.request("POST", f"/runs/{run_id}/stop").status_code == 204
        thread.join(20)
    assert first and first[0].json()["exit_code"] == 143
    assert sandbox.run(["true"], run_id=run_id)["exit_code"] == 0


def test_an_unknown_run_is_stopped_at_once(shared: Session) -> None:
    began = time.monotonic()
    assert shared.request("POST", f"/runs/{new_run_id()}/stop").status_code == 204
    assert time.monotonic() - began < 0.5 * SLOWNESS


def test_ids_and_runtimes_that_cannot_be_are_refused(broker: Broker) -> None:
    before = len(broker.sessions())
    for body in ({"session_id": "a\0b"}, {"runtime": "python\0"}, {"tenant": "-"}, {"session_id": new_id() + "\n"}, {"reuse": None}, {"attach": []}):
        assert broker.client.post("/sessions", json=body).status_code == 422, body
    answer = broker.client.post("/sessions", json={"runtime": "x" * 10_000 + "é"})
    assert answer.status_code == 400 and answer.json()["detail"].startswith("Unknown runtime 'xxx")
    assert len(broker.sessions()) == before


def test_isolation_tells_of_each_runtime(broker: Broker, shared: Session) -> None:
    assert broker.http.get("/isolation", headers={"X-Sandbox-Token": shared.token}).status_code == 401
    answer = broker.client.get("/isolation").json()
    assert list(answer) == ["python"]
    for control in ("runtime", "seccomp", "capabilities", "memory", "pids", "disk"):
        assert answer["python"][control]["state"] in ("enforced", "accounted", "not enforced")
        assert isinstance(answer["python"][control]["detail"], str)
