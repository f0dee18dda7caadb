"""A container engine that does what it is told, faults included: the Docker API on a Unix socket, and the agent's side of the conversation.

It runs in the test's own process. What it has is in plain attributes (containers, requests), so that a test looks without asking; what it
does wrong is ordered with fault(). The frames are those of src/agent/agent_proto.h; the engine's stream is Docker's (8 bytes before each piece).
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import struct
import tempfile
import threading
import time
import urllib.parse
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

from berth import IMAGE, Engine

HEADER = struct.Struct("<IBBHIIQII")  # struct agent_header: crc is the last but one
MAGIC = 0x48545242
HELLO, START, STOP, USAGE, SIGNAL = 1, 2, 7, 11, 5
HELLO_ACK, STARTED, OUT, ERR, EXIT, USAGE_REPLY = 65, 66, 67, 68, 69, 71


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def frame(kind: int, run: int = 0, offset: int = 0, payload: bytes = b"") -> bytes:
    header = HEADER.pack(MAGIC, 1, kind, 0, run, len(payload), offset, 0, 0)
    crc = crc32c(header + payload)
    return HEADER.pack(MAGIC, 1, kind, 0, run, len(payload), offset, crc, 0) + payload


def exit_frame(run: int, code: int, out: int = 0, err: int = 0, flags: int = 0, signal: int = 0) -> bytes:
    return frame(EXIT, run, 0, struct.pack("<iiIiQQQQQ", code, signal, flags, 0, 1, 0, 0, out, err))


def engine_frame(data: bytes, stream: int = 1) -> bytes:
    return struct.pack(">B3xI", stream, len(data)) + data


class FakeAgent:
    """Process 1 of one container, over one attached connection at a time. program(argv) gives (stdout, stderr, exit status), or None: runs on."""

    def __init__(self) -> None:
        self.program: Callable[[list[str]], tuple[bytes, bytes, int] | None] = default_program
        self.answer_hello = True
        self.on_start: Callable[["FakeAgent", int, list[str]], bool] | None = None  # True: it has dealt with it
        self.running: set[int] = set()
        self.links = 0
        self.connection: socket.socket | None = None
        self.serving = threading.local()  # .connection: what is said by the thread of a connection goes there, though a newer one is there by now
        self.lock = threading.Lock()

    def serve(self, connection: socket.socket) -> None:
        self.links += 1
        self.connection = self.serving.connection = connection
        data = b""
        starting: dict[int, bytes] = {}
        while True:
            try:
                got = connection.recv(65536)
            except OSError:
                return
            if not got:
                return
            data += got
            while True:
                at = data.find(b"BRTH")
                if at < 0:
                    data = data[-3:]
                    break
                data = data[at:]
                if len(data) < HEADER.size:
                    break
                _, _, kind, flags, run, length, offset, _, _ = HEADER.unpack_from(data)
                if len(data) < HEADER.size + length:
                    break
                payload, data = data[HEADER.size : HEADER.size + length], data[HEADER.size + length :]
                if kind == START:
                    starting[run] = starting.get(run, b"") + payload
                    if not flags & 1:
                        self.start(run, starting.pop(run))
                else:
                    self.take(kind, run, offset, payload)

    def send(self, data: bytes) -> None:
        """Bytes of the agent's standard output."""
        self.send_raw(engine_frame(data))

    def send_raw(self, data: bytes) -> None:
        """Bytes of the engine's stream."""
        with self.lock:
            connection = getattr(self.serving, "connection", self.connection)
            try:
                if connection:
                    connection.sendall(data)
            except OSError:
                pass

    def cut(self) -> None:
        """End the stream."""
        connection, self.connection = self.connection, None
        if connection:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def take(self, kind: int, run: int, offset: int, payload: bytes) -> None:
        if kind == HELLO and self.answer_hello:
            nonce = struct.unpack_from("<Q", payload)[0]
            self.send(frame(HELLO_ACK, 0, 0, struct.pack("<QIIIIII", nonce, 1, 0, 0, 3, 0, 0)))
        elif kind == STOP and run in self.running:
            self.running.discard(run)
            self.send(exit_frame(run, -1, flags=2, signal=15))
        elif kind == USAGE:
            self.send(frame(USAGE_REPLY, 0, offset, struct.pack("<qqqq", 1_000_000, 1_000_000, 1, 0)))

    def start(self, run: int, payload: bytes) -> None:
        argc = struct.unpack_from("<IIQIIHHI", payload)[3]
        argv = [s.decode() for s in payload[32:].split(b"\0")[:argc]]
        self.send(frame(STARTED, run))
        if self.on_start and self.on_start(self, run, argv):
            return
        result = self.program(argv)
        if result is None:
            self.running.add(run)
            return
        out, err, code = result
        for kind, data in ((OUT, out), (ERR, err)):
            if data:
                self.send(frame(kind, run, 0, data))
        self.send(exit_frame(run, code, len(out), len(err)))


