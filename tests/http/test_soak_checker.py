"""The soak's checker finds what it is there for: a history that is well passes, and each fault in it is named."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "soak"))
import checker  # noqa: E402

WELL: list[dict[str, Any]] = [
    {"kind": "setup", "max_sessions": 2, "pool": 1, "tenants": {"red": {"max_open_sessions": 1}}},
    {"kind": "op", "id": "s", "op": "open", "status": 200},
    {"kind": "op", "id": "s", "op": "write", "status": 204, "name": "f1", "content": "one\n"},
    {"kind": "op", "id": "s", "op": "write", "status": 0, "name": "f2", "content": "perhaps\n"},
    {"kind": "op", "id": "s", "op": "append", "status": 200, "line": "3"},
    {"kind": "op", "id": "s", "op": "append", "status": 0, "line": "4"},
    {"kind": "counts", "at": 1, "resident": 2, "tenants": [{"tenant": "red", "open_sessions": 1, "resident_sessions": 1, "running_commands": 0,
                                                            "max_open_sessions": 1, "max_resident_sessions": None, "max_running_commands": None}]},
    {"kind": "event", "seq": 1, "op": "opened"},
    {"kind": "event", "seq": 2, "op": "closed"},
    {"kind": "op", "id": "s", "op": "inspect", "status": 200},
    {"kind": "files", "id": "s", "files": {"f1": "one\n", "log": "3\n4\n"}},
    {"kind": "containers", "containers": [{"slot": "a", "session": "s"}, {"slot": "b", "session": None}], "open": ["s"]},
    {"kind": "left", "containers": 1, "slots": 1, "names": []},
    {"kind": "latest", "seq": 2, "kept": [1, 2]},
]


def judge(tmp_path: Path, history: list[dict[str, Any]]) -> list[str]:
    path = tmp_path / "history"
    path.write_text("".join(json.dumps({"at": 0} | record) + "\n" for record in history))
    return checker.check(path)


def changed(index: int, **fields: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda history: history[index].update(fields)


@pytest.mark.parametrize(
    "fault, word",
    [
        (changed(10, files={"log": "3\n"}), "f1 was acknowledged and is lost"),
        (changed(10, files={"f1": "two\n", "log": "3\n"}), "holds 'two"),
        (changed(10, files={"f1": "one\n"}), "line 3 was acknowledged"),
        (changed(10, files={"f1": "one\n", "log": "3\n4\n4\n"}), "ran 2 times"),
        (changed(10, files=None), "cannot be read"),
        (changed(9, status=404), "nobody has closed it"),
        (changed(6, resident=3), "3 of 2 sessions"),
        (lambda h: h[6]["tenants"][0].update(open_sessions=2), "2 open_sessions of 1"),
        (lambda h: h[6]["tenants"][0].update(max_open_sessions=None), "its max_open_sessions is None"),
        (changed(8, seq=3), "after event 1 came 3"),
        (changed(7, seq=0), "first event"),
        (lambda h: h.insert(9, {"kind": "jump", "what": "event: lagged"}), "lagged"),
        (lambda h: h[11]["containers"].append({"slot": "a", "session": "s"}), "2 containers"),
        (lambda h: h[11]["containers"].pop(0), "no container"),
        (changed(12, slots=2), "2 slots"),
        (changed(13, kept=[1, 3]), "gap"),
        (lambda h: h.pop(), "before its end"),
    ],
)
def test_each_fault_is_named(tmp_path: Path, fault: Callable[[list[dict[str, Any]]], None], word: str) -> None:
    assert judge(tmp_path, WELL) == []
    history = json.loads(json.dumps(WELL))
    fault(history)
    assert any(word in line for line in judge(tmp_path, history)), judge(tmp_path, history)


def test_what_was_purged_need_not_be_there(tmp_path: Path) -> None:
    purge = [{"kind": "op", "id": "s", "op": "purging", "status": 0}, {"kind": "op", "id": "s", "op": "purge", "status": 204, "left": False}]
    history = WELL[:9] + purge + [{"kind": "files", "id": "s", "files": {}}] + WELL[11:]
    assert judge(tmp_path, history) == []
