"""The core of commands in a sandbox of gVisor's: another kernel, the same answers (issue 6)."""

from __future__ import annotations

import subprocess
import time
from typing import Iterator

import pytest

from berth import IMAGE, ROOT, SLOWNESS, Broker, OwnEngine, Session, at_pace, wait_until
from runs import Cut, hang_up_once_begun, sh, start
from terminal import Terminal, prompt

pytestmark = [pytest.mark.full, pytest.mark.engine_faults, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def gvisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    engine = OwnEngine()
    broker = None
    try:
        added = subprocess.run([ROOT / "contrib/gvisor", "add", engine.dir], capture_output=True, text=True, timeout=1500)
        assert added.returncode == 0, added.stderr[-2000:]
        broker = Broker(tmp_path_factory.mktemp("gvisor") / "broker", engine, runtimes=f"python={IMAGE};oci_runtime=runsc").start()
        yield broker
        broker.dispose()
    finally:
        if broker is not None and broker.process is not None:
            broker.process.kill()
            broker.process.wait()
        engine.remove_engine()


@pytest.fixture
def sandbox(gvisor: Broker) -> Iterator[Session]:
    session = gvisor.open()
    yield session
    assert gvisor.purge(session.id).status_code in (204, 404)


def test_it_is_gvisor(sandbox: Session) -> None:
    assert "gVisor" in sandbox.stdout("dmesg 2>/dev/null || cat /proc/version") or "4.4.0" in sandbox.stdout("uname -r")
    assert sandbox.broker.engine.inspect(sandbox.broker.container_of(sandbox.id))["HostConfig"]["Runtime"] == "runsc"


def test_output_and_ends_are_exact(sandbox: Session) -> None:
    result = sandbox.sh("echo out; echo err >&2; exit 7")
    assert (result["stdout"], result["stderr"], result["exit_code"]) == ("out\n", "err\n", 7)
    for _ in range(50):
        assert sandbox.sh("exit 3")["exit_code"] == 3
    run = sh(sandbox, "echo out; echo err >&2; kill -9 $$")
    assert run.output()[:2] == (b"out\n", b"err\n") and run.end()["signal"] == 9
    assert start(sandbox, ["nosuch"]).end()["exit_code"] == 127
    run = start(sandbox, ["seq", "1", "200000"])
    assert len(run.output()[0]) == 1288895


def test_input_goes_in_and_ends(sandbox: Session) -> None:
    run = start(sandbox, ["wc", "-c"], stdin_open=True)
    assert run.stdin(b"x" * 3_000_000, eof=True, timeout=120 * SLOWNESS).status_code == 204
    assert run.output()[0].strip() == b"3000000"


@pytest.mark.parametrize("script", ["trap '' TERM; sleep 600", "setsid sleep 600", "(setsid sh -c 'sleep 600' &) ; sleep 600", "kill -STOP $$"])
def test_a_stop_reaches_all_of_it(sandbox: Session, script: str) -> None:
    other = start(sandbox, ["sleep", "601"])
    run = sh(sandbox, f"echo up; {script}")
    next(run.records())
    began = time.monotonic()
    run.stop()
    view = run.end()
    assert view["stopped"] and time.monotonic() - began < 3 * SLOWNESS
    wait_until(lambda: "600" not in sandbox.stdout("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").replace("601", ""), deadline=5, what="nothing of it is left")
    assert other.view()["state"] == "running"
    other.stop()


def test_a_deadline_is_kept(sandbox: Session) -> None:
    began = time.monotonic()
    result = sandbox.sh("trap '' TERM; echo one; sleep 600", timeout_seconds=at_pace(1))
    assert result["timed_out"] and result["stdout"] == "one\n" and time.monotonic() - began < 4 * SLOWNESS


def test_what_was_left_in_the_background_goes_on(sandbox: Session) -> None:
    began = time.monotonic()
    assert sandbox.stdout("sleep 600 & echo $! > pid; echo done") == "done\n" and time.monotonic() - began < 5 * SLOWNESS
    program = "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: os._exit(os.write(1, b'got\\n') + 5))\nos.write(1, b'up\\n')\nwhile True: signal.pause()"
    run = start(sandbox, ["python3", "-c", program])
    records = run.records()
    assert next(records)["text"] == "up\n"
    run.signal("USR1")
    assert next(records)["text"] == "got\n" and next(records)["exit_code"] == 9
    assert sandbox.stdout("kill -0 $(cat pid) && echo alive") == "alive\n"


def test_a_snippet_is_run_without_any_shell(sandbox: Session) -> None:
    answer = sandbox.request("POST", "/python", json={"code": "import sys\nprint('$HOME `id`')\nprint('e', file=sys.stderr)\nsys.exit(4)"})
    assert [answer.json()[name] for name in ("stdout", "stderr", "exit_code")] == ["$HOME `id`\n", "e\n", 4]


def test_a_client_that_hangs_up_ends_its_command(sandbox: Session) -> None:
    hang_up_once_begun(sandbox, "/exec", command="trap '' TERM HUP; touch begun; sleep 600; touch late")
    wait_until(lambda: "600" not in sandbox.stdout("cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), 5, "its processes are gone")
    assert not (sandbox.workspace / "late").exists()


def test_both_sides_see_the_same_files(sandbox: Session) -> None:
    """K6: nothing of what is written outside is stale inside, nor the other way round."""
    assert sandbox.stdout("echo a > f; cat f") == "a\n"
    sandbox.write("/workspace/f", b"b")
    assert sandbox.stdout("cat f") == "b"
    for i in range(3):
        with open(sandbox.workspace / "f", "ab") as file:
            file.write(b"more\n")
        assert sandbox.stdout("wc -c < f; cat f") == f"{1 + 5 * (i + 1)}\nb" + "more\n" * (i + 1)
    (sandbox.workspace / "f").unlink()
    assert sandbox.stdout("ls") == ""
    sandbox.stdout("echo inside > g")
    assert sandbox.read("/workspace/g") == b"inside\n"


def test_a_reader_that_was_cut_goes_on_at_its_byte(sandbox: Session) -> None:
    run = start(sandbox, ["seq", "1", "300000"])
    expected = b"".join(b"%d\n" % i for i in range(1, 300001))
    got = bytearray()
    while len(got) < len(expected):
        cut = Cut(run, str(len(got)))
        got += cut.read(400_000)
        cut.close()
    assert bytes(got) == expected and run.end()["exit_code"] == 0


def test_runs_and_terminals_outlive_the_broker(sandbox: Session) -> None:
    run = sh(sandbox, "for i in $(seq 1 50); do echo $i; sleep 0.1; done; exit 4")
    terminal = Terminal(sandbox, {"type": "start", "rows": 30, "cols": 90})
    prompt(terminal)
    terminal.type("x=kept\n")
    terminal.until("$ ")
    sandbox.broker.crash()
    assert run.output()[0] == b"".join(b"%d\n" % i for i in range(1, 51))
    assert run.end()["exit_code"] == 4
    terminal = Terminal(sandbox, {"type": "enter", "run_id": terminal.run_id, "rows": 30, "cols": 90})
    terminal.message("live")
    terminal.type("echo $x; stty size\n")
    terminal.until("kept\r\n30 90\r\n")
    terminal.type("sleep 600\n\x03")
    terminal.until("$ ")
    terminal.type("exit 5\n")
    assert terminal.message("exit")["exit_code"] == 5
