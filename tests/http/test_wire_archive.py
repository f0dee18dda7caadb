"""Stored workspaces beside the recorded tables: odd entries, text of every kind, and that no engine is asked."""

from __future__ import annotations

import base64
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Callable, Iterator

import pytest

from berth import Broker, Session, new_id

pytestmark = pytest.mark.san


@pytest.fixture
def stored(broker: Broker) -> Iterator[tuple[str, Path]]:
    """A workspace on the disk that no session knows, as the reference laid it, and its folder."""
    name = new_id("stored")
    folder = broker.root / name / "workspace"
    folder.mkdir(parents=True)
    yield name, folder
    broker.purge(name)


def _read(broker: Broker, name: str, path: str, **body: int) -> str:
    answer = broker.archive(name, "read", path=path, **body)
    assert answer.status_code == 200, answer.text
    return answer.json()["content"]


def test_a_folder_without_a_session_is_served(broker: Broker, stored: tuple[str, Path]) -> None:
    name, folder = stored
    (folder / "a.txt").write_text("one\ntwo\n")
    assert _read(broker, name, "a.txt") == "one\ntwo"
    assert _read(broker, name, "/workspace/a.txt") == "one\ntwo"
    assert _read(broker, name, "//a.txt") == "one\ntwo"
    assert broker.client.get(f"/sessions/{name}").status_code == 404


def test_directories_first_links_out_specials_in(broker: Broker, stored: tuple[str, Path]) -> None:
    name, folder = stored
    for directory in ("zz", "B", ".d"):
        (folder / directory).mkdir()
    for file in ("b", "A", ".f", "é"):
        (folder / file).write_text("x")
    os.symlink("/etc", folder / "link")
    os.symlink("link", folder / "loop")
    os.mkfifo(folder / "fifo")
    entries = broker.archive(name, "ls", path=".").json()
    assert [e["name"] for e in entries] == [".d", "B", "zz", ".f", "A", "b", "fifo", "é"]
    assert [list(e) for e in entries] == [["name", "path", "is_dir", "size", "modified_at"]] * len(entries)
    assert entries[3]["path"] == ".f"


def test_times_have_microseconds_when_there_are_any(broker: Broker, stored: tuple[str, Path]) -> None:
    name, folder = stored
    for file, ns in (("whole", 1_700_000_000_000_000_000), ("part", 1_700_000_000_000_345_000), ("old", -1_000), ("far", 2**62)):
        (folder / file).write_text("x")
        os.utime(folder / file, ns=(ns, ns))
    (folder / "dir").mkdir()
    shown = {e["name"]: e["modified_at"] for e in broker.archive(name, "ls", path="").json()}
    assert shown["whole"] == "2023-11-14T22:13:20+00:00"
    assert shown["part"] == "2023-11-14T22:13:20.000345+00:00"
    assert shown["old"] == "1969-12-31T23:59:59.999999+00:00"
    assert shown["dir"] is None
    assert datetime.fromisoformat(shown["far"]).astimezone(timezone.utc).year == 2116


def test_names_that_are_no_text_do_not_spoil_a_listing(broker: Broker, stored: tuple[str, Path]) -> None:
    name, folder = stored
    for raw in (b"bad\xff", b"new\nline", b'quo"te\\', b"ctrl\x01"):
        (Path(os.fsdecode(bytes(folder))) / os.fsdecode(raw)).write_text("x")
    names = [e["name"] for e in broker.archive(name, "ls", path=".").json()]
    assert names == ["bad\ufffd", "ctrl\x01", "new\nline", 'quo"te\\']


@pytest.mark.parametrize(
    ("file", "data", "text"),
    [
        ("a.txt", "naïve\n".encode(), "naïve"),
        ("a.txt", "naïve".encode("latin-1"), "naïve"),
        ("a.bin", b"\xef\xbb\xbfbom", "bom"),
        ("a.bin", "hé\r\nb".encode("utf-16"), "hé\nb"),
        ("a", b"a\rb\x0bc\x0cd\x1ce\xc2\x85f\xe2\x80\xa8g\r\n\r\n", "a\nb\nc\nd\ne\nf\ng\n"),
        ("a.txt", b"\n", ""),
        ("a.txt", b"", "[End of file]"),
        ("a.txt", b"a\0b", "a\0b"),
    ],
)
def test_text_of_every_kind_is_read(broker: Broker, stored: tuple[str, Path], file: str, data: bytes, text: str) -> None:
    name, folder = stored
    (folder / file).write_bytes(data)
    assert _read(broker, name, file) == text


