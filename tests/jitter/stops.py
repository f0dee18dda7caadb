"""Stop the processes of a test run for a moment, at random, one after another: what a busy host does to each of them.

  stops.py ENGINE_DIR COMMAND…    while the command runs; ends with its status

jitter.c pauses threads inside the broker. This stops whole processes (a client that does not read, an agent that does not answer, an
engine that hangs) and so finds what relies on another's being prompt. Stopped are the command's own Python programs and berthd below it,
the engine that lives in ENGINE_DIR, and what runs in its containers as .berth-agent; nothing else of this machine.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

STOPPED_MEAN_S = 0.1
STOPPED_MOST_S = 1.2
BETWEEN_MEAN_S = 0.1
LOOK_EVERY_S = 0.5


class Process:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        self.parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        self.name = os.path.basename(self.argv[0])


def processes() -> dict[int, Process]:
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                found[int(entry)] = Process(int(entry))
            except OSError:
                pass  # it has ended
    return found


def is_below(process: Process, all_of_them: dict[int, Process], ancestors: set[int]) -> bool:
    at: Process | None = process
    for _ in range(64):
        if at is None:
            return False
        if at.pid in ancestors:
            return True
        at = all_of_them.get(at.parent)
    return False


def targets(command: int, engine_dir: str) -> dict[str, list[int]]:
    """By kind, so that a hundred agents do not hide the one broker."""
    everything = processes()
    engine = {p.pid for p in everything.values() if any(engine_dir in word for word in p.argv) and p.name.startswith(("dockerd", "containerd"))}
    kinds: dict[str, list[int]] = {}
    for process in everything.values():
        if process.pid in engine or (process.name == ".berth-agent" and is_below(process, everything, engine)):
            kinds.setdefault(process.name, []).append(process.pid)
        elif process.name.startswith(("python", "berthd")) and is_below(process, everything, {command}):
            kinds.setdefault(process.name, []).append(process.pid)
    return kinds


def stop_for_a_moment(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return
    try:
        time.sleep(min(random.expovariate(1 / STOPPED_MEAN_S), STOPPED_MOST_S))
    finally:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


def stop_them_until_it_ends(command: subprocess.Popen[bytes], engine_dir: str) -> None:
    stopped: dict[str, int] = {}
    looked_at = 0.0
    kinds: dict[str, list[int]] = {}
    while command.poll() is None:
        if time.monotonic() - looked_at > LOOK_EVERY_S:
            kinds, looked_at = targets(command.pid, engine_dir), time.monotonic()
        if kinds:
            kind = random.choice(sorted(kinds))
            stop_for_a_moment(random.choice(kinds[kind]))
            stopped[kind] = stopped.get(kind, 0) + 1
        time.sleep(random.expovariate(1 / BETWEEN_MEAN_S))
    print("stopped for a moment:", ", ".join(f"{name} {count} times" for name, count in sorted(stopped.items())))


def main() -> int:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # through stop_for_a_moment(): nobody stays stopped
    command = subprocess.Popen(sys.argv[2:])
    try:
        stop_them_until_it_ends(command, os.path.realpath(sys.argv[1]))
    finally:
        command.terminate()
    return command.wait()


if __name__ == "__main__":
    sys.exit(main())