def default_program(argv: list[str]) -> tuple[bytes, bytes, int] | None:
    if argv[0] == "sleep":
        return None
    if argv[0] == "exit":
        return b"", b"", int(argv[1])
    return (" ".join(argv[1:]) + "\n").encode(), b"", 0


@dataclass
class FakeContainer:
    id: str
    name: str
    body: dict[str, Any]
    state: str = "created"
    agent: FakeAgent = field(default_factory=FakeAgent)

    @property
    def labels(self) -> dict[str, str]:
        labels: dict[str, str] = self.body.get("Labels") or {}
        return labels

    def mounts(self) -> list[dict[str, Any]]:
        return [{"Source": m["Source"], "Destination": m["Target"], "RW": not m["ReadOnly"]} for m in self.body["HostConfig"]["Mounts"]]


@dataclass
class Fault:
    method: str
    path: re.Pattern[str]
    action: Callable[["FakeEngine", "Exchange"], bool]  # True: it has answered
    times: int
    hit: int = 0
    over: threading.Event = field(default_factory=threading.Event)  # one of them was dealt with, and what it asked for is done


class Exchange:
    """One request on one connection."""

    def __init__(self, connection: socket.socket, method: str, path: str, query: dict[str, list[str]], body: bytes) -> None:
        self.connection, self.method, self.path, self.query, self.body = connection, method, path, query, body

    def reply(self, status: int, document: Any = None) -> None:
        text = b"" if document is None and status != 200 else json.dumps(document).encode()
        self.raw(f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nApi-Version: 1.41\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)

    def raw(self, data: bytes) -> None:
        try:
            self.connection.sendall(data)
        except OSError:
            pass

    def hang_up(self) -> None:
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class FakeEngine(Engine):
    """An Engine for make_broker(engine=…). Names and numbers of containers are made up; nothing runs."""

    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="berth-fake-", dir="/tmp"))
        self.dir.chmod(0o711)
        self.made: dict[str, FakeContainer] = {}
        self.requests: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.streams: list[socket.socket] = []  # of /events
        self.agent_setup: Callable[[FakeAgent], None] = lambda agent: None
        self.image_id = "sha256:fake"
        self.lock = threading.RLock()
        self.connections: set[socket.socket] = set()
        super().__init__(f"unix://{self.dir}/engine.sock")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.socket)
        self.listener.listen(128)
        self.accepting = threading.Thread(target=self._accept, daemon=True)
        self.accepting.start()

    # ---- for tests

    def fault(self, method: str, path: str, action: Callable[["FakeEngine", Exchange], bool] | tuple[int, Any], times: int = 1) -> Fault:
        """The next `times` requests whose path (without version and query) matches in full get this. action: a function, or (status, document)."""
        if isinstance(action, tuple):
            status, document = action

            def answer(_: "FakeEngine", exchange: Exchange) -> bool:
                exchange.reply(status, document)
                return True

            action = answer
        made = Fault(method, re.compile(path), action, times)
        with self.lock:
            self.faults.append(made)
        return made

    def ours(self) -> list[FakeContainer]:
        """Containers with a broker's label."""
        with self.lock:
            return [c for c in self.made.values() if "berth.install" in c.labels]

    def one(self) -> FakeContainer:
        found = self.ours()
        assert len(found) == 1, [c.id for c in found]
        return found[0]

    def count(self, method: str, path: str) -> int:
        pattern = re.compile(path)
        with self.lock:
            return sum(m == method and bool(pattern.fullmatch(p)) for m, p in self.requests)

    def cut_events(self) -> None:
        """End every stream of events."""
        with self.lock:
            streams, self.streams = self.streams, []
        for stream in streams:
            try:
                stream.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def event(self, container: FakeContainer, action: str) -> None:
        line = json.dumps({"Type": "container", "Action": action, "Actor": {"ID": container.id, "Attributes": container.labels | {"exitCode": "137"}}})
        with self.lock:
            for stream in self.streams:
                try:
                    stream.sendall(f"{len(line) + 1:x}\r\n{line}\n\r\n".encode())
                except OSError:
                    pass

    def die(self, container: FakeContainer, silently: bool = False) -> None:
        """As if process 1 had ended."""
        container.state = "exited"
        container.agent.cut()
        if not silently:
            self.event(container, "die")

    def close(self) -> None:
        super().close()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.accepting.join()  # it would go on at the listener of the next engine, whose descriptor has the same number
        self.listener.close()
        with self.lock:
            connections = list(self.connections)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        shutil.rmtree(self.dir, ignore_errors=True)

    # ---- the server

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with self.lock:
            self.connections.add(connection)
        try:
            data = b""
            while True:
                while b"\r\n\r\n" not in data:
                    got = connection.recv(65536)
                    if not got:
                        return
                    data += got
                head, data = data.split(b"\r\n\r\n", 1)
                lines = head.decode().split("\r\n")
                method, target, _ = lines[0].split(" ")
                headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
                length = int(headers.get("content-length", "0"))
                while len(data) < length:
                    got = connection.recv(65536)
                    if not got:
                        return
                    data += got
                body, data = data[:length], data[length:]
                path, _, query = target.partition("?")
                path = re.sub(r"^/v1\.\d+", "", path)
                exchange = Exchange(connection, method, urllib.parse.unquote(path), urllib.parse.parse_qs(query), body)
                if not self._answer(exchange):
                    return
        except OSError:
            pass
        finally:
            with self.lock:
                self.connections.discard(connection)
            connection.close()

    def _answer(self, exchange: Exchange) -> bool:
        """False: the connection is over."""
        with self.lock:
            self.requests.append((exchange.method, exchange.path))
            found = next((f for f in self.faults if f.times > 0 and f.method == exchange.method and f.path.fullmatch(exchange.path)), None)
            if found:
                found.times -= 1
                found.hit += 1
        try:
            return bool(found and found.action(self, exchange)) or self._route(exchange)
        finally:
            if found:
                found.over.set()

    def _route(self, exchange: Exchange) -> bool:
        for method, path, handler in ROUTES:
            match = re.fullmatch(path, exchange.path)
            if match and method == exchange.method:
                return handler(self, exchange, *match.groups()) is not False
        exchange.reply(404, {"message": f"no such route: {exchange.path}"})
        return True

    def _find(self, exchange: Exchange, name: str) -> FakeContainer | None:
        with self.lock:
            found = self.made.get(name) or next((c for c in self.made.values() if c.name == name), None)
        if not found:
            exchange.reply(404, {"message": f"No such container: {name}"})
        return found

    def create(self, exchange: Exchange) -> FakeContainer | None:
        """Make the container that the request asks for, without answering (unless the name is taken)."""
        name = exchange.query.get("name", [f"made-up-{uuid.uuid4().hex[:6]}"])[0]
        with self.lock:
            if any(c.name == name for c in self.made.values()):
                exchange.reply(409, {"message": f'Conflict. The container name "/{name}" is already in use'})
                return None
            made = FakeContainer(uuid.uuid4().hex * 2, name, json.loads(exchange.body))
            self.agent_setup(made.agent)
            self.made[made.id] = made
        return made

    def _create(self, exchange: Exchange) -> None:
        made = self.create(exchange)
        if made:
            exchange.reply(201, {"Id": made.id, "Warnings": []})

    def _start(self, exchange: Exchange, name: str) -> None:
        if found := self._find(exchange, name):
            status = 304 if found.state == "running" else 204
            found.state = "running"
            exchange.reply(status)

    def _end(self, exchange: Exchange, name: str, verb: str) -> None:
        if found := self._find(exchange, name):
            if found.state == "running":
                self.die(found)
                exchange.reply(204)
            else:
                exchange.reply(*((304, None) if verb == "stop" else (409, {"message": "is not running"})))

    def _freeze(self, exchange: Exchange, name: str, verb: str) -> None:
        if found := self._find(exchange, name):
            found.state = "paused" if verb == "pause" else "running"
            exchange.reply(204)

    def _rename(self, exchange: Exchange, name: str) -> None:
        if found := self._find(exchange, name):
            found.name = exchange.query["name"][0]
            exchange.reply(204)

    def _remove(self, exchange: Exchange, name: str) -> None:
        if found := self._find(exchange, name):
            with self.lock:
                self.made.pop(found.id, None)
            if found.state == "running":
                self.die(found)
            self.event(found, "destroy")
            exchange.reply(204)

    def _inspect(self, exchange: Exchange, name: str) -> None:
        if found := self._find(exchange, name):
            state = {"Status": found.state, "Running": found.state == "running", "Paused": found.state == "paused", "OOMKilled": False, "ExitCode": 0, "FinishedAt": "0001-01-01T00:00:00Z", "Pid": 1}
            exchange.reply(200, {"Id": found.id, "Name": "/" + found.name, "State": state, "Config": {"Labels": found.labels}, "Mounts": found.mounts()})

    def _list(self, exchange: Exchange) -> None:
        wanted = json.loads(exchange.query.get("filters", ["{}"])[0]).get("label", [])
        wanted = list(wanted) if isinstance(wanted, dict) else wanted
        with self.lock:
            found = [c for c in self.made.values() if all((k in c.labels if not s else c.labels.get(k) == v) for k, s, v in (w.partition("=") for w in wanted))]
        exchange.reply(200, [{"Id": c.id, "Names": ["/" + c.name], "State": c.state, "Labels": c.labels, "Mounts": c.mounts()} for c in found])

    def _attach(self, exchange: Exchange, name: str) -> bool:
        if found := self._find(exchange, name):
            exchange.raw(b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
            found.agent.connection = exchange.connection
            if found.state in ("running", "paused"):  # asked after the connection is there for die() to cut
                found.agent.serve(exchange.connection)
            return False
        return True

    def _events(self, exchange: Exchange) -> bool:
        exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        with self.lock:
            self.streams.append(exchange.connection)
        try:
            while exchange.connection.recv(4096):
                pass
        except OSError:
            pass
        return False

    def _version(self, exchange: Exchange) -> None:
        exchange.reply(200, {"ApiVersion": "1.41", "MinAPIVersion": "1.12", "Version": "20.10.0-fake", "Components": [{"Name": "Engine", "Version": "20.10.0"}]})

    def _info(self, exchange: Exchange) -> None:
        exchange.reply(200, {"MemoryLimit": True, "SwapLimit": True, "CpuCfsQuota": True, "CPUShares": True, "PidsLimit": True, "DefaultRuntime": "runc", "SecurityOptions": ["name=seccomp,profile=default"], "Runtimes": {"runc": {"path": "runc"}}})

    def _image(self, exchange: Exchange, name: str) -> None:
        if name == IMAGE:
            exchange.reply(200, {"Id": self.image_id, "Config": {"User": ""}})
        else:
            exchange.reply(404, {"message": f"No such image: {name}"})


ROUTES: list[tuple[str, str, Callable[..., Any]]] = [
    ("GET", "/_ping", lambda engine, exchange: exchange.reply(200, "OK")),
    ("GET", "/version", FakeEngine._version),
    ("GET", "/info", FakeEngine._info),
    ("GET", "/events", FakeEngine._events),
    ("GET", "/images/(.+)/json", FakeEngine._image),
    ("GET", "/containers/json", FakeEngine._list),
    ("POST", "/containers/create", FakeEngine._create),
    ("POST", "/containers/([^/]+)/start", FakeEngine._start),
    ("POST", "/containers/([^/]+)/(stop|kill)", FakeEngine._end),
    ("POST", "/containers/([^/]+)/(pause|unpause)", FakeEngine._freeze),
    ("POST", "/containers/([^/]+)/rename", FakeEngine._rename),
    ("POST", "/containers/([^/]+)/attach", FakeEngine._attach),
    ("GET", "/containers/([^/]+)/json", FakeEngine._inspect),
    ("DELETE", "/containers/([^/]+)", FakeEngine._remove),
]


def slow_pull(start: threading.Event, go_on: threading.Event, fails: bool = False) -> Callable[[FakeEngine, Exchange], bool]:
    """A pull that has begun (start) and ends when it may (go_on), for fault("POST", "/images/create", …)."""

    def pull(_: FakeEngine, exchange: Exchange) -> bool:
        def line(document: dict[str, Any]) -> None:
            text = json.dumps(document) + "\r\n"
            exchange.raw(f"{len(text):x}\r\n{text}\r\n".encode())

        exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        line({"status": "Pulling \033[31m from library"})
        start.set()
        go_on.wait(30)
        line({"error": "manifest unknown"} if fails else {"status": "Done"})
        exchange.raw(b"0\r\n\r\n")
        return True

    return pull
