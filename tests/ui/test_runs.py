"""Commands of a session, what it is, and what happens in it."""

from __future__ import annotations

from playwright.sync_api import expect

from berth import Session
from conftest import Tab


def test_runs_a_command_and_shows_its_output(tab: Tab, sandbox: Session) -> None:
    page = tab.open(f"#/sessions/{sandbox.id}/runs")
    expect(page.get_by_text("Nothing was run yet")).to_be_visible()
    page.get_by_role("textbox", name="Command").fill("echo $((6 * 7)); echo oops >&2; exit 3")
    page.get_by_role("button", name="Run", exact=True).click()
    output = page.get_by_role("log", name="Output")
    expect(output).to_contain_text("42")
    expect(output.locator(".err")).to_contain_text("oops")
    expect(page.get_by_role("region", name="Run", exact=True)).to_contain_text("exit 3")


def test_watches_and_stops_what_runs(tab: Tab, sandbox: Session) -> None:
    page = tab.open(f"#/sessions/{sandbox.id}/runs")
    page.get_by_role("textbox", name="Command").fill("i=0; while :; do echo line-$i; i=$((i+1)); sleep 0.1; done")
    page.get_by_role("button", name="Run", exact=True).click()
    output = page.get_by_role("log", name="Output")
    expect(output).to_contain_text("line-0")
    expect(output).to_contain_text("line-5")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("region", name="Run", exact=True)).to_contain_text("stopped")
    runs = sandbox.request("GET", "/runs").json()["runs"]
    assert [run["stopped"] for run in runs] == [True]


def test_takes_no_output_from_others_unasked(tab: Tab, sandbox: Session) -> None:
    started = sandbox.request("POST", "/runs", json={"argv": ["sh", "-c", "echo theirs; sleep 600"]}).json()
    page = tab.open(f"#/sessions/{sandbox.id}/runs")
    page.get_by_role("region", name="Runs").get_by_role("button").first.click()
    expect(page.get_by_text("A command has one reader")).to_be_visible()
    page.get_by_role("button", name="Read it here").click()
    expect(page.get_by_role("log", name="Output")).to_contain_text("theirs")
    sandbox.request("POST", f"/runs/{started['run_id']}/stop")


def test_shows_activity_as_it_happens(tab: Tab, sandbox: Session) -> None:
    page = tab.open(f"#/sessions/{sandbox.id}/activity")
    table = page.get_by_role("region", name="Activity")
    expect(table).to_contain_text("opened")
    sandbox.stdout("echo seen")
    expect(table).to_contain_text("echo seen")
    sandbox.request("POST", "/hibernate")
    expect(table).to_contain_text("hibernated")


def test_says_what_keeps_a_sandbox_in(tab: Tab, sandbox: Session) -> None:
    page = tab.open(f"#/sessions/{sandbox.id}/info")
    expect(page.get_by_role("heading", name="Isolation in force")).to_be_visible()
    expect(page.get_by_role("cell", name="enforced", exact=True).first).to_be_visible()
    expect(page.get_by_text("Memory", exact=True)).to_be_visible()
    page.get_by_role("button", name="Keep it open").click()
    page.get_by_role("dialog").get_by_label("For how many hours").fill("100")
    page.get_by_role("dialog").get_by_role("button", name="Keep open").click()
    expect(page.get_by_text("in 4 d")).to_be_visible()
    page.get_by_role("button", name="Make one").click()
    page.get_by_role("dialog").get_by_label("Name").fill("before")
    page.get_by_role("dialog").get_by_role("button", name="Make it").click()
    expect(page.get_by_role("button", name="Actions on snapshot before")).to_be_visible()
    assert [s["name"] for s in sandbox.request("GET", "/snapshots").json()["snapshots"]] == ["before"]
