"""What a sandbox makes cannot act in the page: names, contents, commands and details are text. The tab fixture holds it to silence:
no dialog, no error, no request to anybody else."""

from __future__ import annotations

from playwright.sync_api import expect

from berth import Session
from conftest import Tab

MARKUP = "<img src=x onerror=alert(1)>"
NAMES = [
    f"{MARKUP}.txt",
    "'\"><script>alert(2)<",
    "javascript:alert(3)",
    "..%2f..%2fetc%2fpasswd",
    "line\nbreak",
    "\u202egpj.exe",
    "#fragment?query=1&b=2",
    "%00%ff",
    " leading and trailing ",
    "{{7*7}}${7*7}",
]


def test_file_names(tab: Tab, sandbox: Session) -> None:
    sandbox.python(f"import os\nfor i, name in enumerate({NAMES!r}): open(name, 'w').write('content-%d' % i)\nopen(b'not-utf8-\\xff', 'w').write('odd')")
    page = tab.open(f"#/sessions/{sandbox.id}/files")
    expect(page.get_by_role("treeitem")).to_have_count(len(NAMES) + 1)
    shown = page.locator("[role=treeitem] .name").all_text_contents()
    assert {"line‹U+000A›break", "‹U+202E›gpj.exe"} <= set(shown), shown
    for i, name in enumerate(NAMES):
        seen = name.replace("\n", "‹U+000A›").replace("\u202e", "‹U+202E›")
        page.get_by_role("treeitem").nth(shown.index(seen)).click()
        expect(page.locator(".editor .cm-content")).to_contain_text(f"content-{i}")
    page.locator("[role=treeitem]").filter(has_text="not-utf8").click()
    expect(page.locator(".editor .cm-content")).to_contain_text("odd")
    assert page.locator("#page img[src=x], #page script").count() == 0
    page.get_by_role("button", name="Search").click()
    page.get_by_role("searchbox", name="Search for").fill("content")
    page.keyboard.press("Enter")
    expect(page.get_by_text(f"{len(NAMES)} matches in")).to_be_visible()
    assert page.locator("#page img[src=x], #page script").count() == 0


def test_contents(tab: Tab, sandbox: Session) -> None:
    sandbox.write("/workspace/page.html", f"<h1>{MARKUP}</h1><script>alert(1)</script><style>body{{display:none}}</style>".encode())
    sandbox.write("/workspace/claims.png", b"<html><script>alert(2)</script></html>")
    page = tab.open(f"#/sessions/{sandbox.id}/files")
    page.get_by_role("treeitem", name="page.html").click()
    expect(page.locator(".editor .cm-content")).to_contain_text(MARKUP)
    page.get_by_role("treeitem", name="claims.png").click()
    expect(page.locator(".editor .cm-content")).to_contain_text("alert(2)")
    assert page.locator("#page h1 img").count() == 0


def test_commands_and_their_output(tab: Tab, sandbox: Session) -> None:
    sandbox.sh(f"echo '{MARKUP}'; exit 1")
    started = sandbox.request("POST", "/runs", json={"argv": ["sh", "-c", f"printf '\\033]0;owned\\007'; echo '{MARKUP}'; sleep 600", MARKUP]}).json()
    page = tab.open("#/sessions")
    expect(page.get_by_role("region", name="Sessions")).to_contain_text(MARKUP)
    tab.go(f"#/sessions/{sandbox.id}/runs")
    page.get_by_role("region", name="Runs").get_by_role("button").filter(has_text=MARKUP).first.click()
    page.get_by_role("button", name="Read it here").click()
    expect(page.get_by_role("log", name="Output")).to_contain_text(MARKUP)
    assert "owned" not in page.title()
    tab.go(f"#/sessions/{sandbox.id}/activity")
    expect(page.get_by_role("region", name="Activity")).to_contain_text(MARKUP)
    assert page.locator("#page img[src=x]").count() == 0
    sandbox.request("POST", f"/runs/{started['run_id']}/stop")


def test_addresses(tab: Tab, sandbox: Session) -> None:
    """Whoever sends an operator a link gets no more than a view of nothing."""
    page = tab.open("#/sessions")
    tab.expected = ["status of 4(04|22)"]
    for where, title in (
        (f"#/sessions/{MARKUP}", MARKUP),
        ("#/sessions/..%2F..%2Fpolicy/files", "../../policy"),
        ("#/workspaces/%3Cscript%3E", "<script>"),
        ("#/%E0%A4%A", "Overview"),
        ("#/sessions", "Sessions"),
        ("#/nothing", "Overview"),
    ):
        tab.go(where)
        expect(page).to_have_title(f"{title} – Berth")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.locator("#page img[src=x]").count() == 0
