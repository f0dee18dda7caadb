"""Commands that are started, watched, fed, killed and found again (issue 6; field reports E, O, U)."""

from __future__ import annotations

import hashlib
import json
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import pytest

from berth import SLOWNESS, SUPERVISORS_AT_REST, Broker, Session, at_pace, new_run_id, wait_until
from runs import Cut, Quick, Run, bytes_of, sh, start


# ---- starting


def test_a_run_is_started_looked_at_and_read(sandbox: Session) -> None:
    run = sh(sandbox, "echo out; echo err >&2; exit 7")
    view = run.end()
    assert (view["exit_code"], view["signal"], view["timed_out"], view["lost"], view["oom"]) == (7, None, False, False, False)
    assert view["started_at"] <= view["ended_at"] and view["cpu_ms"] >= 0 and view["peak_bytes"] > 0
    assert (view["stdout_bytes"], view["stderr_bytes"]) == (4, 4)
    out, err, exit_record = run.output()
    assert (out, err, exit_record["exit_code"]) == (b"out\n", b"err\n", 7)
    assert run.output()[:2] == (b"out\n", b"err\n"), "as often as one likes"


def test_argv_is_never_given_to_a_shell_and_a_command_is(sandbox: Session) -> None:
    run = start(sandbox, ["printf", "[%s]", "a b", "", "c'd", "$HOME", "*"])
    assert run.output()[0] == b"[a b][][c'd][$HOME][*]"
    assert sh(sandbox, "echo $((6*7)) | cat").output()[0] == b"42\n"
    for body in ({}, {"argv": ["true"], "command": "true"}, {"argv": []}, {"argv": ["a\0b"]}, {"command": 1}):
        assert sandbox.request("POST", "/runs", json=body).status_code == 422, body


def test_env_and_cwd_are_exact_and_refused_by_name(sandbox: Session) -> None:
    value = "a  b\n'\"$HOME`id`\u00e9"
    run = start(sandbox, ["printenv", "V"], env={"V": value}, cwd="/tmp")
    assert run.output()[0] == value.encode() + b"\n"
    assert start(sandbox, ["pwd"], cwd="/tmp").output()[0] == b"/tmp\n"
    for name in ("A;touch p", "A=B", "1A", "A B"):
        answer = sandbox.request("POST", "/runs", json={"argv": ["true"], "env": {name: "1"}})
        assert answer.status_code == 400, answer.text
    assert sandbox.request("POST", "/runs", json={"argv": ["true"], "env": {"": "1"}}).status_code in (400, 422)
    answer = sandbox.request("POST", "/runs", json={"argv": ["true"], "cwd": "/no/such/place", "run_id": "nowhere"})
    assert answer.status_code == 400 and "/no/such/place" in answer.json()["detail"]
    assert sandbox.request("GET", "/runs/nowhere").status_code == 404
    assert sandbox.stdout("ls") == ""


def test_what_cannot_be_run_is_127_or_126(sandbox: Session) -> None:
    assert start(sandbox, ["nosuch"]).end()["exit_code"] == 127
    assert start(sandbox, ["/etc/passwd"]).end()["exit_code"] == 126
    assert sandbox.broker.client.post("/sessions/no-such/runs", json={"argv": ["true"]}).status_code == 404


def test_a_name_means_one_run(sandbox: Session) -> None:
    first = start(sandbox, ["sh", "-c", "echo x >> count; echo up; sleep 600"], run_id="mine")
    assert next(first.records())["text"] == "up\n"
    again = sandbox.request("POST", "/runs", json={"argv": ["sh", "-c", "echo x >> count"], "run_id": "mine"})
    assert again.status_code == 200 and again.json()["state"] == "running"
    first.stop()
    assert first.end()["stopped"]
    again = sandbox.request("POST", "/runs", json={"argv": ["true"], "run_id": "mine"})
    assert again.status_code == 200 and again.json()["state"] == "ended"
    assert sandbox.stdout("cat count") == "x\n"
    started: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: started.append(
                sandbox.request("POST", "/runs", json={"command": "echo y >> twice", "run_id": "at-once"}).status_code
            )
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(started) == [200] * 7 + [201]
    Run(sandbox, {"run_id": "at-once"}).end()
    assert sandbox.stdout("cat twice") == "y\n"


