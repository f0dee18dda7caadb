"""GET /sessions/{id}/terminal: programs that fill a screen, keys, sizes, leaving and entering, and clients that mean no good."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any, Callable

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from berth import SLOWNESS, TOKEN, Broker, Session, at_pace, wait_until
from runs import Run, sh, start
from terminal import PROTOCOL, Raw, Terminal, dial, frame, prompt, token_protocol


def view(session: Session, run_id: str) -> dict[str, Any]:
    return Run(session, {"run_id": run_id}).view()


def busybox(session: Session) -> None:
    """A vi and a top that need nothing of the image."""
    answer = session.request("PUT", "/content", params={"path": "busybox"}, content=Path("/bin/busybox").read_bytes())
    assert answer.status_code == 201, answer.text
    session.stdout("chmod 755 busybox")


# ---- programs


def test_a_shell_lives_as_long_as_its_user_wants(sandbox: Session) -> None:
    terminal = Terminal(sandbox)
    assert terminal.started == {"type": "started", "run_id": terminal.run_id, "entered": False, "rows": 24, "cols": 80}
    prompt(terminal)
    terminal.type("echo $0 $TERM; test -t 0 && test -t 1 && test -t 2 && echo tty; pwd\n")
    assert terminal.until("/workspace\r\n").endswith(b"bash xterm-256color\r\ntty\r\n/workspace\r\n")
    listed = sandbox.request("GET", "/runs", params={"state": "running"}).json()["runs"]
    assert [(run["run_id"], run["tty"], run["command"]) for run in listed] == [(terminal.run_id, True, "shell")]
    terminal.type("exit 7\n")
    end = terminal.message("exit")
    assert (end["exit_code"], end["run_id"], end["state"], end["lost"]) == (7, terminal.run_id, "ended", False)
    assert terminal.end() == (1000, "the run has ended")


def test_what_is_started_is_what_was_asked_for(sandbox: Session) -> None:
    terminal = Terminal(sandbox, {"type": "start", "argv": ["sh", "-c", "stty size; echo $A $TERM; pwd"], "env": {"A": "b c", "TERM": "vt100"}, "cwd": "/tmp", "rows": 11, "cols": 33})
    assert terminal.end()[0] == 1000
    assert bytes(terminal.bytes) == b"11 33\r\nb c vt100\r\n/tmp\r\n"
    terminal = Terminal(sandbox, {"type": "start", "command": "exec sleep 600", "timeout_seconds": 0.3})
    assert terminal.message("exit")["timed_out"] is True
    assert Terminal(sandbox, {"type": "start", "argv": ["nosuch"]}).message("exit")["exit_code"] == 127


def test_output_of_a_program_that_ends_at_once_is_whole(sandbox: Session) -> None:
    """O5: a terminal gives what is in it before it gives its end; O2: it is not taken for frames."""
    for _ in range(40):
        terminal = Terminal(sandbox, {"type": "start", "argv": ["printf", "\\001\\000\\000\\000\\000\\000\\000\\005hello"]})
        assert terminal.end() == (1000, "the run has ended")
        assert bytes(terminal.bytes) == b"\x01\0\0\0\0\0\0\x05hello"


def test_interrupt_keys_reach_the_program_in_front(sandbox: Session) -> None:
    terminal = Terminal(sandbox)
    prompt(terminal)
    terminal.type("sleep 600\n")
    wait_until(lambda: "sleep" in sandbox.stdout("cat /proc/[0-9]*/comm"), what="sleep runs")
    terminal.type("\x03")
    terminal.until("$ ")
    terminal.type("echo $?; cat\n")
    terminal.until("130\r\n")
    terminal.type("there\n\x04")
    terminal.until("there\r\nthere\r\n")
    terminal.type("python3 -c 'import time; print(\"up\"); time.sleep(600)'\n")
    terminal.until("\nup")
    terminal.type("\x1a")
    terminal.until("Stopped")
    terminal.say({"type": "stop"})
    terminal.message("exit")


def test_signals_and_stop_go_to_every_process(sandbox: Session) -> None:
    terminal = Terminal(sandbox, {"type": "start", "command": "trap 'echo got' USR1; echo up; while :; do sleep 600 & wait; done"})
    terminal.until("up")
    terminal.say({"type": "signal", "signal": "SIGUSR1"})
    terminal.until("got")
    terminal.say({"type": "stop"})
    assert terminal.message("exit")["stopped"] is True
    assert terminal.end()[0] == 1000


CURSES = r"""
import curses, sys
def main(screen):
    drawn = 0
    curses.curs_set(0)
    screen.timeout(200)  # a SIGWINCH between ncurses' look for one and its read() waits for the next key otherwise
    while True:
        rows, cols = screen.getmaxyx()
        screen.erase()
        screen.border()
        screen.addstr(1, 2, f"{rows} by {cols}")
        screen.refresh()
        if rows != drawn:  # else it is silent: what it says is an answer to a new size
            print(f"\033]0;drawn {rows}\a", end="", flush=True)
        drawn = rows
        if screen.getch() == ord("q"):
            return
