"""How fast is berthd, beside the reference broker and the engine's own exec: same engine, same image, same moment.

Run by contrib/bench. Needs only the standard library: a client library would be most of what is measured.
Batches of the parties take turns in several rounds, so that a noisy moment hits all of them.

  bench.py --berthd PATH --reference PYTHON --engine SOCKET --image NAME [--rounds N] [--json FILE] [--no-targets]

Exit status 1 when a ratio misses its target.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import uuid
from pathlib import Path
from typing import Any, Callable

TOKEN = "service-token-of-the-bench"
CONTENT = (b"0123456789abcdef" * 4 + b"\n") * 63 + b"z" * (4096 - 65 * 63)
assert len(CONTENT) == 4096
REFERENCE_USAGE_CACHE_S = 5.2  # the reference keeps a sample for five seconds; what is asked here is a fresh one


class Http:
    """HTTP/1.1 by hand over one kept connection: one send and, for a small answer, one receive a request."""

    def __init__(self, address: tuple[str, int] | str, token: str | None = None) -> None:
        self.address = address
        self.token = token
        self.sock: socket.socket | None = None
        self.buffer = b""

    def _connect(self) -> socket.socket:
        if isinstance(self.address, str):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(120)
        sock.connect(self.address)
        return sock

    def close(self) -> None:
        if self.sock:
            self.sock.close()
        self.sock = None
        self.buffer = b""

    def encode(self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\n"
        if self.token:
            head += f"X-Sandbox-Token: {self.token}\r\n"
        if body is not None:
            head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        return head.encode() + b"\r\n" + (body or b"")

    def _more(self) -> None:
        assert self.sock
        got = self.sock.recv(65536)
        if not got:
            raise ConnectionError("closed by the other side in the middle of an answer")
        self.buffer += got

    def _gone(self) -> bool:
        """The reference closes a connection that is idle for five seconds; that is no fault of the request that comes next."""
        assert self.sock
        ready, _, _ = select.select([self.sock], [], [], 0)
        return bool(ready)

    def exchange(self, request: bytes) -> tuple[int, bytes]:
        if self.sock is not None and self._gone():
            self.close()
        if self.sock is None:
            self.sock = self._connect()
        self.sock.sendall(request)
        while (end := self.buffer.find(b"\r\n\r\n")) < 0:
            self._more()
        head, self.buffer = self.buffer[:end].lower(), self.buffer[end + 4 :]
        status = int(head[9:12])
        if status == 204:
            body = b""
        elif (at := head.find(b"content-length:")) >= 0:
            length = int(head[at + 15 :].split(b"\r\n", 1)[0])
            pieces = [self.buffer]
            missing = length - len(self.buffer)
            while missing > 0:
                self.buffer = b""
                self._more()
                pieces.append(self.buffer)
                missing -= len(self.buffer)
            body = b"".join(pieces)
            body, self.buffer = body[:length], body[length:]
        elif b"transfer-encoding: chunked" in head:
            body = self._chunks()
        else:
            raise ConnectionError(f"an answer without a length: {head!r}")
        if b"connection: close" in head:
            self.close()
        return status, body

    def _chunks(self) -> bytes:
        body = b""
        while True:
            while (end := self.buffer.find(b"\r\n")) < 0:
                self._more()
            size = int(self.buffer[:end].split(b";")[0], 16)
            while len(self.buffer) < end + 2 + size + 2:
                self._more()
            body += self.buffer[end + 2 : end + 2 + size]
            self.buffer = self.buffer[end + 2 + size + 2 :]
            if size == 0:
                return body

    def call(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.exchange(self.encode(method, path, None if body is None else json.dumps(body).encode()))
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {answer[:500]!r}")
        return json.loads(answer) if answer else None


class Party:
    """A broker under measurement. The two speak one wire, so that nothing here knows which it is."""

    def __init__(self, name: str, command: list[str], home: Path, engine: str, image: str, settings: dict[str, str] | None = None) -> None:
        self.name = name
        self.home = home
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        root = home / "workspaces"
        root.mkdir(parents=True, mode=0o711)
        env = {k: v for k, v in os.environ.items() if not k.startswith("SANDBOXD_")}
        env |= {
            "DOCKER_HOST": f"unix://{engine}",
            "SANDBOXD_HOST": "127.0.0.1",
            "SANDBOXD_PORT": str(self.port),
            "SANDBOXD_TOKEN": TOKEN,
            "SANDBOXD_RUNTIMES": f"python={image}",
            "SANDBOXD_WORKSPACE_ROOT": str(root),
            "SANDBOXD_PREWARM": "false",
        } | (settings or {})
        self.log = home / "log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, env=env, cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.http = Http(("127.0.0.1", self.port), TOKEN)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.http.call("GET", "/healthz")
                break
            except OSError:
                self.http.close()
                if self.process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{name} did not start:\n{self.log.read_text()[-2000:]}")
                time.sleep(0.05)
        self.idle_kb = self.rss_kb()

    def rss_kb(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+)", status, re.M).group(1))  # type: ignore[union-attr]

    def open_sessions(self, count: int) -> None:
        self.opened = []
        self.open_ms = []
        for _ in range(count):
            begin = time.perf_counter()
            self.opened.append(self.http.call("POST", "/sessions", {})["session"]["session_id"])
            self.open_ms.append((time.perf_counter() - begin) * 1e3)
        self.session = self.opened[0]
        path = f"/sessions/{self.session}/files/write?path={urllib.parse.quote('/workspace/bench.txt', safe='')}"
        status, answer = self.http.exchange(self.http.encode("POST", path, CONTENT, "application/octet-stream"))
        if status != 204:
            raise RuntimeError(f"{self.name}: files/write: {status} {answer!r}")

    def run_echo(self) -> None:
        answer = self.http.call("POST", f"/sessions/{self.session}/run", {"argv": ["echo", "hi"], "run_id": uuid.uuid4().hex})
        if answer["stdout"] != "hi\n" or answer["exit_code"] != 0:
            raise RuntimeError(f"{self.name}: wrong answer: {answer}")

    def files_read(self) -> None:
        body = b'{"path":"/workspace/bench.txt"}'
        status, answer = self.http.exchange(self.http.encode("POST", f"/sessions/{self.session}/files/read", body))
        if status != 200 or answer != CONTENT:
            raise RuntimeError(f"{self.name}: files/read: {status} {answer[:200]!r}")

    def archive_read(self) -> None:
        answer = self.http.call("POST", f"/workspaces/{self.session}/read", {"path": "bench.txt"})
        if answer["content"].encode() != CONTENT:
            raise RuntimeError(f"{self.name}: archive read: {answer}")

    def usage(self) -> None:
        sessions = self.http.call("GET", "/sessions?usage=true")["sessions"]
        if len(sessions) != len(self.opened) or not all(s["usage"] and s["usage"]["memory_bytes"] for s in sessions):
            raise RuntimeError(f"{self.name}: usage: {sessions}")

    def healthz_per_second(self, seconds: int) -> float:
        out = subprocess.run(
            ["wrk", "-t1", "-c8", f"-d{seconds}s", f"http://127.0.0.1:{self.port}/healthz"],
            check=True, capture_output=True, text=True,
        ).stdout
        if "Non-2xx" in out or "Socket errors" in out:
            raise RuntimeError(f"{self.name}: wrk: {out}")
        return float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))  # type: ignore[union-attr]

    def stop(self) -> None:
        self.http.close()
        if self.process.poll() is None:
            for session in getattr(self, "opened", []):
                try:
                    self.http.call("DELETE", f"/sessions/{session}?purge=true")
                except (OSError, RuntimeError) as error:
                    print(f"{self.name}: closing {session}: {error}", file=sys.stderr)
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.http.close()


class EngineExec:
    """The engine's own exec, as a broker would use it: create, start (its connection becomes the stream), inspect."""

    def __init__(self, engine: str, image: str) -> None:
        self.engine = engine
        self.http = Http(engine)
        self.container = self.http.call(
            "POST", "/containers/create",
            {"Image": image, "Cmd": ["sleep", "infinity"], "HostConfig": {"Init": True, "NetworkMode": "none", "AutoRemove": True}},
        )["Id"]
        self.http.call("POST", f"/containers/{self.container}/start")

    def run_echo(self) -> None:
        created = self.http.call(
            "POST", f"/containers/{self.container}/exec", {"AttachStdout": True, "AttachStderr": True, "Cmd": ["echo", "hi"]}
        )
        stream = self.http._connect()
        body = b'{"Detach":false,"Tty":false}'
        stream.sendall(self.http.encode("POST", f"/exec/{created['Id']}/start", body))
        data = b""
        while got := stream.recv(65536):
            data += got
        stream.close()
        if b"hi\n" not in data or self.http.call("GET", f"/exec/{created['Id']}/json")["ExitCode"] != 0:
            raise RuntimeError(f"engine exec: {data!r}")

    def stop(self) -> None:
        self.http.close()
        self.http.call("POST", f"/containers/{self.container}/kill")
        self.http.close()


