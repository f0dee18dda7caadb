"""Looking on: /metrics, /stats, /readyz and the listener for probes. None of them asks the engine, so that a hung one hangs nobody."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_old

from berth import ROOT, SLOWNESS, TOKEN, Broker, free_port, wait_until
from fake_engine import FakeEngine
from sleeping import forget_sleeping, write_sleeping

OPEN = {"Accept": "application/openmetrics-text; version=1.0.0, text/plain;q=0.5"}


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def module_broker(fake: FakeEngine, _module_brokers: Any) -> Broker:
    return _module_brokers.make(engine=fake, probe_port=free_port(), max_sessions="")


def families(broker: Broker) -> dict[str, Any]:
    answer = broker.client.get("/metrics", headers=OPEN)
    assert answer.status_code == 200, answer.text
    return {family.name: family for family in parse_open(answer.text)}


def value(broker: Broker, name: str, **labels: str) -> float:
    """The sample of that name with these labels among its own; 0 where it is not there yet."""
    for family in families(broker).values():
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return 0


def probe(broker: Broker) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{broker.settings['probe_port']}", timeout=30, trust_env=False)


@pytest.mark.san
def test_metrics_are_openmetrics_and_older_text_by_accept(broker: Broker) -> None:
    answer = broker.client.get("/metrics", headers=OPEN)
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert answer.text.endswith("\n# EOF\n")
    found = {family.name: family.type for family in parse_open(answer.text)}
    table = re.findall(r'^METRIC_(\w+)\(\w+, (?:(\w+), )?"(\w+)"', (ROOT / "src/util/metrics.def").read_text(), re.M)
    assert len(table) > 30
    assert found == {name: (kind or macro).lower() for macro, kind, name in table}

    old = broker.client.get("/metrics")
    assert old.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert {family.name.removesuffix("_info") for family in parse_old(old.text)} == set(found)
    assert "berth_session_opens_total{" in old.text and "# TYPE berth_session_opens_total counter" in old.text


def test_what_happens_is_counted(broker: Broker) -> None:
    before = {name: value(broker, name, **labels) for name, labels in (
        ("berth_session_opens_total", {"outcome": "created"}),
        ("berth_session_open_duration_seconds_count", {}),
        ("berth_errors_total", {"code": "NOT_FOUND"}),
        ("berth_engine_calls_total", {"verb": "create"}),
    )}
    runs = value(broker, "berth_runs_total", outcome="ok"), value(broker, "berth_runs_total", outcome="nonzero")
    reused = value(broker, "berth_session_opens_total", outcome="attached")
    session = broker.open("counted", tenant="acme")
    broker.open("counted", tenant="acme", reuse=True)
    session.run(["true"])
    assert session.run(["exit", "1"])["exit_code"] == 1
    assert broker.client.get("/sessions/nobody").status_code == 404

    for name, labels in (("berth_session_opens_total", {"outcome": "created"}), ("berth_session_open_duration_seconds_count", {}),
                         ("berth_errors_total", {"code": "NOT_FOUND"}), ("berth_engine_calls_total", {"verb": "create"})):
        assert value(broker, name, **labels) == before[name] + 1, name
    assert (value(broker, "berth_runs_total", outcome="ok"), value(broker, "berth_runs_total", outcome="nonzero")) == (runs[0] + 1, runs[1] + 1)
    assert value(broker, "berth_session_opens_total", outcome="attached") == reused + 1
    assert value(broker, "berth_tenant_sessions", tenant="acme", are="open") == 1
    # A request is counted once its answer is gone, by the thread that gave it.
    wait_until(lambda: value(broker, "berth_http_requests_total", route="GET /sessions/{session_id}", status="4xx") >= 1, what="counted")
    wait_until(lambda: value(broker, "berth_http_request_duration_seconds_count", route="POST /sessions/{session_id}/run") >= 2, what="counted")
    session.close(purge=True)
    assert value(broker, "berth_events_total", op="closed") + value(broker, "berth_events_total", op="purged") >= 1
    assert value(broker, "berth_tenant_sessions", tenant="acme", are="open") == 0


def test_sessions_are_counted_by_state_whatever_they_go_through(broker: Broker) -> None:
    def states() -> dict[str, float]:
        return {s.labels["state"]: s.value for s in families(broker)["berth_sessions"].samples}

    assert states() == {"opening": 0, "running": 0, "frozen": 0, "hibernated": 0}
    made = [broker.open(f"state{i}") for i in range(3)]
    assert states()["running"] == 3
    assert broker.client.post("/sessions/state0/hibernate").status_code == 200
    assert states() == {"opening": 0, "running": 2, "frozen": 0, "hibernated": 1}
    assert broker.client.post("/sessions/state0/wake").status_code == 200
    assert states()["running"] == 3
    stats = broker.client.get("/stats").json()
    assert stats["sessions"]["open"] == stats["sessions"]["resident"] == stats["sessions"]["running"] == 3
    assert stats["tenants"]["shown"][0] == {"tenant": None, "open": 3, "resident": 3, "running_commands": 0, "disk_bytes": None} | {
        "disk_bytes": stats["tenants"]["shown"][0]["disk_bytes"]}
    for session in made:
        session.close(purge=True)
    assert states() == {"opening": 0, "running": 0, "frozen": 0, "hibernated": 0}


def test_tenants_beyond_a_hundred_are_one_line(broker: Broker) -> None:
    def open_one(i: int) -> Any:
        return broker.open(f"many{i}", tenant=f"t{i}")

    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(open_one, range(130)))
    samples = [s for s in families(broker)["berth_tenant_sessions"].samples if s.labels["are"] == "open"]
    shown = [s for s in samples if "tenant" in s.labels and s.labels["tenant"]]
    assert len(shown) == 100 and all(s.value == 1 for s in shown)
    assert [s.value for s in samples if s.labels.get("other")] == [30]
    size = len(broker.client.get("/metrics").text)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda session: session.close(purge=True), made))
    assert not [s for s in families(broker)["berth_tenant_sessions"].samples if s.labels.get("tenant")]
    assert size < 256 * 1024


def test_a_hostile_path_makes_no_series(broker: Broker) -> None:
    before = len(broker.client.get("/metrics").text.splitlines())
    for i in range(50):
        assert broker.http.get(f"/nowhere/{i}%22%0a").status_code == 404
        assert broker.http.request("BREW", f"/pot{i}").status_code in (400, 404, 405, 501)
    assert len(broker.client.get("/metrics").text.splitlines()) <= before + 2 * 20


def test_metrics_and_stats_are_the_operators(broker: Broker) -> None:
    session = broker.open("peeper")
    for path in ("/metrics", "/stats"):
        assert broker.http.get(path).status_code == 401
        assert session.broker.http.get(path, headers={"X-Sandbox-Token": session.token}).status_code == 401
        assert broker.client.get(path).status_code == 200
    session.close(purge=True)


@pytest.mark.san
def test_the_other_listener_serves_probes_without_a_token_and_nothing_else(broker: Broker) -> None:
    with probe(broker) as client:
        assert client.get("/healthz").json() == broker.http.get("/healthz").json()
        wait_until(lambda: client.get("/readyz").status_code == 200, what="ready")
        assert "berth_sessions{" in client.get("/metrics").text
        for method, path in (("GET", "/"), ("GET", "/sessions"), ("POST", "/sessions"), ("GET", "/stats"), ("GET", "/policy"), ("GET", "/ui")):
            assert client.request(method, path, headers={"X-Sandbox-Token": TOKEN}).status_code == 404, path
        assert client.post("/metrics").status_code == 405


def test_healthz_is_the_wires_to_the_byte(broker: Broker) -> None:
    assert broker.http.get("/healthz").text == (
        '{"status":"ok","sessions":0,"limit":null,"open_sessions":0,"open_limit":null,"runtimes":["python"]}')


def test_looking_asks_the_engine_nothing(broker: Broker, fake: FakeEngine) -> None:
    wait_until(lambda: broker.http.get("/readyz").status_code == 200, what="ready")
    with fake.lock:
        fake.requests.clear()
    with probe(broker) as client:
        for _ in range(50):
            assert client.get("/metrics").status_code == 200
            assert client.get("/readyz").status_code == 200
            assert broker.client.get("/stats").status_code == 200
    with fake.lock:
        asked = list(fake.requests)
    assert [path for _, path in asked if path != "/_ping"] == []
    assert len(asked) < 50  # the thread's own pace, one in five seconds, however often somebody looks


def test_readiness_says_in_words_what_is_wrong(broker: Broker, fake: FakeEngine) -> None:
    def ready() -> dict[str, Any]:
        answer = broker.http.get("/readyz")
        assert (answer.status_code == 200) == (answer.json()["status"] == "ready")
        return answer.json() | {"code": answer.status_code}

    wait_until(lambda: ready()["code"] == 200, what="ready")
    assert {name: part["ok"] for name, part in ready()["checks"].items()} == {"engine": True, "store": True, "disk": True}
    released = threading.Event()
    hang = fake.fault("GET", "/_ping", lambda engine, exchange: released.wait(100) and False, times=1000)
    try:
        wait_until(lambda: ready()["code"] == 503, 30, "a hung engine is told")
        begin = time.monotonic()
        said = ready()
        assert "does not answer" in said["checks"]["engine"]["detail"] and said["checks"]["store"]["ok"]
        assert time.monotonic() - begin < 2 * SLOWNESS  # the engine's deadline is 3 s: nobody waits for it here
        assert broker.http.get("/healthz").status_code == 200
        assert value(broker, "berth_ready", part="engine") == 0
    finally:
        hang.times = 0
        released.set()
    wait_until(lambda: ready()["code"] == 200, 30, "ready again")


def test_without_an_engine_it_is_there_but_not_ready(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(start=False)
    broker.env["DOCKER_HOST"] = f"unix://{broker.home}/nobody.sock"
    broker.start()
    wait_until(lambda: "cannot be reached" in broker.http.get("/readyz").json()["checks"]["engine"]["detail"], 30, "said")
    answer = broker.http.get("/readyz")
    assert answer.status_code == 503 and "retry-after" in answer.headers
    assert "/" not in answer.json()["checks"]["engine"]["detail"]  # no path: anybody may ask
    assert broker.http.get("/healthz").status_code == 200


def test_ten_thousand_sessions_are_not_walked(make_broker: Callable[..., Broker], fake: FakeEngine) -> None:
    """What is answered for ten thousand sessions of ten thousand tenants is as long as for a hundred, and right."""
    broker = make_broker(engine=fake, max_sessions="")
    broker.terminate()
    write_sleeping(broker, 10_000, tenants=10_000)
    broker.start()
    assert value(broker, "berth_sessions", state="hibernated") == 10_000
    samples = families(broker)["berth_tenant_sessions"].samples
    assert sum(s.value for s in samples if s.labels["are"] == "open") == 10_000
    assert len(samples) == 2 * (1 + 100 + 1)
    stats = broker.client.get("/stats").json()
    assert (stats["sessions"]["open"], len(stats["tenants"]["shown"]), stats["tenants"]["others"]["open"]) == (10_000, 101, 9_900)
    broker.terminate()
    forget_sleeping(broker)  # nobody has to purge them one by one
