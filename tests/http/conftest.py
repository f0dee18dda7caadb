"""Fixtures of the HTTP tests. What they are made of is in berth.py."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, Callable, Iterator

import httpx
import pytest

from berth import BERTHD, IMAGE, Broker, Engine, OwnEngine, Session, new_id


def pytest_configure() -> None:
    """contrib/check ends us with TERM when it is interrupted: brokers must be ended then as after any other test. A shell that started it
    in the background has INT ignored, as would everything that is tested be."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The container engine from outside."""
    engine = Engine()
    try:
        engine.call("GET", f"/images/{IMAGE}/json")
    except (httpx.HTTPError, AssertionError) as error:
        pytest.exit(f"no engine with {IMAGE} at {engine.address}: {error}\nStart one: contrib/check, or see CONTRIBUTING.md", 3)
    if not Path(BERTHD).exists():
        pytest.exit(f"no {BERTHD}: build first, or set BERTHD", 3)
    yield engine
    engine.close()


class _Brokers:
    """All brokers of a test or module, for the report of a failure and for the end."""

    def __init__(self, engine: Engine, home: Path) -> None:
        self.engine = engine
        self.home = home
        self.all: list[Broker] = []

    def make(self, *, start: bool = True, engine: Engine | None = None, **settings: Any) -> Broker:
        broker = Broker(self.home / f"broker{len(self.all)}", engine or self.engine, **settings)
        self.all.append(broker)
        return broker.start() if start else broker

    def dispose(self) -> None:
        errors = []
        for broker in self.all:
            try:
                broker.dispose()
            except Exception as error:  # the others must be ended as well
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise AssertionError("\n\n".join(str(error) for error in errors))


@pytest.fixture(scope="module")
def _module_brokers(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Brokers]:
    brokers = _Brokers(engine, tmp_path_factory.mktemp("module"))
    yield brokers
    brokers.dispose()


@pytest.fixture
def make_engine() -> Iterator[Callable[..., OwnEngine]]:
    """make_engine(live_restore=False): a private engine to kill and restart; about five seconds. Give it to make_broker(engine=…)."""
    made: list[OwnEngine] = []

    def make(live_restore: bool = False) -> OwnEngine:
        made.append(OwnEngine(live_restore))
        return made[-1]

    yield make
    for engine in made:
        engine.remove_engine()


@pytest.fixture
def _test_brokers(engine: Engine, make_engine: Callable[..., OwnEngine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Brokers]:
    brokers = _Brokers(engine, tmp_path_factory.mktemp("test"))
    yield brokers
    brokers.dispose()


@pytest.fixture(scope="module")
def module_broker(_module_brokers: _Brokers) -> Broker:
    return _module_brokers.make()


@pytest.fixture
def broker(module_broker: Broker) -> Iterator[Broker]:
    """The default broker (persist_containers, runtime python), shared by the tests of a module: leave it running, with its settings as they were."""
    if module_broker.process is None:
        module_broker.start()
    yield module_broker
    module_broker.assert_healthy()


@pytest.fixture
def make_broker(_test_brokers: _Brokers) -> Callable[..., Broker]:
    """make_broker(max_sessions=2, workspace_root=None, start=False …): a broker of this test's own, ended after it."""
    return _test_brokers.make


@pytest.fixture
def client(broker: Broker) -> httpx.Client:
    """The operator's client of the shared broker: carries the service token."""
    return broker.client


@pytest.fixture
def session(broker: Broker) -> Iterator[Callable[..., Session]]:
    """session(id=None, **body): opens a session on the shared broker, under a name of its own, and purges it after the test."""
    opened: list[str] = []

    def open_session(session_id: str | None = None, **body: Any) -> Session:
        session_id = session_id or new_id()
        opened.append(session_id)
        return broker.open(session_id, **body)

    yield open_session
    if broker.process is not None and broker.process.poll() is None:
        for session_id in opened:
            answer = broker.purge(session_id)
            assert answer.status_code in (204, 404), f"purge {session_id}: {answer.status_code} {answer.text}"


@pytest.fixture
def sandbox(session: Callable[..., Session]) -> Session:
    """One open session on the shared broker."""
    return session()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show the end of each broker's log beneath a failure."""
    outcome = yield
    report = outcome.get_result()
    if not report.failed:
        return
    for name in ("_test_brokers", "_module_brokers"):
        brokers = item.funcargs.get(name) if hasattr(item, "funcargs") else None
        for broker in brokers.all if brokers else []:
            if broker.log_path.exists():
                report.sections.append((f"log of {broker.home.name} ({broker.url})", broker.log_tail()))