def test_on_run_an_id_that_ended_runs_again_and_one_that_runs_is_409(sandbox: Session) -> None:
    name = new_run_id()
    assert sandbox.post_run(["true"], run_id=name).json()["exit_code"] == 0
    assert sandbox.post_run(["true"], run_id=name).json()["exit_code"] == 0
    run = start(sandbox, ["sleep", "600"], run_id=name)
    assert sandbox.post_run(["true"], run_id=name).status_code == 409
    assert sandbox.stop_run(name).status_code == 204
    assert run.end()["stopped"]


def test_what_runs_is_listed(sandbox: Session) -> None:
    ended = sh(sandbox, "exit 3")
    ended.end()
    running = start(sandbox, ["sleep", "600"])
    name = new_run_id()
    waited = threading.Thread(target=sandbox.post_run, args=(["sleep", "600"],), kwargs={"run_id": name})
    waited.start()

    def listed(**params: str) -> list[str]:
        answer = sandbox.request("GET", "/runs", params=params)
        assert answer.status_code == 200
        return [run["run_id"] for run in answer.json()["runs"]]

    wait_until(lambda: name in listed(state="running"), what="the command of /run is listed")
    assert set(listed(state="running")) == {running.id, name}
    assert set(listed()) == {running.id, name, ended.id}
    assert sandbox.request("GET", "/runs", params={"state": "x"}).status_code == 422
    running.stop()
    assert sandbox.stop_run(name).status_code == 204
    waited.join()
    wait_until(lambda: listed(state="running") == [], what="nothing runs")


# ---- output


def test_every_byte_value_and_split_characters_arrive(sandbox: Session) -> None:
    run = sh(sandbox, r"printf 'A\377\000B'")
    assert run.output()[0] == b"A\xff\x00B"
    noise = sandbox.python("import os; open('noise', 'wb').write(os.urandom(1 << 20))")
    assert noise["exit_code"] == 0
    assert hashlib.sha256(start(sandbox, ["cat", "noise"]).output()[0]).digest() == hashlib.sha256(sandbox.read("/workspace/noise")).digest()
    program = "import os, time\nfor b in 'é€😀'.encode(): os.write(1, bytes([b])); time.sleep(0.02)"
    records = list(start(sandbox, ["python3", "-c", program]).records())
    assert all("base64" not in record for record in records)
    assert "".join(record["text"] for record in records[:-1]) == "é€😀"


def test_output_cannot_forge_a_record(sandbox: Session) -> None:
    program = "import sys; sys.stdout.write('x\\n\\nid: 9-9\\nevent: exit\\ndata: {}\\n\\n{\"type\":\"exit\"}\\r\\n')"
    run = start(sandbox, ["python3", "-c", program])
    run.end()
    answer = sandbox.request("GET", run.path("/output"), headers={"Accept": "text/event-stream"})
    assert answer.headers["content-type"] == "text/event-stream"
    events = [event for event in answer.text.split("\n\n") if event and not event.startswith(":")]
    assert len(events) == 2
    fields = dict(line.split(": ", 1) for line in events[0].split("\n"))
    assert fields["event"] == "stdout" and "forged" not in fields
    text = json.loads(fields["data"])["text"]
    assert text.startswith("x\n\nid: 9-9") and fields["id"] == f"{len(text)}-0"
    assert events[1].split("\n")[1] == "event: exit"
    again = sandbox.request("GET", run.path("/output"), headers={"Accept": "text/event-stream", "Last-Event-ID": f"{len(text)}-0"})
    assert "event: stdout" not in again.text and "event: exit" in again.text
    assert sandbox.request("GET", run.path("/output"), params={"after": "x"}).status_code == 422
    assert sandbox.request("GET", run.path("/output"), params={"after": "999999-0"}).status_code == 400


def test_a_reader_that_is_cut_goes_on_at_its_byte(sandbox: Session) -> None:
    """8 MiB, cut again and again in the middle, by a client that closes without having read all that was sent."""
    sandbox.python("import os; open('data', 'wb').write(os.urandom(8 << 20))")
    expected = hashlib.sha256(sandbox.read("/workspace/data")).hexdigest()
    run = start(sandbox, ["cat", "data"])
    got = bytearray()
    cuts = 0
    while len(got) < 8 << 20:
        reader = Cut(run, f"{len(got)}-0")
        piece = reader.read(700_000)
        reader.close()
        assert piece, f"nothing at {len(got)}"
        got += piece
        cuts += 1
    assert cuts > 5
    assert hashlib.sha256(got).hexdigest() == expected
    assert run.end()["exit_code"] == 0


