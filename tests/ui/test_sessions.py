"""Signing in, and the list of sessions: what it shows and what can be done from it."""

from __future__ import annotations

import re
import uuid
from typing import Callable

from playwright.sync_api import Locator, Page, expect

from berth import TOKEN, Broker, Session, new_id
from conftest import Tab
from sleeping import forget_sleeping, write_sleeping

ROWS = 5000


def test_signs_in_with_the_token_only(tab: Tab) -> None:
    tab.expected = ["status of 401"]
    page = tab.page
    page.goto(f"{tab.broker.url}/ui")
    for wrong in ("wrong-token", "größer", TOKEN + "x"):
        tab.sign_in(wrong)
        expect(page.get_by_role("alert")).to_contain_text("not the service token")
    tab.sign_in(TOKEN)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert TOKEN not in page.url
    assert page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])").find(TOKEN) < 0
    assert TOKEN not in page.content()
    page.reload()
    expect(page.get_by_label("Service token")).to_be_visible()
    tab.sign_in(TOKEN)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Service token")).to_have_value("")


def test_keeps_the_token_in_the_tab_when_asked(tab: Tab) -> None:
    page = tab.page
    page.goto(f"{tab.broker.url}/ui#/events")
    tab.sign_in(TOKEN, keep=True)
    expect(page.get_by_role("heading", name="Events")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Events")).to_be_visible()
    assert page.evaluate("localStorage.getItem('berth.token')") is None
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Service token")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_says_when_the_token_is_no_longer_good(tab: Tab, sandbox: Session) -> None:
    tab.expected = ["status of 401"]
    page = tab.open("#/sessions")
    expect(page.get_by_role("link", name=sandbox.id)).to_be_visible()
    # As if the broker had been started with another token.
    page.route("**/sessions?*", lambda route: route.fulfill(status=401, json={"detail": "Invalid or missing sandbox token."}))
    expect(page.get_by_role("alert")).to_contain_text("Sign in again")


def test_opens_a_session(tab: Tab) -> None:
    page = tab.open("#/sessions")
    name = new_id("ui")
    page.get_by_role("button", name="Open a session").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("Tenant").fill("acme")
    dialog.get_by_role("button", name="Open", exact=True).click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    opened = tab.broker.client.get(f"/sessions/{name}").json()
    assert (opened["tenant"], opened["alive"]) == ("acme", True)
    tab.context.close()  # it asks for what it shows
    assert tab.broker.purge(name).status_code == 204


def row(tab: Tab, session_id: str):
    return tab.page.get_by_role("row").filter(has=tab.page.get_by_role("link", name=session_id, exact=True))


def act(tab: Tab, session_id: str, action: str) -> None:
    row(tab, session_id).get_by_role("button", name=f"Actions on {session_id}").click()
    tab.page.get_by_role("menuitem", name=action).click()


def test_sees_a_session_sleep_and_wake(tab: Tab, sandbox: Session) -> None:
    tab.open("#/sessions")
    expect(row(tab, sandbox.id)).to_contain_text("Running")
    act(tab, sandbox.id, "Hibernate")
    expect(row(tab, sandbox.id)).to_contain_text("Asleep")
    assert sandbox.inspect()["state"] == "hibernated"
    act(tab, sandbox.id, "Wake")
    expect(row(tab, sandbox.id)).to_contain_text("Running")
    # Done by somebody else, it is seen as well.
    assert sandbox.request("POST", "/hibernate").status_code == 200
    expect(row(tab, sandbox.id)).to_contain_text("Asleep")


def test_shows_what_runs(tab: Tab, sandbox: Session) -> None:
    tab.open("#/sessions")
    started = sandbox.request("POST", "/runs", json={"argv": ["sleep", "600"]}).json()
    expect(row(tab, sandbox.id)).to_contain_text("sleep 600")
    sandbox.request("POST", f"/runs/{started['run_id']}/stop")
    expect(row(tab, sandbox.id)).not_to_contain_text("sleep 600")


def test_closes_and_purges_after_a_question(tab: Tab, session: Callable[..., Session]) -> None:
    first, second = session(), session()
    page = tab.open("#/sessions")
    first.write("/workspace/kept.txt", b"kept")
    act(tab, first.id, "Close")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Its files stay")
    dialog.get_by_role("button", name="Cancel").click()
    assert first.inspect()["alive"]
    act(tab, first.id, "Close")
    page.get_by_role("dialog").get_by_role("button", name="Close session").click()
    expect(row(tab, first.id)).to_have_count(0)
    assert (first.workspace / "kept.txt").read_bytes() == b"kept"

    second.write("/workspace/lost.txt", b"lost")
    act(tab, second.id, "Purge")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("removed for good")
    dialog.get_by_role("button", name="Purge for good").click()
    assert second.inspect()["alive"], "nothing goes without the name"
    dialog.get_by_label("to confirm").fill(second.id)
    dialog.get_by_role("button", name="Purge for good").click()
    expect(row(tab, second.id)).to_have_count(0)
    assert tab.broker.client.get(f"/workspaces/{second.id}").status_code == 404


def test_all_of_it_by_keys(tab: Tab, sandbox: Session) -> None:
    """From the token to a session's tabs without a pointer."""
    page = tab.page
    page.goto(f"{tab.broker.url}/ui")
    expect(page.get_by_label("Service token")).to_be_focused()
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    press_until(page, "Tab", page.get_by_role("navigation", name="Views").get_by_role("link", name="Sessions"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("searchbox", name="Filter sessions")).to_be_visible()  # the overview has rows as well
    expect(row(tab, sandbox.id)).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Filter sessions")).to_be_focused()
    page.keyboard.type(sandbox.id)
    expect(page.get_by_role("region", name="Sessions").get_by_role("link")).to_have_count(1)
    press_until(page, "Tab", page.get_by_role("link", name=sandbox.id))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=sandbox.id)).to_be_visible()
    press_until(page, "Tab", page.get_by_role("link", name="Files"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("No files yet")).to_be_visible()


def press_until(page: Page, key: str, there: Locator) -> None:
    for _ in range(30):
        page.keyboard.press(key)
        if there.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"{key} does not lead to {there}")


