"""A terminal as its client sees it, and a judge of the screen (pyte) that knows nothing of Berth."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import time
from typing import Any

import httpx
import pyte
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from berth import SLOWNESS, Broker, Session

PROTOCOL = "berth.terminal.v1"


def token_protocol(token: str) -> str:
    return "berth.token." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def dial(session: Session, **kwargs: Any) -> ClientConnection:
    """The socket alone, nothing said yet."""
    headers = kwargs.pop("additional_headers", {"X-Sandbox-Token": session.token})
    return connect(
        session.broker.url.replace("http", "ws", 1) + f"/sessions/{session.id}/terminal",
        subprotocols=kwargs.pop("subprotocols", [PROTOCOL]),
        additional_headers=headers,
        compression=None,
        ping_interval=None,
        open_timeout=30 * SLOWNESS,
        close_timeout=10 * SLOWNESS,
        max_size=None,
        proxy=None,
        **kwargs,
    )


class Terminal:
    """Somebody who sits at one: reads as frames are asked for, keeps all output in `bytes`, other messages in `told`."""

    def __init__(self, session: Session, first: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self.session = session
        self.bytes = bytearray()
        self.seen = 0  # output before it is not looked at again by until()
        self.told: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None
        self.socket = dial(session, **kwargs)
        self.say(first or {"type": "start"})
        self.started = self.message("started")
        self.run_id: str = self.started["run_id"]

    def say(self, message: dict[str, Any]) -> None:
        self.socket.send(json.dumps(message))

    def type(self, keys: str | bytes) -> None:
        self.socket.send(keys.encode() if isinstance(keys, str) else keys)

    def next(self, timeout: float = 20) -> bool:
        """One frame more. False: it is closed."""
        try:
            frame = self.socket.recv(timeout=timeout * SLOWNESS)
        except ConnectionClosed as end:
            self.closed = (end.rcvd.code, end.rcvd.reason) if end.rcvd else (1006, "")
            return False
        except TimeoutError:
            raise AssertionError(f"nothing came within {timeout * SLOWNESS} s; so far: {bytes(self.bytes[-2000:])!r} {self.told}") from None
        if isinstance(frame, bytes):
            self.bytes += frame
        else:
            self.told.append(json.loads(frame))
        return True

    def message(self, kind: str, timeout: float = 20) -> dict[str, Any]:
        """The next message of that type; those before it are passed over."""
        while True:
            for i, message in enumerate(self.told):
                if message["type"] == kind:
                    del self.told[: i + 1]
                    return message
            assert self.next(timeout), f"closed with {self.closed} before {kind}: {self.told} {bytes(self.bytes[-500:])!r}"

    def until(self, text: str | bytes, timeout: float = 20) -> bytes:
        """Output up to and with `text`, from where the last call ended."""
        wanted = text.encode() if isinstance(text, str) else text
        end = time.monotonic() + timeout * SLOWNESS
        while (at := self.bytes.find(wanted, self.seen)) < 0:
            assert time.monotonic() < end and self.next(timeout), f"{wanted!r} did not come: {bytes(self.bytes[self.seen :][-2000:])!r} {self.closed}"
        start, self.seen = self.seen, at + len(wanted)
        return bytes(self.bytes[start : self.seen])

    def end(self, timeout: float = 30) -> tuple[int, str]:
        """Until it is closed: code and reason."""
        while self.next(timeout):
            pass
        assert self.closed is not None
        return self.closed

    def leave(self) -> None:
        """As a browser does whose page is closed."""
        self.socket.close()

    def cut(self) -> None:
        """As a train does that enters a tunnel: reset, without a word."""
        raw = self.socket.socket
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(os.dup(raw.fileno()))
        raw.shutdown(socket.SHUT_RDWR)
        raw.close()

    def screen(self, rows: int = 24, cols: int = 80) -> list[str]:
        """What a person sees, lines without trailing blanks."""
        screen = pyte.Screen(cols, rows)
        pyte.ByteStream(screen).feed(bytes(self.bytes))
        return [line.rstrip() for line in screen.display]


def prompt(terminal: Terminal) -> None:
    """Wait until the shell reads; what it prints before is the image's affair."""
    terminal.type("bind 'set enable-bracketed-paste off' 2>/dev/null; PS1='$ '; echo rea''dy\n")
    terminal.until("ready\r\n")
    terminal.until("$ ")


class Raw:
    """A client that breaks the rules: bytes as they are."""

    def __init__(self, session: Session, head: str | None = None, behind: bytes = b"") -> None:
        url = httpx.URL(session.broker.url)
        self.socket = socket.create_connection((url.host, url.port), timeout=30 * SLOWNESS)
        head = head if head is not None else self.handshake(session.broker, session)
        self.socket.sendall(head.encode() + behind)
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers: dict[str, str] = {}
        while (line := self.file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            self.headers[name.lower()] = value.strip()

    @staticmethod
    def handshake(broker: Broker, session: Session, **change: str | None) -> str:
        url = httpx.URL(broker.url)
        headers: dict[str, str | None] = {
            "Host": f"{url.host}:{url.port}",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Protocol": PROTOCOL,
            "X-Sandbox-Token": session.token,
        }
        headers |= {name.replace("_", "-"): value for name, value in change.items()}
        lines = [f"{name}: {value}\r\n" for name, value in headers.items() if value is not None]
        return f"GET /sessions/{session.id}/terminal HTTP/1.1\r\n{''.join(lines)}\r\n"

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self, first: int, payload: bytes = b"", mask: bool = True, announce: int | None = None) -> None:
        self.send(frame(first, payload, mask, announce))

    def close_code(self) -> int:
        """Of the close frame; frames before it are passed over. 0: there was none."""
        while len(head := self.file.read(2)) == 2:
            size = head[1] & 127
            if size == 126:
                size = struct.unpack(">H", self.file.read(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self.file.read(8))[0]
            payload = self.file.read(size)
            if head[0] == 0x88:
                return struct.unpack(">H", payload[:2])[0] if len(payload) >= 2 else 1005
        return 0

    def at_end(self) -> bool:
        """The other side has closed."""
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def frame(first: int, payload: bytes = b"", mask: bool = True, announce: int | None = None) -> bytes:
    size = len(payload) if announce is None else announce
    bit = 128 if mask else 0
    if size < 126:
        head = bytes([first, bit | size])
    elif size < 65536:
        head = bytes([first, bit | 126]) + struct.pack(">H", size)
    else:
        head = bytes([first, bit | 127]) + struct.pack(">Q", size)
    return head + (b"\0\0\0\0" if mask else b"") + payload
