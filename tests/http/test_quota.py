"""Disk quota of a workspace: kept by btrfs where it is there, else by a stop of what is written through the service and a sweep."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any, Callable

import pytest
from berth import SLOWNESS, Broker, Session, wait_until
from btrfs import mount_btrfs, qgroups, subvolumes, sync

MIB = 1024 * 1024
SUBVOLUMES = r"""
import fcntl, os
fd = os.open('/workspace', os.O_RDONLY)
told = []
for number in (0x5000940e, 0x50009401, 0x50009418, 0x50009417, 0x5000940f, 0x4010942a, 0x802c942b):
    for high in (0, 1 << 32):
        try:
            fcntl.ioctl(fd, number | high, bytearray(b'\0' * 8 + b'nested' + b'\0' * 4082))
            told.append(f'{number:x} done')
        except PermissionError:
            pass
        except OverflowError:
            pass
        except OSError as error:
            told.append(f'{number:x} {error}')
print(told, os.listdir('.'))
"""


def disk(broker: Broker) -> dict[str, Any]:
    return broker.client.get("/isolation").json()["python"]["disk"]


def stored(broker: Broker, workspace_id: str) -> dict[str, Any]:
    return broker.client.get(f"/workspaces/{workspace_id}").json()


def put(session: Session, path: str, size: int):
    blocks = (os.urandom(MIB) for _ in range(size // MIB))
    return session.request("PUT", "/content", params={"path": path}, content=blocks)


def names(session: Session) -> set[str]:
    return set(os.listdir(session.workspace))


# ---- btrfs


@pytest.fixture
def limited(make_broker: Callable[..., Broker]) -> Broker:
    broker = make_broker(start=False, workspace_quota_bytes=64 * MIB, cleanup_interval=1)
    mount_btrfs(broker, 2048)
    return broker.start()


def full(session: Session, size_mib: int = 200) -> None:
    """dd inside meets the limit, and stays below it."""
    said = session.sh(f"head -c {size_mib}M /dev/urandom > big; sync big")
    assert said["exit_code"] != 0 or session.workspace.joinpath("big").stat().st_size < size_mib * MIB
    assert "quota exceeded" in said["stderr"].lower() or "no space left" in said["stderr"].lower(), said
    assert int(session.stdout("du -s -B1 . | cut -f1")) <= 66 * MIB


def test_btrfs_keeps_the_limit_whoever_writes(limited: Broker) -> None:
    assert disk(limited)["state"] == "enforced"
    session = limited.open("s")
    full(session)
    session.stdout("rm big; sync .")
    # Through the service as well: told, and the old file stays.
    session.write("/workspace/f", b"old")
    answer = put(session, "f", 100 * MIB)
    assert answer.status_code == 507, answer.text
    assert session.read("/workspace/f") == b"old" and names(session) == {"f"}
    # Another session has its own.
    assert limited.open("other").stdout("head -c 40M /dev/urandom > f && echo fine") == "fine\n"


def test_forks_pool_and_restored_ones_have_the_same_limit(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(start=False, workspace_quota_bytes=64 * MIB, cleanup_interval=1, pool="python=1")
    mount_btrfs(broker, 2048)
    broker.start()
    wait_until(lambda: len(os.listdir(broker.root / ".slots")) == 1, what="one started ahead")
    session = broker.open("s")
    session.stdout("head -c 20M /dev/urandom > f")
    fork = broker.client.post("/sessions/s/fork", json={"session_id": "fork"})
    assert fork.status_code == 200 and fork.json()["method"] == "snapshot"
    full(Session(broker, fork.json()))
    full(session)
    session.close()
    broker.restart()
    full(broker.open("s", attach=True))


def test_nobody_leaves_the_limit_by_a_subvolume_of_its_own(limited: Broker) -> None:
    session = limited.open("s")
    said = session.python(SUBVOLUMES)
    assert said["exit_code"] == 0 and said["stdout"] == "[] []\n", said


# ---- btrfs: all of a tenant's


def tenant_limit(broker: Broker, tenant: str, mib: int | None) -> None:
    answer = broker.client.put(f"/tenants/{tenant}", json={"max_disk_bytes": mib and mib * MIB})
    assert answer.status_code == 200, answer.text


def fits(session: Session, name: str, mib: int) -> bool:
    said = session.sh(f"head -c {mib}M /dev/urandom > {name} && sync {name} && stat -c %s {name}")
    if said["exit_code"] == 0:
        return said["stdout"] == f"{mib * MIB}\n"
    assert "quota exceeded" in said["stderr"].lower(), said
    session.stdout(f"rm -f {name}; sync .")
    return False


def ours(broker: Broker) -> dict[str, int]:
    return {number: size for number, size in qgroups(broker).items() if number.startswith("190/")}


@pytest.fixture
def tenants(make_broker: Callable[..., Broker]) -> Broker:
    """No quota of a workspace: the file system begins to count when a tenant gets its limit."""
    broker = make_broker(start=False, cleanup_interval=1)
    mount_btrfs(broker, 2048)
    return broker.start()


def test_what_a_tenant_holds_is_limited_as_a_whole(tenants: Broker) -> None:
    broker = tenants
    first = broker.open("first", tenant="acme")
    assert fits(first, "early", 30)
    sync(broker)
    tenant_limit(broker, "acme", 64)
    # What was there before is counted; workspaces that come later are in it from the start.
    wait_until(lambda: 30 * MIB <= max(ours(broker).values(), default=0) < 32 * MIB, 20, "counted")
    second = broker.open("second", tenant="acme")
    assert fits(second, "f", 20)
    assert not fits(second, "g", 20) and not fits(first, "g", 20)
    answer = put(first, "g", 20 * MIB)
    assert answer.status_code == 507 and names(first) == {"early"}, answer.text
    assert fits(broker.open("foreign", tenant="other"), "f", 80) and fits(broker.open("nobodys"), "f", 80)
    # The limit follows, and a restart.
    tenant_limit(broker, "acme", 96)
    assert fits(first, "g", 20) and not fits(second, "h", 30)
    broker.crash()
    second = broker.open("second", tenant="acme", reuse=True)
    assert not fits(second, "h", 30)
    tenant_limit(broker, "acme", None)
    assert fits(second, "h", 80)


def test_copies_are_counted_once_within_a_tenant_and_moved_ones_with_their_new(tenants: Broker) -> None:
    broker = tenants
    tenant_limit(broker, "acme", 64)
    origin = broker.open("origin", tenant="acme")
    assert fits(origin, "f", 40)
    sync(broker)
    # Blocks that are shared take no room: a fork, a snapshot and what is restored of it.
    fork = broker.client.post("/sessions/origin/fork", json={"session_id": "fork"})
    assert fork.status_code == 200 and fork.json()["method"] == "snapshot", fork.text
    taken = origin.request("POST", "/snapshots", json={})
    assert taken.status_code == 200 and taken.json()["method"] == "snapshot"
    sync(broker)
    assert 40 * MIB <= max(ours(broker).values()) < 42 * MIB
    assert fits(Session(broker, fork.json()), "own", 15) and not fits(origin, "more", 15)
    assert origin.request("POST", f"/snapshots/{taken.json()['snapshot_id']}/restore").json()["method"] == "snapshot"
    assert not fits(origin, "more", 15)
    # For another tenant that has a limit it is copied, so that the kernel holds the limit from the first block on; else it is shared file by file.
    shared = broker.client.post("/sessions/origin/fork", json={"session_id": "shared", "tenant": "free"})
    assert shared.status_code == 200 and shared.json()["method"] == "reflink", shared.text
    tenant_limit(broker, "small", 30)
    refused = broker.client.post("/sessions/origin/fork", json={"session_id": "refused", "tenant": "small"})
    assert refused.status_code == 507, refused.text
    # Its blocks come back when the file system has cleaned up.
    wait_until(lambda: not any(2 * MIB < size < 35 * MIB for size in ours(broker).values()), 60, "nothing is left of it", 0.5)
    tenant_limit(broker, "small", 60)
    other = broker.client.post("/sessions/origin/fork", json={"session_id": "copy", "tenant": "small"})
    assert other.status_code == 200 and other.json()["method"] == "copy", other.text
    assert not fits(Session(broker, other.json()), "more", 30)
    # A closed one that is opened for another tenant counts there.
    assert broker.purge("fork").status_code == 204 and broker.purge("copy").status_code == 204
    origin.close()
    moved = broker.open("origin", tenant="small", attach=True)
    wait_until(lambda: not fits(moved, "more", 30), 30, "counted there")


def test_started_ahead_it_counts_for_whom_it_becomes(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(start=False, cleanup_interval=1, pool="python=1", workspace_quota_bytes=128 * MIB)
    mount_btrfs(broker, 2048)
    broker.start()
    wait_until(lambda: len(os.listdir(broker.root / ".slots")) == 1, what="one started ahead")
    tenant_limit(broker, "acme", 32)
    session = broker.open("s", tenant="acme")
    assert not fits(session, "f", 40) and fits(session, "f", 20)


def test_no_quota_group_outlives_its_workspaces(tenants: Broker) -> None:
    broker = tenants
    tenant_limit(broker, "acme", 64)
    kept = broker.open("kept", tenant="acme")
    for i in range(6):
        broker.open(f"s{i}", tenant=f"tenant{i % 3}").stdout("head -c 1M /dev/urandom > f")
    kept.request("POST", "/snapshots", json={})
    assert len(ours(broker)) == 4
    assert len(subvolumes(broker)) == 8
    for i in range(6):
        assert broker.purge(f"s{i}").status_code == 204

    def is_clean() -> bool:
        there = set(qgroups(broker)) - {"0/5"}
        return len(subvolumes(broker)) == 2 and len(ours(broker)) == 1 and there == subvolumes(broker) | set(ours(broker))

    wait_until(is_clean, 60, "only what is there is counted", 0.5)
    # What an earlier broker left: a group without members goes at a start, one of others stays.
    broker.kill9()
    for number in ("190/77", "1/77"):
        subprocess.run(["btrfs", "qgroup", "create", number, broker.root], check=True, capture_output=True)
    broker.start()
    wait_until(lambda: "190/77" not in qgroups(broker), 20, "swept")
    assert "1/77" in qgroups(broker) and len(ours(broker)) == 1
    assert not fits(broker.open("kept", tenant="acme", reuse=True), "f", 80)


# ---- accounted


@pytest.fixture
def watched(make_broker: Callable[..., Broker]) -> Broker:
    return make_broker(workspace_quota_bytes=8 * MIB, workspace_quota_inodes=50, cleanup_interval=1)


def test_what_is_written_through_the_service_stops_at_the_limit(watched: Broker) -> None:
    assert disk(watched)["state"] == "accounted" and "quota" in disk(watched)["detail"].split(": ")[1], "and why"
    session = watched.open("s")
    assert put(session, "f", 5 * MIB).status_code == 201
    assert put(session, "g", 5 * MIB).status_code == 507
    assert session.files_write("/workspace/h", b"x" * 5 * MIB).status_code in (409, 413, 507)
    assert names(session) == {"f"}
    assert session.stdout("echo it runs") == "it runs\n"
    # What was removed may be written again, once it was measured.
    assert session.request("DELETE", "/content", params={"path": "f"}).status_code == 204
    wait_until(lambda: put(session, "g", 5 * MIB).status_code == 201, what="room again")


def test_what_was_measured_while_it_arrived_is_not_given_again(watched: Broker) -> None:
    session = watched.open("s")

    def blocks():
        yield from (os.urandom(MIB) for _ in range(5))
        for _ in range(2):  # the second began after they were sent
            before = stored(watched, "s")["measured_at"] or 0
            wait_until(lambda: (stored(watched, "s")["measured_at"] or 0) > before, what="measured while it arrives")
        yield b"end"

    assert session.request("PUT", "/content", params={"path": "f"}, content=blocks()).status_code == 201
    assert put(session, "g", 5 * MIB).status_code == 507


def test_sleep_gives_no_room(watched: Broker) -> None:
    session = watched.open("s")
    for name in ("f", "g"):  # the second time with what was just written measured, or not
        answer = put(session, name, 5 * MIB)
        assert answer.status_code == (201 if name == "f" else 507), answer.text
        assert session.request("POST", "/hibernate").status_code in (200, 204)
    assert session.stdout("ls") == "f\n"


@pytest.mark.parametrize("excess", ["head -c 20M /dev/urandom > big", "mkdir big; seq 60 | sed s,^,big/f, | xargs touch"])
def test_whoever_goes_over_is_frozen_until_files_are_removed(watched: Broker, excess: str) -> None:
    session = watched.open("s")
    # What runs when the sweep finds it is stopped, and answered.
    began = time.monotonic()
    assert session.sh(f"{excess}; sleep 120")["exit_code"] != 0 and time.monotonic() - began < 60 * SLOWNESS
    assert stored(watched, "s")["over_quota"]
    wait_until(lambda: watched.engine.inspect(session.container())["State"]["Paused"], what="frozen")
    answer = session.post_run(["true"])
    assert answer.status_code == 507 and "quota" in answer.json()["detail"], answer.text
    assert put(session, "more", MIB).status_code == 507
    # Reading and removing go on without it.
    assert session.request("GET", "/archive", params={"format": "tar"}).status_code == 200
    assert session.request("DELETE", "/content", params={"path": "big"}).status_code == 204
    wait_until(lambda: not watched.engine.inspect(session.container())["State"]["Paused"], what="thawed")
    wait_until(lambda: session.post_run(["true"]).status_code == 200, what="it runs again")
    assert not stored(watched, "s")["over_quota"]
    session.sh(f"({excess}; sleep 120) >/dev/null 2>&1 &")
    wait_until(lambda: stored(watched, "s")["over_quota"], what="over again, by what runs in the background")
    assert watched.purge("s").status_code == 204


def test_no_quota_is_told(make_broker: Callable[..., Broker]) -> None:
    assert disk(make_broker())["state"] == "not enforced"
    assert make_broker(start=False, workspace_quota_bytes=0).fail_to_start()[0] != 0
