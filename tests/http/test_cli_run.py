"""`berth run`: a command in a session as if it ran here."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import Any, Callable

import pytest

from berth import Broker, Session, new_id, wait_until
from cli import Cli
from relay import Relay


@pytest.fixture
def cli(broker: Broker) -> Cli:
    return Cli(broker.url)


@pytest.fixture(scope="module")
def shared(module_broker: Broker) -> Session:
    return module_broker.open(new_id("cli"))


def runs(session: Session, **query: str) -> list[dict[str, Any]]:
    return session.request("GET", "/runs", params=query).json()["runs"]


def wait_for_file(session: Session, name: str) -> None:
    wait_until(lambda: session.request("GET", "/content", params={"path": name}).status_code == 200, what=f"{name} is there")


@pytest.mark.san
def test_streams_and_status_are_the_commands(cli: Cli, broker: Broker, shared: Session) -> None:
    done = cli.run("run", shared.id, "--", "sh", "-c", "echo out; echo err >&2; printf '\\377\\0\\033'; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n\xff\0\033", b"err\n")
    done = cli.run("run", shared.id, "sh", "-c", "kill -9 $$")
    assert (done.returncode, done.stdout, done.stderr) == (137, b"", b"")
    missing = cli.run("run", shared.id, "/nonexistent")
    assert missing.returncode == 127 and b"is there such a program" in missing.stderr
    done = cli.run("run", shared.id, "--timeout", "1", "--", "sleep", "60")
    assert (done.returncode, done.stderr) == (124, b"berth: stopped at its deadline\n")


def test_words_are_left_as_they_are(cli: Cli, broker: Broker, shared: Session) -> None:
    words = ["a b", "", "*", "$HOME", "--json", "--", "-n", "\u00e4"]
    done = cli.run("run", "--env", "X=1=2", "-e", "Y=", "--cwd", "/tmp", shared.id, "--", "python3", "-c", "import os, sys; print(sys.argv[1:], os.environ['X'], os.environ['Y'] == '', os.getcwd())", *words)
    assert done.stdout.decode() == f"{words} 1=2 True /tmp\n", done
    assert cli.run("run", "--env", "nope", shared.id, "true").returncode == 125


def test_input_goes_through_whole(cli: Cli, broker: Broker, shared: Session) -> None:
    data = os.urandom(1_500_000)
    done = cli.run("run", shared.id, "--", "cat", data=data, status=0)
    assert done.stdout == data
    assert cli.run("run", shared.id, "cat", data=b"", status=0).stdout == b""
    assert cli.run("run", shared.id, "head", "-c", "3", data=data, status=0).stdout == data[:3]  # who reads no more is no error
    assert cli.run("run", "--no-stdin", shared.id, "cat", data=b"not read", status=0).stdout == b""


def test_it_is_a_dialogue(cli: Cli, broker: Broker, shared: Session) -> None:
    process = cli.start("run", shared.id, "--", "sh", "-c", "while read line; do echo got $line; done", stdin=subprocess.PIPE)
    assert process.stdin and process.stdout
    for word in (b"one", b"two"):
        process.stdin.write(word + b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"got " + word + b"\n"  # before the next is sent
    process.stdin.close()
    assert process.wait(20) == 0


LEFT = """
import glob, sys
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        words = open(path, errors="replace").read().split(chr(0))
    except OSError:  # it ended meanwhile
        continue
    if words[:-1] == sys.argv[1:]:
        print(path)
"""


def left_of(session: Session, *words: str) -> str:
    """The sandbox's processes that were started with these words."""
    found = session.run(["python3", "-c", LEFT, *words])
    assert found["exit_code"] == 0, found
    return found["stdout"]


