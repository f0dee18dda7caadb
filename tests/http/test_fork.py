"""Forks and snapshots: on a plain file system, where they are honest copies, and on btrfs, where they are snapshots."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Callable

import httpx
import pytest
from berth import Broker, Session, new_id, wait_until
from btrfs import mount_btrfs

TREE = r"""
mkdir -p deep/er 'odd
name' locked && echo a > deep/a && ln deep/a deep/er/b && ln -s ../deep/a deep/link && ln -s /workspace/deep abs && ln -s nowhere dangling
mkfifo pipe && printf '\377\n' > "$(printf 'raw\377')" && chmod 4755 deep/a && chmod 1777 deep && chown 1234:2345 deep/er
head -c 3000000 /dev/urandom > big && truncate -s 50M sparse && echo end >> sparse && echo s > locked/secret && chmod 0 locked/secret locked
touch -h -d '2001-02-03 04:05:06.123456789' deep/link big && touch -d '2002-03-04 05:06:07.5' deep/er deep
"""
# What a tree is: kind, mode, owner, size, time, links and target of every entry, contents of files, and which names are one file.
TELL = r"""
find . -mindepth 1 -printf '%y %m %U:%G %s %T@ %n %l %p\n' | sed 's/^d\([^ ]*\) \(.*\) [0-9]* \([0-9.]*\) [0-9]* /d \1 \2 \3 /' | LC_ALL=C sort
find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; stat -c %h deep/a; [ deep/a -ef deep/er/b ] && echo same
du -s --block-size=1M sparse | cut -f1
"""


def tell(session: Session) -> bytes:
    answer = session.exec(TELL)
    assert answer.status_code == 200 and answer.json()["exit_code"] == 0, answer.text
    # Sizes of directories are the file system's affair.
    return b"\n".join(line for line in answer.json()["output"].encode("utf-8", "surrogateescape").split(b"\n"))


def fork(broker: Broker, origin: str, **body: Any) -> tuple[Session, str]:
    answer = broker.client.post(f"/sessions/{origin}/fork", json=body)
    assert answer.status_code == 200, answer.text
    return Session(broker, answer.json()), answer.json()["method"]


def slots(broker: Broker) -> set[str]:
    return set(os.listdir(broker.root / ".slots"))


@pytest.fixture(params=["plain", "btrfs"])
def store(request: pytest.FixtureRequest, make_broker: Callable[..., Broker]) -> Broker:
    broker = make_broker(start=False, cleanup_interval=1)
    if request.param == "btrfs":
        mount_btrfs(broker)
    broker.method = "snapshot" if request.param == "btrfs" else "copy"  # type: ignore[attr-defined]
    return broker.start()


def test_a_fork_is_the_same_tree_and_goes_its_own_way(store: Broker) -> None:
    origin = store.open("origin", tenant="acme")
    origin.stdout(TREE)
    for place in ("deep/a", "deep"):
        os.setxattr(origin.workspace / place, "user.note", b"of \0 " + place.encode())
    before = tell(origin)
    copy, method = fork(store, "origin", session_id="copy")
    assert method == store.method  # type: ignore[attr-defined]
    assert copy.id == "copy" and copy.info["tenant"] == "acme" and copy.info["runtime"] == "python" and copy.token != origin.token
    assert tell(copy) == before
    assert [os.getxattr(copy.workspace / place, "user.note") for place in ("deep", "deep/a")] == [b"of \0 deep", b"of \0 deep/a"]
    copy.stdout("echo new > deep/a; rm -rf big; echo mine > own")
    assert tell(origin) == before
    origin.stdout("echo other > theirs")
    assert copy.stdout("ls theirs 2>/dev/null; cat deep/er/b own") == "new\nmine\n" or copy.sh("test ! -e theirs")["exit_code"] == 0
    # A fork of a fork, of a sleeping one, of a closed one; a made name and another tenant.
    copy.close()
    third, _ = fork(store, "copy", tenant="other")
    assert third.info["tenant"] == "other" and third.id.startswith("s-") and third.stdout("cat own") == "mine\n"
    assert store.client.post("/sessions/origin/hibernate").status_code == 200
    assert fork(store, "origin")[0].stdout("cat theirs") == "other\n"


def test_what_is_refused_leaves_nothing(store: Broker) -> None:
    origin = store.open("origin")
    origin.stdout("echo x > f")
    closed = store.open("closed")
    closed.write("/workspace/keep", b"keep")
    closed.close()
    there = slots(store)
    for taken in ("origin", "closed"):
        assert store.client.post("/sessions/origin/fork", json={"session_id": taken}).status_code == 409
    assert store.client.post("/sessions/nobody/fork", json={}).status_code == 404
    assert store.client.post("/sessions/origin/fork", json={"runtime": "cobol"}).status_code == 400
    assert store.client.post("/sessions/origin/fork", json={"session_id": "../x"}).status_code == 422
    assert store.client.post("/sessions/origin/fork", json={"files": []}).status_code == 422
    assert origin.request("POST", "/fork", json={}).status_code == 401
    assert slots(store) == there and (store.root / "closed" / "workspace" / "keep").read_bytes() == b"keep"


def test_a_fork_is_never_half(store: Broker) -> None:
    """Killed while it copies: there is no new session then, and a start leaves no slot behind."""
    origin = store.open("origin")
    origin.stdout("mkdir d && cd d && for i in $(seq 3000); do echo $i > f$i; done; head -c 200M /dev/zero > ../zeros")
    there = slots(store)

    def ask() -> None:
        with contextlib.suppress(httpx.HTTPError):  # unless it was quicker than we
            store.client.post("/sessions/origin/fork", json={"session_id": "copy"})

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: slots(store) - there, what="it began", interval=0.0005)
    store.crash()
    asking.join()
    wait_until(lambda: slots(store) == there or store.client.get("/workspaces/copy").status_code == 200, what="swept, or whole")
    if slots(store) != there:
        assert store.open("copy", reuse=True).stdout("ls d | wc -l; stat -c %s zeros") == f"3000\n{200 * 1024 * 1024}\n"
    assert store.open("origin", reuse=True).stdout("ls d | wc -l") == "3000\n"


def test_snapshots_are_kept_restored_and_deleted(store: Broker) -> None:
    session = store.open("s")
    session.stdout(TREE)
    first = tell(session)
    made = session.request("POST", "/snapshots", json={"name": "first"})
    assert made.status_code == 200 and made.json()["method"] == store.method, made.text  # type: ignore[attr-defined]
    session.stdout("rm -rf deep big; echo second > f")
    assert session.request("POST", "/snapshots", json={}).status_code == 200
    listed = session.request("GET", "/snapshots").json()["snapshots"]
    assert [s["name"] for s in listed] == ["first", None] and abs(listed[0]["created_at"] - time.time()) < 60
    url = f"/workspaces/s/snapshots/{listed[0]['snapshot_id']}"
    # Snapshots survive a death, and a start takes none of them for a slot that nobody names.
    store.crash()
    session = store.open("s", reuse=True)
    assert session.close().status_code == 204
    assert store.client.post(f"{url}/restore").status_code == 200
    again = store.open("s")
    assert tell(again) == first
    again.close()
    assert store.client.post(f"/workspaces/s/snapshots/{listed[1]['snapshot_id']}/restore").status_code == 200
    last = store.open("s")
    assert last.stdout("cat f; test ! -e deep") == "second\n"
    # Open, it works on what was restored at once.
    assert last.request("POST", f"/snapshots/{listed[0]['snapshot_id']}/restore").status_code == 200
    assert tell(last) == first
    assert last.request("POST", f"/snapshots/{listed[1]['snapshot_id']}/restore").status_code == 200
    assert last.stdout("cat f; test ! -e deep") == "second\n"
    assert store.client.delete(url).status_code == 204
    assert store.client.delete(url).status_code == 404
    assert store.client.post(f"{url}/restore").status_code == 404
    assert store.open("s", reuse=True).stdout("cat f; test ! -e deep") == "second\n", "and nothing was changed"
    assert len(store.client.get("/workspaces/s/snapshots").json()["snapshots"]) == 1
    # A purge takes the snapshots along.
    assert store.purge("s").status_code == 204
    assert slots(store) == set()
    assert store.client.get("/workspaces/s/snapshots").status_code == 404


def test_a_folder_as_the_reference_laid_it_is_forked_and_restored(store: Broker) -> None:
    folder = store.root / "old" / "workspace"
    folder.mkdir(parents=True)
    (folder / "f").write_bytes(b"one")
    snapshot = store.client.post("/workspaces/old/snapshots", json={}).json()["snapshot_id"]
    (folder / "f").write_bytes(b"two")
    copy, _ = fork(store, "old", session_id="copy")
    assert copy.stdout("cat f") == "two"
    assert store.client.post(f"/workspaces/old/snapshots/{snapshot}/restore").status_code == 200
    assert (store.root / "old").is_symlink() and (store.root / "old" / "workspace" / "f").read_bytes() == b"one"
    assert store.open("old").stdout("cat f") == "one"
    assert store.client.post(f"/workspaces/old/snapshots/{'0' * 16}/restore").status_code == 404
    assert store.client.delete("/workspaces/old/snapshots/../../x").status_code == 404


def test_only_who_may(store: Broker) -> None:
    session = store.open("mine")
    other = store.open("other")
    snapshot = session.request("POST", "/snapshots", json={}).json()["snapshot_id"]
    headers = {"X-Sandbox-Token": other.token}
    assert store.http.post("/sessions/mine/snapshots", json={}, headers=headers).status_code == 401
    assert store.http.delete(f"/sessions/mine/snapshots/{snapshot}", headers=headers).status_code == 401
    assert store.http.delete(f"/sessions/other/snapshots/{snapshot}", headers=headers).status_code == 404
    assert store.http.post(f"/workspaces/mine/snapshots/{snapshot}/restore", headers={"X-Sandbox-Token": session.token}).status_code == 401
    assert session.request("DELETE", f"/snapshots/{snapshot}").status_code == 204
    assert session.request("POST", "/snapshots", json={"name": "a/b"}).status_code == 422


def test_on_btrfs_a_foreign_subvolume_is_copied(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(start=False)
    mount_btrfs(broker)
    broker.start()
    broker.open("small").stdout("head -c 1M /dev/urandom > data")
    # The operator put a subvolume in: a snapshot would leave it out.
    subprocess.run(["btrfs", "subvolume", "create", broker.root / "small" / "workspace" / "sub"], check=True, capture_output=True)
    (broker.root / "small" / "workspace" / "sub" / "f").write_bytes(b"inside")
    copy, method = fork(broker, "small")
    assert method in ("reflink", "copy") and copy.stdout("cat sub/f; stat -c %s data") == f"inside{1024 * 1024}\n"
    assert broker.purge("small").status_code == 204