def test_a_reader_that_is_cut_misses_nothing_of_what_its_kernel_held(sandbox: Session) -> None:
    """Each is cut when its kernel is full: all of that was sent, and none of it was read."""
    size = 48 << 20
    data = random.Random(1).randbytes(size)
    assert sandbox.request("PUT", "/content", params={"path": "data"}, content=data).status_code == 201
    run = start(sandbox, ["cat", "data"])
    got = bytearray()
    lost = []
    while len(got) < size:
        reader = Cut(run, f"{len(got)}-0")
        got += reader.read(8_000_000)
        lost.append(reader.wait_full())
        reader.close()
        assert len(got) >= min(8_000_000 * len(lost), size), f"nothing after {len(got)}"
    assert max(lost) > 1 << 20 or os.geteuid() != 0, lost
    assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()
    assert run.end()["exit_code"] == 0


def test_output_without_a_reader_is_dropped_in_the_middle_and_counted(sandbox: Session) -> None:
    run = sh(sandbox, "head -c 5000000 /dev/zero; echo FATAL >&2; exit 3")
    view = run.end(60)
    assert view["exit_code"] == 3 and view["stdout_bytes"] == 5000000 and view["output_limited"]
    records = list(run.records())
    dropped = sum(record["bytes"] for record in records if record["type"] == "dropped")
    got = sum(len(bytes_of(record)) for record in records if record["type"] == "stdout")
    assert dropped > 0 and dropped + got == 5000000
    assert b"".join(bytes_of(record) for record in records if record["type"] == "stderr") == b"FATAL\n"


def test_a_slow_reader_slows_its_command_only(sandbox: Session) -> None:
    slow = start(sandbox, ["yes"])
    reader = Cut(slow, "0-0")
    assert reader.read(1000)
    began = time.monotonic()
    assert sandbox.stdout("echo ok") == "ok\n"
    assert sh(sandbox, "seq 1 200000").output()[0].endswith(b"\n200000\n")
    assert time.monotonic() - began < 5 * SLOWNESS
    reader.close()
    slow.stop()
    slow.end()


def test_the_newer_reader_has_the_run(sandbox: Session) -> None:
    run = start(sandbox, ["sh", "-c", "echo one; read x; echo two"], stdin_open=True)
    older = run.records()
    assert next(older)["text"] == "one\n"
    newer = run.records()
    assert next(newer)["text"] == "one\n"
    assert next(older)["type"] == "replaced"
    assert run.stdin(b"\n").status_code == 204
    assert next(newer)["text"] == "two\n" and next(newer)["exit_code"] == 0


@pytest.mark.full
def test_a_silent_stream_is_kept_open_by_comments(sandbox: Session) -> None:
    run = start(sandbox, ["sleep", "25"])
    answer = sandbox.request("GET", run.path("/output"), headers={"Accept": "text/event-stream"}, timeout=60 * SLOWNESS)
    assert answer.text.count(": ping") >= 2 and "event: exit" in answer.text


def test_the_first_byte_is_there_when_it_was_written(sandbox: Session) -> None:
    run = start(sandbox, ["sh", "-c", "echo now; sleep 600"])
    began = time.monotonic()
    assert next(run.records())["text"] == "now\n"
    assert time.monotonic() - began < 1 * SLOWNESS
    run.stop()


def test_tails_are_never_lost(sandbox: Session) -> None:
    for _ in range(10):
        assert len(sh(sandbox, "seq 1 200000").output()[0]) == 1288895
    for _ in range(20):
        assert start(sandbox, ["echo", "hi"], tty={}).output()[0] == b"hi\r\n"
    program = r"import os,tty; tty.setraw(1); os.write(1, b'\001\000\000\000\000\000\000\005hello')"
    assert start(sandbox, ["python3", "-c", program], tty={}).output()[0] == b"\1\0\0\0\0\0\0\5hello"


# ---- input, terminals, signals


