"""The feed, the policy and the overview: what an operator sees without asking, and what can be changed."""

from __future__ import annotations

import re
import threading
from datetime import datetime
from typing import Callable, Iterator
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from berth import IMAGE, Broker, Session, new_id
from conftest import Tab
from fake_engine import FakeEngine, slow_pull

AWAY = "The broker does not answer. What you see is from before; the page keeps trying."


def test_an_event_arrives(broker: Broker, make_tab: Callable[..., Tab], session: Callable[..., Session]) -> None:
    page = make_tab(broker, timezone_id="Asia/Kathmandu").open("#/events")
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    table = page.get_by_role("region", name="Events")
    first = session(tenant="acme")
    row = table.get_by_role("row").filter(has_text=first.id)
    expect(row).to_contain_text("opened")
    expect(row).to_contain_text("acme")
    # The reader's clock, with the exact moment behind it.
    shown = row.locator("time").first
    at = datetime.fromisoformat(shown.get_attribute("datetime") or "").astimezone(ZoneInfo("Asia/Kathmandu"))
    expect(shown).to_have_text(at.strftime("%H:%M:%S"))
    expect(shown).to_have_attribute("title", re.compile(rf"{at.year}.*{at:%H:%M:%S}.*(GMT)?\+5:45"))
    page.get_by_role("button", name="Pause").click()
    second = session()
    expect(page.get_by_text("Paused, 1 new")).to_be_visible()
    expect(table).not_to_contain_text(second.id)
    page.get_by_role("button", name="Go on").click()
    expect(table).to_contain_text(second.id)
    second.request("POST", "/hibernate")
    page.get_by_label("Kind of event").select_option("hibernated")
    expect(table).to_contain_text(second.id)
    expect(table).not_to_contain_text(first.id)
    page.get_by_label("Kind of event").select_option("")
    page.get_by_role("searchbox", name="Filter events").fill("acme " + first.id)
    table.get_by_role("link", name=first.id).first.click()
    expect(page.get_by_role("heading", name=first.id)).to_be_visible()


def test_changes_the_policy(make_broker: Callable[..., Broker], make_tab: Callable[..., Tab]) -> None:
    broker = make_broker(ui_enabled=True, max_sessions=7)
    tab = make_tab(broker)
    tab.expected = ["status of 4(00|22)"]
    page = tab.open("#/policy")
    page.get_by_role("button", name="Change: Ceilings").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Live sandboxes")).to_have_value("7")
    dialog.get_by_label("Live sandboxes").fill("9")
    dialog.get_by_label("Open sessions", exact=True).fill("5")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    assert broker.client.get("/policy").json()["max_sessions"] == 7, "all of it or nothing"
    dialog.get_by_label("Open sessions", exact=True).fill("50")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The policy is changed.")).to_be_visible()
    policy = broker.client.get("/policy").json()
    assert (policy["max_sessions"], policy["max_open_sessions"]) == (9, 50)
    page.get_by_role("button", name="Set ceilings of another").click()
    dialog.get_by_label("Tenant").fill("acme")
    dialog.get_by_label("Open sessions").fill("2")
    dialog.get_by_label("Disk").fill("1.5g")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Change the ceilings of acme")).to_be_visible()
    acme = broker.client.get("/tenants").json()["tenants"][0]
    assert (acme["max_open_sessions"], acme["max_disk_bytes"], acme["max_running_commands"]) == (2, int(1.5 * 1024**3), None)


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


def test_an_image_is_prepared(fake: FakeEngine, make_broker: Callable[..., Broker], make_tab: Callable[..., Tab]) -> None:
    """Long work: it says how far it is, can be left alone, and says in the end how it went."""
    pulling, go_on = threading.Event(), threading.Event()
    fake.fault("GET", "/images/two:2/json", (404, {"message": "no such image"}), times=20)
    fake.fault("POST", "/images/create", slow_pull(pulling, go_on, fails=True))
    broker = make_broker(engine=fake, ui_enabled=True, runtimes=f"python={IMAGE},other=two:2", prewarm=False)
    page = make_tab(broker).open("#/policy")
    prepare, progress = page.get_by_role("button", name="Prepare the image of other"), page.get_by_role("progressbar", name="Preparing other")
    messages = page.get_by_role("region", name="Messages")
    prepare.click()
    expect(progress).to_be_visible()
    expect(messages).to_contain_text("from library")
    expect(prepare).to_be_disabled()
    messages.get_by_role("button", name="Cancel").click()
    expect(progress).to_have_count(0)
    prepare.click()
    expect(progress).to_be_visible()
    go_on.set()
    expect(messages.get_by_role("alert")).to_contain_text("manifest unknown")
    expect(progress).to_have_count(0)


