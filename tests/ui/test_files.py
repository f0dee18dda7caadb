"""Files of a session: what is seen, written, moved up and down; and what the sandbox sees of it."""

from __future__ import annotations

import hashlib
import io
import os
import re
import zipfile
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from berth import Session, wait_until
from conftest import Tab


def open_files(tab: Tab, sandbox: Session) -> Page:
    return tab.open(f"#/sessions/{sandbox.id}/files")


def entry(page: Page, name: str) -> Locator:
    return page.get_by_role("treeitem").filter(has=page.locator(".name").filter(has_text=re.compile(f"^{re.escape(name)}$")))


def choose_action(page: Page, button: str, item: str) -> None:
    page.get_by_role("button", name=button).click()
    page.get_by_role("menuitem", name=item).click()


def editor(page: Page) -> Locator:
    return page.locator(".editor .cm-content")


def test_edits_a_file_and_the_sandbox_sees_it(tab: Tab, sandbox: Session) -> None:
    sandbox.write("/workspace/hello.py", b"print('before')\n")
    page = open_files(tab, sandbox)
    entry(page, "hello.py").click()
    expect(editor(page)).to_contain_text("print('before')")
    expect(page.locator(".editor .cm-content span").first).to_be_visible()  # highlighted
    save = page.get_by_role("button", name="Save")
    expect(save).to_be_disabled()
    editor(page).click()
    page.keyboard.press("Control+a")
    page.keyboard.type("print(6 * 7)")
    save.click()
    expect(page.get_by_text("hello.py is saved.")).to_be_visible()
    assert sandbox.stdout("python3 hello.py") == "42\n"
    expect(save).to_be_disabled()
    editor(page).click()
    page.keyboard.press("Control+End")
    page.keyboard.type("  # again")
    page.keyboard.press("Control+s")
    wait_until(lambda: b"again" in sandbox.read("/workspace/hello.py"), what="saved by its key")


def test_asks_before_it_replaces_what_was_written_meanwhile(tab: Tab, sandbox: Session) -> None:
    sandbox.write("/workspace/shared.txt", b"one\n")
    page = open_files(tab, sandbox)
    entry(page, "shared.txt").click()
    expect(editor(page)).to_contain_text("one")
    editor(page).click()
    page.keyboard.press("Control+a")
    page.keyboard.type("mine")
    sandbox.stdout("echo theirs > shared.txt")
    page.get_by_role("button", name="Save").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("changed meanwhile")
    assert sandbox.read("/workspace/shared.txt") == b"theirs\n"
    dialog.get_by_role("button", name="Save mine").click()
    expect(page.get_by_text("shared.txt is saved.")).to_be_visible()
    assert sandbox.read("/workspace/shared.txt") == b"mine"


def test_asks_before_changes_are_left(tab: Tab, sandbox: Session) -> None:
    sandbox.write("/workspace/a.txt", b"a")
    sandbox.write("/workspace/b.txt", b"b")
    page = open_files(tab, sandbox)
    entry(page, "a.txt").click()
    editor(page).click()
    page.keyboard.press("Control+End")
    page.keyboard.type("x")
    entry(page, "b.txt").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel").click()
    expect(editor(page)).to_contain_text("ax")
    entry(page, "b.txt").click()
    page.get_by_role("dialog").get_by_role("button", name="Leave").click()
    expect(editor(page)).to_have_text("b")


def test_uploads_and_downloads_the_same_bytes(tab: Tab, sandbox: Session, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    source = tmp_path / "großes bild #1.bin"
    source.write_bytes(content)
    page = open_files(tab, sandbox)
    expect(page.get_by_text("No files yet")).to_be_visible()
    page.get_by_label("Files to upload").set_input_files(source)
    expect(page.get_by_text("1 file uploaded")).to_be_visible()
    assert hashlib.sha256(sandbox.read(f"/workspace/{source.name}")).digest() == hashlib.sha256(content).digest()
    entry(page, source.name).click()
    expect(page.get_by_text("This is no text")).to_be_visible()
    with page.expect_download() as download:
        choose_action(page, f"Actions on {source.name}", "Download")
    assert download.value.suggested_filename == source.name
    assert Path(download.value.path()).read_bytes() == content


def test_a_dropped_file_is_uploaded_where_it_fell(tab: Tab, sandbox: Session) -> None:
    sandbox.stdout("mkdir data")
    page = open_files(tab, sandbox)
    entry(page, "data").click()
    dropped = page.evaluate_handle("() => { const data = new DataTransfer(); data.items.add(new File(['dropped'], 'note.txt')); return data; }")
    page.locator(".split").dispatch_event("drop", {"dataTransfer": dropped})
    expect(entry(page, "note.txt")).to_be_visible()
    assert sandbox.read("/workspace/data/note.txt") == b"dropped"


def test_downloads_a_folder(tab: Tab, sandbox: Session) -> None:
    sandbox.stdout("mkdir -p d/e; echo one > d/1; echo two > d/e/2")
    page = open_files(tab, sandbox)
    entry(page, "d").click()
    with page.expect_download() as download:
        choose_action(page, "Actions on d", "Download as zip")
    assert download.value.suggested_filename == "d.zip"
    with zipfile.ZipFile(io.BytesIO(Path(download.value.path()).read_bytes())) as archive:
        content = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    assert sorted(content.values()) == [b"one\n", b"two\n"]


def test_a_long_upload_is_cancelled(tab: Tab, sandbox: Session, tmp_path: Path) -> None:
    # What does not arrive shows its progress and can be stopped; nothing of it stays.
    source = tmp_path / "long.bin"
    source.write_bytes(bytes(1000))
    page = open_files(tab, sandbox)
    page.route("**/content?*", lambda route: None if route.request.method == "PUT" else route.continue_())
    page.get_by_label("Files to upload").set_input_files(source)
    expect(page.get_by_role("progressbar")).to_be_visible()
    page.get_by_role("region", name="Messages").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("progressbar")).to_have_count(0)
    page.unroute_all(behavior="ignoreErrors")
    assert sandbox.stdout("ls -A") == ""


