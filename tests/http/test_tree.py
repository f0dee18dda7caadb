"""Whole trees of stored workspaces, for an operator's page: nothing is started for them."""

from __future__ import annotations

import os
import re
import shutil
import time
from typing import Any, Callable, Iterator

import pytest

from berth import SLOWNESS, Broker, Session, new_id

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\+00:00")


@pytest.fixture
def stored(broker: Broker) -> Iterator[str]:
    """A workspace as the reference laid it, which no session of this broker ever knew."""
    name = new_id("stored")
    top = broker.root / name / "workspace"
    top.mkdir(parents=True)
    for path, content in {
        "b.txt": "bb", "a.txt": "a", ".hid/in.txt": "hidden", "src/pkg/c.py": "c", "src/a.py": "aa", "src/pkg/deep/d.py": "d",
    }.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(content)
    (top / "empty").mkdir()
    (top / "link_out").symlink_to("/etc")
    (top / "link_in").symlink_to("src")
    (top / "dangling").symlink_to("nowhere")
    os.mkfifo(top / "fifo")
    yield name
    shutil.rmtree(broker.root / name)


def tree(broker: Broker, name: str, **body: Any) -> dict[str, Any]:
    answer = broker.archive(name, "tree", **body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_tree_is_breadth_first_directories_before_files(broker: Broker, stored: str) -> None:
    answer = tree(broker, stored)
    assert not answer["truncated"]
    assert [entry["path"] for entry in answer["entries"]] == [
        ".hid", "empty", "src", "a.txt", "b.txt", "fifo",
        ".hid/in.txt",
        "src/pkg", "src/a.py",
        "src/pkg/deep", "src/pkg/c.py",
        "src/pkg/deep/d.py",
    ]  # fmt: skip
    by_path = {entry["path"]: entry for entry in answer["entries"]}
    assert by_path["src"] == {"name": "src", "path": "src", "is_dir": True, "size": None, "modified_at": None}
    a = by_path["src/a.py"]
    assert (a["name"], a["is_dir"], a["size"]) == ("a.py", False, 2) and ISO.fullmatch(a["modified_at"])
    assert not broker.containers()


def test_a_tree_of_a_part_has_paths_from_the_top(broker: Broker, stored: str) -> None:
    for path in ("src", "src/", "/workspace/src", "/src"):
        assert [e["path"] for e in tree(broker, stored, path=path)["entries"]][:2] == ["src/pkg", "src/a.py"]
    assert tree(broker, stored, path="empty") == {"entries": [], "truncated": False}


def test_depth_and_entries_cut_it_and_say_so(broker: Broker, stored: str) -> None:
    shallow = tree(broker, stored, max_depth=1)
    assert len(shallow["entries"]) == 6 and shallow["truncated"]
    assert not tree(broker, stored, path="src/pkg/deep", max_depth=1)["truncated"]  # nothing was left unopened
    few = tree(broker, stored, max_entries=2)
    assert len(few["entries"]) == 2 and few["truncated"]
    exact = tree(broker, stored, max_entries=12)
    assert len(exact["entries"]) == 12 and not exact["truncated"]


@pytest.mark.parametrize("path, status", [("nope", 404), ("a.txt", 404), ("fifo", 404), ("link_in", 400), ("link_out", 400), ("link_in/pkg", 400), ("../..", 400), ("src/../src", 400), ("a\0b", 400), ("x" * 300, 404)])
def test_a_start_that_is_no_directory_is_told(broker: Broker, stored: str, path: str, status: int) -> None:
    answer = broker.archive(stored, "tree", path=path)
    assert answer.status_code == status and isinstance(answer.json()["detail"], str)


@pytest.mark.parametrize("body, field", [({"max_depth": 0}, "max_depth"), ({"max_depth": 65}, "max_depth"), ({"max_entries": 0}, "max_entries"), ({"max_entries": 100001}, "max_entries"), ({"path": None}, "path")])
def test_bounds_of_a_request(broker: Broker, stored: str, body: dict[str, Any], field: str) -> None:
    answer = broker.archive(stored, "tree", **body)
    assert answer.status_code == 422 and answer.json()["detail"][0]["loc"] == ["body", field]


def test_only_the_service_token_sees_trees(broker: Broker, sandbox: Session, stored: str) -> None:
    for path, body in ((f"/workspaces/{sandbox.id}/tree", {}), ("/workspaces/trees", {"sessions": [sandbox.id]})):
        assert broker.http.post(path, json=body, headers={"X-Sandbox-Token": sandbox.token}).status_code == 401
        assert broker.client.post(path, json=body).status_code == 200


def test_odd_names_cost_themselves_only(broker: Broker, stored: str) -> None:
    top = os.fsencode(broker.root / stored / "workspace" / "src" / "pkg" / "deep")
    for name in (b"bad\xff", b"new\nline", b'quote"\\', "naïve 日本".encode()):
        with open(os.path.join(top, name), "w"):
            pass
    names = {entry["name"] for entry in tree(broker, stored, path="src/pkg/deep")["entries"]}
    assert names == {"d.py", "bad\ufffd", "new\nline", 'quote"\\', "naïve 日本"}


def test_two_thousand_levels_are_walked_no_deeper_than_asked(broker: Broker, stored: str) -> None:
    fd = os.open(broker.root / stored / "workspace" / "empty", os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    deep = tree(broker, stored, path="empty", max_depth=64)
    assert len(deep["entries"]) == 64 and deep["truncated"]
    assert broker.purge(stored).status_code == 204
    (broker.root / stored / "workspace").mkdir(parents=True)  # for the fixture's end


# ---- many


def trees(broker: Broker, **body: Any) -> Any:
    return broker.client.post("/workspaces/trees", json=body)


def test_many_trees_come_in_the_order_asked_for(broker: Broker, sandbox: Session, stored: str) -> None:
    sandbox.write("/workspace/src/mine.py", b"x")
    answer = trees(broker, sessions=[stored, "nosuch", sandbox.id, stored], path="src", max_depth=1)
    assert answer.status_code == 200
    first, missing, mine, again = answer.json()["results"]
    assert first == {"session_id": stored, "tree": tree(broker, stored, path="src", max_depth=1), "error": None, "status_code": None}
    assert again == first
    assert [e["path"] for e in mine["tree"]["entries"]] == ["src/mine.py"]
    alone = broker.archive("nosuch", "tree", path="src")
    assert missing == {"session_id": "nosuch", "tree": None, "error": alone.json()["detail"], "status_code": alone.status_code}


def test_a_path_that_leads_out_is_told_for_each(broker: Broker, stored: str) -> None:
    (only,) = trees(broker, sessions=[stored], path="../..").json()["results"]
    assert only["tree"] is None and only["status_code"] == 400


@pytest.mark.parametrize("sessions, loc", [([], ["body", "sessions"]), ([f"x{i}" for i in range(101)], ["body", "sessions"]), (["ok", "-bad"], ["body", "sessions", 1]), ([3], ["body", "sessions", 0]), ("a", ["body", "sessions"]), (None, ["body", "sessions"])])
def test_the_list_of_sessions_is_judged(broker: Broker, sessions: Any, loc: list[Any]) -> None:
    answer = trees(broker, sessions=sessions)
    assert answer.status_code == 422 and answer.json()["detail"][0]["loc"] == loc


def test_ten_thousand_entries_are_quick(broker: Broker, stored: str) -> None:
    top = broker.root / stored / "workspace" / "many"
    for d in range(100):
        (top / f"d{d:03}").mkdir(parents=True)
        for f in range(99):
            (top / f"d{d:03}" / f"f{f:03}.txt").touch()
    began = time.monotonic()
    answer = tree(broker, stored, path="many", max_entries=100000)
    took = time.monotonic() - began
    assert len(answer["entries"]) == 10000 and not answer["truncated"]
    assert took < 5 * SLOWNESS, f"{took:.3f} s"
