"""The configuration file: what is in it counts beneath the environment, what is wrong in it is named by its line, SIGHUP reads it again."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from berth import BERTHD, TOKEN, Broker, wait_until
from fake_engine import FakeEngine

MOVED = ("token", "runtimes", "workspace_root", "persist_containers")


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


def write(file: Path, *lines: str) -> None:
    file.write_text("".join(line + "\n" for line in lines))
    file.chmod(0o600)


def check(file: Path, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [BERTHD, "--check-config", "--config", file], env={"DOCKER_HOST": "unix:///nonexistent.sock"} | environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def test_a_broker_lives_by_its_file(make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    broker = make_broker(start=False)
    file = tmp_path / "berthd.conf"
    settings = {name: broker.settings[name] for name in MOVED}
    write(
        file,
        "# what the broker of the tests is",
        "",
        f"SANDBOXD_TOKEN = '{settings['token']}'",
        f'SANDBOXD_RUNTIMES="{settings["runtimes"]}"',
        f"SANDBOXD_WORKSPACE_ROOT={settings['workspace_root']}",
        "SANDBOXD_PERSIST_CONTAINERS=true",
        "SANDBOXD_MAX_SESSIONS=1",
        "SANDBOXD_PORT=1",
    )
    for name in MOVED:
        broker.settings[name] = None
    broker.config = file
    broker.start()
    broker.settings |= settings
    assert broker.client.get("/policy").json()["max_sessions"] == 1  # the file's
    assert broker.client.get("/policy", headers={"X-Sandbox-Token": "other"}).status_code == 401
    assert broker.open("conf").stdout("echo from the file") == "from the file\n"  # and the port is the environment's


def test_hangup_reads_it_again(fake: FakeEngine, make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    file = tmp_path / "berthd.conf"
    overrides = tmp_path / "policy.json"
    overrides.write_text('{"idle_timeout": 77}')
    write(file, "SANDBOXD_MAX_SESSIONS=3", "SANDBOXD_CPUS=1", "SANDBOXD_MAX_WORKERS=4")
    broker = make_broker(start=False, engine=fake)
    broker.config = file
    broker.start()

    def hang_up(until: Callable[[str], bool]) -> None:
        before = len(broker.log())
        broker.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        wait_until(lambda: until(broker.log()[before:]), what=f"the file is read again:\n{broker.log_tail()}")

    def policy() -> dict[str, Any]:
        return broker.client.get("/policy").json()

    assert policy()["max_sessions"] == 3 and policy()["cpus"] == 1
    assert broker.client.put("/policy", json={"cpus": 0.5}).status_code == 200

    write(file, "SANDBOXD_MAX_SESSIONS=4", "SANDBOXD_CPUS=1", "SANDBOXD_MAX_WORKERS=5", "SANDBOXD_MEM_LIMIT=", f"SANDBOXD_POLICY_OVERRIDES={overrides}")
    hang_up(lambda said: "policy.overrides" in said)
    assert policy()["max_sessions"] == 4 and policy()["mem_limit"] is None and policy()["idle_timeout"] == 77
    assert policy()["cpus"] == 0.5  # the file did not change its mind about those
    assert "event=settings.needs_restart variable=SANDBOXD_MAX_WORKERS" in broker.log()
    assert "variable=SANDBOXD_MAX_SESSIONS" not in broker.log()

    write(file, "SANDBOXD_MAX_SESSIONS=5", "SANDBOXD_MAX_SESION=6")
    hang_up(lambda said: "event=settings.reload" in said and f"{file}:2: SANDBOXD_MAX_SESION" in said)
    write(file, "SANDBOXD_MAX_SESSIONS=5", "SANDBOXD_MAX_OPEN_SESSIONS=4")
    hang_up(lambda said: "event=settings.reload" in said and "SANDBOXD_MAX_OPEN_SESSIONS" in said)
    assert policy()["max_sessions"] == 4  # all or nothing

    write(file, "SANDBOXD_MAX_SESSIONS=", "SANDBOXD_CPUS=2", "SANDBOXD_MAX_WORKERS=4")
    hang_up(lambda said: "event=settings.reload" in said)
    wait_until(lambda: policy()["max_sessions"] is None, what="the ceiling is lifted")
    assert policy()["cpus"] == 2 and policy()["mem_limit"] == "1g"


def test_a_file_is_checked_without_a_start(tmp_path: Path) -> None:
    file = tmp_path / "berthd.conf"
    write(file, f"SANDBOXD_TOKEN={TOKEN}", "SANDBOXD_PORT=1")
    assert check(file) == (0, f"berthd: the configuration is good ({file})\n")
    assert check(file, SANDBOXD_PORT="x") == (2, "berthd: SANDBOXD_PORT: \"x\" is not a whole number\n")
    write(file, f"SANDBOXD_TOKEN={TOKEN}", "SANDBOXD_PORT=x")
    assert check(file) == (2, f"berthd: {file}:2: SANDBOXD_PORT: \"x\" is not a whole number\n")
    file.chmod(0o604)
    status, said = check(file)
    assert status == 2 and f"{file}:1: everybody may read the file" in said and TOKEN not in said
    status, said = check(tmp_path / "none.conf")
    assert status == 2 and "none.conf" in said
