"""GET, PUT and DELETE /workspaces: stored workspaces as the store tells of them, pinned ones, and what the sweep may take."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any, Callable

import pytest
from berth import TOKEN, Broker, new_id, wait_until

DAY_MS = 24 * 3600 * 1000


@pytest.fixture(scope="module")
def measuring(_module_brokers: Any) -> Broker:
    return _module_brokers.make(cleanup_interval=1)


def stored(broker: Broker, workspace_id: str) -> dict[str, Any]:
    answer = broker.client.get(f"/workspaces/{workspace_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def listed(broker: Broker, **query: Any) -> list[str]:
    """All pages of a query."""
    ids: list[str] = []
    while True:
        answer = broker.client.get("/workspaces", params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        ids += [w["id"] for w in page["workspaces"]]
        if page["next"] is None:
            return ids
        query["cursor"] = page["next"]


def closed_with(broker: Broker, workspace_id: str, size: int, tenant: str | None = None) -> None:
    session = broker.open(workspace_id, tenant=tenant)
    session.write("/workspace/f", os.urandom(size))
    assert session.close().status_code == 204


def test_a_workspace_is_told_open_and_closed_with_what_was_measured(measuring: Broker) -> None:
    name = new_id("told")
    before = time.time()
    session = measuring.open(name, tenant="acme")
    told = stored(measuring, name)
    assert told["open"] and not told["pinned"] and told["tenant"] == "acme" and told["runtime"] == "python" and told["expires_at"] is None
    session.write("/workspace/sub/f", os.urandom(300_000))
    session.stdout("ln sub/f sub/g; ln -s nowhere l; mkfifo p")
    assert session.close().status_code == 204
    told = wait_until(lambda: (w := stored(measuring, name))["file_count"] == 5 and w["measured_at"] >= w["last_use"] and w, what="measured after the close")
    assert not told["open"] and 300_000 <= told["size_bytes"] < 400_000, told
    assert before - 1 <= told["created_at"] <= told["last_use"] <= told["measured_at"] <= time.time() + 1


def test_filters_sorting_and_pages(measuring: Broker) -> None:
    sizes = {"pg-a": 400_000, "pg-b": 100_000, "pg-c": 800_000, "pg-d": 200_000}
    for name, size in sizes.items():
        closed_with(measuring, name, size, tenant="even" if name in ("pg-b", "pg-d") else "odd")
    wait_until(lambda: all((stored(measuring, n)["size_bytes"] or 0) >= s for n, s in sizes.items()), what="all measured")
    assert listed(measuring, prefix="pg-") == ["pg-a", "pg-b", "pg-c", "pg-d"]
    assert listed(measuring, prefix="pg-", tenant="even") == ["pg-b", "pg-d"]
    # Anywhere in the id or the tenant, as plain text.
    assert listed(measuring, contains="g-b") == ["pg-b"] and listed(measuring, prefix="pg-", contains="ven") == ["pg-b", "pg-d"]
    assert listed(measuring, contains="%") == [] and listed(measuring, contains="g_b") == []
    assert listed(measuring, tenant="nobody") == [] and listed(measuring, prefix="pg_") == []
    for limit in (1, 2, 3, 4, 1000):
        assert listed(measuring, prefix="pg-", sort="size", limit=limit) == ["pg-b", "pg-d", "pg-a", "pg-c"]
        assert listed(measuring, prefix="pg-", sort="-size", limit=limit) == ["pg-c", "pg-a", "pg-d", "pg-b"]
        assert listed(measuring, prefix="pg-", sort="last_use", limit=limit) == ["pg-a", "pg-b", "pg-c", "pg-d"]
        assert listed(measuring, prefix="pg-", sort="-last_use", limit=limit) == ["pg-d", "pg-c", "pg-b", "pg-a"]
        assert listed(measuring, prefix="pg-", limit=limit) == ["pg-a", "pg-b", "pg-c", "pg-d"]


@pytest.mark.parametrize(
    "query",
    [{"sort": "name"}, {"sort": "-id"}, {"sort": ""}, {"cursor": "x"}, {"cursor": "1.."}, {"cursor": "5"}, {"cursor": ""}, {"limit": 0}, {"limit": "x"}],
)
def test_a_query_that_is_none_is_refused(measuring: Broker, query: dict[str, Any]) -> None:
    answer = measuring.client.get("/workspaces", params=query)
    assert answer.status_code == 422 and answer.json()["detail"][0]["loc"] == ["query", next(iter(query))]


def test_only_the_service_may(measuring: Broker) -> None:
    session = measuring.open(new_id("mine"))
    for headers in ({}, {"X-Sandbox-Token": session.token}, {"X-Sandbox-Token": TOKEN + "x"}):
        assert measuring.http.get("/workspaces", headers=headers).status_code == 401
        for method, body in (("GET", None), ("PUT", {"pinned": True}), ("DELETE", None)):
            assert measuring.http.request(method, f"/workspaces/{session.id}", headers=headers, json=body).status_code == 401
    assert not stored(measuring, session.id)["pinned"]


def test_an_open_one_is_not_removed_and_a_closed_one_is_for_certain(measuring: Broker) -> None:
    session = measuring.open(new_id("gone"))
    session.stdout("mkdir -p a/b && echo x > a/b/f && chmod 0 a/b a")
    slot = session.workspace.resolve().parent
    assert measuring.client.delete(f"/workspaces/{session.id}").status_code == 409
    assert slot.exists()
    assert session.close().status_code == 204
    assert measuring.client.delete(f"/workspaces/{session.id}").status_code == 204
    assert not slot.exists() and not os.path.lexists(measuring.root / session.id)
    for method, body in (("GET", None), ("DELETE", None), ("PUT", {"pinned": True})):
        assert measuring.client.request(method, f"/workspaces/{session.id}", json=body).status_code == 404
    assert session.id not in listed(measuring)


def test_a_folder_that_no_row_knows_is_told_and_pinned(measuring: Broker) -> None:
    folder = measuring.root / "stranger" / "workspace"
    folder.mkdir(parents=True)
    (folder / "f").write_bytes(b"x" * 5000)
    told = stored(measuring, "stranger")
    assert told["tenant"] is None and told["runtime"] is None and not told["open"]
    answer = measuring.client.put("/workspaces/stranger", json={"pinned": True})
    assert answer.status_code == 200 and answer.json()["pinned"]
    wait_until(lambda: stored(measuring, "stranger")["file_count"] == 1, what="measured as well")
    assert measuring.client.put("/workspaces/stranger", json={}).status_code == 422
    assert measuring.client.put("/workspaces/stranger", json={"pinned": True, "size": 1}).status_code == 422
    assert measuring.client.delete("/workspaces/stranger").status_code == 204
    assert not folder.parent.exists()


def test_without_a_root_there_are_none(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(workspace_root=None)
    for method, path in (("GET", "/workspaces"), ("GET", "/workspaces/x"), ("DELETE", "/workspaces/x")):
        assert broker.client.request(method, path).status_code == 409


def move_clock(clock: Path, ms: int, passed: int | None = None) -> None:
    clock.write_text(f"{ms} {ms if passed is None else passed}")
    os.utime(clock, (ms / 1000, ms / 1000))


def test_pinned_read_and_open_ones_outlive_their_time(make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    broker = make_broker(start=False, cleanup_interval=1, workspace_ttl=24 * 3600)
    broker.env["BERTH_TEST_CLOCK"] = str(clock)
    broker.start()
    for name in ("old", "pinned", "read"):
        closed_with(broker, name, 100)
    session = broker.open("read")
    session.stdout("truncate -s 2G big")
    assert session.close().status_code == 204
    broker.open("open")
    assert broker.client.put("/workspaces/pinned", json={"pinned": True}).status_code == 200
    told = stored(broker, "old")
    assert told["expires_at"] == pytest.approx(told["last_use"] + 24 * 3600, abs=0.01)
    assert stored(broker, "pinned")["expires_at"] is None

    with socket.create_connection(("127.0.0.1", broker.port)) as reader:
        reader.sendall(b"GET /workspaces/read/archive?format=tar HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: %b\r\n\r\n" % TOKEN.encode())
        assert reader.recv(1000).startswith(b"HTTP/1.1 200")
        move_clock(clock, 3 * DAY_MS)
        wait_until(lambda: not (broker.root / "old").exists(), what="the old one swept")
        # Two sweeps on, what comes after it in the folder was looked at as well.
        closed_with(broker, "later", 100)
        move_clock(clock, 6 * DAY_MS)
        wait_until(lambda: not (broker.root / "later").exists(), what="the next sweep")
        assert (broker.root / "read" / "workspace" / "big").exists() and stored(broker, "read")["id"] == "read"
    wait_until(lambda: not (broker.root / "read").exists(), what="the one that was read, once nobody reads it")
    assert (broker.root / "pinned" / "workspace" / "f").exists() and stored(broker, "open")["open"]
    # Pins survive a restart and a new opening; without one it goes in its turn.
    broker.restart()
    assert broker.open("pinned").close().status_code == 204
    assert stored(broker, "pinned")["pinned"]
    assert broker.client.put("/workspaces/pinned", json={"pinned": False}).status_code == 200
    move_clock(clock, 9 * DAY_MS)
    wait_until(lambda: not (broker.root / "pinned").exists(), what="swept when the pin is gone")


def test_a_clock_that_is_set_takes_nothing(make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    broker = make_broker(start=False, cleanup_interval=1, workspace_ttl=24 * 3600)
    broker.env["BERTH_TEST_CLOCK"] = str(clock)
    broker.start()
    closed_with(broker, "kept", 100)
    left = stored(broker, "kept")["expires_at"] - time.time()
    move_clock(clock, 100 * DAY_MS, passed=0)
    wait_until(lambda: "clock.jumped" in broker.log(), what="the jump was seen")
    # Two workspaces that come and go with time that did pass: sweeps were made in between.
    for days in (0.4, 0.8):
        move_clock(clock, int((100 + days) * DAY_MS), passed=int(days * DAY_MS))
    told = wait_until(lambda: (w := stored(broker, "kept"))["expires_at"] > time.time() + 99 * 24 * 3600 and w, what="moved along")
    assert told["expires_at"] - 100 * 24 * 3600 - time.time() == pytest.approx(left, abs=30)
    closed_with(broker, "new", 100)
    move_clock(clock, int(101.2 * DAY_MS), passed=int(1.2 * DAY_MS))
    wait_until(lambda: not (broker.root / "kept").exists(), what="swept when its time has passed")
    assert (broker.root / "new" / "workspace" / "f").exists()
