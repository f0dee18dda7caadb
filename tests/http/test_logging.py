"""The log: lines that programs read, that say for whom they were written, and that hold no secret."""

from __future__ import annotations

import json
import re
from typing import Any, Callable

import pytest

from berth import TOKEN, Broker, new_run_id, wait_until

TRACE = "0af7651916cd43dd8448eb211c80319c"


def lines(broker: Broker) -> list[dict[str, Any]]:
    return [json.loads(line) for line in broker.log().split("\n")[:-1]]  # the last may be half written


@pytest.fixture(scope="module")
def module_broker(_module_brokers: Any) -> Broker:
    return _module_brokers.make(log_format="json", log_level="debug")


def test_lines_are_json_and_say_for_whom(broker: Broker, session: Callable[..., Any]) -> None:
    box = session(tenant="acme")
    answer = box.request("GET", "/snapshots", headers={"X-Request-Id": "my-request.1", "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})
    assert answer.headers["x-request-id"] == "my-request.1"

    def mine() -> list[dict[str, Any]]:
        return [line for line in lines(broker) if line.get("request") == "my-request.1"]

    wait_until(lambda: bool(mine()), what="the line of the request")
    assert {(line["trace"], line["session"], line["tenant"]) for line in mine()} == {(TRACE, box.id, "acme")}
    opened = [line for line in lines(broker) if line["event"] == "session.opened" and line["session"] == box.id]
    assert [(line["level"], line["tenant"]) for line in opened] == [("info", "acme")]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines(broker))


@pytest.mark.parametrize("sent", ["short", "x" * 65, "with blank 1234", 'quote"12345678', "semi;colon1234", "ünicode12345"])
def test_a_request_id_that_is_none_is_replaced(broker: Broker, sent: str) -> None:
    answer = broker.http.get("/nowhere", headers={b"X-Request-Id": sent.encode()})
    assert answer.status_code == 404 and answer.json() == {"detail": "Not Found"}
    assert re.fullmatch("[0-9a-f]{16}", answer.headers["x-request-id"])


@pytest.mark.parametrize("parent", [
    f"ff-{TRACE}-b7ad6b7169203331-01", f"00-{'0' * 32}-b7ad6b7169203331-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-b7ad6b7169203331-01",
    f"00-{TRACE}-b7ad6b7169203331-01-more", f"00-{TRACE}-b7ad6b7169203331", "00", f"0-{TRACE}-b7ad6b7169203331-011", ""])
def test_a_traceparent_that_is_none_is_ignored(broker: Broker, parent: str) -> None:
    request = new_run_id()
    assert broker.http.get("/healthz", headers={"X-Request-Id": request, "traceparent": parent}).status_code == 200
    wait_until(lambda: any(line.get("request") == request for line in lines(broker)), what="the line of the request")
    assert [line for line in lines(broker) if line.get("request") == request and "trace" in line] == []


def test_every_answer_has_a_request_id(broker: Broker) -> None:
    for method, path, headers in (("GET", "/healthz", {}), ("GET", "/sessions", {}), ("DELETE", "/healthz", {}), ("GET", "/healthz", {"Expect": "x"}),
                                  ("GET", "/healthz/", {}), ("POST", "/sessions", {"X-Sandbox-Token": TOKEN})):
        answer = broker.http.request(method, path, headers={"X-Request-Id": "asked-by-me"} | headers)
        assert answer.headers["x-request-id"] == "asked-by-me", (method, path, answer.status_code)


def test_a_whole_life_leaves_no_secret_in_the_log(broker: Broker, session: Callable[..., Any]) -> None:
    """Tokens, values of the environment, files, input and output: each with a mark of its own, then the log is searched for all of them."""
    marks = {name: f"mark{name}{new_run_id()}" for name in (
        "environment", "file", "written", "edited", "classic", "stdin", "output", "upload", "code", "badtoken", "search", "archive", "watched")}
    box = session(tenant="acme")
    broker.client.get("/sessions", headers={"X-Sandbox-Token": marks["badtoken"]})
    box.run(["sh", "-c", "echo $A; echo $A >&2"], env={"A": marks["environment"]})
    box.sh(f"echo {marks['output']}; exit 3")
    box.exec(f"cat <<E\n{marks['output']}\nE")
    box.write("/workspace/a", marks["file"].encode())
    assert box.read("/workspace/a").decode() == marks["file"]
    box.request("POST", "/write", json={"path": "b", "content": marks["classic"]})
    box.request("POST", "/edit", json={"path": "b", "old_string": marks["classic"], "new_string": marks["edited"]})
    box.request("POST", "/read", json={"path": "b"})
    box.request("POST", "/grep", json={"pattern": marks["edited"]})
    box.request("PUT", "/content", params={"path": "c"}, content=marks["upload"].encode())
    box.request("PUT", "/archive", params={"path": "d"}, content=marks["archive"].encode())
    box.request("GET", "/search", params={"pattern": marks["search"]})
    box.request("POST", "/python", json={"code": f"print('{marks['code']}')", "env": {"B": marks["environment"]}})
    run = box.request("POST", "/runs", json={"command": "cat", "stdin_open": True, "env": {"A": marks["environment"]}}).json()["run_id"]
    box.request("POST", f"/runs/{run}/stdin", params={"eof": "true"}, content=marks["watched"].encode())
    assert marks["watched"] in box.request("GET", f"/runs/{run}/output").text
    box.request("POST", "/run", json={"argv": ["cat"], "stdin": marks["stdin"], "run_id": "not a run", "env": {"X": marks["environment"], "1bad": "x"}})
    box.request("POST", "/run", content=f'{{"argv": ["{marks["stdin"]}"'.encode(), headers={"Content-Type": "application/json"})
    box.request("POST", "/fork", json={"session_id": marks["code"] * 9})
    token = box.token
    box.close(purge=True)
    box.request("GET", "")
    broker.restart()
    text = broker.log()
    assert "http.request" in text and box.id in text  # it was looked at closely
    for name, mark in (marks | {"token": TOKEN, "session's token": token}).items():
        assert mark not in text, name