def test_what_is_no_text_is_refused_and_its_bytes_are_to_be_had(broker: Broker, stored: tuple[str, Path]) -> None:
    name, folder = stored
    (folder / "a.bin").write_bytes(b"\x80\x81\0\xff")
    answer = broker.archive(name, "read", path="a.bin")
    assert (answer.status_code, answer.json()) == (400, {"detail": "[Binary File]"})
    content = broker.archive(name, "read_bytes", path="a.bin").json()["content_b64"]
    assert base64.b64decode(content) == b"\x80\x81\0\xff"


def test_slices_of_lines(broker: Broker, stored: tuple[str, Path]) -> None:
    name, folder = stored
    (folder / "n").write_text("".join(f"{i}\n" for i in range(10)))
    assert _read(broker, name, "n", offset=2, limit=3) == "2\n3\n4\n\n[... 5 more lines. Use offset=5 to read more.]"
    assert _read(broker, name, "n", offset=8, limit=2) == "8\n9"
    assert _read(broker, name, "n", offset=9, limit=10**30) == "9"
    assert _read(broker, name, "n", offset=10**30) == "[End of file]"


def test_the_read_limit_is_inclusive(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(max_read_bytes=1000)
    folder = broker.root / "s" / "workspace"
    folder.mkdir(parents=True)
    (folder / "at").write_bytes(b"x" * 1000)
    (folder / "over").write_bytes(b"x" * 1001)
    for op in ("read", "read_bytes"):
        assert broker.archive("s", op, path="at").status_code == 200
        answer = broker.archive("s", op, path="over")
        assert (answer.status_code, answer.json()) == (400, {"detail": "File is 1001 bytes, over the 1000-byte read limit"})


@pytest.mark.parametrize(
    ("path", "status"),
    [("..", 400), ("d/../f", 400), ("link", 400), ("link/passwd", 400), ("d/out", 400), ("a\0b", 400), ("nope", 404), ("f/x", 404), ("d", 404), ("fifo", 404), ("n" * 300, 404), ("/etc/passwd", 404)],
)
def test_nothing_leads_out(broker: Broker, stored: tuple[str, Path], path: str, status: int) -> None:
    name, folder = stored
    (folder / "d").mkdir()
    (folder / "f").write_text("x")
    os.symlink("/etc", folder / "link")
    os.symlink("../../../secret", folder / "d" / "out")
    os.mkfifo(folder / "fifo")
    for op in ("read", "read_bytes"):
        assert broker.archive(name, op, path=path).status_code == status, op
    if path != "d":
        assert broker.archive(name, "ls", path=path).status_code == (status if path != "f" else 404)


def test_an_archive_asks_no_engine(make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    broker = make_broker(start=False)
    broker.env["DOCKER_HOST"] = f"unix://{tmp_path}/nobody-listens-here.sock"
    folder = broker.root / "s" / "workspace"
    folder.mkdir(parents=True)
    (folder / "f").write_text("x\n")
    broker.start()
    assert _read(broker, "s", "f") == "x"
    assert [e["name"] for e in broker.archive("s", "ls", path=".").json()] == ["f"]
    assert broker.archive("s", "read_bytes", path="f").json() == {"content_b64": "eAo="}


def test_without_a_root_there_is_no_archive(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(workspace_root=None)
    for op in ("ls", "read", "read_bytes"):
        answer = broker.archive("anything", op, path=".")
        assert answer.status_code == 409 and "workspace_root" in answer.json()["detail"]


def test_reading_a_live_workspace_counts_as_nothing(broker: Broker, sandbox: Session) -> None:
    sandbox.write("/workspace/f", b"x")
    before = sandbox.request("GET", "").json()["last_activity"]
    assert _read(broker, sandbox.id, "f") == "x"
    assert sandbox.request("GET", "").json()["last_activity"] == before
    assert sandbox.events()["latest_seq"] == 1
