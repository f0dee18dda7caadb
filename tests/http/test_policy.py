"""What the operator may change while the service runs: PUT /policy, and the file that says the same."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable

import httpx
import pytest

from berth import Broker, wait_until


def put(broker: Broker, **fields: Any) -> httpx.Response:
    return broker.client.put("/policy", json=fields)


def policy(broker: Broker) -> dict[str, Any]:
    answer = broker.client.get("/policy")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_what_is_put_is_answered_and_told(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    before = policy(broker)
    change = {
        "max_sessions": 7,
        "max_open_sessions": 9,
        "max_sessions_per_tenant": 3,
        "evict_idle_after": 60,
        "idle_timeout": 900,
        "execute_timeout": 120,
        "max_read_bytes": 1000,
        "workspace_ttl": 3600,
        "container_ttl": 60,
        "mem_limit": "512m",
        "memswap_limit": "1g",
        "tmpfs_size": "32m",
        "cpus": 1.5,
        "cpu_shares": 512,
        "pids_limit": 99,
    }
    answer = put(broker, **change)
    assert answer.status_code == 200, answer.text
    assert list(answer.json()) == list(before)  # the whole policy, its keys in their order
    assert {name: answer.json()[name] for name in change} == change
    assert policy(broker) == answer.json()
    assert broker.http.get("/healthz").json()["limit"] == 7


def test_null_lifts_a_ceiling_and_absent_leaves_it(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    assert put(broker, max_sessions=None, tmpfs_size=None, runtimes={"python": {"cpus": 0.5, "mem_limit": "64m"}}).status_code == 200
    told = policy(broker)
    assert told["max_sessions"] is None and told["tmpfs_size"] is None and told["idle_timeout"] == 1800
    assert told["runtimes"][0]["cpus"] == 0.5 and told["runtimes"][0]["mem_limit"] == "64m"
    assert put(broker, runtimes={"python": {"cpus": None}}).status_code == 200
    told = policy(broker)
    assert told["runtimes"][0]["cpus"] == told["cpus"] == 2.0  # the service's again
    assert told["runtimes"][0]["mem_limit"] == "64m"


@pytest.mark.parametrize(
    "fields, named",
    [
        ({"network_mode": "host"}, "network_mode"),
        ({"sandbox_uid": 0}, "sandbox_uid"),
        ({"native_files": False}, "native_files"),
        ({"work_dir": "/"}, "work_dir"),
        ({"privileged": True}, "privileged"),
        ({"runtimes": {"python": {"image": "evil"}}}, "image"),
        ({"runtimes": {"python": 3}}, "python"),
        ({"runtimes": []}, "runtimes"),
        ({"execute_timeout": 0}, "execute_timeout"),
        ({"max_read_bytes": 0}, "max_read_bytes"),
        ({"idle_timeout": -1}, "idle_timeout"),
        ({"max_sessions": "many"}, "max_sessions"),
        ({"max_sessions": 10**30}, "max_sessions"),
        ({"cpus": 0}, "cpus"),
        ({"pids_limit": 0}, "pids_limit"),
        ({"mem_limit": 5}, "mem_limit"),
        ({"idle_timeout": None}, "idle_timeout"),
        ({"execute_timeout": None}, "execute_timeout"),
        ({"max_read_bytes": None}, "max_read_bytes"),
    ],
)
def test_what_cannot_be_set_is_refused_by_name(broker: Broker, fields: dict[str, Any], named: str) -> None:
    before = policy(broker)
    answer = put(broker, max_sessions_per_tenant=5, **fields) if "max_sessions" not in fields else put(broker, **fields)
    assert answer.status_code == 422 and f'"{named}"' in answer.text
    assert policy(broker) == before  # nothing of it, not even what was right


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_a_number_that_is_not_finite_is_refused(broker: Broker, number: str) -> None:
    before = policy(broker)
    for field in ("cpus", "idle_timeout"):
        body = f'{{"{field}": {number}}}'
        answer = broker.client.put("/policy", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422, answer.text
    assert policy(broker) == before


@pytest.mark.parametrize(
    "fields",
    [
        {"default_runtime": "ruby"},
        {"default_runtime": None},
        {"runtimes": {"ruby": {"cpus": 1}}},
        {"runtimes": {"python": {"cpus": 1}, "ruby": {"cpus": 1}}},
        {"mem_limit": "lots"},
        {"mem_limit": "1k"},
        {"mem_limit": "1g", "memswap_limit": "512m"},
        {"max_sessions": 20, "max_open_sessions": 10},
        {"tmpfs_size": "a bit"},
        {"cpu_shares": 1},
        {"cpus": 0.001},
    ],
)
def test_what_would_not_work_is_refused_whole(broker: Broker, fields: dict[str, Any]) -> None:
    before = policy(broker)
    answer = put(broker, idle_timeout=77, **fields)
    assert answer.status_code == 400 and isinstance(answer.json()["detail"], str), answer.text
    assert policy(broker) == before


def test_only_the_service_token_changes_it(broker: Broker, session: Callable[..., Any]) -> None:
    token = session().token
    assert broker.http.put("/policy", json={}, headers={"X-Sandbox-Token": token}).status_code == 401
    assert broker.http.put("/policy", json={}).status_code == 401
    assert put(broker).status_code == 200


def test_it_survives_a_restart_and_a_crash(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    assert put(broker, idle_timeout=900, runtimes={"python": {"cpus": 1}}).status_code == 200
    assert put(broker, max_sessions=None, runtimes={"python": {"pids_limit": 64}}).status_code == 200
    told = policy(broker)
    broker.restart()
    assert policy(broker) == told
    broker.crash()
    assert policy(broker) == told


def test_what_is_remembered_of_a_runtime_that_went_does_not_keep_the_rest(make_broker: Callable[..., Broker]) -> None:
    from berth import IMAGE

    broker = make_broker(runtimes=f"python={IMAGE},extra={IMAGE}")
    assert put(broker, idle_timeout=900, default_runtime="extra", runtimes={"extra": {"cpus": 1}, "python": {"cpus": 1}}).status_code == 200
    broker.terminate()
    broker.settings["runtimes"] = f"python={IMAGE}"
    broker.start()
    told = policy(broker)
    assert told["default_runtime"] == "python" and told["idle_timeout"] == 900
    assert [r["cpus"] for r in told["runtimes"]] == [1.0]
    assert "policy.runtime_gone" in broker.log()


def test_max_sessions_is_enforced_as_told(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    broker.open("one")
    assert put(broker, max_sessions=1).status_code == 200
    refused = broker.client.post("/sessions", json={"session_id": "two"})
    assert refused.status_code == 429 and "1" in refused.json()["detail"]
    assert put(broker, max_sessions=None).status_code == 200
    broker.open("two")


def test_limits_hold_for_the_next_sandbox_and_leave_the_running_one(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    first = broker.open("first")
    container = first.container()
    assert put(broker, mem_limit="64m", pids_limit=33).status_code == 200
    assert first.stdout("echo still here") == "still here\n" and first.container() == container
    second = broker.open("second")
    limits = broker.engine.inspect(second.container())["HostConfig"]
    assert limits["Memory"] == 64 * 1024 * 1024 and limits["PidsLimit"] == 33


def test_execute_timeout_and_max_read_bytes_hold_at_once(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    s = broker.open("now")
    s.write("/workspace/ten", b"0123456789")
    assert put(broker, execute_timeout=1, max_read_bytes=10).status_code == 200
    assert s.sh("sleep 600")["timed_out"]
    assert s.read("/workspace/ten") == b"0123456789"  # the limit is inclusive
    assert s.files_write("/workspace/eleven", b"01234567890").status_code == 409
    assert put(broker, max_read_bytes=9).status_code == 200
    assert s.files("read", "/workspace/ten").status_code == 409


# ---- the file


def overridden(make_broker: Callable[..., Broker], tmp_path: Path, content: str | None) -> tuple[Broker, Path]:
    file = tmp_path / "policy.json"
    if content is not None:
        file.write_text(content)
    return make_broker(policy_overrides=str(file), cleanup_interval=1), file


def replace(file: Path, content: str) -> None:
    """As an operator does it: a new file over the old."""
    new = file.with_suffix(".new")
    new.write_text(content)
    os.replace(new, file)


def test_the_file_is_read_before_anything_is_served(make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    broker, _ = overridden(make_broker, tmp_path, '{"idle_timeout": 111, "runtimes": {"python": {"cpus": 1}}}')
    told = policy(broker)
    assert told["idle_timeout"] == 111 and told["runtimes"][0]["cpus"] == 1.0


def test_the_file_is_read_again_when_it_changes_and_its_end_reverts_nothing(make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    broker, file = overridden(make_broker, tmp_path, None)  # absent is normal
    assert policy(broker)["idle_timeout"] == 1800
    replace(file, '{"idle_timeout": 222}')
    wait_until(lambda: policy(broker)["idle_timeout"] == 222, what="the file in force")
    replace(file, '{"execute_timeout": 44}')
    wait_until(lambda: policy(broker)["execute_timeout"] == 44, what="its next content in force")
    assert policy(broker)["idle_timeout"] == 222
    told = policy(broker)
    file.unlink()
    broker.client.put("/policy", json={"max_sessions": 19})
    file.write_text('{"workspace_ttl": 5000}')
    wait_until(lambda: policy(broker)["workspace_ttl"] == 5000, what="a file that came back")
    assert policy(broker) == told | {"max_sessions": 19, "workspace_ttl": 5000}


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"idle_timeout": null}', '{"idle_timeout": 5, "network_mode": "host"}', '{"idle_timeout": 5, "mem_limit": "lots"}', '{"idle_timeout": 5, "runtimes": {"ruby": {}}}'],
)
def test_a_file_that_is_wrong_changes_nothing_and_says_so_once(make_broker: Callable[..., Broker], tmp_path: Path, content: str) -> None:
    broker, file = overridden(make_broker, tmp_path, content)
    assert policy(broker)["idle_timeout"] == 1800

    def complaints() -> list[str]:
        return [line for line in broker.log().splitlines() if "policy.overrides" in line]

    assert len(complaints()) == 1 and str(file) in complaints()[0]
    # A right one is taken afterwards, and its line written once it is in force: by then the wrong one was looked at again, and nothing was said.
    before = len(complaints())
    replace(file, json.dumps({"idle_timeout": 333}))
    wait_until(lambda: len(complaints()) > before and policy(broker)["idle_timeout"] == 333, what="the mended file in force")
    assert len(complaints()) == before + 1
