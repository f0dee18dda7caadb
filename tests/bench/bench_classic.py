"""How fast is berthd where the reference starts a process: commands and files of the classic wire, beside 0.2.29; whole trees, beside 0.2.37.

Run by contrib/bench, after bench.py, whose parts it is made of. The same tree of 1,000 files for both, written from the host; every
answer is compared with what it must be, so that nobody is fast by being wrong.

  bench_classic.py --berthd PATH --classic PYTHON --current PYTHON --engine SOCKET --image NAME [--only OP] [--rounds N] [--json FILE] [--no-targets]

Exit status 1 when a ratio misses its target.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable

from bench import Party, Table, measure_ms

FOLDERS, FILES = 20, 50  # 1,000 files
LINES = [f"line {number:02d} of a file like any other" for number in range(40)]
NEEDLE_EVERY = 10
ASKED = {"exec": 20, "read": 20, "edit": 20, "ls": 20, "glob": 15, "grep": 15}  # the reference a round; berthd four times as often
BIG_FOLDERS, BIG_FILES = 100, 99  # 10,000 entries with the folders
TARGETS = {"exec": 25.0, "read": 20.0, "edit": 20.0, "ls": 20.0, "glob": 20.0, "grep": 20.0, "tree": 4.0}
WHAT = {
    "exec": "/exec of echo, p50",
    "read": "/read of 1.4 kB, p50",
    "edit": "/edit of that file, p50",
    "ls": "/ls of 50 files, p50",
    "glob": "/glob over 1,000 files, p50",
    "grep": "/grep over 1,000 files, p50",
    "tree": "archive tree of 10,000, p50",
}


def names() -> list[str]:
    return [f"d{folder:02d}/f{number:02d}.py" for folder in range(FOLDERS) for number in range(FILES)]


def make_tree(workspace: Path) -> None:
    for at, name in enumerate(names()):
        path = workspace / name
        path.parent.mkdir(exist_ok=True)
        lines = LINES + (["the needle is here"] if at % NEEDLE_EVERY == 0 else [])
        path.write_text("\n".join(lines) + "\n")


def make_big_tree(workspace: Path) -> None:
    for folder in range(BIG_FOLDERS):
        below = workspace / f"d{folder:02d}"
        below.mkdir(parents=True)
        for number in range(BIG_FILES):
            (below / f"f{number:02d}").touch()


class Asked:
    """Asks, and holds the answer against what it must be: by reading it once, then byte for byte, so that reading it is not what is measured."""

    def __init__(self, party: Party) -> None:
        self.party = party
        self.http = party.http
        self.right: dict[str, bytes] = {}

    def ask(self, path: str, body: dict[str, Any], is_right: Callable[[Any], bool]) -> None:
        status, answer = self.http.exchange(self.http.encode("POST", path, json.dumps(body).encode()))
        if status != 200:
            raise RuntimeError(f"{self.party.name}: {path}: {status} {answer[:500]!r}")
        if answer == self.right.get(path):
            return
        if not is_right(json.loads(answer)):
            raise RuntimeError(f"{self.party.name}: {path}: wrong answer: {answer[:500]!r}")
        self.right[path] = answer


class Files(Asked):
    """One party's session with the tree in it."""

    def __init__(self, party: Party) -> None:
        super().__init__(party)
        self.session = self.http.call("POST", "/sessions", {})["session"]["session_id"]
        party.opened = [self.session]
        make_tree(party.home / "workspaces" / self.session / "workspace")
        self.version = 0

    def post(self, op: str, body: dict[str, Any], is_right: Callable[[Any], bool]) -> None:
        self.ask(f"/sessions/{self.session}/{op}", body, is_right)

    def exec(self) -> None:
        self.post("exec", {"command": "echo hi"}, lambda answer: answer["output"] == "hi\n" and answer["exit_code"] == 0)

    def read(self) -> None:
        self.post("read", {"path": "/workspace/d07/f13.py"}, lambda answer: answer["content"] == "\n".join(LINES))

    def edit(self) -> None:
        old, self.version = self.version, self.version + 1
        before = f"version {old}" if old else "line 20 of a file like any other"
        change = {"path": "/workspace/d08/f13.py", "old_string": before, "new_string": f"version {self.version}"}
        self.post("edit", change, lambda answer: answer["occurrences"] == 1)

    def ls(self) -> None:
        expected = [f"f{number:02d}.py" for number in range(FILES)]
        self.post("ls", {"path": "/workspace/d07"}, lambda answer: [row["name"] for row in answer] == expected)

    def glob(self) -> None:
        body = {"pattern": "**/*.py", "path": "/workspace"}
        self.post("glob", body, lambda answer: [row["path"] for row in answer] == [f"/workspace/{name}" for name in names()])

    def grep(self) -> None:
        body = {"pattern": "the needle", "path": "/workspace"}
        expected = [f"/workspace/{name}" for name in names()[::NEEDLE_EVERY]]
        self.post("grep", body, lambda answer: sorted(match["path"] for match in answer["matches"]) == expected)


