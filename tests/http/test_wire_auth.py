"""Which error wins, route by route: the order of checks of both contracts. What an attacker may try beside it is in test_auth_hardening.py."""

from __future__ import annotations

import json
from typing import Any, Callable, Iterator

import httpx
import pytest

from berth import TOKEN, Broker, Session, new_id

RUN = {"argv": ["true"], "run_id": "0" * 32}

# Every JSON route on a session, with a body that fits.
ON_SESSION: dict[str, dict[str, Any]] = {
    "run": RUN,
    "exec": {"command": "true"},
    **{f"files/{op}": {"path": "/workspace"} for op in ("read", "stat", "list", "realpath", "mkdir", "remove")},
}
WORK = [op for op in ON_SESSION if op != "exec"]  # where a closed session's token is told so
ON_SERVICE = {"/sessions": {}, "/workspaces/some-id/ls": {"path": "."}, "/workspaces/some-id/read": {"path": "a"}, "/workspaces/some-id/read_bytes": {"path": "a"}}

UNAUTHORIZED = {"detail": "Invalid or missing sandbox token"}


def _post(broker: Broker, path: str, *, token: str | None = None, **kwargs: Any) -> httpx.Response:
    headers = {"X-Sandbox-Token": token} if token is not None else {}
    return broker.http.post(path, headers=headers | kwargs.pop("headers", {}), **kwargs)


def _broken(broker: Broker, path: str, token: str | None = None) -> httpx.Response:
    return _post(broker, path, token=token, content=b"{nope", headers={"Content-Type": "application/json"})


@pytest.fixture(scope="module")
def shared(module_broker: Broker) -> Iterator[Session]:
    """One session for all tests that leave it as it was."""
    s = module_broker.open(new_id("shared"))
    yield s
    module_broker.purge(s.id)


@pytest.mark.parametrize("path", [*(f"/sessions/nosuch/{op}" for op in ON_SESSION), *ON_SERVICE])
def test_json_that_is_none_comes_before_the_token(broker: Broker, path: str) -> None:
    answer = _broken(broker, path)
    assert answer.status_code == 422
    assert [(e["type"], e["loc"]) for e in answer.json()["detail"]] == [("json_invalid", ["body", 1])]


@pytest.mark.parametrize("op", ON_SESSION)
def test_on_a_session_the_id_comes_before_the_token_and_the_token_before_all_else(broker: Broker, op: str) -> None:
    bad_id = _post(broker, f"/sessions/-bad/{op}", json={})
    assert bad_id.status_code == 422
    assert [e["loc"] for e in bad_id.json()["detail"]] == [["path", "session_id"]]
    for body in ({}, ON_SESSION[op]):
        unknown = _post(broker, f"/sessions/nosuch/{op}", json=body)
        assert (unknown.status_code, unknown.json()) == (401, UNAUTHORIZED)
        absent = _post(broker, f"/sessions/nosuch/{op}", json=body, token=TOKEN)
        assert (absent.status_code, absent.json()) == (404, {"detail": "No such session: nosuch"})


@pytest.mark.parametrize("op", ON_SESSION)
def test_on_a_session_fields_come_last(shared: Session, op: str) -> None:
    answer = shared.request("POST", f"/{op}", json={})
    assert answer.status_code == 422
    assert {e["type"] for e in answer.json()["detail"]} == {"missing"}
    assert "input" not in answer.text


@pytest.mark.parametrize("path", ON_SERVICE)
def test_on_the_service_the_token_comes_before_id_and_fields(broker: Broker, shared: Session, path: str) -> None:
    for token in (None, "", "wrong", shared.token):
        for body in ({"session_id": 5}, []):
            answer = _post(broker, path.replace("some-id", "-bad"), json=body, token=token)
            assert (answer.status_code, answer.json()) == (401, UNAUTHORIZED)
    if "some-id" in path:
        answer = _post(broker, path.replace("some-id", "-bad"), json=ON_SERVICE[path], token=TOKEN)
        assert [e["loc"] for e in answer.json()["detail"]] == [["path", "session_id"]]