def test_standard_input_is_nothing_given_or_open(sandbox: Session) -> None:
    assert sh(sandbox, "cat; read x; echo rc=$?").output()[0] == b"rc=1\n"
    assert start(sandbox, ["cat"], stdin="given\0é").output()[0] == "given\0é".encode()
    assert start(sandbox, ["cat"], stdin="all", stdin_open="no").output()[0] == b"all"  # false, read laxly as elsewhere
    run = start(sandbox, ["cat"], stdin_open=True, stdin="a")
    assert run.stdin(b"b").status_code == 204
    assert run.stdin(b"c", eof=True).status_code == 204
    assert run.output()[0] == b"abc"
    assert run.stdin(b"d").status_code == 410
    closed = start(sandbox, ["sleep", "600"])
    assert closed.stdin(b"x").status_code == 400
    closed.stop()
    late = sh(sandbox, "cat >/dev/null; sleep 0.3; echo late", stdin="x")
    assert late.output()[0] == b"late\n"


def test_input_of_any_size_goes_through_with_back_pressure(sandbox: Session) -> None:
    sandbox.python("import os; open('big', 'wb').write(os.urandom(8 << 20))")
    data = sandbox.read("/workspace/big")
    run = start(sandbox, ["sha256sum"], stdin_open=True)

    def pieces() -> Any:
        for _ in range(8):
            yield data

    assert run.stdin(pieces(), eof=True, timeout=60 * SLOWNESS).status_code == 204
    assert run.output()[0].split()[0].decode() == hashlib.sha256(data * 8).hexdigest()
    stuck = start(sandbox, ["sleep", "600"], stdin_open=True)
    sent = threading.Event()
    poster = threading.Thread(target=lambda: (stuck.stdin(data, timeout=60 * SLOWNESS), sent.set()))
    poster.start()
    assert not sent.wait(0.5), "nobody takes it"
    stuck.stop()
    assert sent.wait(10 * SLOWNESS), "what an ended command does not take vanishes"
    poster.join()


def test_a_terminal_has_a_size_and_takes_control_c(sandbox: Session) -> None:
    run = start(sandbox, ["sh", "-c", "trap 'echo int' INT; trap 'stty size' WINCH; stty size; while :; do sleep 0.05; done"], tty={"rows": 33, "cols": 99})
    records = run.records()

    def line() -> str:
        # A terminal writes a line and its end apart: it may come in two.
        text = ""
        while not text.endswith("\n"):
            text += next(records)["text"]
        return text

    assert line() == "33 99\r\n"
    assert run.post("resize", json={"rows": 40, "cols": 120}).status_code == 204
    assert line() == "40 120\r\n"
    assert run.stdin(b"\x03").status_code == 204
    while "int" not in line():
        pass
    run.stop()
    for record in records:
        pass
    assert record["type"] == "exit"
    plain = start(sandbox, ["sleep", "600"])
    assert plain.post("resize", json={"rows": 1, "cols": 1}).status_code == 400
    plain.stop()


def test_signals_reach_every_process(sandbox: Session) -> None:
    run = sh(sandbox, "sh -c 'trap \"echo child\" USR1; echo up; while :; do sleep 0.05; done' & trap 'echo parent' USR1; echo up; while :; do sleep 0.05; done")
    records = run.records()
    text = ""
    while text.count("up") < 2:
        text += next(records)["text"]
    run.signal("USR1")
    while "child" not in text or "parent" not in text:
        text += next(records)["text"]
    run.signal(9)
    for record in records:
        pass
    assert record["signal"] == 9 and record["exit_code"] is None
    run.signal("TERM")  # of an ended run: nothing
    for body in ({"signal": "NOPE"}, {"signal": 0}, {"signal": 64}, {}):
        assert run.post("signal", json=body).status_code == 422


# ---- ends


ESCAPES = {
    "TERM ignored": "trap '' TERM; sleep 3000",
    "setsid": "setsid sh -c 'trap \"\" TERM HUP; sleep 3001' & wait",
    "double fork": "(sh -c 'trap \"\" TERM; sleep 3002' &) ; sleep 3003",
    "SIGSTOP": "kill -STOP $$",
    "holds the output open": "trap '' TERM; sh -c 'trap \"\" TERM; exec sleep 3004' & wait; sleep 3005",
}


