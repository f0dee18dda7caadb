"""The page in a real browser, served by a real broker. Brokers and engines are those of tests/http; the browser is the distribution's Chromium.

  --screenshots DIR   also write pictures of every view to DIR (docs/img is made so)
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

HTTP = Path(__file__).resolve().parents[1] / "http"
sys.path.insert(0, str(HTTP))

from berth import ROOT, SLOWNESS, TOKEN, Broker, Session, new_id  # noqa: E402

_spec = importlib.util.spec_from_file_location("http_conftest", HTTP / "conftest.py")
assert _spec and _spec.loader
_http = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_http)
# Fixtures are found by their name in this module.
engine, make_engine = _http.engine, _http.make_engine
_module_brokers, _test_brokers, make_broker = _http._module_brokers, _http._test_brokers, _http.make_broker
pytest_configure, pytest_runtest_makereport = _http.pytest_configure, _http.pytest_runtest_makereport

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
DEADLINE_MS = 15000 * SLOWNESS

expect.set_options(timeout=DEADLINE_MS)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", metavar="DIR", help="write pictures of every view")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Tab:
    """A page of the broker's in a context of its own, and what it did that it should not have."""

    page: Page
    context: BrowserContext
    broker: Broker
    wrong: list[str] = field(default_factory=list)
    # What the browser itself says on its console about answers that a test provokes.
    expected: list[str] = field(default_factory=list)

    def watch(self) -> None:
        self.page.set_default_timeout(DEADLINE_MS)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("popup", lambda popup: self.wrong.append(f"popup: {popup.url}"))
        self.page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(re.search(pattern, message.text) for pattern in self.expected):
            self.wrong.append(f"console {message.type}: {message.text} {message.location.get('url', '')}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.broker.url + "/", "blob:", "data:", self.broker.url.replace("http", "ws"))):
            self.wrong.append(f"request to {request.url}")
        if TOKEN in request.url:
            self.wrong.append(f"the token is in {request.url}")

    def open(self, where: str = "") -> Page:
        """Load the page and sign in."""
        self.page.goto(f"{self.broker.url}/ui{where}")
        self.sign_in(TOKEN)
        expect(self.page.get_by_role("navigation", name="Views")).to_be_visible()
        return self.page

    def sign_in(self, token: str, keep: bool = False) -> None:
        self.page.get_by_label("Service token").fill(token)
        if keep:
            self.page.get_by_label("Keep it until this tab is closed").check()
        self.page.get_by_role("button", name="Sign in").click()

    def go(self, where: str) -> None:
        """To another view, without loading anything anew: the token is in memory."""
        self.page.evaluate("where => { location.hash = where }", where)

    def assert_clean(self) -> None:
        assert not self.wrong, "\n".join(self.wrong)


@pytest.fixture
def _tabs() -> list[Tab]:
    return []


@pytest.fixture
def make_tab(browser: Browser, _tabs: list[Tab]) -> Iterator[Callable[..., Tab]]:
    """make_tab(broker, **context options): a tab that must have done nothing wrong in the end."""
    tabs = _tabs

    def make(broker: Broker, **options: Any) -> Tab:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}, "locale": "en-GB", "accept_downloads": True} | options))
        tab = Tab(context.new_page(), context, broker)
        tab.watch()
        tabs.append(tab)
        return tab

    yield make
    for tab in tabs:
        tab.context.close()
    for tab in tabs:
        tab.assert_clean()


@pytest.fixture(scope="module")
def module_broker(_module_brokers: Any) -> Broker:
    return _module_brokers.make(ui_enabled=True, max_sessions=12, max_open_sessions=40)


@pytest.fixture
def broker(module_broker: Broker) -> Iterator[Broker]:
    if module_broker.process is None:
        module_broker.start()
    yield module_broker
    module_broker.assert_healthy()


@pytest.fixture
def tab(make_tab: Callable[..., Tab], broker: Broker) -> Tab:
    return make_tab(broker)


@pytest.fixture
def session(broker: Broker, _tabs: list[Tab]) -> Iterator[Callable[..., Session]]:
    opened: list[str] = []

    def open_session(session_id: str | None = None, **body: Any) -> Session:
        opened.append(session_id or new_id())
        return broker.open(opened[-1], **body)

    yield open_session
    # Before what they show goes.
    for tab in _tabs:
        tab.context.close()
    if broker.process is not None and broker.process.poll() is None:
        for session_id in opened:
            assert broker.purge(session_id).status_code in (204, 404)


@pytest.fixture
def sandbox(session: Callable[..., Session]) -> Session:
    return session()


__all__ = ["ROOT", "Tab"]