def measure_ms(action: Callable[[], None], count: int) -> list[float]:
    taken = []
    for _ in range(count):
        begin = time.perf_counter()
        action()
        taken.append((time.perf_counter() - begin) * 1e3)
    return taken


def percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class Table:
    """Collects the lines of the report and whether each target was met."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, unit: str, berth: float, reference: float, ratio: float, target: float | None = None, **more: float) -> None:
        met = None if target is None else ratio >= target
        self.rows.append({"what": what, "unit": unit, "berth": berth, "reference": reference, "ratio": ratio, "target": target, "met": met} | more)

    def print(self) -> None:
        print(f"{'':34}{'berthd':>12}{'reference':>12}{'engine exec':>12}{'ratio':>9}{'target':>9}")
        for row in self.rows:
            engine = f"{row['engine']:.2f}" if "engine" in row else ""
            target = "" if row["target"] is None else f">= {row['target']:g}"
            verdict = {None: "", True: "  met", False: "  MISSED"}[row["met"]]
            what = f"{row['what']} ({row['unit']})"
            print(f"{what:34}{row['berth']:>12.2f}{row['reference']:>12.2f}{engine:>12}{row['ratio']:>8.1f}x{target:>9}{verdict}")


def bench(berth: Party, reference: Party, engine: EngineExec, rounds: int) -> Table:
    table = Table()
    for party in (berth, reference):
        party.open_sessions(8)
    for action in (berth.run_echo, reference.run_echo, engine.run_echo, berth.files_read, reference.files_read, berth.archive_read, reference.archive_read):
        measure_ms(action, 5)  # first calls make connections and caches; no party is measured cold

    taken: dict[str, list[float]] = {}
    health: dict[str, list[float]] = {}

    def batch(key: str, action: Callable[[], None], count: int, warm: bool = True) -> None:
        action.__self__.http.close()  # type: ignore[attr-defined]  # the reference closes a connection after five idle seconds
        if warm:
            action()
        taken.setdefault(key, []).extend(measure_ms(action, count))

    for number in range(1, rounds + 1):
        print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
        batch("berth run", berth.run_echo, 200)
        batch("reference run", reference.run_echo, 25)
        batch("engine run", engine.run_echo, 25)
        for party in (berth, reference):
            batch(f"{party.name} files", party.files_read, 400)
            batch(f"{party.name} archive", party.archive_read, 400)
            health.setdefault(party.name, []).append(party.healthz_per_second(3))
        batch("berth usage", berth.usage, 50)
        time.sleep(REFERENCE_USAGE_CACHE_S)
        batch("reference usage", reference.usage, 1, warm=False)

    median = {key: statistics.median(values) for key, values in taken.items()}
    p99 = {key: percentile(values, 99) for key, values in taken.items()}
    table.add("/run of echo, p50", "ms", median["berth run"], median["reference run"], median["reference run"] / median["berth run"], 25, engine=median["engine run"])
    table.add("/run of echo, p99", "ms", p99["berth run"], p99["reference run"], p99["reference run"] / p99["berth run"], engine=p99["engine run"])
    for key, what in (("files", "files/read of 4 KiB, p50"), ("archive", "archive read of 4 KiB, p50")):
        table.add(what, "ms", median[f"berth {key}"], median[f"reference {key}"], median[f"reference {key}"] / median[f"berth {key}"], 4)
    table.add("sessions?usage=true, 8, p50", "ms", median["berth usage"], median["reference usage"], median["reference usage"] / median["berth usage"], 50)
    per_second = {name: statistics.median(values) for name, values in health.items()}
    table.add("/healthz, 8 connections", "1/s", per_second["berth"], per_second["reference"], per_second["berth"] / per_second["reference"], 8)
    table.add("idle resident memory", "MB", berth.idle_kb / 1024, reference.idle_kb / 1024, reference.idle_kb / berth.idle_kb, 5)
    after_berth, after_reference = berth.rss_kb(), reference.rss_kb()
    table.add("resident after the load", "MB", after_berth / 1024, after_reference / 1024, after_reference / after_berth)
    opens = {p.name: statistics.median(p.open_ms) for p in (berth, reference)}
    table.add("open a session, p50", "ms", opens["berth"], opens["reference"], opens["reference"] / opens["berth"])
    return table


def main() -> int:
    options = argparse.ArgumentParser(description="berthd beside the reference broker and the engine's exec")
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