def test_who_sends_much_shows_a_token_first(broker: Broker, shared: Session) -> None:
    much = b"{nope" + b" " * 70_000
    for token, status in ((None, 401), ("wrong", 401), (shared.token, 422)):
        answer = _post(broker, f"/sessions/{shared.id}/run", token=token, content=much, headers={"Content-Type": "application/json"})
        assert answer.status_code == status
    # An unknown amount is taken for much.
    answer = _post(broker, f"/sessions/{shared.id}/run", content=iter([b"{nope"]), headers={"Content-Type": "application/json"})
    assert answer.status_code == 401


@pytest.mark.parametrize("op", [*WORK, "runs/" + "0" * 32 + "/stop", "files/write?path=/workspace/x"])
def test_a_closed_sessions_token_is_told_so_where_its_client_works(broker: Broker, session: Callable[..., Session], op: str) -> None:
    s = session()
    assert s.close().status_code == 204
    answer = s.request("POST", f"/{op}", json=ON_SESSION.get(op, {}))
    assert (answer.status_code, answer.json()) == (410, {"detail": f"Session is closed: {s.id}"})


def test_a_closed_sessions_token_is_no_token_elsewhere(session: Callable[..., Session]) -> None:
    s = session()
    assert s.close().status_code == 204
    for method, path in (("GET", ""), ("GET", "/events"), ("DELETE", ""), ("POST", "/exec")):
        answer = s.request(method, path, **({"json": {"command": "true"}} if method == "POST" else {}))
        assert (answer.status_code, answer.json()) == (401, UNAUTHORIZED)


def test_the_fifth_opening_forgets_the_first_ones_token(broker: Broker, session: Callable[..., Session]) -> None:
    s = session()
    first = s.token
    openings = [s]
    for _ in range(4):
        assert openings[-1].close().status_code == 204
        openings.append(broker.open(s.id))
    assert len({o.token for o in openings}) == 5
    path = f"/sessions/{s.id}/run"
    assert _post(broker, path, json=RUN, token=first).status_code == 410
    assert openings[-1].close().status_code == 204
    assert _post(broker, path, json=RUN, token=first).status_code == 401
    assert _post(broker, path, json=RUN, token=openings[1].token).status_code == 410


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b'"text"', b"5", b'{"argv":["true"],"run_id":"%s"} {}' % (b"0" * 32), b"\xff", b'{"argv":["\xff"]}', b"[" * 40 + b"]" * 40, b'{"argv\\u0000":1}', b"\0"],
)
def test_a_body_that_is_no_object_is_refused_and_nothing_runs(shared: Session, body: bytes) -> None:
    before = shared.events()["latest_seq"]
    answer = shared.request("POST", "/run", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == (400 if b"\xff" in body else 422)
    assert "detail" in answer.json()
    assert shared.events()["latest_seq"] == before


def test_errors_name_their_place_and_never_repeat_a_value(shared: Session) -> None:
    secret = "hunter2" * 3
    body = {"argv": [secret, 1], "env": {"A": 5, "B": [secret]}, "timeout_seconds": secret, "run_id": secret}
    answer = shared.request("POST", "/run", json=body)
    assert answer.status_code == 422
    assert secret not in answer.text
    assert [e["loc"] for e in answer.json()["detail"]] == [
        ["body", "argv", 1],
        ["body", "env", "A"],
        ["body", "env", "B"],
        ["body", "timeout_seconds"],
        ["body", "run_id"],
    ]


def test_a_thousand_errors_stay_a_small_answer(shared: Session) -> None:
    answer = shared.request("POST", "/run", json={"argv": [1] * 20_000, "run_id": "0" * 32})
    assert answer.status_code == 422
    assert len(answer.content) < 100_000
    assert json.loads(answer.content)["detail"][0]["loc"] == ["body", "argv", 0]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://127.0.0.1", "file://", "ftp://{host}"])
def test_pages_from_elsewhere_are_turned_away_from_every_route(broker: Broker, origin: str) -> None:
    host = broker.url.removeprefix("http://")
    for method, path in (("GET", "/healthz"), ("GET", "/"), ("POST", "/sessions"), ("GET", "/policy")):
        answer = broker.client.request(method, path, headers={"Origin": origin.replace("{host}", host)})
        assert (answer.status_code, answer.json()) == (403, {"detail": "Forbidden"})
    assert broker.client.get("/healthz", headers={"Origin": f"http://{host}"}).status_code == 200