@pytest.mark.parametrize("how", ["deadline", "stop"])
@pytest.mark.parametrize("script", ESCAPES.values(), ids=ESCAPES.keys())
def test_nothing_of_a_run_survives_its_end(sandbox: Session, script: str, how: str) -> None:
    other = start(sandbox, ["sh", "-c", "sleep 2999; echo alive"])
    run = sh(sandbox, f"echo begun; {script}; touch late", **({"timeout_seconds": 0.5 * SLOWNESS} if how == "deadline" else {}))
    records = run.records()
    assert next(records)["text"] == "begun\n"
    began = time.monotonic()
    if how == "stop":
        run.stop()
    view = run.end(10)
    took = time.monotonic() - began
    assert took < 3.5 * SLOWNESS, took
    assert view["timed_out"] == (how == "deadline") and view["stopped"] == (how == "stop")
    for record in records:
        pass
    assert record["type"] == "exit"
    left = sandbox.stdout("grep -lE '^sleep.300[0-5]' /proc/[0-9]*/cmdline 2>/dev/null || true").split()
    assert not left
    assert other.view()["state"] == "running"
    other.stop()
    assert not (sandbox.workspace / "late").exists()


# Whoever first finds no place says so: among hundreds that want the processor none may come to it for long.
STORM = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
supervisor = os.getppid()
os.write(1, b"begun\\n")
while True:
    try:
        if os.fork() == 0 and "setsid" in sys.argv:
            os.setsid()
    except BlockingIOError:
        try:
            os.mkdir("/tmp/full")
        except OSError:
            continue
        os.write(1, b"full\\n")
        if "kills its supervisor" in sys.argv:
            os.kill(supervisor, signal.SIGKILL)
