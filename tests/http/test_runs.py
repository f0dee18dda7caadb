"""How commands end: by themselves, at their deadline, at a limit, with their client, by request. Each answer is whole, and says what happened."""

from __future__ import annotations

import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable

import pytest

from berth import SLOWNESS, Broker, Session, at_pace, new_run_id, wait_until
from runs import hang_up_once_begun

CUT = 65_536
OUTPUT_LIMIT = 10_485_760


def processes(session: Session, mark: str) -> list[int]:
    """Processes inside whose command line holds the mark, but for the one that looks."""
    program = (
        "import os, sys\nmark = sys.argv[1].replace(' ', chr(0)).encode()\nfound = []\nfor p in os.listdir('/proc'):\n"
        "  if p.isdigit() and int(p) != os.getpid():\n    try:\n"
        "      if mark in open(f'/proc/{p}/cmdline', 'rb').read() and open(f'/proc/{p}/stat').read().rsplit(')', 1)[1].split()[0] != 'Z':\n"
        "        found.append(int(p))\n    except OSError: pass\nprint(*found)"
    )
    result = session.run(["python3", "-c", program, mark])
    assert result["exit_code"] == 0, result
    return [int(p) for p in result["stdout"].split()]


def unstarted(session: Session, name: str) -> bool:
    return session.files("stat", f"/workspace/{name}").status_code == 404


# ---- deadlines


@pytest.mark.san
def test_after_a_timeout_nothing_of_the_command_happens_any_more(sandbox: Session) -> None:
    limit_s = at_pace(1)
    begun = time.monotonic()
    result = sandbox.sh(f"trap '' TERM; touch begun; sleep {limit_s + 4}; touch late", timeout_seconds=limit_s)
    took = time.monotonic() - begun
    assert result["timed_out"] and result["exit_code"] is None
    assert took < 4 * SLOWNESS, f"{took:.1f} s"
    assert not unstarted(sandbox, "begun")
    assert processes(sandbox, "late") == [] and processes(sandbox, f"sleep {limit_s + 4}") == []
    # The moment it would have touched the file; nothing but time can show that it does not.
    time.sleep(max(0.0, limit_s + 5 - (time.monotonic() - begun)))
    assert unstarted(sandbox, "late")


HIDING = {
    "setsid": "setsid sh -c 'trap \"\" TERM HUP; touch begun; sleep 777; :' & wait",
    "double fork": "(setsid sh -c 'trap \"\" TERM HUP; (touch begun; sleep 777; :) & wait' &) & sleep 777",
    "stopped": "sh -c 'touch begun; kill -STOP $$; sleep 777' & sleep 777",
    "orphan": "((sleep 777; :) &) ; touch begun; sleep 777",
    "own group": "python3 -c 'import os, time; os.setpgid(0, 0); open(\"begun\", \"w\"); time.sleep(777)' & wait",
}


@pytest.mark.parametrize("how", HIDING)
def test_a_timeout_ends_whatever_hides(session: Callable[..., Session], how: str) -> None:
    s = session()
    result = s.sh(HIDING[how], timeout_seconds=SLOWNESS)  # what hides has to have begun by then
    assert result["timed_out"], result
    assert not unstarted(s, "begun"), "the test has tested something only if it was begun"
    # EXIT comes when all are dead: not later, so no waiting here.
    assert processes(s, "777") == []


@pytest.mark.san
def test_what_was_said_before_the_deadline_is_kept(sandbox: Session) -> None:
    result = sandbox.sh("echo one; echo two >&2; sleep 30", timeout_seconds=SLOWNESS)
    assert (result["stdout"], result["stderr"], result["timed_out"], result["exit_code"]) == ("one\n", "two\n", True, None)
    assert not result["output_limited"] and result["output_limit"] is None


def test_a_flood_until_the_deadline_is_cut_at_64_kib_each(sandbox: Session) -> None:
    result = sandbox.sh("head -c 200000 /dev/zero | tr '\\0' o; head -c 200000 /dev/zero | tr '\\0' e >&2; sleep 30", timeout_seconds=at_pace(2))
    assert result["timed_out"]
    assert result["stdout"] == "o" * CUT and result["stderr"] == "e" * CUT


def test_the_deadline_is_exact_enough(sandbox: Session) -> None:
    begun = time.monotonic()
    result = sandbox.run(["sleep", "30"], timeout_seconds=0.3)
    assert result["timed_out"] and 0.3 <= time.monotonic() - begun < 2.5 * SLOWNESS


# ---- output


@pytest.mark.san
def test_over_ten_mebibytes_the_command_is_stopped(sandbox: Session) -> None:
    result = sandbox.sh("echo first >&2; yes", timeout_seconds=30)
    assert result["output_limited"] and result["output_limit"] == OUTPUT_LIMIT
    assert result["exit_code"] is None and not result["timed_out"]
    assert len(result["stdout"]) == CUT and set(result["stdout"]) == {"y", "\n"}
    assert result["stderr"] == "first\n"
    assert processes(sandbox, "yes") == []


