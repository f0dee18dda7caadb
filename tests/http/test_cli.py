"""`berth`, the operator's command: sessions, files, events, what it prints and how it ends. Commands and terminals: test_cli_run.py, test_cli_shell.py."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from berth import Broker, Session, new_id, wait_until
from cli import BERTH, Cli, FakeBroker, Terminal, environment


@pytest.fixture
def cli(broker: Broker) -> Cli:
    return Cli(broker.url)


@pytest.fixture
def fake_broker() -> Iterator[FakeBroker]:
    fake = FakeBroker()
    yield fake
    fake.close()


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


# ---- sessions


@pytest.mark.san
def test_a_session_from_open_to_purge(cli: Cli, broker: Broker) -> None:
    name = new_id()
    assert cli.out("open", name, "--tenant", "acme") == name + "\n"
    assert cli.out("open", name) == name + "\n"  # is taken as it is
    assert cli.run("open", "--new", name, status=7).stderr.startswith(b"berth: Session exists")
    assert [name, "running", "python", "acme"] in [row[:4] for row in rows(cli.out("sessions", "--tenant", "acme"))]
    assert cli.out("sessions", "--prefix", name, "--quiet") == name + "\n"
    assert json.loads(cli.out("sessions", "-jp", name))["tenant"] == "acme"
    used = rows(cli.out("sessions", "--usage", "--prefix", name))
    assert used[0][6:] == ["MEMORY", "CPU%", "PROCESSES"] and used[1][0] == name
    assert cli.out("hibernate", name) == f"{name}: hibernated\n"
    assert name in cli.out("sessions", "--state", "hibernated")
    assert cli.out("wake", name) == f"{name}: running\n"
    assert cli.out("close", name) == ""
    assert cli.run("close", name, status=5).stderr.startswith(f"berth: {name}: ".encode())
    assert cli.run("purge", name, status=2).stderr.endswith(b"say it with --yes\n")
    assert cli.out("purge", "--yes", name) == ""
    assert name not in cli.out("workspaces")


def test_one_of_many_that_fails_does_not_keep_the_others(cli: Cli, session: Callable[..., Session]) -> None:
    first, second, missing = session().id, session().id, new_id()
    done = cli.run("close", first, missing, second, status=1)
    assert done.stderr.count(b"\n") == 1 and missing.encode() in done.stderr
    assert not {first, second} & {row[0] for row in rows(cli.out("sessions"))}


def test_a_made_up_name_and_a_token(cli: Cli, broker: Broker) -> None:
    answer = json.loads(cli.out("open", "--json"))
    try:
        name = answer["session"]["session_id"]
        done = cli.run("run", name, "--", "echo", "mine", env={"BERTH_TOKEN": answer["token"]}, status=0)
        assert done.stdout == b"mine\n"
        assert cli.run("sessions", env={"BERTH_TOKEN": answer["token"]}).returncode == 4
    finally:
        broker.purge(name)


def test_workspaces_are_listed_kept_and_deleted(cli: Cli, session: Callable[..., Session]) -> None:
    one = session()
    one.write("/workspace/a", b"kept")
    one.close()
    wait_until(lambda: one.id in cli.out("workspaces", "--prefix", one.id), what="the workspace is in the list")
    assert cli.out("workspaces", "pin", one.id) == ""
    assert rows(cli.out("workspaces", "list", "--prefix", one.id))[1][-1] == "pinned"
    assert cli.out("workspaces", "unpin", one.id) == ""
    assert json.loads(cli.out("workspaces", "--json", "--prefix", one.id))["pinned"] is False
    assert cli.run("workspaces", "delete", one.id).returncode == 2
    assert cli.out("workspaces", "delete", "--yes", one.id) == ""
    assert cli.out("workspaces", "--quiet", "--prefix", one.id) == ""
    assert cli.run("workspaces", "burn", one.id).returncode == 2


# ---- files


def tree(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        found[name] = ("link", os.readlink(path)) if path.is_symlink() else ("dir",) if path.is_dir() else (path.read_bytes(), path.stat().st_mode & 0o777)
    return found


@pytest.mark.san
def test_a_directory_goes_in_and_comes_back(cli: Cli, sandbox: Session, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "deep" / "er").mkdir(parents=True)
    (there / "large").write_bytes(os.urandom(3_000_000))
    (there / "run.sh").write_bytes(b"#!/bin/sh\n")
    (there / "run.sh").chmod(0o755)
    (there / "deep" / "empty").touch()
    (there / "deep" / "er" / "n\u00e4me with blanks").write_bytes(b"x")
    (there / "link").symlink_to("deep/empty")
    assert cli.out("cp", there, f"{sandbox.id}:copy") == ""
    assert sandbox.stdout("./copy/run.sh; readlink copy/link; stat -c %s copy/large") == "deep/empty\n3000000\n"
    assert cli.out("cp", f"{sandbox.id}:copy", tmp_path / "back") == ""
    assert tree(tmp_path / "back") == tree(there)
    assert cli.out("cp", f"{sandbox.id}:copy", tmp_path) == ""  # into a directory that is here
    assert tree(tmp_path / "copy") == tree(there)
    sandbox.close()
    assert cli.out("cp", f"{sandbox.id}:/workspace/copy/deep", tmp_path / "closed") == ""
    assert tree(tmp_path / "closed") == tree(there / "deep")


def test_one_file_keeps_its_mode_both_ways(cli: Cli, sandbox: Session, tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(b"#!/bin/sh\necho ran\n")
    for mode in (0o755, 0o600, 0o444):
        (tmp_path / "tool").chmod(mode)
        assert cli.out("cp", tmp_path / "tool", f"{sandbox.id}:in/tool") == ""
        assert sandbox.stdout("stat -c %a in/tool") == f"{mode:o}\n"
        assert cli.out("cp", f"{sandbox.id}:in/tool", tmp_path / "back") == ""
        assert (tmp_path / "back").stat().st_mode & 0o7777 == mode
    sandbox.stdout("chmod 4755 in/tool")
    assert cli.out("cp", f"{sandbox.id}:in/tool", tmp_path / "back") == ""
    assert (tmp_path / "back").stat().st_mode & 0o7777 == 0o755, "a set-id bit of a sandbox stays there"


def test_files_go_through_pipes(cli: Cli, sandbox: Session, tmp_path: Path) -> None:
    data = os.urandom(300_000)
    cli.run("cp", "-", f"{sandbox.id}:in/piped", data=data, status=0)
    assert sandbox.read("/workspace/in/piped") == data
    assert cli.run("cp", f"{sandbox.id}:in/piped", "-", status=0).stdout == data
    (tmp_path / "report.csv").write_bytes(b"a,b")
    assert cli.out("cp", tmp_path / "report.csv", f"{sandbox.id}:in/") == ""
    assert cli.out("cp", tmp_path / "report.csv", f"{sandbox.id}:") == ""
    assert cli.out("cp", f"{sandbox.id}:in/report.csv", tmp_path / "renamed") == ""
    assert (tmp_path / "renamed").read_bytes() == b"a,b" and sandbox.read("/workspace/report.csv") == b"a,b"
    archive = cli.run("cp", f"{sandbox.id}:in", "-", status=0).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert {name.removeprefix("./") for name in tar.getnames()} >= {"piped", "report.csv"}
    cli.run("cp", "--tar", "-", f"{sandbox.id}:unpacked", data=archive, status=0)
    assert sandbox.read("/workspace/unpacked/piped") == data


def test_what_cannot_be_copied_is_said(cli: Cli, sandbox: Session, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "good").write_bytes(b"g")
    os.mkfifo(tmp_path / "d" / "pipe")
    assert b"pipe" in cli.run("cp", tmp_path / "d", f"{sandbox.id}:d", status=1).stderr
    assert sandbox.read("/workspace/d/good") == b"g"
    sandbox.stdout("mkfifo d/fifo")
    assert b"d/fifo" in cli.run("cp", f"{sandbox.id}:d", tmp_path / "back", status=1).stderr.replace(b"names=fifo", b"d/fifo")
    assert (tmp_path / "back" / "good").read_bytes() == b"g"
    assert cli.run("cp", f"{sandbox.id}:absent", tmp_path / "x", status=5).stderr.startswith(f"berth: {sandbox.id}:absent: ".encode())
    assert not (tmp_path / "x").exists()
    assert cli.run("cp", "a", "b").returncode == 2
    assert cli.run("cp", "a:b", "c:d").returncode == 2
    assert cli.run("cp", "-", f"{sandbox.id}:", data=b"").returncode == 2
    assert cli.run("cp", tmp_path / "absent", f"{sandbox.id}:x").returncode == 1
    assert cli.run("cp", f"{sandbox.id}:../../etc/passwd", "-").returncode == 1


def hostile_tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:

        def add(name: str, data: bytes = b"evil", **more: Any) -> None:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mode = 0o4777
            for key, value in more.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(data))

        add("good")
        add("../above")
        add("/tmp/berth-test-absolute")
        add("way", b"", type=tarfile.SYMTYPE, linkname="..")
        add("way/through")
        add("hard", b"", type=tarfile.LNKTYPE, linkname="../secret")
        add("device", b"", type=tarfile.CHRTYPE)
        add("\033]0;owned\007name\n", b"", type=tarfile.FIFOTYPE)
    return out.getvalue()


def test_an_archive_from_a_sandbox_cannot_leave_its_target(fake_broker: FakeBroker, tmp_path: Path) -> None:
    fake_broker.answers["/sessions/s/content"] = (400, {}, b'{"detail": "A directory: see archive"}')
    fake_broker.answers["/sessions/s/archive"] = (200, {}, hostile_tar())
    (tmp_path / "secret").write_bytes(b"secret")
    done = Cli(fake_broker.url).run("cp", "s:d", tmp_path / "target", status=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["secret", "target"]
    assert sorted(p.name for p in (tmp_path / "target").iterdir()) == ["good", "way"]
    assert (tmp_path / "target" / "good").stat().st_mode & 0o7000 == 0
    assert not Path("/tmp/berth-test-absolute").exists()
    assert done.stderr.count(b"left out") == 6 and b"\033" not in done.stderr and b"\\x1b]0;owned\\x07name\\x0a" in done.stderr


def test_half_an_answer_leaves_no_file(fake_broker: FakeBroker, tmp_path: Path) -> None:
    fake_broker.answers["/sessions/s/content"] = (200, {"Content-Encoding": "identity", "Transfer-Encoding": "chunked"}, b"5\r\nhello\r\nzz")
    assert Cli(fake_broker.url).run("cp", "s:f", tmp_path / "f", status=3).stderr.startswith(b"berth: ")
    assert list(tmp_path.iterdir()) == []


# ---- events


def test_events_that_were(cli: Cli, session: Callable[..., Session]) -> None:
    one = session(tenant="events")
    lines = rows(cli.out("events", "--session", one.id))
    assert lines[-1][2:6] == ["opened", one.id, "tenant", "events"]
    told = [json.loads(line) for line in cli.out("events", "--json", "--last", "5").splitlines()]
    assert len(told) <= 5 and told[-1]["seq"] > 0
    after = cli.out("events", "--json", "--session", one.id, "--after", str(told[-1]["seq"]))
    assert after == ""


def test_events_that_come_over_a_restart(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    now = broker.client.get("/events", params={"follow": "false"}).json()["latest_seq"]
    follower = Cli(broker.url).start("events", "--follow", "--json", "--op", "opened", "--after", str(now))
    try:
        os.set_blocking(follower.stdout.fileno(), False)  # type: ignore[union-attr]
        seen = b""

        def sees(*names: str) -> bool:
            nonlocal seen
            seen += follower.stdout.read() or b""  # type: ignore[union-attr]
            return [json.loads(line)["session"] for line in seen.splitlines() if line.endswith(b"}")] == list(names)

        broker.open("before")
        wait_until(lambda: sees("before"), what="the first is told")
        broker.terminate()
        broker.start()
        broker.open("after")
        wait_until(lambda: sees("before", "after"), 20, what="what happened while it was cut off is told, once")
    finally:
        follower.send_signal(signal.SIGINT)
        assert follower.wait(60) == -signal.SIGINT


# ---- what goes wrong


def test_it_says_what_is_wrong_and_ends_accordingly(cli: Cli, fake_broker: FakeBroker, tmp_path: Path) -> None:
    assert cli.run(status=2).stderr.startswith(b"Usage: berth VERB")
    assert cli.run("statsu", status=2).stderr == b'berth: there is no verb "statsu"; berth --help lists them\n'
    assert cli.run("sessions", "--token", "x", status=2).stderr.startswith(b"berth: there is no option --token")
    assert cli.run("close", "../x", status=2).stderr.startswith(b'berth: "../x" cannot be the id')
    assert cli.run("--url", "http://127.0.0.1:1", "sessions", status=3).stderr.startswith(b"berth: no broker answers at http://127.0.0.1:1")
    assert cli.run("--url", "ftp://x", "sessions", status=2).stderr.startswith(b'berth: "ftp://x" is no address')
    assert b"does not take this token" in cli.run("sessions", env={"BERTH_TOKEN": "wrong"}, status=4).stderr
    assert b"wants a token" in cli.run("sessions", env={"BERTH_TOKEN": ""}, status=4).stderr
    assert cli.run("open", "--runtime", "nope", status=1).stderr.startswith(b"berth: Unknown runtime")
    assert cli.run("wake", new_id(), status=5).stderr.count(b"\n") == 1
    fake_broker.answers["/sessions"] = (302, {"Location": cli.url}, b"")
    assert Cli(fake_broker.url).run("sessions", status=1).stderr.endswith(b"answered 302\n")  # the token goes nowhere else
    fake_broker.answers["/sessions"] = (200, {}, b"<html>")
    assert b"something else than JSON" in Cli(fake_broker.url).run("sessions", status=1).stderr
    fake_broker.answers["/sessions"] = (200, {}, b'{"sessions": [17, {"session_id": 5}, null, {"session_id": "x", "usage": []}]}')
    assert [row[0] for row in rows(Cli(fake_broker.url).out("sessions"))] == ["SESSION", "x"]


def test_the_token_comes_from_a_file(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("service-token-of-the-tests\n")
    assert cli.run("--token-file", file, "sessions", env={"BERTH_TOKEN": "wrong"}).returncode == 0
    assert cli.run("sessions", env={"BERTH_TOKEN": "", "BERTH_TOKEN_FILE": str(file)}).returncode == 0
    assert cli.run("sessions", env={"BERTH_TOKEN": "", "SANDBOXD_TOKEN": "service-token-of-the-tests"}).returncode == 0
    file.write_text("two\nlines")
    assert cli.run("sessions", "--token-file", file, status=2).stderr.startswith(f"berth: {file} holds something that is no token".encode())
    assert cli.run("sessions", "--token-file", tmp_path / "none", status=2).stderr.startswith(b"berth: the token's file ")


def test_a_terminal_gets_no_commands_from_a_sandbox(fake_broker: FakeBroker) -> None:
    name = "\033]0;owned\007\u202etxt\u009b31m"
    fake_broker.answers["/sessions"] = (200, {}, json.dumps({"sessions": [{"session_id": "s", "runtime": name, "state": "running"}]}).encode())
    assert json.loads(Cli(fake_broker.url).out("sessions", "--json"))["runtime"] == name  # a program gets it as it is
    for arguments in (("sessions",), ("sessions", "--json")):
        terminal = Terminal(fake_broker.url, *arguments)
        try:
            assert terminal.wait_end() == 0
            assert b"owned" in terminal.seen and b"\033" not in terminal.seen and "\u202e".encode() not in terminal.seen and b"\xc2\x9b" not in terminal.seen
        finally:
            terminal.close()


def test_a_full_disk_behind_its_output_is_no_success(cli: Cli, sandbox: Session) -> None:
    with open("/dev/full", "wb") as full:
        done = cli.start("events", "--last", "1000", stdout=full)
        assert done.wait(20) == 1 and b"standard output" in done.stderr.read()  # type: ignore[union-attr]


# ---- tables make pages


@pytest.mark.parametrize("page", ["berth.1", "berthd.8", "berthd.conf.5"])
def test_manual_pages_have_no_faults(page: str) -> None:
    file = Path(BERTH).parent / page
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", file], capture_output=True, env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0 and done.stderr == b"", done.stderr
    assert len(done.stdout) > 1000


def test_bash_completes(cli: Cli, sandbox: Session) -> None:
    script = cli.out("completion", "bash")

    def complete(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in words)
        done = subprocess.run(
            ["bash", "-c", f"{script}\nCOMP_WORDS=({line}) COMP_CWORD={len(words) - 1}; _berth; printf '%s\\n' \"${{COMPREPLY[@]}}\""],
            capture_output=True, text=True, env=environment(cli.url) | {"PATH": f"{Path(BERTH).parent}:{os.environ['PATH']}"}, check=True,
        )
        assert done.stderr == ""
        return done.stdout.split()

    assert complete("berth", "sta") == ["status"]
    assert complete("berth", "--url", "http://x", "ses") == ["sessions"]
    assert {"--tenant", "--usage", "--json"} <= set(complete("berth", "sessions", "--"))
    assert complete("berth", "shell", sandbox.id[:6]) == [sandbox.id]
    assert complete("berth", "workspaces", "p") == ["pin"]


def test_zsh_completes(cli: Cli, sandbox: Session, tmp_path: Path) -> None:
    (tmp_path / "_berth").write_text(cli.out("completion", "zsh"))
    path = {"PATH": f"{Path(BERTH).parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path)}
    shell = Terminal(cli.url, "-f", "-i", program="zsh", cols=200, env=path)
    try:
        shell.wait_for(r"\x1b\[\?2004h")  # its line editor reads; what was typed before is thrown away
        shell.type(f"PS1='re''ady> '; fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -d {tmp_path}/dump\n")
        shell.wait_for("ready> ")
        for typed, added in (("sta", "tus"), ("shell --no-e", "scape"), (f"hibernate {sandbox.id[:6]}", sandbox.id[6:])):
            shell.type(f"berth {typed}\t")
            shell.wait_for(re.escape(added))
            shell.type("\x15")
    finally:
        shell.close()


def test_every_verb_teaches(cli: Cli) -> None:
    verbs = [row[0] for row in rows(cli.out("--help").split("\n\n")[2])]
    assert {"status", "run", "shell", "cp", "smoke"} <= set(verbs)
    for verb in verbs:
        text = cli.out(verb, "--help")
        assert text.startswith(f"Usage: berth {verb}") and "\nExamples:\n  " in text
