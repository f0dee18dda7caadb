"""Both clients of the wire, unmodified, as judges of a berthd of this checkout. Run by contrib/judges.

Each folder client_X is collected in a virtual environment of its own that holds release X of pydantic-ai-backend, with the unpacked
source distribution of the same release on PYTHONPATH: `tests.…` in an import is upstream's folder, never ours.
BERTHD, DOCKER_HOST, BERTH_IMAGE: see tests/http/berth.py.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "http")]
os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
# Their asserts must say as much as ours when they fail.
pytest.register_assert_rewrite("berth", "live", "tests.test_remote_sandbox", "tests.test_policy_updates", "tests.test_workspace_sandboxd")

from berth import BERTHD, IMAGE, Broker, Engine  # noqa: E402
from live import LiveHarness, Pool  # noqa: E402


def pytest_configure() -> None:
    """contrib/check ends us with TERM when it is interrupted: brokers must be ended then as after any other test."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine, with the image under every name that upstream's tests ask for."""
    engine = Engine()
    if engine.http.get(f"/images/{IMAGE}/json").status_code != 200 or not Path(BERTHD).exists():
        pytest.exit(f"no {IMAGE} at {engine.address}, or no {BERTHD}: run contrib/judges", 3)
    for name in ("python:3.12-slim", "node:20-slim"):
        if engine.http.get(f"/images/{name}/json").status_code != 200:
            repo, tag = name.split(":")
            engine.call("POST", f"/images/{IMAGE}/tag", params={"repo": repo, "tag": tag})
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def unprivileged_image(engine: Engine) -> str:
    """The same image with `USER 1000`."""
    name = "berth-python-user"
    made = engine.call("POST", "/containers/create", json={"Image": IMAGE, "Cmd": ["true"]}).json()["Id"]
    try:
        engine.call("POST", "/commit", params={"container": made, "repo": name, "tag": "latest", "changes": "USER 1000"})
    finally:
        engine.remove(made)
    return f"{name}:latest"


@pytest.fixture(scope="module")
def module_pool(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    pool = Pool(engine, tmp_path_factory.mktemp("module"))
    yield pool
    pool.dispose()


@pytest.fixture(autouse=True)
def test_pool(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Whatever brokers a test starts, itself or through upstream's Harness, end with it."""
    pool = Pool(engine, tmp_path_factory.mktemp("test"))
    LiveHarness.pool = pool
    yield pool
    LiveHarness.pool = None
    pool.dispose()


@pytest.fixture
def make_broker(test_pool: Pool) -> Callable[..., Broker]:
    return test_pool.make


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show the end of each broker's log beneath a failure."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        funcargs: dict[str, Any] = getattr(item, "funcargs", {})
        for pool in (funcargs.get("test_pool"), funcargs.get("module_pool")):
            for broker in pool.all if pool else []:
                report.sections.append((f"log of {broker.home.name} ({broker.url})", broker.log_tail()))