def test_exactly_ten_mebibytes_are_complete(sandbox: Session) -> None:
    result = sandbox.sh(f"head -c {OUTPUT_LIMIT - 6} /dev/zero | tr '\\0' x; echo final >&2")
    assert result["exit_code"] == 0 and not result["output_limited"]
    assert len(result["stdout"]) == OUTPUT_LIMIT - 6 and set(result["stdout"]) == {"x"}
    assert result["stderr"] == "final\n"


def test_a_long_output_does_not_starve_the_other_stream(sandbox: Session) -> None:
    result = sandbox.sh("head -c 5000000 /dev/zero | tr '\\0' x; echo FATAL >&2; exit 3")
    assert (result["exit_code"], len(result["stdout"]), result["stderr"]) == (3, 5_000_000, "FATAL\n")


def test_output_is_whole_thirty_times(sandbox: Session) -> None:
    expected = hashlib.sha256("".join(f"{n}\n" for n in range(1, 200_001)).encode()).hexdigest()
    for _ in range(30):
        result = sandbox.run(["seq", "1", "200000"])
        assert result["exit_code"] == 0 and len(result["stdout"]) == 1_288_895
        assert hashlib.sha256(result["stdout"].encode()).hexdigest() == expected


def test_a_flood_costs_the_broker_little(broker: Broker, session: Callable[..., Session]) -> None:
    s = session()
    s.sh("yes", timeout_seconds=1)  # what a first one costs for ever is not counted
    before = broker.rss_kb()
    peak, slowest = before, 0.0
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(s.sh, "head -c 9000000 /dev/zero; yes >/dev/null", timeout_seconds=3) for _ in range(4)]
        while not all(run.done() for run in runs):
            asked = time.monotonic()
            assert broker.http.get("/healthz").status_code == 200
            slowest = max(slowest, time.monotonic() - asked)
            peak = max(peak, broker.rss_kb())
            time.sleep(0.02)
    assert all(run.result()["timed_out"] for run in runs)
    assert broker.is_sanitized() or peak - before < 32 * 1024, f"{peak - before} kB more"
    assert slowest < 1 * SLOWNESS, f"health took {slowest:.2f} s"


@pytest.mark.san
def test_bytes_that_are_no_text_come_as_replacement_characters(sandbox: Session) -> None:
    result = sandbox.run(["printf", r"A\377\000B\303\251\n\342\202"])
    assert result["stdout"] == "A\ufffd\0B\u00e9\n\ufffd"
    result = sandbox.sh("head -c 1048576 /dev/urandom; head -c 65536 /dev/urandom >&2")
    assert result["exit_code"] == 0
    assert 400_000 < len(result["stdout"]) <= 1_048_576 and "\ufffd" in result["stdout"]


def test_streams_are_apart_and_frame_headers_nowhere(sandbox: Session) -> None:
    result = sandbox.sh("printf o; printf e >&2; printf '\\001\\000\\000\\000\\000\\000\\000\\005hello'")
    assert (result["stdout"], result["stderr"]) == ("o\x01\0\0\0\0\0\0\x05hello", "e")


# ---- beginning and end


@pytest.mark.san
def test_standard_input_is_at_its_end(sandbox: Session) -> None:
    begun = time.monotonic()
    assert sandbox.run(["cat"])["stdout"] == ""
    assert sandbox.stdout("read x; echo rc=$?") == "rc=1\n"
    assert sandbox.python("import sys; print(repr(sys.stdin.read()))")["stdout"] == "''\n"
    assert time.monotonic() - begun < 2 * SLOWNESS


def test_how_it_ended_is_told_exactly(sandbox: Session) -> None:
    (sandbox.workspace / "plain").write_text("x")
    for argv, status in (
        (["nosuch"], 127),
        (["/nonexistent/x"], 127),
        (["/workspace/plain"], 126),
        (["/etc"], 126),
        (["true"], 0),
        (["sh", "-c", "exit 255"], 255),
        (["sh", "-c", "kill -9 $$"], 137),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["python3", "-c", "import os; os.abort()"], 134),
    ):
        result = sandbox.run(argv)
        assert (result["exit_code"], result["stdout"], result["timed_out"]) == (status, "", False), argv
    assert sandbox.run(["printf", "[%s]", "a b", "", "c'd", "$HOME", "*"])["stdout"] == "[a b][][c'd][$HOME][*]"


@pytest.mark.san
def test_a_background_child_lives_on_and_delays_nobody(sandbox: Session) -> None:
    begun = time.monotonic()
    result = sandbox.sh("sleep 600 & echo $!; sleep 600 >/dev/null 2>&1 </dev/null & echo $!")
    assert result["exit_code"] == 0 and time.monotonic() - begun < 2.5 * SLOWNESS
    first, second = result["stdout"].split()
    sandbox.stdout("true")
    assert sandbox.stdout(f"kill -0 {first} {second} && echo alive") == "alive\n"
    # One that keeps writing to pipes nobody reads any more is neither stopped nor ended by that.
    sandbox.stdout("(i=0; while [ $i -lt 2000 ]; do i=$((i+1)); seq 1 100; done; touch written) &")
    wait_until(lambda: not unstarted(sandbox, "written"), 20, "the background writer comes to its end")


