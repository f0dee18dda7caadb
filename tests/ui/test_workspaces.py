"""Stored workspaces: found, looked into without an engine, pinned, purged, and opened again."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any, Callable

import pytest
from playwright.sync_api import Locator, expect

from berth import Broker, OwnEngine, Session, new_id
from conftest import Tab


def row(tab: Tab, name: str) -> Locator:
    return tab.page.get_by_role("row").filter(has=tab.page.get_by_role("link", name=name, exact=True))


def test_finds_pins_and_purges(tab: Tab, session: Callable[..., Session]) -> None:
    broker = tab.broker
    closed, still_open = session(tenant="acme"), session()
    closed.write("/workspace/a.txt", b"a")
    closed.close()
    page = tab.open("#/workspaces")
    expect(row(tab, closed.id)).to_contain_text("Closed")
    expect(row(tab, still_open.id)).to_contain_text("Open")
    page.get_by_role("searchbox", name="Search workspaces").fill(closed.id[2:8])
    expect(row(tab, still_open.id)).to_have_count(0)
    page.get_by_role("button", name=f"Actions on {closed.id}").click()
    page.get_by_role("menuitem", name="Pin").click()
    expect(row(tab, closed.id).get_by_title("Pinned")).to_be_visible()
    assert broker.client.get(f"/workspaces/{closed.id}").json()["pinned"] is True
    page.get_by_role("button", name=f"Actions on {closed.id}").click()
    page.get_by_role("menuitem", name="Purge").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("removed for good")
    dialog.get_by_label("to confirm").fill(closed.id)
    dialog.get_by_role("button", name="Purge for good").click()
    expect(page.get_by_text("No workspace matches")).to_be_visible()
    assert broker.client.get(f"/workspaces/{closed.id}").status_code == 404


def test_opens_a_session_on_one_and_forks_it(tab: Tab, session: Callable[..., Session]) -> None:
    closed = session()
    closed.write("/workspace/kept.txt", b"kept")
    closed.close()
    page = tab.open(f"#/workspaces/{closed.id}")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Fork").click()
    copy = new_id("fork")
    page.get_by_role("dialog").get_by_label("Name of the new session").fill(copy)
    page.get_by_role("dialog").get_by_role("button", name="Fork").click()
    expect(page.get_by_role("heading", name=copy)).to_be_visible()
    expect(page.get_by_role("treeitem", name="kept.txt")).to_be_visible()
    tab.go(f"#/workspaces/{closed.id}")
    page.get_by_role("button", name="Open a session on it").click()
    expect(page.get_by_role("heading", name=closed.id)).to_be_visible()
    expect(page.get_by_role("link", name="Terminal")).to_be_visible()
    expect(page.get_by_role("treeitem", name="kept.txt")).to_be_visible()
    tab.context.close()  # it may ask for what it showed
    assert tab.broker.purge(copy).status_code == 204


def test_a_snapshot_is_gone_back_to(tab: Tab, session: Callable[..., Session]) -> None:
    closed = session()
    closed.write("/workspace/a.txt", b"before")
    closed.close()
    page = tab.open(f"#/workspaces/{closed.id}/info")
    page.get_by_role("button", name="Make one").click()
    page.get_by_role("dialog").get_by_label("Name").fill("first")
    page.get_by_role("dialog").get_by_role("button", name="Make it").click()
    page.get_by_role("button", name="Actions on snapshot first").click()
    (closed.workspace / "a.txt").write_bytes(b"after")
    page.get_by_role("menuitem", name="Go back to it").click()
    page.get_by_role("dialog").get_by_role("button", name="Go back").click()
    expect(page.get_by_text("The workspace is as the snapshot was")).to_be_visible()
    assert (closed.workspace / "a.txt").read_bytes() == b"before"


@pytest.mark.engine_faults
def test_looks_into_a_closed_one_with_the_engine_stopped(make_engine: Callable[..., OwnEngine], make_broker: Callable[..., Broker], make_tab: Callable[..., Tab]) -> None:
    engine = make_engine()
    broker = make_broker(engine=engine, ui_enabled=True)
    closed = broker.open()
    closed.stdout("mkdir -p year/old; echo 'long ago' > year/old/note.txt")
    closed.close()
    engine.stop_engine()
    tab = make_tab(broker)
    # The feed of problems asks what needs the engine.
    tab.expected = ["status of 50[23]"]
    page = tab.open("#/workspaces")
    page.get_by_role("link", name=closed.id).click()
    for name in ("year", "old", "note.txt"):
        page.get_by_role("treeitem", name=name).click()
    expect(page.locator(".editor .cm-content")).to_contain_text("long ago")
    expect(page.get_by_role("button", name="Save")).to_have_count(0)
    page.get_by_role("button", name="Search").click()
    page.get_by_role("searchbox", name="Search for").fill("long")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="year/old/note.txt:1")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Actions on the workspace").click()
        page.get_by_role("menuitem", name="Download all").click()
    with zipfile.ZipFile(io.BytesIO(Path(download.value.path()).read_bytes())) as archive:
        assert [archive.read(name) for name in archive.namelist() if name.endswith("note.txt")] == [b"long ago\n"]
    tab.go("#/overview")
    expect(page.get_by_role("list", name="What is wrong")).to_contain_text("Engine")
    engine.start_engine()