def test_one_look_tells(make_broker: Callable[..., Broker], make_tab: Callable[..., Tab]) -> None:
    broker = make_broker(ui_enabled=True, max_sessions=2, max_open_sessions=10)
    tab = make_tab(broker)
    tab.expected = ["status of 429"]
    page = tab.open()
    # An empty place says what would be there.
    for view, words in (("sessions", "No session is open"), ("workspaces", "Nothing is stored yet"), ("events", "Nothing happened yet")):
        tab.go(f"#/{view}")
        expect(page.get_by_text(words)).to_be_visible()
    tab.go("#/overview")
    expect(page.get_by_text("Nothing is wrong.")).to_be_visible()
    expect(page.get_by_text("Nobody uses it yet")).to_be_visible()
    names = [new_id("ov") for _ in range(2)]
    for name in names:
        broker.open(name, tenant="acme")
    # How full,
    expect(page.get_by_role("meter", name="Live sandboxes")).to_have_attribute("aria-valuenow", "100")
    expect(page.get_by_role("meter", name="Open sessions")).to_have_attribute("aria-valuenow", "20")
    # who,
    expect(page.get_by_role("region", name="Who uses it").get_by_role("row").filter(has_text="acme")).to_contain_text("2")
    # what is wrong.
    wrong = page.get_by_role("list", name="What is wrong")
    expect(wrong).to_contain_text("2 of 2 places for live sandboxes are taken")
    assert broker.client.put("/tenants/acme", json={"max_open_sessions": 2, "max_resident_sessions": 2}).status_code == 200
    expect(wrong).to_contain_text("Tenant acme has all of its 2 sessions open")
    expect(wrong).to_contain_text("Tenant acme has all of its 2 live sandboxes")
    # Each with a way to what can be done.
    expect(wrong.get_by_role("listitem").filter(has_text="places").get_by_role("link", name="Look")).to_have_attribute("href", "#/sessions")
    # What is refused says what to do about it.
    tab.go("#/sessions")
    page.get_by_role("button", name="Open a session").click()
    page.get_by_role("dialog").get_by_role("button", name="Open", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("put sessions to sleep or close some, or raise it under Policy")
    page.keyboard.press("Escape")
    tab.go("#/overview")
    expect(wrong).to_contain_text("1 opening refused in the last 10 minutes")
    # And how it went: charts, and the health of what it stands on.
    for chart in ("Sessions", "Commands a minute", "Latency", "Disk in use"):
        expect(page.get_by_role("img", name=f"{chart}, now:")).to_be_visible()
    expect(page.get_by_role("region", name="Health")).to_contain_text("it answers")


def test_shows_what_is_started_ahead(fake: FakeEngine, make_broker: Callable[..., Broker], make_tab: Callable[..., Tab]) -> None:
    broker = make_broker(engine=fake, ui_enabled=True, pool="python=2")
    page = make_tab(broker).open()
    expect(page.get_by_role("meter", name="Started ahead")).to_have_attribute("aria-valuetext", "2 of 2 ready")
    expect(page.get_by_role("img", name=re.compile("^Started ahead, now: wanted 2, ready 2"))).to_be_visible()


def test_survives_a_restart_of_the_broker(make_broker: Callable[..., Broker], make_tab: Callable[..., Tab]) -> None:
    broker = make_broker(ui_enabled=True)
    sandbox = broker.open()
    tab = make_tab(broker)
    tab.expected = ["ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE", "status of 503"]
    page = tab.open("#/overview")
    expect(page.get_by_text("Nothing is wrong.")).to_be_visible()
    tab.go("#/sessions")
    expect(page.get_by_role("link", name=sandbox.id)).to_be_visible()
    broker.kill9()
    # Said once, whatever there is to see: what was there, what cannot be had (workspaces), what can no longer be known.
    for view in ("sessions", "workspaces", "overview"):
        tab.go(f"#/{view}")
        expect(page.get_by_role("alert")).to_have_text(AWAY)
    expect(page.get_by_text("Nothing is wrong.")).to_have_count(0)
    tab.go("#/sessions")
    expect(page.get_by_role("link", name=sandbox.id)).to_be_visible()
    broker.start()
    expect(page.get_by_role("alert")).to_have_count(0)
    # The feed goes on where it was.
    other = broker.open()
    expect(page.get_by_role("link", name=other.id)).to_be_visible()
    # What could not even be loaded meanwhile is there now.
    tab.go("#/workspaces")
    expect(page.get_by_role("link", name=other.id)).to_be_visible()
    tab.go("#/events")
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    expect(page.get_by_role("region", name="Events")).to_contain_text(other.id)


def test_output_goes_on_behind_a_restart_of_the_broker(make_broker: Callable[..., Broker], make_tab: Callable[..., Tab]) -> None:
    broker = make_broker(ui_enabled=True)
    sandbox = broker.open()
    tab = make_tab(broker)
    tab.expected = ["ERR_", "status of 503"]
    page = tab.open(f"#/sessions/{sandbox.id}/runs")
    page.get_by_role("textbox", name="Command").fill("echo before; while [ ! -e go ]; do sleep 0.1; done; echo behind")
    page.get_by_role("button", name="Run", exact=True).click()
    output = page.get_by_role("log", name="Output")
    expect(output).to_have_text("before")
    broker.kill9()
    expect(page.get_by_role("alert")).to_have_text(AWAY)
    broker.start()
    sandbox.write("/workspace/go", b"")
    expect(output).to_have_text("before\nbehind\n", use_inner_text=True)
    expect(page.get_by_role("region", name="Run", exact=True)).to_contain_text("exit 0")
