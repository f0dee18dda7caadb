"""The classic wire's /exec beside the recorded tables: long commands, and what they must not notice."""

from __future__ import annotations

from typing import Any, Iterator

import pytest

from berth import Broker, Session, at_pace, new_id


@pytest.fixture(scope="module")
def shared(module_broker: Broker) -> Iterator[Session]:
    """One session for all tests that leave it as it was."""
    s = module_broker.open(new_id("shared"))
    yield s
    module_broker.purge(s.id)


def _exec(sandbox: Session, command: str, **body: Any) -> dict[str, Any]:
    answer = sandbox.request("POST", "/exec", json={"command": command} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def _long(command: str, size: int = 300_000) -> str:
    """The same command, longer than the kernel takes one argument."""
    return f"{command}\n: '{'x' * size}'" if size else command


@pytest.mark.parametrize("size", [0, 100_000, 122_870, 131_072, 300_000, 1_900_000])
def test_a_command_of_any_length_runs_as_a_short_one_does(shared: Session, size: int) -> None:
    script = 'x="a  b"; printf "[%s]" "$0" "$#" "$x" $x; echo; set | grep -c "^berth_c=" ; false'
    result = _exec(shared, f": '{'é' * (size // 2)}'\n{script}\nexit 7")
    assert result == {"output": "[sh][0][a  b][a][b]\n0\n", "exit_code": 7, "truncated": False}


def test_a_long_commands_status_and_quotes_are_its_own(shared: Session) -> None:
    assert _exec(shared, _long("echo \"it's\"; trap 'echo bye' EXIT; exit 3"))["exit_code"] == 3
    assert _exec(shared, _long("trap 'echo bye' EXIT; echo $(echo `echo in`)"))["output"] == "in\nbye\n"
    assert _exec(shared, _long("if then"))["exit_code"] == 2


def test_a_command_that_is_too_long_says_so(shared: Session) -> None:
    result = _exec(shared, f": {'x' * 3_000_000}")
    assert result["exit_code"] == 1 and "too long" in result["output"]


def test_a_nul_in_a_command_says_so_and_runs_nothing(sandbox: Session) -> None:
    result = _exec(sandbox, "touch ran\0")
    assert result["exit_code"] == 1 and "NUL" in result["output"]
    assert not (sandbox.workspace / "ran").exists()
    assert [(e["op"], e["target"], e["detail"]) for e in sandbox.events()["events"]] == [("exec", "touch ran\ufffd", "exit 1")]


def test_streams_come_in_the_order_of_writing(shared: Session) -> None:
    result = _exec(shared, "for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done")
    assert result["output"] == "".join(f"o{i}\ne{i}\n" for i in range(1, 6))


def test_the_first_hundred_thousand_bytes_are_kept(shared: Session) -> None:
    exact = _exec(shared, "head -c 100000 /dev/zero | tr '\\0' a")
    assert (len(exact["output"]), exact["truncated"], exact["exit_code"]) == (100_000, False, 0)
    more = _exec(shared, "head -c 99999 /dev/zero | tr '\\0' a; printf 'é!'; exit 3")
    assert (more["output"][-1], more["truncated"], more["exit_code"]) == ("\ufffd", True, 3)


def test_a_command_ends_although_nobody_takes_what_it_writes(sandbox: Session) -> None:
    assert _exec(sandbox, "head -c 50000000 /dev/zero; echo done > done; exit 4")["exit_code"] == 4
    assert (sandbox.workspace / "done").read_text() == "done\n"


def test_a_timeout_is_exit_124_with_what_was_said(shared: Session) -> None:
    assert _exec(shared, "echo early; sleep 60", timeout_seconds=at_pace(1)) == {"output": "early\n", "exit_code": 124, "truncated": False}


@pytest.mark.parametrize("timeout", [0, -1, None, 5.0, "5", " 5 ", "+5", True, 10**30])
def test_timeouts_are_taken_laxly(shared: Session, timeout: Any) -> None:
    assert _exec(shared, "echo x", timeout_seconds=timeout)["output"] == "x\n"


@pytest.mark.parametrize("body", [{}, {"command": None}, {"command": ["ls"]}, {"command": "x", "timeout_seconds": 1.5}, {"command": "x", "timeout_seconds": "soon"}])
def test_fields_that_do_not_fit_are_refused_and_leave_no_event(shared: Session, body: dict[str, Any]) -> None:
    before = shared.events()["latest_seq"]
    answer = shared.request("POST", "/exec", json=body)
    assert answer.status_code == 422
    assert shared.events()["latest_seq"] == before