curses.wrapper(main)
"""


def test_a_program_that_fills_the_screen_is_drawn_sized_left_and_entered(sandbox: Session) -> None:
    sandbox.write("/workspace/box.py", CURSES.encode())
    terminal = Terminal(sandbox, {"type": "start", "argv": ["python3", "box.py"], "rows": 20, "cols": 60})
    terminal.until("20 by 60")
    terminal.say({"type": "resize", "rows": 30, "cols": 100})
    terminal.until("30 by 100")
    terminal.until("drawn 30")
    terminal.cut()
    again = Terminal(sandbox, {"type": "enter", "run_id": terminal.run_id, "rows": 30, "cols": 100})
    assert again.started["entered"] is True
    again.message("live")
    mark = len(again.bytes)
    again.until("29 by 100")  # drawn anew, as nobody knows what the client's screen shows
    again.until("30 by 100")
    del again.bytes[:mark]
    wait_until(lambda: again.screen(30, 100)[1][2:11] == "30 by 100" or not again.next(), what="the box is on the new screen")
    again.type("q")
    assert again.message("exit")["exit_code"] == 0
    assert again.end()[0] == 1000


def test_an_editor_works(sandbox: Session) -> None:
    busybox(sandbox)
    sandbox.write("/workspace/text", b"first\nsecond\n")
    terminal = Terminal(sandbox, {"type": "start", "argv": ["./busybox", "vi", "text"]})
    terminal.until("second")
    terminal.type("ithe \x1b")
    wait_until(lambda: terminal.screen()[0] == "the first" or not terminal.next(), what="the insertion is seen")
    terminal.leave()
    again = Terminal(sandbox, {"type": "enter", "run_id": terminal.run_id, "rows": 24, "cols": 80})
    again.message("live")
    wait_until(lambda: again.screen()[:2] == ["the first", "second"] or not again.next(), what="the text is there again")
    again.type(":wq\r")
    again.message("exit")
    assert sandbox.read("/workspace/text") == b"the first\nsecond\n"


def test_top_works(sandbox: Session) -> None:
    busybox(sandbox)
    terminal = Terminal(sandbox, {"type": "start", "argv": ["./busybox", "top", "-d", "1"], "rows": 12, "cols": 90})
    for _ in range(2):
        terminal.until("PID")
        terminal.until("top")
    terminal.type("q")
    assert terminal.message("exit")["exit_code"] == 0


# ---- sizes


def test_a_size_is_seen_by_the_program(sandbox: Session) -> None:
    terminal = Terminal(sandbox, {"type": "start", "rows": 40, "cols": 120})
    prompt(terminal)
    terminal.type("trap 'echo winch' WINCH; stty size\n")
    terminal.until("40 120\r\n")
    terminal.until("$ ")  # the signal goes to who is in front: not stty any more
    terminal.say({"type": "resize", "rows": 50, "cols": 132})
    terminal.until("winch")
    terminal.type("stty size\n")
    terminal.until("50 132\r\n")
    terminal.until("$ ")
    assert Run(sandbox, {"run_id": terminal.run_id}).post("resize", json={"rows": 9, "cols": 99}).status_code == 204
    terminal.until("winch")
    terminal.type("stty size; exit\n")
    terminal.until("9 99\r\n")


# ---- leaving and entering


def test_it_goes_on_while_nobody_sits_there(sandbox: Session) -> None:
    terminal = Terminal(sandbox)
    prompt(terminal)
    terminal.type("x=remembered; for i in 1 2 3; do echo line $i; done; (while [ ! -e go ]; do sleep 0.05; done; echo gone'' on) &\n")
    terminal.until("line 3\r\n")
    terminal.until("$ ")
    before = terminal.screen()
    terminal.leave()
    assert view(sandbox, terminal.run_id)["state"] == "running"
    sandbox.write("/workspace/go", b"")
    again = Terminal(sandbox, {"type": "enter", "run_id": terminal.run_id})
    assert again.started["entered"] is True and again.started["rows"] is None
    replayed = again.message("replay")
    assert replayed["whole"] is True and replayed["bytes"] >= len(terminal.bytes)
    again.message("live")
    shown = [line for line in before if line]
    assert again.screen()[: len(shown)][:-1] == shown[:-1], "what was on the screen is on the screen"
    again.until("gone on")
    again.type("echo $x\n")
    again.until("\r\nremembered\r\n")
    again.type("exit\n")
    again.message("exit")
    last = Terminal(sandbox, {"type": "enter", "run_id": terminal.run_id})
    last.message("live")
    assert last.message("exit")["exit_code"] == 0, "also when it has ended"
    assert last.end() == (1000, "the run has ended")


def test_a_start_that_was_not_heard_of_is_asked_again(sandbox: Session) -> None:
    first = Terminal(sandbox, {"type": "start", "run_id": "mine"})
    prompt(first)
    first.cut()
    again = Terminal(sandbox, {"type": "start", "run_id": "mine", "rows": 33, "cols": 99})
    assert again.started == {"type": "started", "run_id": "mine", "entered": True, "rows": 33, "cols": 99}
    again.message("live")
    again.type("until [ \"$(stty size)\" = '33 99' ]; do sleep 0.05; done; echo si''zed\n")  # a row less for the moment of the nudge
    again.until("sized\r\n")
    again.type("exit\n")
    again.message("exit")


def test_the_newer_has_it(sandbox: Session) -> None:
    first = Terminal(sandbox)
    prompt(first)
    second = Terminal(sandbox, {"type": "enter", "run_id": first.run_id})
    second.message("live")
    assert first.message("error")["status"] == 409
    code, reason = first.end()
    assert code == 4409 and "Somebody else" in reason
    second.type("echo still'' here; exit\n")
    second.until("still here\r\n")
    second.message("exit")


def test_a_long_past_is_replayed_from_a_line_on_with_the_modes_that_were(sandbox: Session) -> None:
    script = "printf '\\033[?1049h\\033[?2004h\\033[?25l'; seq -f 'line %.0f' 1 40000; echo done; exec sleep 600"
    terminal = Terminal(sandbox, {"type": "start", "command": script})
    terminal.until("done\r\n")
    terminal.leave()
    again = Terminal(sandbox, {"type": "enter", "run_id": terminal.run_id, "replay_bytes": 5000})
    said = again.message("replay")
    again.message("live")
    assert said["whole"] is False and 4000 < said["bytes"] <= 5000
    shown = bytes(again.bytes)
    modes = b"\x1b[?25l\x1b[?1049h\x1b[?2004h"
    assert shown.startswith(modes + b"line ") and shown.endswith(b"line 40000\r\ndone\r\n")
    assert len(shown) == said["bytes"] + len(modes)
    numbers = [int(line.split()[1]) for line in shown[len(modes) :].split(b"\r\n") if line.startswith(b"line ")]
    assert numbers == list(range(numbers[0], 40001))
    none = Terminal(sandbox, {"type": "enter", "run_id": terminal.run_id, "replay_bytes": 0})
    assert none.message("replay")["bytes"] == 0
    none.message("live")
    assert bytes(none.bytes) == modes
    none.say({"type": "stop"})
    none.message("exit")


def test_what_was_written_beyond_what_is_kept_is_told(sandbox: Session) -> None:
    terminal = Terminal(sandbox, {"type": "start", "command": "echo up; while [ ! -e go ]; do sleep 0.05; done; seq 1 1500000; echo done; touch ran; exec sleep 600"})
    terminal.until("up")
    terminal.leave()
    sandbox.write("/workspace/go", b"")
    run = Run(sandbox, {"run_id": terminal.run_id})
    wait_until((sandbox.workspace / "ran").exists, deadline=60, what="it ran on without a reader")
    again = Terminal(sandbox, {"type": "enter", "run_id": run.id})
    assert again.message("replay")["whole"] is False
    again.message("live")
    assert len(again.bytes) <= 256 * 1024
    again.until("1500000\r\ndone\r\n")  # its last words may still have been in the terminal when `ran` was there
    shown = bytes(again.bytes)
    assert shown.endswith(b"1500000\r\ndone\r\n")
    numbers = [int(line) for line in shown.split(b"\r\n")[:-2]]
    assert numbers == list(range(numbers[0], 1500001)), "from a line's beginning on without a gap"
    run.stop()
    run.end()


def test_one_that_was_started_elsewhere_is_entered(sandbox: Session) -> None:
    run = sh(sandbox, "echo up; read x; echo got $x", tty={"rows": 10, "cols": 50})
    terminal = Terminal(sandbox, {"type": "enter", "run_id": run.id})
    terminal.until("up")
    terminal.type("this\n")
    terminal.until("got this")
    terminal.message("exit")


# ---- clients


def test_a_browser_shows_its_token_as_a_subprotocol(sandbox: Session) -> None:
    for token in (sandbox.token, TOKEN):
        with dial(sandbox, additional_headers={}, subprotocols=[PROTOCOL, token_protocol(token)]) as socket:
            assert socket.subprotocol == PROTOCOL
    other = sandbox.broker.open()
    url = httpx.URL(sandbox.broker.url)
    refused = [
        (401, {}, [PROTOCOL]),
        (401, {}, [PROTOCOL, token_protocol("wrong")]),
        (401, {}, [PROTOCOL, token_protocol(other.token)]),
        (401, {}, [PROTOCOL, "berth.token."]),
        (401, {}, [PROTOCOL, "berth.token.###"]),
        (401, {}, [PROTOCOL, "berth.token." + "A" * 20000]),
        (401, {"X-Sandbox-Token": "wrong"}, [PROTOCOL, token_protocol(sandbox.token)]),
        (401, {}, [token_protocol("wrong")]),
        (400, {}, [token_protocol(sandbox.token)]),
        (403, {"Origin": "http://elsewhere.example"}, [PROTOCOL, token_protocol(sandbox.token)]),
        (403, {"Origin": "null"}, [PROTOCOL, token_protocol(sandbox.token)]),
    ]
    for status, headers, protocols in refused:
        head = Raw.handshake(sandbox.broker, sandbox, X_Sandbox_Token=None, **{"Sec-WebSocket-Protocol": ", ".join(protocols)}, **headers)
        raw = Raw(sandbox, head.replace("X-Sandbox-Token: None\r\n", ""))
        assert raw.status in (status, 431) and (raw.status != 431 or len(head) > 16000), (status, headers, protocols[-1][:60], raw.status)
        raw.close()
    with dial(sandbox, additional_headers={"Origin": f"http://{url.host}:{url.port}", "X-Sandbox-Token": sandbox.token}):
        pass
    assert sandbox.broker.purge(other.id).status_code == 204
    assert sandbox.token not in sandbox.broker.log()


def test_what_is_no_handshake_is_refused(sandbox: Session, session: Callable[..., Session]) -> None:
    def answer(**change: str | None) -> Raw:
        return Raw(sandbox, Raw.handshake(sandbox.broker, sandbox, **change))

    for change, status in (
        ({"Upgrade": None}, 426),
        ({"Upgrade": "h2c"}, 426),
        ({"Connection": "keep-alive"}, 426),
        ({"Sec_WebSocket_Version": "8"}, 426),
        ({"Sec_WebSocket_Version": None}, 426),
        ({"Sec_WebSocket_Key": None}, 400),
        ({"Sec_WebSocket_Key": "short"}, 400),
        ({"Sec_WebSocket_Protocol": None}, 400),
        ({"Sec_WebSocket_Protocol": "chat, berth.terminal.v2"}, 400),
    ):
        raw = answer(**change)
        assert raw.status == status, change
        if status == 426:
            assert raw.headers["sec-websocket-version"] == "13" and raw.headers["upgrade"] == "websocket"
        raw.close()
    raw = answer(Connection="keep-alive, Upgrade", Upgrade="WebSocket", Sec_WebSocket_Protocol=f"x,{PROTOCOL}")
    assert raw.status == 101 and raw.headers["sec-websocket-protocol"] == PROTOCOL and "sec-websocket-extensions" not in raw.headers
    raw.close()
    assert sandbox.request("GET", "/terminal").status_code == 426
    gone = session()
    assert sandbox.broker.purge(gone.id).status_code == 204
    for status, id_, token in ((410, gone.id, gone.token), (404, "no-such", TOKEN)):
        with pytest.raises(InvalidStatus) as refused:
            gone.id, gone.token = id_, token
            dial(gone)
        assert refused.value.response.status_code == status


def first_message(session: Session, message: str | bytes) -> tuple[list[dict[str, Any]], int]:
    """What is answered to it until the end."""
    terminal = Terminal.__new__(Terminal)
    terminal.bytes, terminal.told, terminal.closed = bytearray(), [], None
    terminal.socket = dial(session)
    terminal.socket.send(message)
    return terminal.told, terminal.end()[0]


def test_first_messages_that_are_none_are_told_so(sandbox: Session) -> None:
    ended = start(sandbox, ["true"])
    ended.end()
    cases: list[tuple[Any, int]] = [
        (b"\x01", 4422),
        ("", 4422),
        ("{", 4422),
        ("[]", 4422),
        ("{}", 4422),
        ({"type": "sit"}, 4422),
        ({"type": "resize", "rows": 1, "cols": 1}, 4422),
        ({"type": "start", "rows": 0, "cols": 80}, 4422),
        ({"type": "start", "rows": 24, "cols": 99999}, 4422),
        ({"type": "start", "argv": []}, 4422),
        ({"type": "start", "argv": ["true"], "command": "true"}, 4422),
        ({"type": "start", "run_id": "../x"}, 4422),
        ({"type": "start", "env": {"A": 1}}, 4422),
        ({"type": "start", "env": {"1A": "b"}}, 4400),
        ({"type": "start", "cwd": "/no/such"}, 4400),
        ({"type": "enter"}, 4422),
        ({"type": "enter", "run_id": "no-such"}, 4404),
        ({"type": "enter", "run_id": ended.id}, 4400),
        ({"type": "enter", "run_id": ended.id, "replay_bytes": 2000000}, 4422),
    ]
    for message, code in cases:
        told, closed = first_message(sandbox, message if isinstance(message, (str, bytes)) else json.dumps(message))
        assert closed == code and [one["type"] for one in told] == ["error"] and told[0]["status"] == code - 4000, (message, told, closed)
        assert told[0]["detail"]
    told, closed = first_message(sandbox, json.dumps({"type": "start", "command": "x" * 130000}))
    assert closed == 4422


def test_orders_that_are_none_end_the_socket_and_not_the_run(sandbox: Session) -> None:
    terminal = Terminal(sandbox)
    prompt(terminal)
    run_id = terminal.run_id
    for message in ("{", '"x"', '{"type": "start"}', '{"type": "resize"}', '{"type": "resize", "rows": -1, "cols": 5}', '{"type": "signal", "signal": "NOSUCH"}', '{"type": "signal", "signal": 64}'):
        terminal.socket.send(message)
        assert terminal.message("error")["status"] == 422
        assert terminal.end()[0] == 4422
        terminal = Terminal(sandbox, {"type": "enter", "run_id": run_id})
        terminal.message("live")
    terminal.type("echo unharm''ed; exit\n")
    terminal.until("unharmed")
    terminal.message("exit")


HOSTILE = {
    "not masked": (frame(0x82, b"ls\n", mask=False), 1002),
    "reserved bits": (frame(0xC2, b"x"), 1002),
    "a reserved opcode": (frame(0x83, b"x"), 1002),
    "a control frame in pieces": (frame(0x09, b"x"), 1002),
    "a control frame that is too long": (frame(0x89, b"x" * 126), 1002),
    "a fragment of nothing": (frame(0x80, b"x"), 1002),
    "a message within a message": (frame(0x02, b"x") + frame(0x82, b"y"), 1002),
    "text that is no UTF-8": (frame(0x81, b'{"type": "\xff"}'), 1007),
    "text that ends in the middle of a character": (frame(0x01, b'"\xe2') + frame(0x80, b"\x82"), 1007),
    "too much": (frame(0x82, b"x" * (256 * 1024 + 1)), 1009),
    "too much in pieces": (frame(0x02, b"x" * (256 * 1024)) + frame(0x80, b"x"), 1009),
    "more than there is": (frame(0x82, b"x", announce=2**62), 1009),
    "a length with its sign": (frame(0x82, b"x", announce=2**63 + 5), 1002),
    "a goodbye with half a code": (frame(0x88, b"\x03"), 1005),
}


def test_broken_frames_end_the_socket_and_nothing_else(sandbox: Session) -> None:
    run = sh(sandbox, "echo up; exec cat", tty={})
    enter = frame(0x81, json.dumps({"type": "enter", "run_id": run.id}).encode())
    for name, (bad, code) in HOSTILE.items():
        for behind in (enter + bad, bad):  # after the first message, and instead of it; with the head already
            raw = Raw(sandbox, behind=behind)
            assert raw.status == 101
            assert raw.close_code() == code, name
            raw.frame(0x88, b"\x03\xe8")
            assert raw.at_end(), name
            raw.close()
    wait_until(lambda: view(sandbox, run.id)["state"] == "running", what="the run goes on")
    assert sandbox.sh("true")["exit_code"] == 0
    terminal = Terminal(sandbox, {"type": "enter", "run_id": run.id})
    terminal.message("live")
    terminal.type("unharmed\n\x04")
    terminal.until("unharmed\r\nunharmed\r\n")
    terminal.message("exit")


@pytest.mark.full
def test_who_says_nothing_is_let_go(sandbox: Session) -> None:
    raw = Raw(sandbox)
    threads = sandbox.broker.thread_count()
    cut = Raw(sandbox)
    cut.close()
    began = time.monotonic()
    assert raw.close_code() == 4408
    assert 9 <= time.monotonic() - began < 15 * SLOWNESS
    assert raw.at_end()
    raw.close()
    wait_until(lambda: sandbox.broker.thread_count() < threads, what="their threads end")


def test_pings_are_answered_and_frames_in_pieces_are_one(sandbox: Session) -> None:
    terminal = Terminal(sandbox, {"type": "start", "command": "stty raw -echo; echo up; head -c 6; echo; sleep 600"})
    terminal.until("up")
    assert terminal.socket.ping(b"x").wait(20 * SLOWNESS)
    terminal.socket.send([b"ab", b"cd", b"ef"])
    terminal.until("abcdef")
    terminal.socket.send(iter(['{"type": ', '"stop"}']))
    terminal.message("exit")


# ---- back-pressure


def test_much_input_arrives_as_it_was_sent(sandbox: Session) -> None:
    """2 MiB through a terminal that is slow to take them."""
    data = os.urandom(1 << 20).hex().encode()
    terminal = Terminal(sandbox, {"type": "start", "command": f"stty raw -echo; echo up; sleep 0.5; head -c {len(data)} | sha256sum"})
    terminal.until("up")
    for at in range(0, len(data), 100000):
        terminal.type(data[at : at + 100000])
    terminal.until(hashlib.sha256(data).hexdigest(), timeout=60)
    terminal.message("exit")


def test_input_that_nobody_takes_holds_up_its_sender_alone(sandbox: Session) -> None:
    threads = sandbox.broker.thread_count()
    terminal = Terminal(sandbox, {"type": "start", "command": "stty raw -echo; echo up; exec sleep 600"})
    terminal.until("up")
    memory = sandbox.broker.rss_kb()

    def push() -> None:
        try:
            for _ in range(1000):
                terminal.type(b"x" * 100000)
        except Exception:
            return  # it was let go: that is the end of this

    pusher = threading.Thread(target=push, daemon=True)
    pusher.start()
    other = Terminal(sandbox)
    prompt(other)
    assert sandbox.stdout("echo ok") == "ok\n"
    assert sandbox.broker.grew_less_than(16 * 1024, memory)
    second = Terminal(sandbox, {"type": "enter", "run_id": terminal.run_id})
    second.message("live")
    wait_until(lambda: sandbox.broker.thread_count() <= threads + 4, what="the older's threads are let go although the program takes nothing")
    second.say({"type": "stop"})
    assert second.message("exit")["stopped"] is True
    other.type("exit\n")
    other.message("exit")


def test_a_client_that_does_not_read_slows_its_own_program_alone(sandbox: Session) -> None:
    slow = Terminal(sandbox, {"type": "start", "command": "seq 1 3000000; exec sleep 600"})
    memory = sandbox.broker.rss_kb()
    other = Terminal(sandbox)
    prompt(other)
    for _ in range(20):
        began = time.monotonic()
        assert sandbox.stdout("echo ok") == "ok\n"
        other.type("echo $((6*7))\n")
        other.until("\n42\r\n")
        assert time.monotonic() - began < 5 * SLOWNESS
    assert sandbox.broker.grew_less_than(16 * 1024, memory)
    assert "seq" in sandbox.stdout("cat /proc/[0-9]*/comm"), "it is held up, not run ahead of"
    slow.until("\n3000000\r\n", timeout=60)
    assert bytes(slow.bytes) == b"".join(b"%d\r\n" % i for i in range(1, 3000001)), "nothing is lost or doubled"
    slow.say({"type": "stop"})
    slow.message("exit")
    other.type("exit\n")
    other.message("exit")


def test_fifty_at_once_leave_nothing(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(max_runs_per_session=20)
    sandboxes = [broker.open() for _ in range(3)]
    sandboxes[0].sh("true")
    threads, fds = broker.thread_count(), broker.fd_count()
    failures: list[BaseException] = []

    def sit(session: Session, n: int) -> None:
        try:
            terminal = Terminal(session, {"type": "start", "argv": ["sh"]})
            terminal.type(f"echo $(({n} * 3))\n")
            terminal.until(f"{n * 3}\r\n")
            if n % 3 == 0:
                terminal.cut()
                terminal = Terminal(session, {"type": "enter", "run_id": terminal.run_id, "rows": 30, "cols": 90})
                terminal.message("live")
            everybody.wait(60 * SLOWNESS)
            terminal.type("exit 5\n")
            assert terminal.message("exit")["exit_code"] == 5
            assert terminal.end()[0] == 1000
        except BaseException as failure:
            failures.append(failure)
            everybody.abort()

    everybody = threading.Barrier(50)
    sitting = [threading.Thread(target=sit, args=(sandboxes[n % 3], n), daemon=True) for n in range(50)]
    for thread in sitting:
        thread.start()
    for thread in sitting:
        thread.join()
    assert not failures, failures[0]
    wait_until(lambda: broker.thread_count() <= threads, what="no thread is left")
    wait_until(lambda: broker.fd_count() <= fds, what="no descriptor is left")
    for _ in range(20):
        start(sandboxes[0], ["sleep", "600"])
    told, closed = first_message(sandboxes[0], '{"type": "start"}')
    assert closed == 4429 and told[0]["status"] == 429


# ---- ends


def test_it_ends_with_its_session_and_says_why(broker: Broker, session: Callable[..., Session]) -> None:
    for how, cause in (("purge", "session purged"), ("close", "session closed"), ("hibernate", "session hibernated")):
        mine = session()
        terminal = Terminal(mine)
        prompt(terminal)
        if how == "hibernate":
            assert mine.request("POST", "/hibernate").status_code == 200
        else:
            answer = broker.client.delete(f"/sessions/{mine.id}", params={"purge": "true"} if how == "purge" else None)
            assert answer.status_code == 204
        lost = terminal.message("lost")
        assert (lost["cause"], lost["lost"], lost["exit_code"]) == (cause, True, None)
        assert terminal.end() == (4410, cause)


def test_it_is_said_when_the_broker_stops(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    mine = broker.open()
    quiet, busy = Terminal(mine), Terminal(mine, {"type": "start", "command": "while echo y; do :; done"})
    prompt(quiet)
    raw = Raw(mine)
    began = time.monotonic()
    broker.terminate()
    assert time.monotonic() - began < 10 * SLOWNESS
    for terminal in (quiet, busy):
        assert terminal.end()[0] in ((1001,) if terminal is quiet else (1001, 1006))
    assert raw.close_code() == 1001
    raw.close()
    broker.start()


def test_it_is_there_after_the_broker_was_killed(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    mine = broker.open()
    terminal = Terminal(mine, {"type": "start", "run_id": "work", "rows": 30, "cols": 90})
    prompt(terminal)
    terminal.type("x=kept; echo be''fore\n")
    terminal.until("before\r\n")
    for _ in range(3):
        broker.kill9()
        assert terminal.end()[0] == 1006
        broker.start()
        terminal = Terminal(mine, {"type": "enter", "run_id": "work", "rows": 30, "cols": 90})
        assert terminal.started["entered"] is True
        terminal.until("before\r\n")
        terminal.message("live")
        terminal.type("echo $x; stty size\n")
        terminal.until("\r\nkept\r\n30 90\r\n")
    terminal.type("exit 3\n")
    assert terminal.message("exit")["exit_code"] == 3


# ---- idleness


def test_what_goes_through_it_is_use_and_it_alone_is_none(make_broker: Callable[..., Broker]) -> None:
    idle_s = at_pace(4)
    broker = make_broker(idle_timeout=idle_s, cleanup_interval=1)
    mine = broker.open()
    terminal = Terminal(mine)
    prompt(terminal)
    began = time.monotonic()
    while time.monotonic() - began < idle_s + 3:  # longer than a session may be idle
        terminal.type(":\n")
        terminal.until("$ ")
    assert [one["session_id"] for one in broker.sessions()] == [mine.id]
    lost = terminal.message("lost", timeout=30 + idle_s)
    assert lost["cause"] == "session closed"
    assert terminal.end() == (4410, "session closed")


def test_a_frozen_one_is_thawed_by_a_key(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(freeze_after=1)
    mine = broker.open()
    terminal = Terminal(mine)
    prompt(terminal)
    container = broker.container_of(mine.id)
    wait_until(lambda: broker.engine.inspect(container)["State"]["Paused"], what="it is frozen, somebody sits there or not")
    terminal.type("echo thaw''ed\n")
    terminal.until("thawed\r\n")
    wait_until(lambda: broker.engine.inspect(container)["State"]["Paused"], what="it is frozen again")
    again = Terminal(mine, {"type": "enter", "run_id": terminal.run_id, "rows": 24, "cols": 80})
    again.message("live")
    wait_until(lambda: broker.engine.inspect(container)["State"]["Paused"], what="and again")
    again.say({"type": "stop"})
    assert again.message("exit")["stopped"] is True
