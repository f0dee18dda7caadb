"""What must not depend on how much lies in a workspace: a fork on btrfs, and what others notice of a purge.

Run by contrib/bench. What is compared takes turns, so that a noisy moment hits both.

  bench_workspaces.py --berthd PATH --engine SOCKET --image NAME [--only PART] [--rounds N] [--files N] [--no-targets]

As root, with mkfs.btrfs. Exit status 1 when a median misses its target.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable

from bench import Http, Party

LARGE_MIB = 1024
READS = 3000


def seconds(action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


class Bench:
    def __init__(self, given: argparse.Namespace, home: Path) -> None:
        self.given = given
        self.home = home
        self.missed: list[str] = []

    def told(self, what: str, before: float, after: float, at_most: float) -> None:
        print(f"{what:58} {before * 1e3:8.2f} ms {after * 1e3:8.2f} ms  ratio {after / before:5.2f}  (target <= {at_most})", flush=True)
        if after > at_most * before:
            self.missed.append(what)

    def party(self, name: str, **settings: str) -> Party:
        return Party(name, [self.given.berthd], self.home / name, self.given.engine, self.given.image, settings)

    # -- a gigabyte is forked as quickly as a megabyte

    def fork(self) -> None:
        image, root = self.home / "btrfs.image", self.home / "btrfs"
        with open(image, "wb") as file:
            file.truncate(3 * LARGE_MIB << 20)
        root.mkdir()
        subprocess.run(["mkfs.btrfs", "-q", image], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["mount", "-o", "loop", image, root], check=True)
        root.chmod(0o711)
        try:
            for which, quota in (("plain", {}), ("with a quota", {"SANDBOXD_WORKSPACE_QUOTA_BYTES": str(2 * LARGE_MIB << 20)})):
                below = root / which.split()[-1]
                below.mkdir(mode=0o711)
                party = self.party(below.name, SANDBOXD_WORKSPACE_ROOT=str(below), **quota)
                try:
                    self.fork_of(party, below, which)
                finally:
                    party.stop()
        finally:
            subprocess.run(["umount", root], check=True)
            image.unlink()

    def fork_of(self, party: Party, root: Path, which: str) -> None:
        party.opened = ["small", "large"]
        for name, mib in (("small", 1), ("large", LARGE_MIB)):
            party.http.call("POST", "/sessions", {"session_id": name})
            with open(root / name / "workspace" / "data", "wb") as out:
                for _ in range(mib):
                    out.write(os.urandom(1 << 20))
        os.sync()

        def snapshot(name: str) -> None:
            made = party.http.call("POST", f"/workspaces/{name}/snapshots", {})
            assert made["method"] == "snapshot", made

        def whole(name: str) -> None:
            made = party.http.call("POST", f"/sessions/{name}/fork", {})
            assert made["method"] == "snapshot", made
            self.forks.append(made["session"]["session_id"])

        for what, action, at_most in (("snapshot", snapshot, 1.5), ("fork, its container and all", whole, 1.25)):
            self.forks: list[str] = []
            action("small")
            pairs = []
            for _ in range(7):
                pairs.append((seconds(lambda: action("small")), seconds(lambda: action("large"))))
                for made in self.forks:
                    party.http.call("DELETE", f"/sessions/{made}?purge=true")
                self.forks = []
            small, large = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
            self.told(f"{what} of 1 MiB, of {LARGE_MIB} MiB, {which}", small, large, at_most)

    # -- while many files are purged others read as before

    def purge(self) -> None:
        party = self.party("purge")
        try:
            opened = party.http.call("POST", "/sessions", {"session_id": "other"})
            party.opened = ["other"]
            (party.home / "workspaces/other/workspace/f").write_bytes(b"x" * 4096)
            reader = Http(("127.0.0.1", party.port), opened["token"])
            request = reader.encode("GET", "/sessions/other/content?path=f")
            rounds = [self.purge_once(party, lambda: self.read(reader, request), number) for number in range(self.given.rounds)]
            before, during = (statistics.median(each[i] for each in rounds) for i in (0, 1))
            self.told(f"p99 of reads before and while {self.given.files:,} files are purged", before, during, 2)
        finally:
            party.stop()

    @staticmethod
    def read(reader: Http, request: bytes) -> None:
        status, body = reader.exchange(request)
        assert status == 200 and len(body) == 4096, (status, body)

    def purge_once(self, party: Party, read: Callable[[], None], number: int) -> tuple[float, float]:
        victim = f"victim{number}"
        party.http.call("POST", "/sessions", {"session_id": victim})
        fill(party.home / "workspaces" / victim / "workspace", self.given.files)
        os.sync()
        read()
        quiet = [seconds(read) for _ in range(READS)]
        http = Http(("127.0.0.1", party.port), party.http.token)
        purging = threading.Thread(target=lambda: http.call("DELETE", f"/sessions/{victim}?purge=true"))
        busy: list[float] = []
        began = time.monotonic()
        purging.start()
        while purging.is_alive():
            busy.append(seconds(read))
        took = time.monotonic() - began
        purging.join()
        assert not os.path.lexists(party.home / "workspaces" / victim), "it is there still"
        before, during = (statistics.quantiles(times, n=100)[98] for times in (quiet, busy))
        print(f"  {before * 1e3:.2f} ms before, {during * 1e3:.2f} ms during the purge, which took {took:.1f} s; {len(busy)} reads", file=sys.stderr, flush=True)
        return before, during


def fill(workspace: Path, files: int) -> None:
    """In directories of 1000."""
    for i in range(files // 1000):
        directory = workspace / f"d{i}"
        directory.mkdir()
        fd = os.open(directory, os.O_RDONLY)
        for j in range(1000):
            os.close(os.open(f"f{j}", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        os.close(fd)


def main() -> int:
    options = argparse.ArgumentParser(description="what must not depend on how much lies in a workspace")
    options.add_argument("--berthd", required=True)
    options.add_argument("--engine", required=True, help="the engine's socket")
    options.add_argument("--image", required=True)
    options.add_argument("--only", choices=("fork", "purge"))
    options.add_argument("--rounds", type=int, default=3, help="purges")
    options.add_argument("--files", type=int, default=300_000, help="that are purged")
    options.add_argument("--no-targets", action="store_true", help="report only: exit 0 whatever the ratios are")
    given = options.parse_args()
    home = Path(tempfile.mkdtemp(prefix="berth-bench-workspaces-", dir="/var/tmp"))
    home.chmod(0o711)
    bench = Bench(given, home)
    try:
        if given.only in (None, "fork"):
            bench.fork()
        if given.only in (None, "purge"):
            bench.purge()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if bench.missed:
        print("missed: " + "; ".join(bench.missed))
    return 1 if bench.missed and not given.no_targets else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