class Stored(Asked):
    """One party's archive, with a workspace in it that no session ever opened."""

    def __init__(self, party: Party) -> None:
        super().__init__(party)
        make_big_tree(party.home / "workspaces" / "stored" / "workspace")

    def tree(self) -> None:
        body = {"path": ".", "max_depth": 8, "max_entries": 20000}
        count = BIG_FOLDERS * (BIG_FILES + 1)
        self.ask("/workspaces/stored/tree", body, lambda answer: len(answer["entries"]) == count and not answer["truncated"])


def compare(table: Table, berth: Any, reference: Any, ops: dict[str, int], rounds: int) -> None:
    """ops: how often the reference is asked a round."""
    taken: dict[tuple[str, str], list[float]] = {}
    for number in range(1, rounds + 1):
        for op, count in ops.items():
            print(f"round {number} of {rounds}: {op}", file=sys.stderr, flush=True)
            for who, one, times in (("berth", berth, 4 * count), ("reference", reference, count)):
                action: Callable[[], None] = getattr(one, op)
                action()  # no party is measured cold, nor with a connection that was closed for idling
                taken.setdefault((who, op), []).extend(measure_ms(action, times))
    for op in ops:
        ours, theirs = statistics.median(taken["berth", op]), statistics.median(taken["reference", op])
        table.add(WHAT[op], "ms", ours, theirs, theirs / ours, TARGETS[op])


def main() -> int:
    options = argparse.ArgumentParser(description="berthd beside the reference of both generations, where that starts a process")
    options.add_argument("--berthd", required=True)
    options.add_argument("--classic", required=True, help="a python in which pydantic-ai-backend 0.2.29 is installed")
    options.add_argument("--current", required=True, help="a python in which pydantic-ai-backend 0.2.37 is installed")
    options.add_argument("--engine", required=True, help="the engine's socket")
    options.add_argument("--image", required=True)
    options.add_argument("--only", metavar="OP", choices=TARGETS, help="one of: " + ", ".join(TARGETS))
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", metavar="FILE")
    options.add_argument("--no-targets", action="store_true", help="report only: exit 0 whatever the ratios are")
    given = options.parse_args()

    home = Path(tempfile.mkdtemp(prefix="berth-bench-"))
    home.chmod(0o711)
    parties: list[Party] = []

    def party(name: str, command: list[str]) -> Party:
        parties.append(Party(name, command, home / name, given.engine, given.image))
        return parties[-1]

    server = ["-m", "pydantic_ai_backends.remote.server"]
    table = Table()
    try:
        berth = party("berth", [given.berthd])
        asked = {op: count for op, count in ASKED.items() if given.only in (None, op)}
        if asked:
            compare(table, Files(berth), Files(party("classic", [given.classic, *server])), asked, given.rounds)
        if given.only in (None, "tree"):
            compare(table, Stored(berth), Stored(party("current", [given.current, *server])), {"tree": 10}, given.rounds)
    finally:
        for one in reversed(parties):
            one.stop()
        shutil.rmtree(home, ignore_errors=True)
    table.print()
    if given.json:
        Path(given.json).write_text(json.dumps(table.rows, indent=1) + "\n")
    missed = [row["what"] for row in table.rows if row["met"] is False]
    if missed:
        print("missed: " + "; ".join(missed))
    return 1 if missed and not given.no_targets else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