def test_renames_deletes_and_makes(tab: Tab, sandbox: Session) -> None:
    tab.expected = ["status of 404"]  # a folder may be asked for in the moment in which it goes
    sandbox.write("/workspace/old.txt", b"content")
    page = open_files(tab, sandbox)
    entry(page, "old.txt").click()
    choose_action(page, "Actions on old.txt", "Rename")
    page.get_by_role("dialog").get_by_label("New name").fill("new.txt")
    page.get_by_role("dialog").get_by_role("button", name="Rename").click()
    expect(entry(page, "new.txt")).to_be_visible()
    expect(entry(page, "old.txt")).to_have_count(0)
    assert sandbox.read("/workspace/new.txt") == b"content"
    choose_action(page, "Actions on the workspace", "New folder")
    page.get_by_role("dialog").get_by_label("Name").fill("sub")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    entry(page, "sub").click()
    choose_action(page, "Actions on the workspace", "New file")
    page.get_by_role("dialog").get_by_label("Name").fill("made.md")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(entry(page, "made.md")).to_be_visible()
    assert sandbox.stdout("cat sub/made.md") == ""
    entry(page, "sub").click()
    choose_action(page, "Actions on sub", "Delete")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(entry(page, "sub")).to_have_count(0)
    assert sandbox.stdout("ls") == "new.txt\n"


def test_sees_what_the_sandbox_writes(tab: Tab, sandbox: Session) -> None:
    page = open_files(tab, sandbox)
    expect(page.get_by_text("No files yet")).to_be_visible()
    sandbox.stdout("echo appeared > later.txt")
    expect(entry(page, "later.txt")).to_be_visible()
    sandbox.stdout("rm later.txt")
    expect(entry(page, "later.txt")).to_have_count(0)


def test_the_tree_is_gone_through_by_keys(tab: Tab, sandbox: Session) -> None:
    sandbox.stdout("mkdir -p a/b; echo deep > a/b/c.txt; echo top > z.txt")
    page = open_files(tab, sandbox)
    entry(page, "a").focus()
    page.keyboard.press("ArrowRight")
    expect(entry(page, "b")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(entry(page, "b")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(entry(page, "b")).to_have_attribute("aria-expanded", "true")
    expect(entry(page, "c.txt")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(entry(page, "c.txt")).to_be_focused()
    page.keyboard.press("Enter")
    expect(editor(page)).to_contain_text("deep")
    entry(page, "c.txt").focus()
    page.keyboard.press("ArrowLeft")
    expect(entry(page, "b")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(entry(page, "c.txt")).to_have_count(0)
    page.keyboard.press("End")
    expect(entry(page, "z.txt")).to_be_focused()
    for key, title in (("F2", "Rename z.txt"), ("Delete", "Delete z.txt?")):
        page.keyboard.press(key)
        expect(page.get_by_role("dialog", name=title)).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(entry(page, "z.txt")).to_be_focused()


def test_a_long_search_and_a_long_download_are_cancelled(tab: Tab, sandbox: Session) -> None:
    sandbox.write("/workspace/a.txt", b"a")
    page = open_files(tab, sandbox)
    page.route(re.compile("/(search|archive)[?]"), lambda route: None)
    choose_action(page, "Actions on the workspace", "Download all")
    expect(page.get_by_role("progressbar", name=f"Downloading {sandbox.id}")).to_be_visible()
    page.get_by_role("region", name="Messages").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("progressbar")).to_have_count(0)
    page.get_by_role("button", name="Search").click()
    page.get_by_role("searchbox", name="Search for").fill("needle")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Loading results")).to_be_visible()
    page.get_by_role("region", name="Content").get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Loading results")).to_have_count(0)
    page.unroute_all(behavior="ignoreErrors")


def test_searches_in_files_and_names(tab: Tab, sandbox: Session) -> None:
    sandbox.stdout("mkdir src; printf 'one\\ntwo needle\\n' > src/a.py; echo nothing > b.txt")
    page = open_files(tab, sandbox)
    page.get_by_role("button", name="Search").click()
    page.get_by_role("searchbox", name="Search for").fill("NEEDLE")
    page.keyboard.press("Enter")
    expect(page.get_by_text("1 match in")).to_be_visible()
    page.get_by_role("button", name="src/a.py:2").click()
    expect(editor(page)).to_contain_text("two needle")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("searchbox", name="Search for").fill("b.t")
    page.get_by_label("How to search").select_option("name")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Search", exact=True).last.click()
    expect(page.get_by_role("button", name="b.txt")).to_be_visible()


def test_shows_images_as_images(tab: Tab, sandbox: Session) -> None:
    # An SVG is drawn, and its script is not run.
    sandbox.write("/workspace/drawn.svg", b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"><script>parent.alert(1)</script><rect width="40" height="30"/></svg>')
    page = open_files(tab, sandbox)
    entry(page, "drawn.svg").click()
    image = page.get_by_role("img", name="drawn.svg")
    expect(image).to_be_visible()
    wait_until(lambda: image.evaluate("img => img.naturalWidth") == 40, what="drawn")
