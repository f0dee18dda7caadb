"""How fast are commands that are streamed: beside the reference 0.2.37, the engine's own exec, and `docker exec | cat`.

Run by contrib/bench, after bench.py, whose parts it is made of.

  bench_runs.py --berthd PATH --reference PYTHON --engine SOCKET --image NAME [--rounds N] [--json FILE] [--no-targets]

Exit status 1 when a ratio misses its target.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from bench import TOKEN, EngineExec, Http, Party, Table, measure_ms, percentile

STREAM_BYTES = 512 << 20
CLIENTS, SESSIONS = 16, 8
SLOW_STREAMS = 200
TICKS = "import os,time\nfor _ in range(100):\n time.sleep(0.01); os.write(1, b'%d\\n' % time.time_ns())"


def run_true(http: Http, session: str) -> None:
    answer = http.call("POST", f"/sessions/{session}/run", {"argv": ["true"], "run_id": uuid.uuid4().hex})
    if answer["exit_code"] != 0:
        raise RuntimeError(f"wrong answer: {answer}")


def commands_per_second(party: Party, seconds: float) -> float:
    done = [0] * CLIENTS
    end = time.monotonic() + seconds

    def client(i: int) -> None:
        http = Http(("127.0.0.1", party.port), TOKEN)
        while time.monotonic() < end:
            run_true(http, party.opened[i % SESSIONS])
            done[i] += 1
        http.close()

    threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.monotonic() - begin)


def start(party: Party, session: str, argv: list[str]) -> str:
    return party.http.call("POST", f"/sessions/{session}/runs", {"argv": argv})["run_id"]


def open_stream(party: Party, session: str, run: str) -> tuple[Http, Any]:
    http = Http(("127.0.0.1", party.port), TOKEN)
    http.sock = http._connect()
    head = http.encode("GET", f"/sessions/{session}/runs/{run}/output")[:-2] + b"Accept: application/octet-stream\r\n\r\n"
    http.sock.sendall(head)
    raw = http.sock.makefile("rb")
    if b" 200 " not in raw.readline():
        raise RuntimeError("no stream")
    while raw.readline() != b"\r\n":
        pass
    return http, raw


def first_byte_ms(party: Party) -> list[float]:
    """From the write inside to the client, of a hundred lines."""
    http, raw = open_stream(party, party.session, start(party, party.session, ["python3", "-c", TICKS]))
    late = []
    while (size := int(raw.readline(), 16)) > 0:
        chunk = raw.read(size)
        now = time.time_ns()
        raw.read(2)
        late.append((now - int(chunk.split()[-1])) / 1e6)
    http.close()
    return late


def berth_stream_mb(party: Party) -> float:
    run = start(party, party.session, ["head", "-c", str(STREAM_BYTES), "/dev/zero"])
    url = f"http://127.0.0.1:{party.port}/sessions/{party.session}/runs/{run}/output"
    begin = time.monotonic()
    done = subprocess.run(
        ["curl", "-sS", "-N", "-o", "/dev/null", "-w", "%{size_download}", "-H", f"X-Sandbox-Token: {TOKEN}",
         "-H", "Accept: application/octet-stream", url], check=True, capture_output=True, text=True,
    )
    if int(done.stdout) != STREAM_BYTES:
        raise RuntimeError(f"streamed {done.stdout} bytes")
    return STREAM_BYTES / 1e6 / (time.monotonic() - begin)


def docker_stream_mb(engine: EngineExec) -> float:
    begin = time.monotonic()
    command = f"docker -H unix://{engine.engine} exec {engine.container} head -c {STREAM_BYTES} /dev/zero | cat >/dev/null"
    subprocess.run(["sh", "-c", command], check=True)
    return STREAM_BYTES / 1e6 / (time.monotonic() - begin)


def among_slow_streams(party: Party, count: int) -> tuple[float, float]:
    """p95 of /run of true alone, and among 200 runs that stream a line each half second."""
    alone = percentile(measure_ms(lambda: run_true(party.http, party.session), count), 95)
    streams, runs = [], []
    for i in range(SLOW_STREAMS):
        session = party.opened[i % SESSIONS]
        run = start(party, session, ["sh", "-c", "while :; do echo tick; sleep 0.5; done"])
        runs.append((session, run))
        streams.append(open_stream(party, session, run))
    among = percentile(measure_ms(lambda: run_true(party.http, party.session), count), 95)
    for http, raw in streams:
        raw.close()
        http.close()
    for session, run in runs:
        party.http.call("POST", f"/sessions/{session}/runs/{run}/stop")
    return alone, among


def bench(berth: Party, reference: Party, engine: EngineExec, rounds: int) -> Table:
    table = Table()
    for party in (berth, reference):
        party.open_sessions(SESSIONS)
    taken: dict[str, list[float]] = {"berth": [], "reference": [], "engine": []}
    streams: dict[str, list[float]] = {"berth": [], "docker": []}
    rates: dict[str, list[float]] = {"berth": [], "reference": []}
    for number in range(1, rounds + 1):
        print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
        for party in (berth, reference):
            party.http.close()
            run_true(party.http, party.session)
            taken[party.name] += measure_ms(lambda: run_true(party.http, party.session), 300 if party is berth else 30)
            rates[party.name].append(commands_per_second(party, 4))
        engine.http.close()
        engine.run_echo()
        taken["engine"] += measure_ms(engine.run_echo, 30)
    late = first_byte_ms(berth)
    rss_before = berth.rss_kb()
    for _ in range(5):
        streams["berth"].append(berth_stream_mb(berth))
        streams["docker"].append(docker_stream_mb(engine))
    rss_after = berth.rss_kb()
    alone, among = among_slow_streams(berth, 200)

    best50 = min(statistics.median(taken["reference"]), statistics.median(taken["engine"]))
    best99 = min(percentile(taken["reference"], 99), percentile(taken["engine"], 99))
    p50, p99 = statistics.median(taken["berth"]), percentile(taken["berth"], 99)
    table.add("/run of true, p50", "ms", p50, statistics.median(taken["reference"]), best50 / p50, 40, engine=statistics.median(taken["engine"]))
    table.add("/run of true, p99", "ms", p99, percentile(taken["reference"], 99), best99 / p99, 10, engine=percentile(taken["engine"], 99))
    rate = {name: statistics.median(values) for name, values in rates.items()}
    table.add("16 clients, 8 sessions", "1/s", rate["berth"], rate["reference"], rate["berth"] / rate["reference"], 40)
    table.add("first byte, p50, beside 2x /run", "ms", statistics.median(late), 2 * p50, 2 * p50 / statistics.median(late), 1)
    stream = {name: statistics.median(values) for name, values in streams.items()}
    table.add("one stream, beside docker|cat", "MB/s", stream["berth"], stream["docker"], stream["berth"] / stream["docker"], 0.9)
    table.add("memory over 2.5 GB streamed", "MB", rss_after / 1024, rss_before / 1024, (rss_before + 4096) / rss_after, 1)
    table.add("p95 among 200 streams, beside 3x", "ms", among, 3 * alone, 3 * alone / among, 1)
    return table


def main() -> int:
    options = argparse.ArgumentParser(description="commands that are streamed")
    options.add_argument("--berthd", required=True)
    options.add_argument("--reference", required=True, help="a python in which pydantic-ai-backend 0.2.37 is installed")
    options.add_argument("--engine", required=True, help="the engine's socket")
    options.add_argument("--image", required=True)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", metavar="FILE")
    options.add_argument("--no-targets", action="store_true", help="report only: exit 0 whatever the ratios are")
    given = options.parse_args()

    home = Path(tempfile.mkdtemp(prefix="berth-bench-"))
    home.chmod(0o711)
    started: list[Any] = []
    try:
        berth = Party("berth", [given.berthd], home / "berth", given.engine, given.image)
        started.append(berth)
        reference = Party("reference", [given.reference, "-m", "pydantic_ai_backends.remote.server"], home / "reference", given.engine, given.image)
        started.append(reference)
        engine = EngineExec(given.engine, given.image)
        started.append(engine)
        table = bench(berth, reference, engine, given.rounds)
    finally:
        for one in reversed(started):
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
