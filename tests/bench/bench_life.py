"""How quickly a session is there: beside the reference broker, and beside the engine's own calls on its socket.

Run by contrib/bench. Parties take turns, so that a noisy moment hits all of them.

  bench_life.py --berthd PATH --reference PYTHON --engine SOCKET --image NAME [--count N] [--burst N] [--json FILE] [--no-targets]

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
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

from bench import TOKEN, Http, Party

POOL = 20


class Bare:
    """The engine by bare calls: containers made of what berthd's are made of."""

    def __init__(self, engine: str, like: str) -> None:
        self.http = Http(engine)
        self.install = "bench-" + uuid.uuid4().hex
        made = self.http.call("GET", f"/containers/{like}/json")
        self.body = made["Config"] | {"HostConfig": made["HostConfig"], "Labels": {"bench": self.install}, "Hostname": "bench"}
        self.made: list[str] = []

    def create_start(self) -> None:
        created = self.http.call("POST", "/containers/create", self.body)["Id"]
        self.made.append(created)
        self.http.call("POST", f"/containers/{created}/start")

    def stop_last(self) -> None:
        self.http.call("POST", f"/containers/{self.made[-1]}/stop?t=0")

    def start_last(self) -> None:
        self.http.call("POST", f"/containers/{self.made[-1]}/start")

    def remove_all(self) -> None:
        for container in self.made:
            self.http.call("DELETE", f"/containers/{container}?force=1")
        self.made = []


    def create_start_many(self, engine: str, count: int, at_once: int) -> float:
        """Seconds for `count` of them, so many at once."""

        def one(_: int) -> str:
            http = Http(engine)
            created = http.call("POST", "/containers/create", self.body)["Id"]
            http.call("POST", f"/containers/{created}/start")
            http.close()
            return created

        begin = time.perf_counter()
        with ThreadPoolExecutor(at_once) as pool:
            self.made += list(pool.map(one, range(count)))
        return time.perf_counter() - begin


