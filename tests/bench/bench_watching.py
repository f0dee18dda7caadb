"""What looking costs: GET /metrics and GET /stats beside GET /healthz, with ten thousand sessions of ten thousand tenants.

  bench_watching.py --berthd PATH [--sessions N] [--count N] [--json FILE] [--no-targets]

The sessions sleep: rows of the database, which is what sessions beyond the running ones are. The engine is the tests' own. Requests go over one
socket by hand, for a library's client takes longer than the broker does and would make all of them look alike. Turns are taken; the time is the
median's, the work what the broker's threads had of the processors. Exit status 1 when /metrics costs more than ten /healthz in either.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "http"))


TURN = 50  # the kernel's account of a thread lags a little


class Asker:
    """One connection that is kept."""

    def __init__(self, port: int, token: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.token = token

    def get(self, path: str) -> bytes:
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: b\r\nX-Sandbox-Token: {self.token}\r\n\r\n".encode())
        data = bytearray()
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more()
        head, body = bytes(data[:end]), data[end + 4 :]
        assert head.startswith(b"HTTP/1.1 200 "), head
        size = int(head.lower().split(b"\r\ncontent-length:")[1].split(b"\r\n")[0])
        while len(body) < size:
            body += self._more()
        return bytes(body)

    def _more(self) -> bytes:
        data = self.socket.recv(1 << 20)
        assert data, "the broker closed the connection"
        return data


def worked_ns(pid: int) -> int:
    """What its threads had of the processors; those that ended are missing, and none ends here."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--berthd", required=True)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--json")
    parser.add_argument("--no-targets", action="store_true")
    options = parser.parse_args()
    os.environ["BERTHD"] = os.path.abspath(options.berthd)
    from berth import Broker
    from fake_engine import FakeEngine
    from sleeping import write_sleeping

    engine = FakeEngine()
    with tempfile.TemporaryDirectory(prefix="berth-bench-", dir="/tmp") as home:
        broker = Broker(Path(home) / "broker", engine, max_sessions="").start()
        for method, path in (("GET", "/sessions"), ("GET", "/policy"), ("GET", "/nowhere")):
            broker.client.request(method, path)
        broker.terminate()
        write_sleeping(broker, options.sessions, tenants=options.sessions)
        broker.start(120)
        took: dict[str, list[float]] = {"/healthz": [], "/metrics": [], "/stats": []}
        worked = {path: 0 for path in took}
        size = {}
        asker = Asker(broker.port, str(broker.settings["token"]))
        asleep = re.search(rb'^berth_sessions{state="hibernated"} (\d+)', asker.get("/metrics"), re.M)
        assert asleep and int(asleep.group(1)) == options.sessions, "the sessions are not there"
        for _ in range(options.count // TURN):
            for path, times in took.items():
                before_ns = worked_ns(broker.pid)
                for _ in range(TURN):
                    begin = time.perf_counter()
                    body = asker.get(path)
                    times.append(time.perf_counter() - begin)
                worked[path] += worked_ns(broker.pid) - before_ns
                size[path] = len(body)
        broker.kill9()
    engine.close()
    median = {path: statistics.median(times) * 1e6 for path, times in took.items()}
    work = {path: worked[path] / len(took[path]) / 1e3 for path in took}
    ratio = {path: max(median[path] / median["/healthz"], work[path] / work["/healthz"]) for path in took}
    for path in took:
        print(f"{path:10} {median[path]:6.0f} us  {work[path]:6.0f} us of work  {ratio[path]:5.2f} of /healthz  {size[path]:7} bytes")
    if options.json:
        Path(options.json).write_text(json.dumps({"us": median, "work_us": work, "ratio": ratio, "bytes": size}, indent=2) + "\n")
    return 0 if options.no_targets or ratio["/metrics"] < 10 else 1


if __name__ == "__main__":
    sys.exit(main())