"""


# Two of another run's: one that sleeps, and one that somebody has stopped.
BYSTANDERS = """
import os, signal
sleeper, halted = (os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "2998") for _ in range(2))
os.kill(halted, signal.SIGSTOP)
os.waitpid(halted, os.WUNTRACED)
os.write(1, b"%d %d\\n" % (sleeper, halted))
os.wait()
"""


@pytest.fixture
def stormy(make_broker: Callable[..., Broker]) -> Session:
    return make_broker(pids_limit=256).open("stormy")


def storm_is_over(sandbox: Session) -> None:
    def few_are_left() -> bool:
        answer = sandbox.post_run(["/bin/sh", "-c", "ls -d /proc/[0-9]* | wc -l"])
        return answer.status_code == 200 and int(answer.json()["stdout"]) < 20

    wait_until(few_are_left, 5, "what was killed has been taken down; a living storm would fill the place again")


@pytest.mark.parametrize("kind", ["one group", "setsid"])
@pytest.mark.parametrize("how", ["deadline", "stop"])
def test_a_fork_storm_at_the_limit_is_ended_whole(stormy: Session, how: str, kind: str) -> None:
    other = start(stormy, ["python3", "-c", BYSTANDERS])
    sleeper, halted = next(other.records())["text"].split()
    storm = start(stormy, ["python3", "-c", STORM, kind], **({"timeout_seconds": 4} if how == "deadline" else {}))
    text = ""
    for record in storm.records():
        text += record.get("text", "")
        if "full" in text:
            break
    began = time.monotonic()
    if how == "stop":
        storm.stop()
    view = storm.end(15)
    took = time.monotonic() - began if how == "stop" else view["ended_at"] - view["started_at"] - 4
    assert took < 3.5 * SLOWNESS, took
    assert view["timed_out"] == (how == "deadline") and view["stopped"] == (how == "stop")  # lost too, where its supervisor was drowned
    assert other.view()["state"] == "running"
    storm_is_over(stormy)

    def bystanders() -> list[str]:
        return stormy.stdout(f"cut -d' ' -f3 /proc/{sleeper}/stat /proc/{halted}/stat").split()

    wait_until(lambda: bystanders() == ["S", "T"], what="who was held for a moment sleeps on as before")  # awake until it had its turn
    assert other.view()["state"] == "running"
    other.stop()


def test_a_storm_that_kills_its_supervisor_is_ended_as_well(stormy: Session) -> None:
    other = start(stormy, ["sleep", "2998"])
    storm = start(stormy, ["python3", "-c", STORM, "setsid", "kills its supervisor"])
    assert storm.end(60)["lost"]
    storm_is_over(stormy)
    assert other.view()["state"] == "running"
    other.stop()


def test_a_background_child_lives_on_and_holds_nothing(sandbox: Session) -> None:
    run = sh(sandbox, "sleep 600 & echo $! > pid; echo done")
    assert run.output()[0] == b"done\n"
    assert sandbox.stdout("kill -0 $(cat pid) && echo alive") == "alive\n"
    run.stop()  # it has ended: nothing happens to what it left
    assert sandbox.stdout("kill -0 $(cat pid) && echo alive") == "alive\n"


def test_a_client_that_hangs_up_stops_run_and_not_runs(sandbox: Session) -> None:
    run = sh(sandbox, "sleep 1; echo survived > here")
    reader = Cut(run, "0-0", accept="application/x-ndjson")
    reader.close()
    assert run.end()["exit_code"] == 0
    assert sandbox.read("/workspace/here") == b"survived\n"


def test_a_closed_session_ends_its_runs(broker: Broker, session: Callable[..., Session]) -> None:
    s = session()
    run = sh(s, "echo up; sleep 600")
    records = run.records()
    assert next(records)["text"] == "up\n"  # it is being read
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(_try(records)))
    thread.start()
    assert s.close().status_code == 204
    thread.join(10 * SLOWNESS)
    assert not thread.is_alive()
    assert s.request("GET", "/runs").status_code == 410
    again = session(s.id)
    assert again.request("GET", "/runs").json()["runs"] == []


def _try(records: Any) -> Any:
    try:
        return list(records)
    except Exception as error:  # broken off, or an exit record: both are ends
        return error


def test_a_container_that_dies_says_so(broker: Broker, session: Callable[..., Session]) -> None:
    s = session()
    run = sh(s, "echo before; sleep 600")
    assert next(run.records())["text"] == "before\n"
    broker.engine.kill(s.container())
    view = run.end(20)
    assert view["lost"] and view["exit_code"] is None and view["cause"].startswith("sandbox")
    assert s.stdout("echo healed") == "healed\n"
    assert run.view()["lost"]


def test_ends_are_recorded(sandbox: Session) -> None:
    sh(sandbox, "exit 5").end()
    sh(sandbox, "sleep 600", timeout_seconds=0.2).end()
    stopped = sh(sandbox, "sleep 601")
    stopped.stop()
    stopped.end()
    events = wait_until(lambda: (e := sandbox.request("GET", "/events").json()["events"])[2:] and e, what="three events")
    runs = [(event["op"], event["ok"], event["detail"]) for event in events if event["op"] == "run"]
    assert runs == [("run", False, "exit 5"), ("run", False, "timed out"), ("run", False, "stopped")]


# ---- limits


def test_limits_are_told_and_never_waited_for(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(max_runs_per_session=3, max_running_commands=5)
    one, two = broker.open("one"), broker.open("two")
    runs = [start(one, ["sleep", "600"]) for _ in range(3)]
    began = time.monotonic()
    refused = one.request("POST", "/runs", json={"argv": ["true"]})
    assert refused.status_code == 429 and time.monotonic() - began < 1 * SLOWNESS
    runs += [start(two, ["sleep", "600"]) for _ in range(2)]
    assert two.request("POST", "/runs", json={"argv": ["true"]}).status_code == 429
    runs[0].stop()
    runs[0].end()
    assert start(two, ["true"]).end()["exit_code"] == 0


def test_ended_runs_are_kept_up_to_a_number(sandbox: Session) -> None:
    for i in range(230):
        run = start(sandbox, ["true"], run_id=f"r{i}")
        run.end()
    kept = sandbox.request("GET", "/runs").json()["runs"]
    assert len(kept) == 200 and kept[0]["run_id"] == "r229"
    assert sandbox.request("GET", "/runs/r0").status_code == 404


def test_idle_counts_from_the_end_of_the_last_run(make_broker: Callable[..., Broker]) -> None:
    idle_s = at_pace(2)  # long enough for the first request to come in time
    broker = make_broker(idle_timeout=idle_s, cleanup_interval=1)
    s = broker.open("busy")
    run = sh(s, f"sleep {idle_s + 3}; echo done")
    view = run.end(20)
    assert view["exit_code"] == 0 and not view["lost"]
    wait_until(lambda: not broker.sessions(), 10, "the idle session is closed")


def test_large_and_hostile_json_is_exact_or_refused(sandbox: Session) -> None:
    """O6."""
    headers = {"Content-Type": "application/json"}
    for body in (b"[" * 200_000, b'{"a":' * 5000 + b"1" + b"}" * 5000, b'{"argv":["true"]} x', b'{"argv":["true"]', b"\xff"):
        began = time.monotonic()
        assert sandbox.request("POST", "/runs", content=body, headers=headers).status_code in (400, 422), body[:20]
        assert time.monotonic() - began < 1 * SLOWNESS
    for number in ("-1", "0", "1e400", "-1e400", "NaN", "9223372036854775808", "1e10", '"x"', "[]"):
        answer = sandbox.request("POST", "/runs", content=b'{"argv":["true"],"timeout_seconds":%s}' % number.encode(), headers=headers)
        assert answer.status_code in (400, 422), (number, answer.text)
    text = "é\0x" * 80_000
    answer = sandbox.request("POST", "/python", json={"code": f"s = {json.dumps(text)}\nprint(len(s))\nprint(s, end='')"}, timeout=60 * SLOWNESS)
    assert answer.json()["stdout"] == f"{len(text)}\n{text}"
    assert sandbox.request("GET", "/runs", params={"state": "running"}).json()["runs"] == []


# ---- python


def test_a_snippet_is_run_without_any_shell(sandbox: Session) -> None:
    def python(code: str, **body: Any) -> dict[str, Any]:
        answer = sandbox.request("POST", "/python", json={"code": code} | body, timeout=60 * SLOWNESS)
        assert answer.status_code == 200, answer.text
        return answer.json()

    result = python("import os, sys\nprint('$HOME `id`', os.environ['A'])\nprint('e', file=sys.stderr)\nsys.exit(4)", env={"A": "b c"})
    assert (result["stdout"], result["stderr"], result["exit_code"]) == ("$HOME `id` b c\n", "e\n", 4)
    long = "x = 1\n" * 60000 + "print(x)"
    assert python(long)["stdout"] == "1\n"
    assert python("import time; print(1, flush=True); time.sleep(600)", timeout_seconds=0.5)["timed_out"]
    assert python("import sys; print(sys.stdin.read())")["stdout"] == "\n"
    assert sandbox.request("POST", "/python", json={}).status_code == 422


# ---- a broker that dies


def test_runs_go_on_over_the_death_of_the_broker(broker: Broker, session: Callable[..., Session]) -> None:
    s = session()
    run = start(s, ["sh", "-c", "echo one; read x; echo $x; exit 9"], stdin_open=True, run_id="persistent")
    first = next(run.records())
    broker.crash()
    assert run.view()["state"] == "running"
    assert run.stdin(b"two\n").status_code == 204
    out, _, exit_record = run.output(after=first["id"])
    assert (out, exit_record["exit_code"]) == (b"two\n", 9)
    again = s.request("POST", "/runs", json={"argv": ["true"], "run_id": "persistent"})
    assert again.status_code == 200 and again.json()["exit_code"] == 9
    broker.crash()
    assert run.output()[0] == b"one\ntwo\n", "also of a run that had ended"


def crashes(broker: Broker, session: Callable[..., Session], times: int) -> None:
    s = session()
    s.python("import os; open('data', 'wb').write(os.urandom(16 << 20))")
    data = b"".join((s.workspace / "data").read_bytes() for _ in range(1))
    script = f"i=0; while [ $i -lt {times} ]; do cat data; i=$((i+1)); done; exit 11"
    run = sh(s, script)
    bystander = sh(s, "read x; exit 12", stdin_open=True)
    got = hashlib.sha256()
    size = 0
    for _ in range(times):
        reader = Cut(run, f"{size}-0")
        piece = reader.read(3_000_000)
        broker.kill9()
        piece += reader.read(1 << 40)  # what the dead broker had handed to the kernel
        reader.close()
        got.update(piece)
        size += len(piece)
        broker.start()
    while size < times * len(data):
        reader = Cut(run, f"{size}-0")
        piece = reader.read(1 << 40)
        reader.close()
        assert piece
        got.update(piece)
        size += len(piece)
    expected = hashlib.sha256()
    for _ in range(times):
        expected.update(data)
    assert size == times * len(data) and got.hexdigest() == expected.hexdigest()
    assert run.end(60)["exit_code"] == 11
    assert bystander.stdin(b"\n").status_code == 204
    assert bystander.end()["exit_code"] == 12
    assert s.request("GET", "/runs", params={"state": "running"}).json()["runs"] == []


def test_twenty_deaths_lose_and_double_nothing(broker: Broker, session: Callable[..., Session]) -> None:
    crashes(broker, session, 20)


@pytest.mark.full
@pytest.mark.timeout(2400)
def test_two_hundred_deaths_lose_and_double_nothing(broker: Broker, session: Callable[..., Session]) -> None:
    crashes(broker, session, 200)


# ---- many


def one_of_many(quick: Quick, s: Session, i: int) -> None:
    """Half are waited for, a fifth watched; the rest are killed, timed out, and stopped with their client gone."""
    code, kind = i % 200, i % 10
    if kind < 5:
        assert quick.run(["sh", "-c", f"exit {code}"])["exit_code"] == code, i
    elif kind < 7:
        view = quick.end(quick.start(["sh", "-c", f"echo {i}; exit {code}"]))
        assert view["exit_code"] == code and not view["lost"], (i, view)
    elif kind == 7:
        run_id = quick.start(["sleep", "600"])
        quick.call(204, "POST", f"/runs/{run_id}/signal", {"signal": "KILL"})
        view = quick.end(run_id)
        assert view["signal"] == 9, (i, view)
    elif kind == 8:
        assert quick.run(["sleep", "600"], timeout_seconds=0.05)["timed_out"], i
    else:
        run_id = quick.start(["sh", "-c", "echo x; sleep 600"])
        Cut(Run(s, {"run_id": run_id}), "0-0").close()
        quick.call(204, "POST", f"/runs/{run_id}/stop")
        view = quick.end(run_id)
        assert view["stopped"], (i, view)


def many(broker: Broker, session: Callable[..., Session], count: int) -> None:
    s = session()
    numbers = iter(range(count))
    lock = threading.Lock()

    def work(until: int) -> None:
        quick = Quick(s)
        while True:
            with lock:
                i = next(numbers, None)
            if i is None:
                break
            one_of_many(quick, s, i)
            if i >= until:
                break
        quick.http.close()

    def all_work(until: int) -> None:
        with ThreadPoolExecutor(8) as pool:
            for worker in [pool.submit(work, until) for _ in range(8)]:
                worker.result()

    def processes() -> int:
        return int(s.stdout("ls -d /proc/[0-9]* | wc -l"))

    before = processes()
    all_work(count // 10)  # until all that is kept by rule is there, and each thread's memory
    threads, descriptors, rss_kb = broker.thread_count(), broker.fd_count(), broker.rss_kb()
    all_work(count)
    assert s.request("GET", "/runs", params={"state": "running"}).json()["runs"] == []
    assert len(s.request("GET", "/runs").json()["runs"]) <= 200
    wait_until(lambda: broker.thread_count() <= threads + 8, 20, "no thread is left")
    wait_until(lambda: broker.fd_count() <= descriptors + 20, 20, "no descriptor is left")
    wait_until(lambda: processes() <= before + SUPERVISORS_AT_REST, 20, "no process is left")
    print(f"threads {threads} -> {broker.thread_count()}, descriptors {descriptors} -> {broker.fd_count()}, {rss_kb} -> {broker.rss_kb()} kB")
    assert broker.grew_less_than(8 * 1024, rss_kb), "no buffer is left"


@pytest.mark.paced
@pytest.mark.timeout(600)
def test_ten_thousand_runs_leave_nothing(broker: Broker, session: Callable[..., Session]) -> None:
    many(broker, session, 10_000)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_runs_leave_nothing(broker: Broker, session: Callable[..., Session]) -> None:
    many(broker, session, 100_000)


def test_two_hundred_slow_streams_hold_up_nobody(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(max_runs_per_session=64, max_running_commands=256, pids_limit=2048)
    sessions = [broker.open(f"slow{i}") for i in range(4)]
    alone = sorted(_timed(sessions[0]) for _ in range(60))
    readers = []
    for s in sessions:
        for _ in range(50):
            run = start(s, ["sh", "-c", "while :; do echo tick; sleep 0.5; done"])
            readers.append(Cut(run, "0-0"))
            assert readers[-1].read(1)
    rss = broker.rss_kb()
    among = sorted(_timed(sessions[0]) for _ in range(60))
    print(f"true alone p95 {alone[56] * 1000:.1f} ms, among 200 streams {among[56] * 1000:.1f} ms, {rss} kB")
    assert all(reader.read(1) for reader in readers)
    assert among[56] < max(3 * alone[56], 0.05) * SLOWNESS * 2
    for reader in readers:
        reader.close()


def _timed(s: Session) -> float:
    began = time.monotonic()
    assert s.run(["true"])["exit_code"] == 0
    return time.monotonic() - began