def timed(action: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    action()
    return (time.perf_counter() - begin) * 1e3


def opened_by(http: Http) -> str:
    return http.call("POST", "/sessions", {})["session"]["session_id"]


def opened(party: Party) -> str:
    return opened_by(party.http)


def echo(party: Party, session: str) -> None:
    answer = party.http.call("POST", f"/sessions/{session}/run", {"argv": ["echo", "hi"], "run_id": uuid.uuid4().hex})
    assert answer["stdout"] == "hi\n", answer


def purge(party: Party, session: str) -> None:
    party.http.call("DELETE", f"/sessions/{session}?purge=true")


def warm_count(engine: Http, home: Path) -> int:
    listed = engine.call("GET", '/containers/json?filters={"label":["berth.install"]}')
    return sum(any(m.get("Source", "").startswith(str(home)) for m in c["Mounts"]) for c in listed)


def wait_warm(engine: Http, party: Party, open_sessions: int, deadline: float = 120) -> None:
    """The pool is full: so many containers as it and the sessions are. And quiet for a moment, as between two users."""
    end = time.monotonic() + deadline
    while warm_count(engine, party.home) < POOL + open_sessions:
        if time.monotonic() > end:
            sys.exit("the pool does not fill:\n" + party.log.read_text()[-2000:])
        time.sleep(0.1)
    time.sleep(0.3)


def open_and_run(party: Party, taken: dict[str, list[float]], key: str) -> None:
    begin = time.perf_counter()
    session = opened(party)
    middle = time.perf_counter()
    echo(party, session)
    end = time.perf_counter()
    taken.setdefault(f"{key} open", []).append((middle - begin) * 1e3)
    taken.setdefault(f"{key} open+run", []).append((end - begin) * 1e3)
    purge(party, session)


def bench(pooled: Party, plain: Party, reference: Party, engine: str, count: int) -> tuple[dict[str, list[float]], Bare]:
    taken: dict[str, list[float]] = {}
    look = Http(engine)
    keep = opened(plain)
    containers = look.call("GET", '/containers/json?filters={"label":["berth.install"]}')
    like = next(c["Id"] for c in containers if any(m.get("Source", "").startswith(str(plain.home)) for m in c["Mounts"]))
    bare = Bare(engine, like)
    for party in (plain, reference):
        open_and_run(party, {}, "cold")
    for number in range(count):
        print(f"round {number + 1} of {count}", file=sys.stderr, flush=True)
        wait_warm(look, pooled, 0)
        open_and_run(pooled, taken, "pool")
        wait_warm(look, pooled, 0)
        open_and_run(reference, taken, "reference")
        for first in (number % 2, 1 - number % 2):  # take turns at going first
            if first:
                open_and_run(plain, taken, "plain")
            else:
                taken.setdefault("bare create+start", []).append(timed(bare.create_start))
        bare.stop_last()
        plain.http.call("POST", f"/sessions/{keep}/hibernate")
        for first in (number % 2, 1 - number % 2):
            if first:
                taken.setdefault("wake", []).append(timed(lambda: plain.http.call("POST", f"/sessions/{keep}/wake")))
            else:
                taken.setdefault("bare start", []).append(timed(bare.start_last))
        bare.remove_all()
    return taken, bare


def burst(party: Party, engine: str, count: int) -> dict[str, float]:
    wait_warm(Http(engine), party, 0)
    times: list[float] = []
    sessions: list[str] = []
    lock = threading.Lock()

    def one(_: int) -> None:
        http = Http(("127.0.0.1", party.port), TOKEN)
        begin = time.perf_counter()
        session = opened_by(http)
        with lock:
            times.append((time.perf_counter() - begin) * 1e3)
            sessions.append(session)
        http.close()

    begin = time.perf_counter()
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(one, range(count)))
    seconds = time.perf_counter() - begin
    for session in sessions:
        echo(party, session)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda s: Http(("127.0.0.1", party.port), TOKEN).call("DELETE", f"/sessions/{s}?purge=true"), sessions))
    times.sort()
    return {"succeeded": len(sessions), "seconds": seconds, "first_20_ms": times[min(19, count - 1)], "p50_ms": times[count // 2], "last_ms": times[-1]}


def side_by_side(plain: Party, bare: Bare, engine: str, count: int) -> dict[str, float]:
    """So many opened at once with no pool, beside the bare engine at several degrees of parallelism: the best of each."""

    def opens() -> float:
        def one(_: int) -> str:
            http = Http(("127.0.0.1", plain.port), TOKEN)
            session = opened_by(http)
            http.close()
            return session

        begin = time.perf_counter()
        with ThreadPoolExecutor(count) as pool:
            sessions = list(pool.map(one, range(count)))
        seconds = time.perf_counter() - begin
        for session in sessions:
            purge(plain, session)
        return seconds

    best: dict[str, float] = {}
    for at_once in (4, 16, 32):
        best[f"bare, {at_once} at once"] = bare.create_start_many(engine, count, at_once)
        bare.remove_all()
        best["opened"] = min(best.get("opened", 1e9), opens())
    return best


def main() -> int:
    options = argparse.ArgumentParser(description="how quickly a session is there")
    options.add_argument("--berthd", required=True)
    options.add_argument("--reference", required=True, help="a python in which pydantic-ai-backend 0.2.37 is installed")
    options.add_argument("--engine", required=True, help="the engine's socket")
    options.add_argument("--image", required=True)
    options.add_argument("--count", type=int, default=20)
    options.add_argument("--burst", type=int, default=100)
    options.add_argument("--at-once", type=int, default=50)
    options.add_argument("--json", metavar="FILE")
    options.add_argument("--no-targets", action="store_true", help="report only: exit 0 whatever the ratios are")
    given = options.parse_args()

    home = Path(tempfile.mkdtemp(prefix="berth-bench-life-"))
    home.chmod(0o711)
    started: list[Party] = []
    many = {"SANDBOXD_MAX_SESSIONS": "500", "SANDBOXD_PERSIST_CONTAINERS": "true"}
    try:
        reference = Party("reference", [given.reference, "-m", "pydantic_ai_backends.remote.server"], home / "reference", given.engine, given.image, many)
        started.append(reference)
        plain = Party("plain", [given.berthd], home / "plain", given.engine, given.image, many)
        started.append(plain)
        pooled = Party("pooled", [given.berthd], home / "pooled", given.engine, given.image, many | {"SANDBOXD_POOL": f"python={POOL}"})
        started.append(pooled)
        taken, bare = bench(pooled, plain, reference, given.engine, given.count)
        beside = side_by_side(plain, bare, given.engine, given.at_once)
        crowd = burst(pooled, given.engine, given.burst)
    finally:
        for one in reversed(started):
            one.stop()
        shutil.rmtree(home, ignore_errors=True)

    median = {key: statistics.median(values) for key, values in taken.items()}
    for key, values in sorted(taken.items()):
        ordered = sorted(values)
        print(f"{key:24} p50 {median[key]:8.2f} ms   min {ordered[0]:8.2f}   p90 {ordered[int(len(ordered) * 0.9) - 1]:8.2f}")
    rows: list[tuple[str, float, str, float]] = [
        ("open, warm pool, against the reference", median["reference open"] / median["pool open"], ">=", 30),
        ("open + first command, likewise", median["reference open+run"] / median["pool open+run"], ">=", 30),
        ("open without a pool, of bare create+start", median["plain open"] / median["bare create+start"], "<=", 1.1),
        ("wake, of a bare start", median["wake"] / median["bare start"], "<=", 1.1),
        (f"burst of {given.burst}, of which succeeded", crowd["succeeded"] / given.burst, ">=", 1),
    ]
    engines = min(seconds for who, seconds in beside.items() if who != "opened")
    rows.append((f"{given.at_once} opened at once, no pool, of the engine's best", beside["opened"] / engines, "<=", 1.1))
    missed = []
    for what, value, sign, target in rows:
        met = value >= target if sign == ">=" else value <= target
        print(f"{what:50}{value:8.2f}   {sign} {target:g}   {'met' if met else 'MISSED'}")
        if not met:
            missed.append(what)
    print(f"burst: {crowd['seconds']:.1f} s in all; the 20th {crowd['first_20_ms']:.0f} ms, p50 {crowd['p50_ms']:.0f} ms, last {crowd['last_ms']:.0f} ms")
    print(f"{given.at_once} at once, no pool: " + ", ".join(f"{who} {seconds:.1f} s" for who, seconds in beside.items()))
    if given.json:
        Path(given.json).write_text(json.dumps({"taken_ms": taken, "ratios": [[w, v, t] for w, v, _, t in rows], "burst": crowd}, indent=1) + "\n")
    return 1 if missed and not given.no_targets else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
