"""The operator's command in tests: run to its end, left running, or on a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from berth import BERTHD, SLOWNESS, TOKEN, wait_until

BERTH = str(Path(BERTHD).parent / "berth")
READS_AT_ONCE = 64  # 4 KiB each is what a terminal's master gives
SEEN_MAX_BYTES = 1 << 20  # more of a flood is not looked through again and again


def environment(url: str, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG") or name.endswith("SAN_OPTIONS")}
    return kept | {"BERTH_URL": url, "BERTH_TOKEN": TOKEN, "TERM": "xterm", "TZ": "UTC", "LC_ALL": "C.UTF-8"} | more


class Cli:
    """`berth` against one broker."""

    def __init__(self, url: str) -> None:
        self.url = url

    def start(self, *arguments: str | Path, **popen: Any) -> subprocess.Popen[bytes]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | popen
        return subprocess.Popen([BERTH, *arguments], env=environment(self.url), **streams)

    def run(self, *arguments: str | Path, data: bytes | None = None, status: int | None = None, env: dict[str, str] | None = None) -> Any:
        """To its end, within a minute; `status` None: whatever it is."""
        done = subprocess.run(
            [BERTH, *arguments], input=data, stdin=subprocess.DEVNULL if data is None else None, capture_output=True, timeout=60 * SLOWNESS, env=environment(self.url, **(env or {}))
        )
        if status is not None:
            assert done.returncode == status, (arguments, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done

    def out(self, *arguments: str | Path, data: bytes | None = None) -> str:
        """What it prints, when it succeeds and complains of nothing."""
        done = self.run(*arguments, data=data, status=0)
        assert done.stderr == b"", done.stderr
        return done.stdout.decode()


class Terminal:
    """`berth`, or another program, on a terminal: what somebody types and sees."""

    def __init__(self, url: str, *arguments: str, rows: int = 24, cols: int = 80, env: dict[str, str] | None = None, program: str = BERTH) -> None:
        self.seen = b""
        self.master, slave = pty.openpty()
        self.resize(rows, cols)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(
            [program, *arguments], stdin=slave, stdout=slave, stderr=slave, env=environment(url, **(env or {})), start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        )

    def resize(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read(self) -> None:
        """What is there; of a flood a part, so that who asked looks at the clock again."""
        for _ in range(READS_AT_ONCE):
            if not select.select([self.master], [], [], 0.02)[0]:
                return
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            if not data:
                return
            self.seen = (self.seen + data)[-SEEN_MAX_BYTES:]

    def wait_for(self, pattern: str, deadline: float = 20) -> re.Match[bytes]:
        """What is seen from here on matches; everything up to its end is taken as seen."""

        def found() -> re.Match[bytes] | None:
            self.read()
            return re.search(pattern.encode(), self.seen)

        try:
            match = wait_until(found, deadline, f"/{pattern}/ on the terminal")
        except AssertionError as error:
            raise AssertionError(f"{error}; seen: {self.seen[-2000:]!r}") from None
        self.seen = self.seen[match.end() :]
        return match

    def wait_end(self, deadline: float = 20) -> int:
        def ended() -> bool:
            self.read()
            return self.process.poll() is not None

        wait_until(ended, deadline, f"berth ends; seen: {self.seen[-500:]!r}")
        self.read()
        return self.process.returncode

    def is_restored(self) -> bool:
        return termios.tcgetattr(self.slave) == self.before

    def is_raw(self) -> bool:
        return not termios.tcgetattr(self.slave)[3] & (termios.ECHO | termios.ICANON)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


class FakeBroker:
    """Answers what a test says, whatever is asked: what a broken or hostile broker may do."""

    def __init__(self) -> None:
        answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        asked: list[tuple[str, dict[str, str]]] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                asked.append((self.path, dict(self.headers)))
                status, headers, body = answers.get(self.path.split("?")[0], (404, {}, b"{}"))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, *_: Any) -> None:
                pass

        self.answers = answers
        self.asked = asked
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
