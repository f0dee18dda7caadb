"""schemathesis against a live broker: requests made of /openapi.json, answers held to it, by somebody who has read nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest

from berth import SLOWNESS, TOKEN, Broker, new_id

HERE = Path(__file__).parent


@pytest.mark.timeout(900)
@pytest.mark.parametrize("phases", ["coverage", pytest.param("coverage,fuzzing", marks=pytest.mark.full)])
def test_schemathesis_finds_nothing(make_broker: Callable[..., Broker], tmp_path: Path, phases: str) -> None:
    """Coverage: the edges of each part of each description, and just beyond them; about 2,300 requests. Fuzzing: 50 of an operation more, made up."""
    broker = make_broker(max_sessions=6, max_open_sessions=6, execute_timeout=1, ui_enabled=True)
    opened, stored = broker.open(new_id("open")), broker.open(new_id("stored"))
    for session in (opened, stored):
        session.write("/workspace/a.txt", b"one\ntwo\n")
    stored.close()
    environment = os.environ | {
        "BERTH_TEST_URL": broker.url,
        "BERTH_TEST_TOKEN": TOKEN,
        "BERTH_TEST_OPEN": opened.id,
        "BERTH_TEST_STORED": stored.id,
        "PYTHONPATH": str(HERE),
        "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
        "NO_PROXY": "127.0.0.1",
    }
    command = [Path(sys.executable).parent / "schemathesis", "--config-file", HERE / "schemathesis.toml", "--no-color", "run", f"{broker.url}/openapi.json"]
    options = ["--header", f"X-Sandbox-Token: {TOKEN}", "--phases", phases, "--max-examples", "50", "--workers", "1"]
    done = subprocess.run([*command, *options], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=290 * SLOWNESS)
    said = done.stdout[done.stdout.find("=== FAILURES") :]
    assert done.returncode == 0, f"{said[:20000]}\n{done.stderr[-2000:]}"
    tested = re.search(r"Selected: (\d+)/(\d+)\s+Tested: (\d+)", done.stdout)
    operations = sum(len(item) for item in broker.http.get("/openapi.json").json()["paths"].values())
    assert tested and {int(count) for count in tested.groups()} == {operations - 1}  # not the document itself, which was read first
    broker.assert_healthy()
