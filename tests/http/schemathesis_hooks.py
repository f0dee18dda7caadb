"""Loaded by schemathesis, not by pytest: lets generated requests meet something, and puts back what they undo. See test_schemathesis.py.

Environment: BERTH_TEST_URL, BERTH_TEST_TOKEN; BERTH_TEST_OPEN, a session that is open, and BERTH_TEST_STORED, the workspace of one that is closed.
"""

from __future__ import annotations

import os
import re
import threading
from typing import Any

import jsonschema_rs
import requests
import schemathesis

URL = os.environ["BERTH_TEST_URL"]
OPEN = os.environ["BERTH_TEST_OPEN"]
STORED = os.environ["BERTH_TEST_STORED"]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
STIR_S = 0.1

operator = requests.Session()
operator.headers["X-Sandbox-Token"] = os.environ["BERTH_TEST_TOKEN"]
operator.trust_env = False
document = operator.get(f"{URL}/openapi.json").json()
policy = {name: value for name, value in operator.get(f"{URL}/policy").json().items() if name in document["components"]["schemas"]["PolicyChange"]["properties"]}
policy.pop("runtimes", None)
stirring: threading.Event | None = None


def call(method: str, path: str, **body: Any) -> dict[str, Any]:
    answer = operator.request(method, URL + path, json=body or None)
    assert answer.ok, (method, path, answer.status_code, answer.text)
    return answer.json() if answer.content else {}


def a_run(is_over: bool) -> str:
    """One in the open session: ended, for its output, which otherwise goes on; else a terminal that somebody may write to, size and kill."""
    if is_over:
        run_id = call("POST", f"/sessions/{OPEN}/runs", command="echo out; echo err >&2")["run_id"]
        call("GET", f"/sessions/{OPEN}/runs/{run_id}?wait=60")
        return str(run_id)
    running = call("GET", f"/sessions/{OPEN}/runs?state=running")["runs"]
    ids = [run["run_id"] for run in running if run["tty"]]
    return str(ids[0] if ids else call("POST", f"/sessions/{OPEN}/runs", argv=["cat"], tty={})["run_id"])


def a_snapshot(kind: str, session_id: str) -> str:
    there = call("GET", f"/{kind}/{session_id}/snapshots")["snapshots"]
    if there:
        return str(there[0]["snapshot_id"])
    return str(call("POST", f"/{kind}/{session_id}/snapshots", name="one")["snapshot_id"])


def stir(stop: threading.Event) -> None:
    """Something happens while a stream is read: it is over for schemathesis after so many events (schemathesis.toml), and for the broker never."""
    with requests.Session() as mine:
        mine.trust_env = False
        mine.headers.update(operator.headers)
        while not stop.wait(STIR_S):
            mine.put(f"{URL}/sessions/{OPEN}/content", params={"path": "stirred"}, data=b"")
            mine.put(f"{URL}/policy", json={"execute_timeout": policy["execute_timeout"]})


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Names that could be somebody's become somebody's; what could be no name stays."""
    global stirring
    kind = case.operation.path.split("/")[1]
    parameters = case.path_parameters or {}
    for key, value in list(parameters.items()):
        if not isinstance(value, str) or not NAME.fullmatch(value):
            continue
        if key == "session_id":
            parameters[key] = STORED if kind == "workspaces" else OPEN
        elif key == "run_id":
            parameters[key] = a_run(case.operation.path.endswith("/output"))
        elif key == "snapshot_id":
            parameters[key] = a_snapshot(kind, STORED if kind == "workspaces" else OPEN)
        elif key == "alias":
            parameters[key] = "python"
        elif key == "file":
            parameters[key] = "index.html"
    query = case.query or {}
    if case.operation.path == "/events" and query.get("follow", True) in (True, "true"):
        for key in ("op", "session", "tenant"):  # as filters they are asked without following: nothing would come
            query.pop(key, None)
    if case.operation.path.endswith("/watch") and isinstance(query.get("path"), str) and "\0" not in query["path"]:
        query["path"] = "/workspace"
    if case.method == "GET" and case.operation.path.endswith(("/events", "/watch")):
        stirring = threading.Event()
        threading.Thread(target=stir, args=(stirring,), daemon=True).start()
    if isinstance(query.get("wait"), int):
        query["wait"] = min(query["wait"], 1)  # nobody ends what is waited for
    if case.operation.path == "/orphans/remove" and isinstance(case.body, dict) and isinstance(case.body.get("containers"), list):
        # Other tests have brokers on this engine: an id must not happen to be one of theirs.
        case.body["containers"] = [value[:11] if isinstance(value, str) else value for value in case.body["containers"]]


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    label = case.operation.label
    if stirring:
        stirring.set()
    if label == "PUT /policy" and response.status_code == 200:
        call("PUT", "/policy", **policy)
    elif label == "DELETE /sessions/{session_id}" and response.status_code == 204:
        call("POST", "/sessions", session_id=OPEN, reuse=True)
    elif label == "DELETE /workspaces/{session_id}" and response.status_code == 204:
        for session in call("GET", "/sessions")["sessions"]:  # room below the ceiling
            if session["session_id"] != OPEN:
                call("DELETE", f"/sessions/{session['session_id']}")
        call("POST", "/sessions", session_id=STORED)
        call("DELETE", f"/sessions/{STORED}")


# ---- what is taken laxly

WORDS = {"0": False, "1": True, "t": True, "f": False, "true": True, "false": False, "y": True, "n": False, "yes": True, "no": False, "on": True, "off": False}


def as_read(value: Any, schema: dict[str, Any]) -> Any:
    """A value of a field as wire_read.h reads it, where its type is not the one that is described."""
    types = {option.get("type") for option in [schema, *schema.get("anyOf", [])]}
    if "boolean" in types and not isinstance(value, bool):
        return WORDS.get(str(value).lower(), value) if isinstance(value, (str, int, float)) else value
    if types & {"integer", "number"} and isinstance(value, bool):
        return int(value)
    if types & {"integer", "number"} and isinstance(value, str):
        try:
            return float(value) if "number" in types else int(float(value))
        except ValueError:
            return value
    return value


@schemathesis.hook
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Numbers and booleans are read laxly, as the reference does (wires/sandboxd-current.md, 1.1): "5" is 5 and 0 is false. Described is what a client
    should send, so a request that is described once read so was rightly taken. False: no failure."""
    if failure.code != "ST201" or not isinstance(case.body, dict):
        return True
    content = document["paths"][case.operation.path][case.operation.method]["requestBody"]["content"]
    reference = content["application/json"]["schema"]
    schema = document["components"]["schemas"][reference["$ref"].rsplit("/", 1)[1]]
    read = {name: as_read(value, schema.get("properties", {}).get(name, {})) for name, value in case.body.items()}
    return not jsonschema_rs.validator_for(reference | {"components": document["components"]}).is_valid(read)
