"""Every view as it looks: without serious faults of accessibility, in both colours, on a phone; and its picture, when asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from berth import BERTHD, ROOT, Broker, Session
from conftest import Tab

# Beside the program: what the build installed.
AXE = next((path for path in (Path(BERTHD).parent / "build-ui/node_modules/axe-core/axe.min.js", ROOT / "ui/node_modules/axe-core/axe.min.js") if path.exists()), None)
PICTURE_MAX_BYTES = 200_000

PROGRAM = '''"""Count the words of a text."""
import collections
import sys


def count(lines: list[str]) -> collections.Counter[str]:
    words = collections.Counter()
    for line in lines:
        words.update(word.strip(".,").lower() for word in line.split())
    return words


if __name__ == "__main__":
    for word, times in count(sys.stdin.readlines()).most_common(10):
        print(f"{times:5}  {word}")
'''


@pytest.fixture(scope="module")
def lived_in(_module_brokers) -> Broker:
    """A broker on which something has happened."""
    broker = _module_brokers.make(ui_enabled=True, max_sessions=8, max_open_sessions=20, mem_limit="256m", cpus="1", pids_limit="128", idle_timeout="28800", workspace_ttl="2592000", workspace_quota_bytes=str(2 * 1024**3))
    sessions: dict[str, Session] = {}
    for name, tenant in (("alice-notebook", "acme"), ("bob-report", "acme"), ("nightly-tests", "initech"), ("scratch", None), ("old-analysis", "acme"), ("thesis", "umbrella")):
        sessions[name] = broker.open(name, **({"tenant": tenant} if tenant else {}))
    first = sessions["alice-notebook"]
    first.stdout("mkdir -p data src; seq 1 2000 > data/numbers.csv; echo '# Notes' > README.md")
    first.write("/workspace/src/words.py", PROGRAM.encode())
    first.sh("python3 -c 'print(6 * 7)'")
    first.sh("ls -la; exit 3")
    first.request("POST", "/runs", json={"command": "for i in $(seq 1 40); do echo step $i of 40, all well; done; echo a warning >&2; sleep 3000"})
    sessions["nightly-tests"].request("POST", "/runs", json={"argv": ["python3", "-c", "x = bytearray(60 << 20)\nwhile True: pass"], "timeout_seconds": 900})
    sessions["bob-report"].request("POST", "/hibernate")
    for closed in ("old-analysis", "thesis"):
        sessions[closed].stdout("mkdir -p results; seq 1 90000 > results/table.txt")
        sessions[closed].close()
    broker.client.put("/workspaces/thesis", json={"pinned": True})
    broker.client.put("/tenants/acme", json={"max_open_sessions": 10, "max_disk_bytes": 5 * 1024**3})
    return broker


VIEWS: dict[str, tuple[str, Callable[[Page], None]]] = {}


def view(name: str, where: str) -> Callable[[Callable[[Page], None]], Callable[[Page], None]]:
    def add(ready: Callable[[Page], None]) -> Callable[[Page], None]:
        VIEWS[name] = (where, ready)
        return ready

    return add


@view("overview", "#/overview")
def _overview(page: Page) -> None:
    expect(page.get_by_role("region", name="Who uses it").get_by_role("row")).to_have_count(4)
    expect(page.get_by_role("img", name=re.compile("Openings"))).to_be_visible()
    # Of processors there is something to say once they were looked at twice.
    expect(page.get_by_role("region", name="Busiest").get_by_role("row").filter(has_text="nightly-tests")).to_contain_text(re.compile(r"\d %.*MB"))


@view("sessions", "#/sessions")
def _sessions(page: Page) -> None:
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="nightly-tests"))
    expect(row).to_contain_text("Running")
    if page.evaluate("innerWidth") > 1000:
        expect(row).to_contain_text(re.compile(r"initech.*python.*\d (s|min).*[0-9.]+ MB.*\d %.*python3 -c"))
    else:
        expect(row).to_contain_text("initech: python3 -c")


@view("session-terminal", "#/sessions/alice-notebook/terminal")
def _terminal(page: Page) -> None:
    start = page.get_by_role("button", name=re.compile("start a shell", re.I))
    expect(start.or_(page.get_by_role("status").filter(has_text="Connected"))).to_be_visible()
    if start.is_visible():
        start.click()
    expect(page.get_by_role("status").filter(has_text="Connected")).to_be_visible()
    if "10  lorem" not in page.locator(".xterm-rows").inner_text():
        page.get_by_role("textbox", name="Terminal of").focus()
        page.keyboard.type("clear; ls --color=always -l; python3 -c \"print('lorem ' * 10)\" | python3 src/words.py")
        page.keyboard.press("Enter")
    expect(page.locator(".xterm-rows")).to_contain_text(re.compile(r"10.{1,2}lorem"))


@view("session-files", "#/sessions/alice-notebook/files")
def _files(page: Page) -> None:
    page.get_by_role("treeitem", name="src", exact=True).click()
    page.get_by_role("treeitem", name="words.py").click()
    expect(page.locator(".editor .cm-content")).to_contain_text("Count the words")


@view("session-runs", "#/sessions/alice-notebook/runs")
def _runs(page: Page) -> None:
    page.get_by_role("region", name="Runs").get_by_role("button").filter(has_text="for i in").first.click()
    read = page.get_by_role("button", name="Read it here")
    read.click()
    expect(page.get_by_role("log", name="Output")).to_contain_text("step 40 of 40")


@view("session-activity", "#/sessions/alice-notebook/activity")
def _activity(page: Page) -> None:
    expect(page.get_by_role("region", name="Activity")).to_contain_text("print(6 * 7)")


@view("session-info", "#/sessions/alice-notebook/info")
def _info(page: Page) -> None:
    expect(page.get_by_role("cell", name="enforced", exact=True).first).to_be_visible()
    expect(page.get_by_role("meter", name="Memory")).to_be_visible()


@view("workspaces", "#/workspaces")
def _workspaces(page: Page) -> None:
    def row(name: str) -> Locator:
        return page.get_by_role("row").filter(has=page.get_by_role("link", name=name))

    # Its size, its last use, and when the TTL takes it.
    expect(row("thesis")).to_contain_text(re.compile(r"Closed.*\d kB"))
    if page.evaluate("innerWidth") > 1000:
        expect(row("thesis")).to_contain_text(re.compile(r"ago.*pinned$"))
        expect(row("old-analysis")).to_contain_text(re.compile(r"ago.*in 29 d"))
    else:
        expect(row("old-analysis")).to_contain_text(re.compile(r"acme, .* ago"))


@view("workspace", "#/workspaces/old-analysis/files")
def _workspace(page: Page) -> None:
    page.get_by_role("treeitem", name="results").click()
    page.get_by_role("treeitem", name="table.txt").click()
    expect(page.locator(".editor .cm-content")).to_contain_text("1")


@view("events", "#/events")
def _events(page: Page) -> None:
    expect(page.get_by_role("region", name="Events")).to_contain_text("hibernated")


@view("policy", "#/policy")
def _policy(page: Page) -> None:
    expect(page.get_by_role("heading", name="Isolation of python")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="acme")).to_be_visible()


def assert_accessible(page: Page) -> None:
    assert AXE, "axe-core is not there: the page was not built here"
    # Evaluated from outside of the page, whose own policy would not let it in.
    page.evaluate(AXE.read_text())
    # Colours that are on their way from one to the other would be judged in between.
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    serious = [
        {"rule": v["id"], "help": v["help"], "where": [(n["target"], n["failureSummary"]) for n in v["nodes"][:5]]}
        for v in found["violations"]
        if v["impact"] in ("serious", "critical")
    ]
    assert not serious, json.dumps(serious, indent=1)


def assert_fits(page: Page) -> None:
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{wide} pixels are beside the window"
    main = page.evaluate("(() => { const main = document.querySelector('main'); return main.scrollWidth - main.clientWidth; })()")
    assert main <= 0, f"{main} pixels are beside the view"


def take_picture(page: Page, request: pytest.FixtureRequest, name: str) -> None:
    folder = request.config.getoption("--screenshots")
    if not folder:
        return
    path = Path(folder) / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path, animations="disabled", caret="hide")
    assert path.stat().st_size < PICTURE_MAX_BYTES, f"{path} has {path.stat().st_size} bytes"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_views(lived_in: Broker, make_tab: Callable[..., Tab], request: pytest.FixtureRequest, scheme: str) -> None:
    tab = make_tab(lived_in, color_scheme=scheme)
    page = tab.page
    page.goto(f"{lived_in.url}/ui")
    expect(page.get_by_label("Service token")).to_be_visible()
    assert_accessible(page)
    take_picture(page, request, f"signin-{scheme}")
    tab.open()
    for name, (where, ready) in VIEWS.items():
        tab.go(where)
        ready(page)
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        assert_accessible(page)
        take_picture(page, request, f"{name}-{scheme}")
        assert (ROOT / f"docs/img/{name}-{scheme}.png").exists(), "take it: --screenshots docs/img"


def test_views_on_a_phone(lived_in: Broker, make_tab: Callable[..., Tab], request: pytest.FixtureRequest) -> None:
    tab = make_tab(lived_in, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = tab.open()
    for name, (where, ready) in VIEWS.items():
        tab.go(where)
        ready(page)
        assert_fits(page)
        assert_accessible(page)
        if request.config.getoption("--screenshots"):
            take_picture(page, request, f"phone/{name}")


def test_questions_and_menus(lived_in: Broker, make_tab: Callable[..., Tab]) -> None:
    """By keys alone: a menu is opened, gone through and left, a dialog keeps the focus and gives it back."""
    tab = make_tab(lived_in)
    page = tab.open("#/sessions")
    button = page.get_by_role("button", name="Actions on scratch")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Hibernate")).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("menuitem", name="Purge")).to_be_focused()
    assert_accessible(page)
    page.keyboard.press("Escape")
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Hibernate")).to_be_focused()
    page.keyboard.press("End")
    expect(page.get_by_role("menuitem", name="Purge")).to_be_focused()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert_accessible(page)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    # From row to row.
    page.get_by_role("link", name="scratch").focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('tr') !== null && document.activeElement.textContent") != "scratch"
    page.get_by_role("button", name="Use dark colours").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    # What is seen more rarely.
    tab.expected = ["status of 404"]
    for where, words in (("#/sessions/absent", "This session is not open"), ("#/workspaces/absent", "There is no such workspace")):
        tab.go(where)
        expect(page.get_by_text(words)).to_be_visible()
        assert_accessible(page)
    tab.go("#/workspaces/old-analysis")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("searchbox", name="Search for").fill("4711")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="results/table.txt:47110")).to_be_visible()
    assert_accessible(page)
