"""Judges a history of soak.py: pure arithmetic over what was written down, so that a history can be judged again.

  checker.py FILE

What is proved, for each session (its operations are a sequence): every write that was answered with yes is there until a purge was begun,
with its content; every line whose command was answered is in the log exactly once, every other at most once; a session that was opened, and not
closed by its owner, answers. For the whole: ceilings held in every sample, numbers of events without a gap, one container a slot, none that is nobody's,
nothing left after all was purged.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Iterator

LOST = {404, 401}


def records(path: Path) -> Iterator[dict[str, Any]]:
    with open(path) as lines:
        for line in lines:
            yield json.loads(line)


class Model:
    """What is known of one session."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.open = False
        self.sure = True  # False: a close or purge was begun
        self.files: dict[str, str] = {}
        self.lines: set[str] = set()
        self.wrong: list[str] = []

    def op(self, record: dict[str, Any]) -> None:
        op, status = record["op"], record["status"]
        if op == "open":
            self.open, self.sure = (True, True) if status == 200 else (self.open, self.sure)
        elif op in ("closing", "purging"):
            self.open = self.sure = False
        elif op == "purge":
            self.files, self.lines = {}, set()
            if record["left"]:
                self.wrong.append(f"{self.name}: purged, and its name is there")
        elif self.open and status in LOST:
            self.wrong.append(f"{self.name}: {op} was answered {status}, and nobody has closed it")
        elif op == "write" and status == 204:
            self.files[record["name"]] = record["content"]
        elif op == "append" and status == 200:
            self.lines.add(record["line"])

    def look(self, files: dict[str, str] | None) -> None:
        if files is None:
            self.wrong.append(f"{self.name}: its files cannot be read in the end")
            return
        for name, content in self.files.items():
            if name not in files:
                self.wrong.append(f"{self.name}: {name} was acknowledged and is lost")
            elif files[name].rstrip("\n") != content.rstrip("\n"):
                self.wrong.append(f"{self.name}: {name} holds {files[name]!r}, not {content!r}")
        seen = Counter(files.get("log", "").split())
        for line in self.lines - set(seen):
            self.wrong.append(f"{self.name}: the line {line} was acknowledged and is lost")
        self.wrong += [f"{self.name}: the command of line {line} ran {count} times" for line, count in seen.items() if count > 1]


def check_counts(record: dict[str, Any], setup: dict[str, Any]) -> list[str]:
    wrong = []
    if record["resident"] > setup["max_sessions"]:
        wrong.append(f"{record['resident']} of {setup['max_sessions']} sessions are resident at {record['at']}")
    for tenant in record["tenants"]:
        for held, ceiling in (("open_sessions", "max_open_sessions"), ("resident_sessions", "max_resident_sessions"), ("running_commands", "max_running_commands")):
            if tenant[ceiling] is not None and tenant[held] > tenant[ceiling]:
                wrong.append(f"{tenant['tenant']} has {tenant[held]} {held} of {tenant[ceiling]} at {record['at']}")
            if tenant[ceiling] != setup["tenants"].get(tenant["tenant"], {}).get(ceiling):
                wrong.append(f"{tenant['tenant']}: its {ceiling} is {tenant[ceiling]} at {record['at']}")
    return wrong


def check_containers(record: dict[str, Any]) -> list[str]:
    wrong = [f"{count} containers on slot {slot}" for slot, count in Counter(c["slot"] for c in record["containers"]).items() if count > 1]
    held = Counter(c["session"] for c in record["containers"] if c["session"])
    wrong += [f"{session} has {count} containers" for session, count in held.items() if count > 1]
    wrong += [f"{session} answers, and has no container" for session in record["open"] if session not in held]
    return wrong


def check_events(seqs: list[int], jumps: list[str], latest: dict[str, Any] | None) -> list[str]:
    wrong = [f"the feed said {jump} to a reader that goes on by its id" for jump in jumps]
    wrong += [f"after event {a} came {b}" for a, b in zip(seqs, seqs[1:]) if b != a + 1]
    if seqs and seqs[0] != 1:
        wrong.append(f"the first event was {seqs[0]}")
    if latest:
        kept = latest["kept"]
        if kept != list(range(latest["seq"] - len(kept) + 1, latest["seq"] + 1)):
            wrong.append("the numbers that are kept have a gap")
    return wrong


def check(path: Path) -> list[str]:
    models: dict[str, Model] = {}
    setup: dict[str, Any] = {}
    seqs: list[int] = []
    jumps: list[str] = []
    latest = None
    wrong: list[str] = []
    ended = False
    for record in records(path):
        kind = record["kind"]
        if kind == "setup":
            setup = record
        elif kind == "op":
            models.setdefault(record["id"], Model(record["id"])).op(record)
        elif kind == "files":
            models.setdefault(record["id"], Model(record["id"])).look(record["files"])
        elif kind == "counts":
            wrong += check_counts(record, setup)
        elif kind == "event":
            seqs.append(record["seq"])
        elif kind == "jump":
            jumps.append(record["what"])
        elif kind == "containers":
            wrong += check_containers(record)
        elif kind == "left":
            if record["containers"] != setup["pool"] or record["slots"] != setup["pool"] or record["names"]:
                wrong.append(f"after all was purged: {record['containers']} containers, {record['slots']} slots, names {record['names']}")
        elif kind == "latest":
            latest, ended = record, True
    for model in models.values():
        wrong += model.wrong
    wrong += check_events(seqs, jumps, latest)
    if not ended:
        wrong.append("the history ends before its end")
    return wrong


def summary(path: Path) -> str:
    kinds: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    for record in records(path):
        if record["kind"] == "op" and record["op"] not in ("closing", "purging"):
            answers["yes" if record["status"] in (200, 204) else "no" if record["status"] else "no answer"] += 1
        kinds[record["what"] if record["kind"] == "chaos" else record["kind"]] += 1
    return f"{dict(answers)}; " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    print("\n".join(found + [summary(Path(sys.argv[1]))]))
    sys.exit(1 if found else 0)
