"""/openapi.json: every route of routes.def and no other, with its parameters, bodies and answers; /docs from inside."""

from __future__ import annotations

import json
import re
from typing import Any, Iterator

import pytest

from berth import ROOT, Broker
from fake_engine import FakeEngine

ROUTE = re.compile(r'^ROUTE\((\w+), "([^"]+)", (\w+), (\w+), (\w+)\)$', re.M)


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def module_broker(fake: FakeEngine, _module_brokers: Any) -> Broker:
    return _module_brokers.make(engine=fake, max_sessions="", ui_enabled=True, execute_timeout=2)


@pytest.fixture
def document(broker: Broker) -> dict[str, Any]:
    answer = broker.http.get("/openapi.json")
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    return answer.json()


def routes() -> list[tuple[str, str, str, str, str]]:
    found = ROUTE.findall((ROOT / "src/wire/routes.def").read_text())
    assert len(found) > 80
    return found


def test_it_has_every_route_and_no_other(document: dict[str, Any]) -> None:
    assert {(method.upper(), path) for path, item in document["paths"].items() for method in item} == {(m, p) for m, p, *_ in routes()}


def test_every_route_is_described(document: dict[str, Any]) -> None:
    for method, path, handler, access, body in routes():
        operation = document["paths"][path][method.lower()]
        assert operation.get("summary"), f"{handler} is missing in src/wire/openapi.def"
        assert ("security" in operation) == (access != "ACCESS_ANYONE"), path
        assert ("requestBody" in operation) == (body != "HTTP_BODY_NONE"), path
        assert re.findall(r"{(\w+)}", path) == [p["name"] for p in operation["parameters"] if p.get("in") == "path"]
        assert {"4XX", "5XX"} < set(operation["responses"])


def test_every_name_in_it_leads_somewhere_and_is_used(document: dict[str, Any]) -> None:
    used = set(re.findall(r'"\$ref": "#/components/(\w+/\w+)"', json.dumps(document)))
    there = {f"{kind}/{name}" for kind in ("schemas", "parameters") for name in document["components"][kind]}
    assert used == there


def test_docs_are_whole_without_any_other_host(broker: Broker) -> None:
    answer = broker.http.get("/docs")
    assert answer.status_code == 200 and answer.headers["content-security-policy"] == "default-src 'none'"
    for method, path, *_ in routes():
        assert f"<tr><td>{method}<td><code>{path}</code>" in answer.text
    assert re.findall(r'(?:src|href)="?([^"> ]+)', answer.text) == ["/openapi.json"]
