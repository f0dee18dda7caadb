"""Runs that are watched, as a client of Berth's own routes sees them."""

from __future__ import annotations

import base64
import fcntl
import http.client
import json
import os
import socket
import struct
import termios
from typing import Any, Iterator

import httpx

from berth import SLOWNESS, Session, new_run_id, wait_until


class Run:
    def __init__(self, session: Session, view: dict[str, Any]) -> None:
        self.session = session
        self.first = view
        self.id: str = view["run_id"]

    def path(self, tail: str = "") -> str:
        return f"/runs/{self.id}{tail}"

    def view(self, wait: int | None = None) -> dict[str, Any]:
        answer = self.session.request("GET", self.path(), params={} if wait is None else {"wait": wait}, timeout=120 * SLOWNESS)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def end(self, deadline: float = 30) -> dict[str, Any]:
        view = self.view(wait=int(deadline * SLOWNESS))
        assert view["state"] == "ended", view
        return view

    def post(self, tail: str, **kwargs: Any) -> httpx.Response:
        return self.session.request("POST", self.path("/" + tail), **kwargs)

    def stdin(self, data: Any = b"", eof: bool = False, **kwargs: Any) -> httpx.Response:
        return self.post("stdin", params={"eof": "true"} if eof else {}, content=data, **kwargs)

    def signal(self, signal: str | int) -> None:
        assert self.post("signal", json={"signal": signal}).status_code == 204

    def stop(self) -> None:
        assert self.post("stop").status_code == 204

    def records(self, after: str | None = None, timeout: float = 60) -> Iterator[dict[str, Any]]:
        """NDJSON; ends after the exit record, and fails when the stream ended without one."""
        params = {} if after is None else {"after": after}
        headers = {"X-Sandbox-Token": self.session.token, "Accept": "application/x-ndjson"}
        url = f"/sessions/{self.session.id}{self.path('/output')}"
        with self.session.broker.http.stream("GET", url, params=params, headers=headers, timeout=timeout * SLOWNESS) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["cache-control"] == "no-cache" and answer.headers["x-accel-buffering"] == "no"
            last = None
            for line in answer.iter_lines():
                last = json.loads(line)
                yield last
        assert last is not None and last["type"] == "exit", f"the stream ended with {last}"

    def output(self, after: str | None = None) -> tuple[bytes, bytes, dict[str, Any]]:
        """stdout, stderr (what was dropped left out) and the exit record."""
        streams = {"stdout": bytearray(), "stderr": bytearray()}
        for record in self.records(after):
            if record["type"] in streams:
                streams[record["type"]] += bytes_of(record)
        return bytes(streams["stdout"]), bytes(streams["stderr"]), record


def bytes_of(record: dict[str, Any]) -> bytes:
    return base64.b64decode(record["base64"]) if "base64" in record else record["text"].encode()


def start(session: Session, argv: list[str] | None = None, **body: Any) -> Run:
    if argv is not None:
        body["argv"] = argv
    answer = session.request("POST", "/runs", json=body)
    assert answer.status_code == 201, f"{body}: {answer.status_code} {answer.text}"
    return Run(session, answer.json())


def sh(session: Session, script: str, **body: Any) -> Run:
    return start(session, command=script, **body)


def hang_up_once_begun(session: Session, path: str, **body: Any) -> None:
    """Ask for a command that makes the file `begun`, wait for that, and close the connection without a word."""
    data = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", session.broker.port)) as connection:
        connection.sendall(
            f"POST /sessions/{session.id}{path} HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {session.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
        )
        wait_until(lambda: (session.workspace / "begun").exists(), what="the command runs")


class Quick:
    """A kept connection for one thread that makes thousands of requests: a tenth of the client's work of `Session.request`."""

    def __init__(self, session: Session) -> None:
        url = httpx.URL(session.broker.url)
        self.base = f"/sessions/{session.id}"
        self.headers = {"X-Sandbox-Token": session.token, "Content-Type": "application/json"}
        self.http = http.client.HTTPConnection(str(url.host), url.port, timeout=120 * SLOWNESS)

    def call(self, status: int, method: str, path: str, body: Any = None) -> Any:
        """The document of an answer that must have this status."""
        self.http.request(method, self.base + path, None if body is None else json.dumps(body), self.headers)
        answer = self.http.getresponse()
        text = answer.read()
        assert answer.status == status, f"{method} {path}: {answer.status} {text[:500]!r}"
        return json.loads(text) if text else None

    def run(self, argv: list[str], **body: Any) -> Any:
        return self.call(200, "POST", "/run", {"argv": argv, "run_id": new_run_id()} | body)

    def start(self, argv: list[str]) -> str:
        return self.call(201, "POST", "/runs", {"argv": argv})["run_id"]

    def end(self, run_id: str) -> Any:
        view = self.call(200, "GET", f"/runs/{run_id}?wait=60")
        assert view["state"] == "ended", view
        return view


SO_RCVBUFFORCE = 33  # asm-generic/socket.h
KERNEL_BYTES = 3 << 20  # and as much again for what the kernel adds: 6 MiB, what tcp_rmem lets a socket have by default


class Cut:
    """A reader over a socket of its own that takes what it wants and is gone without a word."""

    def __init__(self, run: Run, after: str, accept: str = "application/octet-stream") -> None:
        url = httpx.URL(run.session.broker.url)
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE if os.geteuid() == 0 else socket.SO_RCVBUF, KERNEL_BYTES)
        self.socket.settimeout(30 * SLOWNESS)
        self.socket.connect((url.host, url.port))
        self.socket.sendall(
            f"GET /sessions/{run.session.id}{run.path('/output')}?after={after} HTTP/1.1\r\nHost: {url.host}:{url.port}\r\n"
            f"Accept: {accept}\r\nX-Sandbox-Token: {run.session.token}\r\n\r\n".encode()
        )
        self.raw = self.socket.makefile("rb", buffering=65536)
        status = self.raw.readline()
        assert b" 200 " in status, status + self.raw.read(500)
        while self.raw.readline() != b"\r\n":
            pass

    def read(self, size: int) -> bytes:
        """At least `size` bytes of the body, fewer at its end or when it breaks off."""
        body = bytearray()
        try:
            while len(body) < size:
                head = self.raw.readline()
                if not head.endswith(b"\r\n") or int(head, 16) == 0:
                    break
                length = int(head, 16)
                piece = self.raw.read(length)
                body += piece
                if len(piece) < length or self.raw.read(2) != b"\r\n":
                    break
        except (ConnectionResetError, TimeoutError):
            pass
        return bytes(body)

    def unread(self) -> int:
        """Bytes that the kernel holds for it."""
        return struct.unpack("i", fcntl.ioctl(self.socket, termios.FIONREAD, b"\0" * 4))[0]

    def wait_full(self) -> int:
        """Until no more comes: the kernel is full, or all of the output is there. How much it holds."""
        seen = [-1]

        def still() -> bool:
            seen.append(self.unread())
            return len(seen) > 3 and len(set(seen[-4:])) == 1

        wait_until(still, 30, "the kernel's buffer is full")
        return seen[-1]

    def close(self) -> None:
        self.raw.close()
        self.socket.close()
