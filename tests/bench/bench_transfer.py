"""How fast do files go in and out: beside nginx, `tar c | socat` and ripgrep, on the same files, taking turns.

  bench_transfer.py --berthd PATH --engine SOCKET [--image NAME] [--only PART] [--rounds N] [--size GIB] [--no-targets]

Needs nginx, socat, tar, rg. Exit status 1 when a median misses its target.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Callable

TOKEN = "service-token-of-the-bench"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port: int) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"nothing listens on {port}")


def receive(port: int, request: str, at_least: int) -> float:
    """Seconds until the connection's end; fails when less than that came."""
    buffer = bytearray(1 << 20)
    got = 0
    with socket.create_connection(("127.0.0.1", port)) as raw:
        began = time.perf_counter()
        if request:
            raw.sendall(request.encode())
        while more := raw.recv_into(buffer):
            got += more
    assert got >= at_least, f"{got} of {at_least} bytes"
    return time.perf_counter() - began


def medians(rounds: int, parties: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Of runs that take turns; the first, which fills caches, does not count."""
    times: dict[str, list[float]] = {name: [] for name in parties}
    for i in range(rounds + 1):
        for name, run in parties.items():
            took = run()
            if i:
                times[name].append(took)
    return {name: statistics.median(values) for name, values in times.items()}


class Broker:
    def __init__(self, program: str, engine: str, image: str, home: Path) -> None:
        self.port = free_port()
        (home / "root").mkdir(mode=0o711)
        env = {
            "SANDBOXD_TOKEN": TOKEN, "SANDBOXD_PORT": str(self.port), "SANDBOXD_RUNTIMES": f"python={image}", "SANDBOXD_LOG_LEVEL": "warn",
            "SANDBOXD_WORKSPACE_ROOT": str(home / "root"), "SANDBOXD_STATE_DIR": str(home / "state"), "DOCKER_HOST": f"unix://{engine}", "PATH": os.environ["PATH"],
        }  # fmt: skip
        self.process = subprocess.Popen([program], env=env, cwd=home)
        wait_for(self.port)
        opened = json.load(self.call("POST", "/sessions", json.dumps({"session_id": "bench"}).encode()))
        self.token = opened["token"]
        self.workspace = home / "root" / os.readlink(home / "root/bench") / "workspace"

    def call(self, method: str, path: str, body: bytes | None = None):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", body, {"X-Sandbox-Token": TOKEN, "Content-Type": "application/json"}, method=method
        )
        return urllib.request.urlopen(request, timeout=600)

    def request(self, path: str) -> str:
        return f"GET /sessions/bench/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Sandbox-Token: {self.token}\r\n\r\n"

    def rss_kb(self) -> int:
        return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())[1])  # type: ignore[index]


def nginx(home: Path, root: Path) -> tuple[subprocess.Popen[bytes], int]:
    port = free_port()
    (home / "nginx.conf").write_text(
        f"daemon off; user root; worker_processes 1; pid {home}/nginx.pid; error_log {home}/nginx.log; events {{}}\n"
        f"http {{ access_log off; sendfile on; tcp_nopush on; server {{ listen 127.0.0.1:{port}; root {root}; }} }}\n"
    )
    process = subprocess.Popen(["nginx", "-c", str(home / "nginx.conf"), "-p", str(home)], stderr=subprocess.DEVNULL)
    wait_for(port)
    return process, port


def words(size: int) -> str:
    chance = random.Random(7)
    vocabulary = ["".join(chance.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(chance.randint(2, 10))) for _ in range(20000)]
    lines = []
    length = 0
    while length < size:
        line = " ".join(chance.choices(vocabulary, k=11))
        lines.append(line)
        length += len(line) + 1
    lines[len(lines) // 3] += " needleinhay abqqqxy foozzzq"
    return "\n".join(lines) + "\n"


class Bench:
    def __init__(self, broker: Broker, home: Path, rounds: int) -> None:
        self.broker = broker
        self.home = home
        self.rounds = rounds
        self.missed: list[str] = []

    def compare(self, what: str, target: float, above: bool, **parties: Callable[[], float]) -> None:
        """Ours against the other one: as often as fast, at least (above), or as many times the time, at most."""
        ours, theirs = medians(self.rounds, parties).values()
        ratio = theirs / ours if above else ours / theirs
        print(f"{what:44} ours {ours * 1e3:9.1f} ms  theirs {theirs * 1e3:9.1f} ms  ratio {ratio:5.2f}  (target {'>=' if above else '<='} {target})", flush=True)
        if not (ratio >= target if above else ratio <= target):
            self.missed.append(what)

    def ask(self, path: str, at_least: int) -> float:
        return receive(self.broker.port, self.broker.request(path), at_least)

    def download(self, gib: float) -> None:
        block = os.urandom(16 << 20)
        blocks = max(int(gib * (1 << 30)) // len(block), 1)
        size = blocks * len(block)
        with open(self.broker.workspace / "large", "wb") as out:
            for _ in range(blocks):
                out.write(block)
        server, port = nginx(self.home, self.broker.workspace)
        before = self.broker.rss_kb()
        try:
            self.compare(
                f"download of {gib:g} GiB, beside nginx", 0.9, True,
                ours=lambda: self.ask("content?path=large", size),
                nginx=lambda: receive(port, "GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", size),
            )  # fmt: skip
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
        grown = self.broker.rss_kb() - before
        print(f"{'memory meanwhile':44} {grown / 1024:+.1f} MiB  (target < 16)")
        if grown >= 16 * 1024:
            self.missed.append("memory")
        os.unlink(self.broker.workspace / "large")

    def archive(self) -> None:
        many = self.broker.workspace / "many"
        for i in range(10_000):
            (many / f"{i % 100}").mkdir(parents=True, exist_ok=True)
            (many / f"{i % 100}/{i}").write_bytes(os.urandom(random.Random(i).randint(100, 8000)))

        def tar_socat() -> float:
            port = free_port()
            with subprocess.Popen(["socat", "-u", f"EXEC:tar c -C {many} .", f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr"]) as process:
                end = time.monotonic() + 5
                while time.monotonic() < end:
                    try:
                        took = receive(port, "", 1000)
                        process.wait()
                        return took
                    except ConnectionRefusedError:
                        time.sleep(0.005)
                raise SystemExit("socat does not listen")

        self.compare("10,000 small files as tar, beside tar | socat", 0.9, True, ours=lambda: self.ask("archive?path=many&format=tar", 1000), tar=tar_socat)

    def search(self) -> None:
        text = self.broker.workspace / "text"
        text.mkdir()
        content = words(10 << 20)
        for i in range(10):
            (text / f"{i}.txt").write_text(content)
        for pattern, regex in [("needleinhay", "false"), ("ab[a-z]+xy", "true"), ("(foo|bar)[a-z]+q", "true")]:
            query = urllib.parse.urlencode({"path": "text", "pattern": pattern, "regex": regex, "limit": "100000"})
            command = ["rg", "--no-config", "-uuu", "-n", *(["-F"] if regex == "false" else []), "-e", pattern, str(text)]
            found = len(json.load(self.broker.call("GET", f"/workspaces/bench/search?{query}"))["matches"])
            expected = len(subprocess.run(command, capture_output=True).stdout.splitlines())
            assert found == expected, f"{pattern}: {found} lines, ripgrep has {expected}"

            def rg() -> float:
                began = time.perf_counter()
                subprocess.run(command, stdout=subprocess.PIPE)
                return time.perf_counter() - began

            self.compare(f"search of 100 MB for {pattern}, beside rg", 1.5, False, ours=lambda: self.ask(f"search?{query}", 20), rg=rg)


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--berthd", required=True)
    options.add_argument("--engine", required=True)
    options.add_argument("--image", default="berth-python:latest")
    options.add_argument("--only", choices=("download", "archive", "search"))
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--size", type=float, default=4, help="GiB of the one large file")
    options.add_argument("--no-targets", action="store_true")
    given = options.parse_args()
    home = Path(tempfile.mkdtemp(prefix="berth-bench-files-", dir="/var/tmp"))
    home.chmod(0o711)
    broker = Broker(given.berthd, given.engine, given.image, home)
    bench = Bench(broker, home, given.rounds)
    try:
        if given.only in (None, "download"):
            bench.download(given.size)
        if given.only in (None, "archive"):
            bench.archive()
        if given.only in (None, "search"):
            bench.search()
    finally:
        try:
            broker.call("DELETE", "/sessions/bench?purge=true")
        finally:
            broker.process.send_signal(signal.SIGTERM)
            broker.process.wait()
            shutil.rmtree(home, ignore_errors=True)
    if bench.missed:
        print("missed:", ", ".join(bench.missed))
    return 1 if bench.missed and not given.no_targets else 0


if __name__ == "__main__":
    sys.exit(main())