def test_long_work_is_called_off(tab: Tab, sandbox: Session) -> None:
    """What the broker takes long for shows that it is under way, and ends at a word."""
    tab.expected = ["ERR_FAILED"]
    page = tab.open("#/sessions")
    sandbox.request("POST", "/hibernate")
    expect(row(tab, sandbox.id)).to_contain_text("Asleep")
    page.route("**/wake", lambda route: None)
    act(tab, sandbox.id, "Wake")
    expect(page.get_by_role("progressbar", name=f"Waking {sandbox.id}")).to_be_visible()
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/wake")):
        page.get_by_role("region", name="Messages").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("progressbar")).to_have_count(0)
    page.route("**/sessions", lambda route: None if route.request.method == "POST" else route.continue_())
    page.get_by_role("button", name="Open a session").click()
    with page.expect_request(lambda request: request.method == "POST"):
        page.get_by_role("dialog").get_by_role("button", name="Open", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("button", name="Open", exact=True)).to_be_disabled()
    with page.expect_event("requestfailed", lambda request: request.method == "POST"):
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.unroute_all(behavior="ignoreErrors")


def test_filters_sorts_and_groups(tab: Tab, session: Callable[..., Session]) -> None:
    mark = uuid.uuid4().hex[:6]
    for name, tenant in (("b", "acme"), ("a", "zeta"), ("c", "acme")):
        session(f"{name}-{mark}", tenant=f"{tenant}-{mark}")
    page = tab.open("#/sessions")
    page.get_by_role("searchbox", name="Filter sessions").fill(f"{mark} acme")
    links = page.get_by_role("region", name="Sessions").get_by_role("link")
    expect(links).to_have_count(2)
    page.get_by_role("searchbox").fill(mark)
    page.get_by_role("button", name="Session", exact=True).click()
    expect(links).to_have_text([f"a-{mark}", f"b-{mark}", f"c-{mark}"])
    expect(page.get_by_role("columnheader", name="Session")).to_have_attribute("aria-sort", "ascending")
    page.get_by_role("button", name=re.compile("^Session")).click()
    expect(links).to_have_text([f"c-{mark}", f"b-{mark}", f"a-{mark}"])
    page.get_by_label("Group by tenant").check()
    group = page.get_by_role("button", name=re.compile(f"acme-{mark}"))
    expect(group).to_contain_text("2 sessions")
    group.click()
    expect(links).to_have_text([f"a-{mark}"])
    page.get_by_role("searchbox").fill("no such thing")
    expect(page.get_by_text("No session matches")).to_be_visible()


