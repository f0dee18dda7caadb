"""`berth shell`: a terminal in a sandbox, on a terminal here."""

from __future__ import annotations

import base64
import hashlib
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Iterator

import pytest

from berth import Broker, Session, new_id, wait_until
from cli import Cli, Terminal
from terminal import PROTOCOL


@pytest.fixture(scope="module")
def shared(module_broker: Broker) -> Session:
    return module_broker.open(new_id("shell"))


@pytest.fixture
def terminal(broker: Broker) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*arguments: str, **more: Any) -> Terminal:
        opened.append(Terminal(broker.url, "shell", *arguments, **more))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def begin(terminal: Terminal) -> None:
    """A shell that is up, with a prompt that no echo of what is typed looks like."""
    terminal.type("bind 'set enable-bracketed-paste off' 2>/dev/null; PS1='re''ady> '\n")
    terminal.wait_for("ready> ")


@pytest.mark.san
def test_a_shell_is_on_a_terminal(terminal: Callable[..., Terminal], broker: Broker, shared: Session) -> None:
    shell = terminal(shared.id, rows=30, cols=100)
    begin(shell)
    assert shell.is_raw()
    shell.type("stty size; echo $TERM\n")
    shell.wait_for(r"\n30 100\r\nxterm\r\n")
    shell.resize(41, 123)
    wait_for_size(shell, "41 123")
    shell.type("sh -c 'echo as''leep; exec sleep 999'\n")
    shell.wait_for("asleep")  # in the foreground: the echo of the line comes before the shell has put it there
    shell.type("\x03")  # goes through: it ends the sleep, not us
    shell.wait_for("ready> ")
    shell.type("exit 5\n")
    assert shell.wait_end() == 5
    assert shell.is_restored()


def wait_for_size(shell: Terminal, size: str) -> None:
    shell.type(f"until [ \"$(stty size)\" = '{size}' ]; do sleep 0.05; done; echo si''zed\n")
    shell.wait_for("sized")


def test_a_command_of_ones_own(terminal: Callable[..., Terminal], broker: Broker, shared: Session) -> None:
    shell = terminal(shared.id, "-e", "A=b c", "-C", "/tmp", "--", "python3", "-c", "import os, sys; print(sys.stdin.isatty(), os.environ['A'], os.getcwd()); sys.exit(9)")
    shell.wait_for("True b c /tmp")
    assert shell.wait_end() == 9


@pytest.mark.san
def test_what_was_left_is_entered_again(terminal: Callable[..., Terminal], broker: Broker, shared: Session) -> None:
    shell = terminal(shared.id)
    begin(shell)
    shell.type("kept=42\n")
    shell.wait_for("ready> ")
    shell.type("\x1dd")
    assert shell.wait_end() == 0 and shell.is_restored()
    run_id = shell.seen.decode().split("--enter ")[1].split()[0]
    for which in (run_id, "last"):
        again = terminal(shared.id, "--enter", which)
        again.type("echo still $kept\n")
        again.wait_for(r"\nstill 42\r\n")
        again.type("\x1d\x1d\x1dd")  # one for the program, then we are left
        assert again.wait_end() == 0
    last = terminal(shared.id, "--enter", "last")
    last.type("\x1dq")
    last.wait_end()
    assert last.is_restored()
    assert shared.request("GET", f"/runs/{run_id}").json()["state"] == "ended"
    assert Cli(broker.url).run("shell", "--enter", "last", shared.id).returncode == 125  # and not on a terminal either


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_restores_the_terminal(terminal: Callable[..., Terminal], broker: Broker, shared: Session, number: int) -> None:
    shell = terminal(shared.id)
    begin(shell)
    shell.process.send_signal(number)
    assert shell.wait_end() == 128 + number
    assert shell.is_restored()
    assert b"to come back" in shell.seen


def test_a_fault_restores_the_terminal(terminal: Callable[..., Terminal], broker: Broker, shared: Session) -> None:
    shell = terminal(shared.id)
    begin(shell)
    shell.process.send_signal(signal.SIGABRT)
    assert shell.wait_end() == -signal.SIGABRT
    assert shell.is_restored()


def test_stopped_and_continued(terminal: Callable[..., Terminal], broker: Broker, shared: Session) -> None:
    shell = terminal(shared.id)
    begin(shell)
    shell.process.send_signal(signal.SIGTSTP)
    wait_until(lambda: f"/proc/{shell.process.pid}/stat" and open(f"/proc/{shell.process.pid}/stat").read().split()[2] == "T", what="it is stopped")
    assert shell.is_restored()
    shell.process.send_signal(signal.SIGCONT)
    wait_until(shell.is_raw, what="it is raw again")
    shell.type("exit\n")
    assert shell.wait_end() == 0


def test_it_comes_back_when_the_broker_does(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(on_stop="keep")
    session = broker.open(new_id())
    shell = Terminal(broker.url, "shell", session.id)
    try:
        begin(shell)
        shell.type("kept=over\n")
        shell.wait_for("ready> ")
        broker.kill9()
        shell.wait_for("connection lost")
        broker.start()
        wait_until(lambda: session.request("GET", "/runs", params={"state": "running"}).json()["runs"], what="the run is known again")
        shell.wait_for("ready> ", 40)
        shell.type("echo $kept and out\n")
        shell.wait_for(r"\nover and out\r\n")
        shell.type("exit 4\n")
        assert shell.wait_end() == 4 and shell.is_restored()
    finally:
        shell.close()


def test_what_cannot_be_entered(terminal: Callable[..., Terminal], broker: Broker, shared: Session) -> None:
    name = new_id()
    shell = terminal(name)
    assert shell.wait_end() == 125 and f"berth shell --open {name}".encode() in shell.seen and shell.is_restored()
    shell = terminal(shared.id, "--enter", "0" * 32)
    assert shell.wait_end() == 125 and shell.is_restored()
    try:
        shell = terminal("--open", name, "--", "sh", "-c", "echo opened")
        shell.wait_for("opened")
        assert shell.wait_end() == 0
    finally:
        broker.purge(name)
    assert b"have to be a terminal" in Cli(broker.url).run("shell", shared.id, status=125).stderr


def test_a_flood_can_be_ended_by_a_key(terminal: Callable[..., Terminal], broker: Broker, shared: Session) -> None:
    shell = terminal(shared.id, "--", "sh", "-c", "trap 'echo ca''ught; exit 6' INT; yes")
    shell.wait_for("y\r\ny\r\n")
    shell.type("\x03")
    shell.wait_for("caught")
    assert shell.wait_end() == 6


@pytest.mark.parametrize("answer", [None, "", "AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "twice"])
def test_a_handshake_that_nobody_has_understood(answer: str | None) -> None:
    """RFC 6455, 4.1: the answer proves that the key of this very request was read."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            proof = base64.b64encode(hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()
            self.send_response(101)
            for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Protocol", PROTOCOL)):
                self.send_header(name, value)
            for value in [proof, proof] if answer == "twice" else [] if answer is None else [answer]:
                self.send_header("Sec-WebSocket-Accept", value)
            self.end_headers()
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        shell = Terminal(f"http://127.0.0.1:{server.server_address[1]}", "shell", "somebody")
        try:
            shell.wait_for("has not understood the handshake")
            assert shell.wait_end() != 0 and shell.is_restored()
        finally:
            shell.close()
            server.shutdown()
