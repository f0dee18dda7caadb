"""A terminal in the page: typed into, read, made larger, left and entered again, over the death of the broker as well."""

from __future__ import annotations

import re
from typing import Callable

from playwright.sync_api import Locator, Page, expect

from berth import Broker, Session, wait_until
from conftest import Tab


def start_shell(tab: Tab, sandbox: Session) -> Page:
    page = tab.open(f"#/sessions/{sandbox.id}/terminal")
    page.get_by_role("button", name=re.compile("start a shell", re.I)).click()
    expect(page.get_by_role("status").filter(has_text="Connected")).to_be_visible()
    return page


def screen(page: Page) -> Locator:
    return page.locator(".xterm-rows")


def type_in(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Terminal of").focus()
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def test_types_and_reads_the_answer(tab: Tab, sandbox: Session) -> None:
    page = start_shell(tab, sandbox)
    type_in(page, "echo $((6 * 7))-answer")
    expect(screen(page)).to_contain_text("42-answer")
    # It is a terminal, in colour, and its size is the window's.
    type_in(page, "printf '\\033[38;2;250;10;20mtrue\\033[0m'; test -t 0 && echo tty-$((40 + 2)); stty size; echo end-$((1 + 2))")
    expect(screen(page)).to_contain_text("tty-42")
    expect(screen(page)).to_contain_text("end-3")
    expect(page.locator(".xterm-rows span").filter(has_text=re.compile("^true$")).last).to_have_css("color", "rgb(250, 10, 20)")
    first = re.findall(r"^(\d+) (\d+)$", "\n".join(rows(page)), re.M)[-1]
    page.set_viewport_size({"width": 900, "height": 600})

    def smaller() -> bool:
        type_in(page, "stty size")
        sizes = re.findall(r"^(\d+) (\d+)$", "\n".join(rows(page)), re.M)
        return bool(sizes) and sizes[-1] != first and int(sizes[-1][1]) < int(first[1])  # none while it is drawn anew

    wait_until(smaller, what="the terminal took the window's size", interval=0.3)


def rows(page: Page) -> list[str]:
    return [text.replace("\xa0", " ").rstrip() for text in page.locator(".xterm-rows > div").all_text_contents()]


def test_is_entered_again(tab: Tab, sandbox: Session) -> None:
    page = start_shell(tab, sandbox)
    type_in(page, "MARK=remembered; echo first-$MARK")
    expect(screen(page)).to_contain_text("first-remembered")
    # To another tab and back: the same shell, with what it showed.
    page.get_by_role("link", name="Info").click()
    expect(page.get_by_role("heading", name="Isolation in force")).to_be_visible()
    page.get_by_role("link", name="Terminal").click()
    expect(screen(page)).to_contain_text("first-remembered")
    expect(page.get_by_role("status").filter(has_text="Connected")).to_be_visible()
    type_in(page, "echo again-$MARK")
    expect(screen(page)).to_contain_text("again-remembered")
    page.get_by_role("button", name="End this shell").click()
    expect(page.get_by_text("The shell was ended").or_(page.get_by_text("The shell ended"))).to_be_visible()
    page.get_by_role("button", name="Back to terminals").click()
    expect(page.get_by_text("No terminal is open")).to_be_visible()


def test_survives_the_death_of_the_broker(make_broker: Callable[..., Broker], make_tab: Callable[..., Tab]) -> None:
    broker = make_broker(ui_enabled=True)
    sandbox = broker.open()
    tab = make_tab(broker)
    tab.expected = ["ERR_", "status of 503", "WebSocket connection"]
    page = start_shell(tab, sandbox)
    type_in(page, "MARK=survived; echo before-$MARK")
    expect(screen(page)).to_contain_text("before-survived")
    broker.kill9()
    expect(page.get_by_role("status").filter(has_text="trying again")).to_be_visible()
    broker.start()
    expect(page.get_by_role("status").filter(has_text="Connected")).to_be_visible()
    expect(screen(page)).to_contain_text("before-survived")
    type_in(page, "echo after-$MARK")
    expect(screen(page)).to_contain_text("after-survived")


def test_is_left_by_a_key(tab: Tab, sandbox: Session) -> None:
    page = start_shell(tab, sandbox)
    page.get_by_role("textbox", name="Terminal of").focus()
    page.keyboard.press("Shift+F6")
    expect(page.get_by_role("button", name="End this shell")).to_be_focused()


def test_hostile_output_does_nothing(tab: Tab, sandbox: Session) -> None:
    """Titles, links, clipboards, windows, reports and markup: drawn or ignored, never done."""
    sequences = [
        b"\x1b]0;TITLE-TAKEN\x07",
        b"\x1b]52;c;c3RvbGVu\x07",
        b"\x1b[21t\x1b[14t\x1b[5n",
        b"\x1b]1337;File=inline=1:AAAA\x07",
        b"<img src=x onerror=alert(1)><script>alert(2)</script>",
        b"\x1b[999999999;999999999H\x1b[2147483647b",
        b"\x1bP+q544e\x1b\\",
        bytes(range(128, 256)),
        b"\r\n\x1b]8;;javascript:alert(1)\x07click-me\x1b]8;;\x07",  # where they are still on the screen
        b"\r\n\x1b]8;;http://192.0.2.1/\x07and-me\x1b]8;;\x07",
        b"\r\nend-of-it\r\n",
    ]
    sandbox.write("/workspace/hostile", b"".join(sequences))
    page = start_shell(tab, sandbox)
    title = page.title()
    type_in(page, "cat hostile")
    expect(screen(page)).to_contain_text("end-of-it")
    for text in ("click-me", "and-me"):
        page.locator(".xterm-rows span").filter(has_text=text).last.click(force=True)  # what takes clicks lies over it
    page.keyboard.press("Control+C")  # "I am well", which a terminal answers to CSI 5 n, is on the line
    type_in(page, "echo still-$((40 + 2))")
    expect(screen(page)).to_contain_text("still-42")
    assert page.title() == title
    assert page.locator(".xterm img, .xterm script").count() == 0
    assert len(tab.context.pages) == 1
