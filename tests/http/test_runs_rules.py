"""What is kept of runs and told of their ends: memory that ran out, a day that went by, sessions that close, output that nobody reads (issue 6)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Callable

import httpx
import pytest

from berth import SLOWNESS, Broker, Session, wait_until
from runs import Run, bytes_of, hang_up_once_begun, sh, start

DAY_MS = 24 * 3600 * 1000
MIB = 1 << 20


def test_one_that_took_too_much_memory_says_so_and_goes_on_saying_it(make_broker: Callable[..., Broker]) -> None:
    """I4: evidence, not a guess: one that was killed by somebody says nothing of memory."""
    broker = make_broker(mem_limit="64m")
    s = broker.open("hog")
    hog = start(s, ["python3", "-c", "a = bytearray(10**9)"])
    view = hog.end()
    assert (view["signal"], view["oom"], view["lost"]) == (9, True, False)
    killed = sh(s, "kill -9 $$")
    assert (killed.end()["signal"], killed.end()["oom"]) == (9, False)
    assert s.stdout("echo ok") == "ok\n"
    broker.crash()
    assert hog.view()["oom"] and not killed.view()["oom"]
    assert "exit 137" in [event["detail"] for event in s.events()["events"]]


def test_ended_runs_are_kept_for_a_day(make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0 0")
    broker = make_broker(start=False, cleanup_interval=1)
    broker.env["BERTH_TEST_CLOCK"] = str(clock)
    s = broker.start().open("s")
    for name in ("asked", "forgotten"):
        start(s, ["true"], run_id=name).end()
    living = start(s, ["sleep", "600"], run_id="living")
    clock.write_text(f"{DAY_MS - 60_000} {DAY_MS - 60_000}")
    late = start(s, ["true"], run_id="late")
    late.end()
    assert s.request("GET", "/runs/asked").status_code == 200
    clock.write_text(f"{DAY_MS + 60_000} {DAY_MS + 60_000}")
    wait_until(lambda: s.request("GET", "/runs/forgotten").status_code == 404, 10, "it is a day old")
    assert [run["run_id"] for run in s.request("GET", "/runs").json()["runs"]] == ["late", "living"]
    living.stop()


@pytest.mark.parametrize("purge, cause", [(False, "session closed"), (True, "session purged")])
def test_a_session_that_ends_is_the_cause_of_its_runs_ends(broker: Broker, session: Callable[..., Session], purge: bool, cause: str) -> None:
    s = session()
    latest = broker.client.get("/events", params={"follow": "false"}).json()["latest_seq"]
    run = sh(s, "echo up; sleep 600")
    got: list[dict[str, Any]] = []
    up = threading.Event()

    def read() -> None:
        for record in run.records():
            got.append(record)
            up.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert up.wait(10 * SLOWNESS)
    assert s.close(purge=purge).status_code == 204
    reader.join(10 * SLOWNESS)
    assert got[-1]["type"] == "exit" and got[-1]["lost"] and got[-1]["cause"] == cause, got
    told = broker.client.get("/events", params={"follow": "false", "after": latest, "session": s.id}).json()["events"]
    assert [(event["op"], event["detail"]) for event in told if event["op"].startswith("run_")] == [
        ("run_started", f"{run.id}: echo up; sleep 600"),
        ("run_ended", f"{run.id}: {cause}"),
    ]


def test_those_that_nobody_reads_share_what_a_sandbox_keeps_and_stall_nobody(sandbox: Session) -> None:
    """O4 as well: what is left of a character that was cut is said in bytes, and every byte is counted."""
    runs = [start(sandbox, ["python3", "-c", f"import sys; sys.stdout.write('é' * {MIB}); sys.exit({i})"]) for i in range(12)]
    for i, run in enumerate(runs):
        view = run.end(60)
        assert (view["exit_code"], view["stdout_bytes"], view["output_limited"]) == (i, 2 * MIB, True)
    kept = 0
    for run in runs:
        got = dropped = 0
        for record in run.records():
            if record["type"] == "dropped":
                dropped += record["bytes"]
            elif record["type"] == "stdout":
                got += len(bytes_of(record))
                assert "base64" in record or set(record["text"]) == {"é"}
        assert got + dropped == 2 * MIB
        kept += got
    assert 0 < kept <= 8 * MIB
    assert start(sandbox, ["echo", "room"]).output()[0] == b"room\n"


def test_bytes_are_those_of_one_stream_and_break_off_where_some_are_missing(sandbox: Session) -> None:
    headers = {"Accept": "application/octet-stream"}

    def raw(run: Run, **params: Any) -> bytes:
        return sandbox.request("GET", run.path("/output"), params=params, headers=headers).content

    run = sh(sandbox, r"printf 'o\377\000ut'; printf 'e\376rr' >&2")
    run.end()
    assert raw(run) == b"o\xff\0ut" and raw(run, stream="stderr") == b"e\xferr"
    assert raw(run, after=3) == b"ut" and raw(run, stream="stderr", after=4) == b""
    flood = sh(sandbox, "head -c 5000000 /dev/zero; echo end")
    assert flood.end(60)["output_limited"]
    with pytest.raises(httpx.RemoteProtocolError):
        raw(flood)


def test_a_client_that_hangs_up_ends_its_exec(sandbox: Session) -> None:
    hang_up_once_begun(sandbox, "/exec", command="trap '' TERM HUP; touch begun; sleep 997; touch late")
    wait_until(lambda: "997" not in sandbox.stdout("cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), 5, "it is gone")
    assert not (sandbox.workspace / "late").exists()