@pytest.mark.san
@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_stops_it_and_all_it_started(cli: Cli, broker: Broker, shared: Session, number: int, status: int) -> None:
    mark = new_id("mark")
    process = cli.start("run", shared.id, "--", "sh", "-c", f"(setsid sh -c 'touch {mark}; exec sleep 987{int(number)}' &); sleep 987{int(number)}")
    wait_for_file(shared, mark)
    wait_until(lambda: left_of(shared, "sleep", f"987{int(number)}").count("/proc") == 2, what="both run")
    process.send_signal(number)
    assert process.wait(20) == status
    assert not left_of(shared, "sleep", f"987{int(number)}")


def test_the_second_signal_leaves_at_once(broker: Broker, shared: Session) -> None:
    mark = new_id("mark")
    relay = Relay(broker.port)
    process = Cli(relay.url).start("run", shared.id, "--", "sh", "-c", f"touch {mark}; exec sleep 9870")
    try:
        wait_for_file(shared, mark)
        relay.is_dead.set()  # nobody answers the first

        def again() -> bool:
            process.send_signal(signal.SIGINT)
            return process.poll() is not None

        wait_until(again, 20, "berth leaves", 0.4)
        assert process.returncode == 130 and process.stderr and b"left before run" in process.stderr.read()
    finally:
        process.kill()
        relay.close()
    for run in runs(shared, state="running"):  # whether it was stopped is the broker's doing
        shared.request("POST", f"/runs/{run['run_id']}/stop")


def test_nobody_reads_so_it_ends(cli: Cli, broker: Broker, shared: Session) -> None:
    process = cli.start("run", shared.id, "--", "sh", "-c", "yes nobody-reads-this")
    assert process.stdout
    assert process.stdout.read(1000)
    process.stdout.close()
    assert process.wait(20) == 141
    wait_until(lambda: not [run for run in runs(shared, state="running") if "nobody-reads" in run["command"]], what="the run is stopped")


def test_it_can_be_left_running(cli: Cli, broker: Broker, shared: Session) -> None:
    run_id = cli.out("run", "--detach", shared.id, "--", "sh", "-c", "sleep 1; touch left").strip()
    assert shared.request("GET", f"/runs/{run_id}").json()["state"] in ("starting", "running", "ended")
    assert shared.request("GET", f"/runs/{run_id}", params={"wait": 20}).json()["exit_code"] == 0


def test_a_session_that_is_not_there(cli: Cli, broker: Broker) -> None:
    name = new_id()
    done = cli.run("run", name, "true", status=125)
    assert done.stderr == f'berth: there is no open session "{name}": berth open {name}, or berth run --open {name}\n'.encode()
    assert cli.run("--url", "http://127.0.0.1:1", "run", name, "true").returncode == 125
    try:
        assert cli.out("run", "--open", name, "--", "echo", "here") == "here\n"
        assert cli.out("hibernate", name) == f"{name}: hibernated\n"
        assert cli.out("run", name, "--", "echo", "awake") == "awake\n"
    finally:
        broker.purge(name)


def test_output_goes_on_over_a_restart_of_the_broker(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(on_stop="keep")
    session = broker.open(new_id())
    process = Cli(broker.url).start("run", session.id, "--", "sh", "-c", "echo begin; for i in $(seq 200); do echo line $i; sleep 0.02; done; exit 3")
    assert process.stdout and process.stderr
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.extend(process.stdout))  # type: ignore[arg-type]
    reader.start()
    wait_until(lambda: len(got) > 20, what="it runs")
    broker.crash()
    assert process.wait(40) == 3, process.stderr.read()
    reader.join(10)
    assert b"".join(got) == b"begin\n" + b"".join(b"line %d\n" % i for i in range(1, 201))
    assert process.stderr.read() == b""


def test_a_sandbox_that_dies_takes_it_along(cli: Cli, broker: Broker, session: Callable[..., Session]) -> None:
    one = session()
    process = cli.start("run", one.id, "--", "sh", "-c", "touch up; sleep 9871")
    wait_for_file(one, "up")
    broker.engine.kill(one.container())
    assert process.wait(30) == 125
    assert b"the command was lost" in process.stderr.read()  # type: ignore[union-attr]