def test_five_thousand_sessions_are_a_few_rows(make_broker: Callable[..., Broker], make_tab: Callable[..., Tab]) -> None:
    """How fast it answers a key is measured by tests/bench/bench_page.py; that it can be fast, because what is out of sight is not made, is held here."""
    broker = make_broker(ui_enabled=True, max_open_sessions=10000, idle_timeout=86400)
    broker.terminate()
    write_sleeping(broker, ROWS)
    broker.start()
    try:
        tab = make_tab(broker)
        page = tab.open("#/sessions")
        table = page.get_by_role("region", name="Sessions")
        links, rows, box = table.get_by_role("link"), table.get_by_role("row"), page.get_by_role("searchbox", name="Filter sessions")
        expect(page.get_by_text(f"{ROWS:,} sessions")).to_be_visible()
        expect(page.get_by_role("link", name="s-00000")).to_be_visible()
        assert rows.count() < 50, "only what can be seen is in the document"
        box.press_sequentially("s-04321")
        expect(links).to_have_text(["s-04321"])
        box.fill("tenant-7 asleep")
        expect(links.first).to_have_text("s-00007")
        assert rows.count() < 50
        box.fill("")
        table.evaluate("box => { box.scrollTop = box.scrollHeight }")
        expect(page.get_by_role("link", name="s-04999")).to_be_visible()
        assert rows.count() < 50
        # Scrolled far down, fewer are left: they are seen.
        box.fill("s-0432")
        expect(links).to_have_text([f"s-0432{i}" for i in range(10)])
        # On a phone, with rows left out above and below, a row still takes all of the width.
        page.set_viewport_size({"width": 390, "height": 844})
        box.fill("")
        table.evaluate("box => { box.scrollTop = 4000 }")
        expect(page.get_by_role("link", name="s-00100")).to_be_visible()
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name="s-00100"))
        expect(row).to_contain_text("tenant-26")
        assert row.evaluate("row => row.parentElement.parentElement.clientWidth - [...row.cells].reduce((sum, cell) => sum + cell.offsetWidth, 0)") < 4
        assert row.evaluate("row => row.cells[0].offsetWidth") > 100
        # Their workspaces come by pages, as far down as somebody looks, and are found wherever they are.
        tab.go("#/workspaces")
        workspaces = page.get_by_role("region", name="Workspaces")
        expect(page.get_by_text("200 workspaces, and more")).to_be_visible()
        workspaces.evaluate("box => { box.scrollTop = box.scrollHeight }")
        expect(page.get_by_text("400 workspaces, and more")).to_be_visible()
        page.get_by_role("searchbox", name="Search workspaces").fill("s-04999")
        expect(workspaces.get_by_role("link")).to_have_text(["s-04999"])
        tab.context.close()  # before what it asks is gone
    finally:
        # The rows have no files: closing is not what is looked at here.
        broker.terminate()
        forget_sleeping(broker)
        broker.start()
