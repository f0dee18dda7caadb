"""The images of sandbox-images/, made without a registry: what they promise is there, and works inside."""

from __future__ import annotations

import subprocess
from typing import Callable, Iterator

import pytest

from berth import ROOT, Broker, Engine

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

TOOLS = "set -e; for t in python3 git rg fd jq less ps curl patch file tree zip unzip xz pip3 find grep sed awk sort tar; do command -v $t >/dev/null || echo no $t; done"
WORK = "git init -q r && cd r && echo needle >f && git add f && git commit -qm one && git log --format=%an && rg -l needle && python3 -m venv v && v/bin/python -c 'print(1)'"
DATA = """
import numpy, pandas, polars, matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plot
frame = pandas.DataFrame({"a": numpy.arange(3)})
plot.plot(frame["a"]); plot.savefig("/workspace/plot.png")
print(frame["a"].sum(), polars.DataFrame({"a": [1, 2]})["a"].sum())
"""


@pytest.fixture
def image(request: pytest.FixtureRequest, engine: Engine) -> Iterator[str]:
    name = f"berth-test-{request.param}:latest"
    done = subprocess.run(
        [ROOT / "sandbox-images/build-from-debian", request.param, "--engine", engine.socket, "--name", name], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    yield name
    engine.http.delete(f"/images/{name}?force=1")


@pytest.mark.parametrize("image", ["python"], indirect=True)
def test_python_has_what_work_on_code_needs(make_broker: Callable[..., Broker], image: str) -> None:
    session = make_broker(runtimes=f"python={image}").open()
    assert session.stdout(TOOLS) == ""
    assert session.stdout(WORK) == "Agent\nf\n1\n"


@pytest.mark.parametrize("image", ["data"], indirect=True)
def test_data_has_what_work_on_numbers_needs(make_broker: Callable[..., Broker], image: str) -> None:
    session = make_broker(runtimes=f"python={image}").open()
    assert session.stdout(TOOLS) == ""
    result = session.python(DATA, timeout_seconds=120)
    assert (result["stdout"], result["exit_code"]) == ("3 3\n", 0), result
    assert session.read("/workspace/plot.png").startswith(b"\x89PNG")