def test_a_command_that_does_not_end_holds_nobody_up(sandbox: Session) -> None:
    with ThreadPoolExecutor(1) as pool:
        run_id = new_run_id()
        held = pool.submit(sandbox.run, ["sh", "-c", "touch begun; sleep 30"], run_id=run_id)
        wait_until(lambda: not unstarted(sandbox, "begun"), what="the long command runs")
        begun = time.monotonic()
        assert sandbox.stdout("echo ok") == "ok\n"
        assert sandbox.stdout("cat > f <<'E'\nl1\nl2\nE\nwc -l f") == "2 f\n"
        assert sandbox.files("list", "/workspace").status_code == 200
        assert time.monotonic() - begun < 2 * SLOWNESS
        sandbox.stop_run(run_id)
        held.result(5 * SLOWNESS)


# ---- ended from outside


@pytest.mark.san
def test_a_run_is_stopped_by_its_id(sandbox: Session) -> None:
    run_id = new_run_id()
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(sandbox.run, ["sh", "-c", "trap '' TERM; echo begun; touch begun; sleep 888; :"], run_id=run_id)
        wait_until(lambda: not unstarted(sandbox, "begun"), what="it runs")
        assert sandbox.stop_run(new_run_id()).status_code == 204, "an unknown one is no error"
        assert not held.done()
        begun = time.monotonic()
        assert sandbox.stop_run(run_id).status_code == 204
        result = held.result(5 * SLOWNESS)
        assert time.monotonic() - begun < 4 * SLOWNESS
    assert result["exit_code"] not in (0,) and result["stdout"] == "begun\n" and not result["timed_out"]
    assert processes(sandbox, "888") == []
    assert sandbox.stop_run(run_id).status_code == 204, "nor one that has ended"


@pytest.mark.san
def test_a_client_that_hangs_up_ends_its_command(sandbox: Session) -> None:
    hang_up_once_begun(sandbox, "/run", run_id=new_run_id(), argv=["sh", "-c", "trap '' TERM HUP; touch begun; sleep 999; touch late"])
    wait_until(lambda: processes(sandbox, "999") == [], 3, "its processes are gone")
    assert unstarted(sandbox, "late")
    # It counts as over: nothing is in flight, and the session can be closed.
    wait_until(lambda: [e for e in sandbox.events()["events"] if e["op"] == "run" and "sleep 999" in e["target"]], 5, "it is recorded")


def test_a_client_that_hangs_up_in_a_flood_ends_its_command(sandbox: Session) -> None:
    hang_up_once_begun(sandbox, "/run", run_id=new_run_id(), argv=["sh", "-c", "touch begun; head -c 9000000 /dev/zero; sleep 999; :"])
    wait_until(lambda: processes(sandbox, "999") == [], 3, "its processes are gone")
    assert sandbox.stdout("echo ok") == "ok\n"


# ---- many


def test_sixty_four_at_once_over_four_sessions(session: Callable[..., Session]) -> None:
    sessions = [session() for _ in range(4)]
    start = threading.Barrier(64)

    def one(number: int) -> tuple[int, int, str]:
        start.wait()
        result = sessions[number % 4].sh(f"seq 1 5000; echo {number} >&2; exit {number}")
        return result["exit_code"], len(result["stdout"]), result["stderr"]

    for _ in range(3):
        with ThreadPoolExecutor(64) as pool:
            assert list(pool.map(one, range(64))) == [(n, 23893, f"{n}\n") for n in range(64)]


def test_commands_beyond_the_ceiling_wait_their_turn(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(max_running_commands=2, execute_timeout=30)
    s = broker.open("queue")
    with ThreadPoolExecutor(8) as pool:
        begun = time.monotonic()
        assert [r["exit_code"] for r in pool.map(lambda n: s.sh("sleep 0.3; exit 5"), range(6))] == [5] * 6
        assert time.monotonic() - begun >= 0.85
        held_ids = [new_run_id() for _ in range(2)]
        held = [pool.submit(s.run, ["sleep", "30"], run_id=i) for i in held_ids]
        wait_until(lambda: broker.containers() and len(processes_of_host(broker, s)) >= 2, what="both places are taken")
        # The deadline counts from the request, queueing included.
        begun = time.monotonic()
        assert s.run(["true"], timeout_seconds=0.5)["timed_out"]
        assert time.monotonic() - begun < 2 * SLOWNESS
        # Stopping works while every place is taken, and those that wait then run.
        waiting = pool.submit(s.run, ["echo", "next"])
        for run_id in held_ids:
            assert s.stop_run(run_id).status_code == 204
        assert waiting.result(10 * SLOWNESS)["stdout"] == "next\n"
        for run in held:
            assert run.result(10 * SLOWNESS)["exit_code"] != 0


def processes_of_host(broker: Broker, session: Session) -> list[str]:
    """Sleeps inside, seen without taking a command's place: by the engine's own list of processes."""
    top = broker.engine.call("GET", f"/containers/{session.container()}/top").json()["Processes"]
    return [p[-1] for p in top if p[-1].startswith("sleep 30")]
