"""GET and PUT …/archive?path=&format=: directories out and in, as tar, tar.gz, tar.zst and zip."""

from __future__ import annotations

import gzip
import io
import os
import re
import socket
import stat
import struct
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
from berth import SLOWNESS, Broker, Session, new_id, wait_until

FORMATS = ["tar", "tar.gz", "tar.zst", "zip"]


@pytest.fixture(scope="module")
def session(module_broker: Broker) -> Session:
    return module_broker.open(new_id("archive"))


def get(session: Session, path: str = "", **params: str):
    return session.request("GET", "/archive", params={"path": path} | params)


def put(session: Session, path: str, content, **params: str):
    return session.request("PUT", "/archive", params={"path": path} | params, content=content)


def snapshot(root: Path) -> dict[bytes, tuple]:
    """A tree as it lies: kinds, modes, times, content, links, and which names are one file."""
    found: dict[bytes, tuple] = {}
    inodes: dict[int, bytes] = {}
    base = os.fsencode(root)
    for directory, dirs, files in os.walk(base):
        for name in sorted(dirs + files):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            shown = os.path.relpath(path, base)
            kind = stat.S_IFMT(status.st_mode)
            content: object = None
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                content = open(path, "rb").read()
            same = inodes.setdefault(status.st_ino, shown) if kind == stat.S_IFREG and status.st_nlink > 1 else shown
            found[shown] = (kind, stat.S_IMODE(status.st_mode), status.st_mtime_ns, content, same)
    return found


def leftovers(session: Session) -> list[str]:
    return [name for name in os.listdir(session.workspace) if name.startswith(".berth-")]


def tar_of(*members: tuple[dict, bytes], **options) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **options) as tar:
        for fields, content in members:
            info = tarfile.TarInfo(fields.pop("name"))
            info.size = len(content)
            for key, value in fields.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def refused(answer) -> dict[str, str]:
    assert answer.status_code == 200, answer.text
    return {item["path"]: item["reason"] for item in answer.json()["refused"]}


# ---- down and up again


TREE = r"""
mkdir -p "$D/sub/deep/er" "$D/empty" "$D/ro" "$D/private"
printf x > "$D/x"; : > "$D/nothing"; head -c 300000 /dev/urandom > "$D/sub/random"
echo '#!/bin/sh' > "$D/run"; chmod 755 "$D/run"; chmod 600 "$D/x"
echo r > "$D/ro/r"; chmod 444 "$D/ro/r"; chmod 555 "$D/ro"; chmod 700 "$D/private"
ln -s x "$D/link"; ln -s nowhere "$D/dangling"; ln -s /workspace/$D/x "$D/absolute"; ln -s ../sub/random "$D/sub/up"; ln -s sub "$D/dirlink"
touch "$D/Übung 日本" "$D/a
b" "$D/ c " "$D/-n" "$D/%41" "$D/$(printf 'n%.0s' $(seq 255))"
touch -d '2001-02-03 04:05:06.123456789' "$D/x" "$D/link" -h; touch -d '1999-01-01 00:00:00' "$D/empty" "$D/sub/deep"
"""


@pytest.mark.parametrize("format", FORMATS)
def test_down_and_up_again_is_the_same_tree(session: Session, format: str) -> None:
    name = "t-" + format.replace(".", "")
    session.stdout(f"D={name}\n{TREE}" + ('ln "$D/x" "$D/sub/hard"; touch "$D/$(printf \'bad\\377n\')"' if format != "zip" else ""))
    down = get(session, name, format=format)
    assert down.status_code == 200, down.text
    assert f'filename="{name}.{format}"' in down.headers["content-disposition"]
    before = snapshot(session.workspace / name)
    session.stdout(f"chmod -R u+w {name}; mv {name} {name}.old")
    up = put(session, name, down.content, format=format)
    assert refused(up) == {}
    after = snapshot(session.workspace / name)
    assert after.keys() == before.keys()
    for path in before:
        kind, mode, mtime, content, same = before[path]
        if format == "zip":  # whole seconds, and the mode of a link is not told
            assert after[path][3:] == (content, same) and after[path][0] == kind
            assert kind == stat.S_IFLNK or after[path][1] == mode, path
            assert kind == stat.S_IFLNK or after[path][2] // 10**9 == mtime // 10**9, path
        else:
            assert after[path] == before[path], path
    owner = int(session.stdout("id -u"))
    assert all(os.lstat(os.path.join(os.fsencode(session.workspace / name), path)).st_uid == owner for path in after)
    assert not leftovers(session)


def test_other_tools_read_what_is_sent_and_are_read(session: Session, tmp_path: Path) -> None:
    session.stdout("mkdir -p tools/d; echo one > tools/d/f; ln -s d/f tools/l; chmod 751 tools/d; touch \"tools/$(printf 'bad\\377n')\"")
    for format, unpack in [("tar", "tar x"), ("tar.gz", "tar xz"), ("tar.zst", "zstd -dc | tar x")]:
        into = tmp_path / format
        into.mkdir()
        if format == "tar.zst" and subprocess.run(["which", "zstd"], capture_output=True).returncode != 0:
            continue
        subprocess.run(["sh", "-c", unpack], cwd=into, input=get(session, "tools", format=format).content, check=True)
        assert (into / "d/f").read_text() == "one\n" and os.readlink(into / "l") == "d/f"
        assert stat.S_IMODE((into / "d").stat().st_mode) == 0o751
        assert b"bad\xffn" in os.listdir(os.fsencode(into))
    with zipfile.ZipFile(io.BytesIO(get(session, "tools", format="zip").content)) as archive:
        assert archive.testzip() is None and archive.read("d/f") == b"one\n"

    (tmp_path / "src/d").mkdir(parents=True)
    (tmp_path / "src/d/é").write_bytes(b"two")
    for command, format in [("tar c .", "tar"), ("tar cz .", "tar.gz"), ("tar c --format=posix .", "tar"), ("tar c --format=v7 .", "tar")]:
        content = subprocess.run(["sh", "-c", command], cwd=tmp_path / "src", check=True, capture_output=True).stdout
        assert refused(put(session, "from", content)) == {}
        assert session.stdout("cat from/d/é; rm -r from") == "two"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("d/é", "three")
    assert refused(put(session, "from", out.getvalue())) == {}
    assert session.stdout("cat from/d/é") == "three"


@pytest.mark.parametrize("format", FORMATS)
def test_who_goes_away_in_the_middle_leaves_nothing(broker: Broker, session: Session, format: str) -> None:
    session.stdout("mkdir -p left; truncate -s 100G left/zeros; head -c 5000000 /dev/urandom > left/a")
    files, threads = broker.fd_count(), broker.thread_count()
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", broker.port)) as raw:
            raw.sendall(f"GET /sessions/{session.id}/archive?path=left&format={format} HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {session.token}\r\n\r\n".encode())
            assert raw.recv(100).startswith(b"HTTP/1.1 200 ")
    wait_until(lambda: broker.fd_count() <= files + 1 and broker.thread_count() <= threads + 1, what="all are gone")
    session.stdout("rm -r left")


def test_it_is_sent_while_it_is_made(broker: Broker, session: Session) -> None:
    session.stdout("mkdir -p huge; truncate -s 3G huge/zeros")
    before = broker.rss_kb()
    with socket.create_connection(("127.0.0.1", broker.port)) as raw:
        raw.sendall(f"GET /sessions/{session.id}/archive?path=huge HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {session.token}\r\n\r\n".encode())
        began = time.monotonic()
        assert raw.recv(100).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - began < 1 * SLOWNESS
        got = 0
        while got < 300_000_000:
            got += len(raw.recv(1 << 20))
    assert broker.grew_less_than(16 * 1024, before)
    assert not leftovers(session)
    session.stdout("rm -r huge")


def test_a_stored_workspace_and_what_is_no_directory(broker: Broker) -> None:
    session = broker.open(new_id("stored"))
    session.write("/workspace/d/f", b"kept")
    assert get(session, "d/f").status_code == 400 and get(session, "none").status_code == 404
    assert get(session, "d", format="rar").status_code == 422 and get(session, "../d").status_code == 400
    session.close()
    answer = broker.client.get(f"/workspaces/{session.id}/archive")
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        assert sorted(tar.getnames()) == ["d", "d/f"]
    assert broker.client.put(f"/workspaces/{session.id}/archive", content=answer.content).status_code == 405


def raw_get(broker: Broker, session: Session, path: str) -> bytes:
    with socket.create_connection(("127.0.0.1", broker.port)) as raw:
        raw.sendall(
            f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Sandbox-Token: {session.token}\r\n\r\n".encode()
        )
        content = b""
        while more := raw.recv(1 << 20):
            content += more
    return content


def test_names_of_any_bytes_reach_gnu_tar_and_it_complains_of_none_but_what_no_charset_knows(session: Session, tmp_path: Path) -> None:
    folder = os.fsencode(session.workspace / "names")
    os.mkdir(folder)
    text = [b"plain", "nfd-e\u0301".encode(), "nfc-\u00e9".encode(), "\u65e5\u672c".encode(), b"x" * 200, "\u00e9".encode() * 120]
    odd = [b"bad\xff\xfe", b"\xff" * 150]
    for name in text + odd:
        Path(os.fsdecode(os.path.join(folder, name))).write_bytes(name)
    os.symlink("e\u0301".encode(), os.path.join(folder, b"link"))
    os.symlink(b"to\xff", os.path.join(folder, b"odd link"))
    done = subprocess.run(["tar", "-x", "-C", tmp_path], input=get(session, "names").content, capture_output=True, check=True)
    out = os.fsencode(tmp_path)
    assert sorted(os.listdir(out)) == sorted([*text, *odd, b"link", b"odd link"])
    assert all(Path(os.fsdecode(os.path.join(out, name))).read_bytes() == name for name in text + odd)
    assert [os.readlink(os.path.join(out, name)) for name in (b"link", b"odd link")] == ["e\u0301".encode(), b"to\xff"]
    assert done.stderr.count(b"\n") == done.stderr.count(b"hdrcharset") == len(odd) + 1, done.stderr


def test_odd_entries_do_not_sink_the_rest_and_are_told(broker: Broker, session: Session) -> None:
    session.stdout(
        "mkdir -p odd/d; cd odd; echo a > d/a; mkfifo fifo; mkfifo 'name with blank'; ln -s .. d/up; ln -s . self;"
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; echo z > z"
    )
    answer = get(session, "odd")
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        assert sorted(tar.getnames()) == ["d", "d/a", "d/up", "self", "z"]
    raw = raw_get(broker, session, f"/sessions/{session.id}/archive?path=odd")
    assert b"Trailer: X-Berth-Archive\r\n" in raw
    told = re.search(rb"\r\nX-Berth-Archive: skipped=3; changed=0; names=([^\r]*)\r\n\r\n$", raw)
    assert told and set(told[1].split()) == {b"fifo", b"name%20with%20blank", b"sock"}


def test_a_tree_that_changes_meanwhile(session: Session) -> None:
    session.stdout("mkdir -p busy; for i in $(seq 200); do head -c 20000 /dev/zero > busy/$i; done")
    run = session.post_run  # a loop in the background of the sandbox, ended by its file
    run(["sh", "-c", "(cd busy; while [ -e 1 ]; do for i in 50 99 150; do rm -f $i; head -c $((i * 300)) /dev/zero > $i; : > $i; done; done) >/dev/null 2>&1 &"])
    try:
        for _ in range(20):
            answer = get(session, "busy", format="tar")
            assert answer.status_code == 200
            with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
                names = tar.getnames()
            assert len(set(names)) == len(names) and len(names) >= 197
    finally:
        session.stdout("rm busy/1")


# ---- A1: entries that lead out


def test_entries_that_lead_out_are_refused_by_name(broker: Broker, session: Session) -> None:
    outside = broker.home / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "secret").write_text("untouched")
    session.stdout("mkdir -p a1/dir; ln -s / a1/planted; echo kept > a1/file")
    content = tar_of(
        ({"name": "good1"}, b"1"),
        ({"name": "../x"}, b"out"),
        ({"name": "/abs"}, b"out"),
        ({"name": "a/../../x"}, b"out"),
        ({"name": "l1", "type": tarfile.SYMTYPE, "linkname": "/tmp"}, b""),
        ({"name": "l1/x"}, b"in a directory after all"),
        ({"name": "l2", "type": tarfile.SYMTYPE, "linkname": "../../.."}, b""),
        ({"name": "l3", "type": tarfile.SYMTYPE, "linkname": "/workspace/a1/dir"}, b""),
        ({"name": "l3/x"}, b"through a link"),
        ({"name": "h1", "type": tarfile.LNKTYPE, "linkname": "../../secret"}, b""),
        ({"name": "h2", "type": tarfile.LNKTYPE, "linkname": "planted/etc/passwd"}, b""),
        ({"name": "h3", "type": tarfile.LNKTYPE, "linkname": "file"}, b""),
        ({"name": "planted/x"}, b"through a link that lies there"),
        ({"name": "null", "type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}, b""),
        ({"name": "disk", "type": tarfile.BLKTYPE, "devmajor": 8, "devminor": 0}, b""),
        ({"name": "pipe", "type": tarfile.FIFOTYPE}, b""),
        ({"name": "suid", "mode": 0o6755}, b"#!"),
        ({"name": ".berth-0123456789abcdef/x"}, b"reserved"),
        ({"name": "good2"}, b"2"),
    )
    answer = put(session, "a1", content)
    told = refused(answer)
    assert set(told) == {
        "../x", "/abs", "a/../../x", "l1", "l2", "l3/x", "h1", "h2", "planted", "null", "disk", "pipe", ".berth-0123456789abcdef/x"
    }, told
    assert answer.json()["refused_count"] == len(told)
    assert session.stdout("cat a1/good1 a1/good2 a1/file a1/h3") == "12kept\nkept\n"
    assert stat.S_IMODE((session.workspace / "a1/suid").stat().st_mode) == 0o755
    assert os.readlink(session.workspace / "a1/planted") == "/"
    assert (outside / "secret").read_text() == "untouched"
    for path in ("/x", "/abs", "/tmp/x", str(broker.root / "x"), str(session.workspace / "x")):
        assert not os.path.lexists(path), path
    assert not leftovers(session)


def test_what_lies_there_is_replaced_or_refused_never_followed(broker: Broker, session: Session) -> None:
    victim = broker.home / "victim"
    victim.write_text("untouched")
    session.stdout(f"mkdir -p mix/dir/keep; echo old > mix/file; ln -s {victim} mix/link; mkfifo mix/fifo; echo x > mix/blocks; ln mix/file mix/other")
    told = refused(put(session, "mix", tar_of(
        ({"name": "file"}, b"new"), ({"name": "link"}, b"new"), ({"name": "dir"}, b"file over a directory"), ({"name": "fifo"}, b"new"),
        ({"name": "blocks/below"}, b"below a file"), ({"name": "dir/added"}, b"added"),
    )))  # fmt: skip
    assert set(told) <= {"dir", "dir/added", "blocks"} and "blocks" in told
    assert session.stdout("cat mix/file mix/link mix/fifo mix/blocks mix/other") == "newnewnewx\nold\n"
    assert victim.read_text() == "untouched" and (session.workspace / "mix/dir/keep").is_dir()


def test_the_place_itself(session: Session) -> None:
    content = tar_of(({"name": "f"}, b"x"))
    session.stdout("echo x > isfile; ln -s / islink")
    assert put(session, "isfile", content).status_code in (400, 409)
    assert put(session, "islink", content).status_code == 409
    assert put(session, "islink/tmp", content).status_code == 409
    assert put(session, "../up", content).status_code == 400
    assert put(session, "made/on/the/way", content).status_code == 200 and session.stdout("cat made/on/the/way/f") == "x"
    assert not Path("/tmp/f").exists()


# ---- A2: bombs


def tree(session: Session) -> list[str]:
    return sorted(os.listdir(session.workspace))


def many_entries(count: int) -> bytes:
    """Empty files e000000, e000001 …: one header, its name and checksum counted on (tarfile needs half a minute for as many)."""
    header = bytearray(tarfile.TarInfo("e000000").tobuf(format=tarfile.USTAR_FORMAT))
    total = int(header[148:154], 8) - sum(b"000000")
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as out:
        for i in range(count):
            digits = b"%06d" % i
            header[1:7] = digits
            header[148:156] = b"%06o\0 " % (total + sum(digits))
            out.write(header)
    return packed.getvalue()


def seconds_for_many_files(directory: Path) -> float:
    """What 100,000 files cost on this disk at this moment, made and removed."""
    directory.mkdir()
    began = time.monotonic()
    for i in range(10_000):
        open(directory / f"e{i}", "w").close()
        os.utime(directory / f"e{i}")
    for i in range(10_000):
        os.unlink(directory / f"e{i}")
    return 10 * (time.monotonic() - began)


def test_bombs_stop_and_leave_nothing(broker: Broker, session: Session, tmp_path: Path) -> None:
    zeros = io.BytesIO()
    with tarfile.open(fileobj=zeros, mode="w:gz", compresslevel=1) as tar:
        info = tarfile.TarInfo("zeros")
        info.size = 1 << 30
        tar.addfile(info, open("/dev/zero", "rb"))
    big = tarfile.TarInfo("big")
    big.size = 1 << 30
    members = gzip.compress(big.tobuf()) + gzip.compress(b"\0" * (64 << 20), 9) * 16
    header = bytearray(tar_of(({"name": "head"}, b""))[:512])
    header[124:136] = b"\x80" + (1 << 63).to_bytes(11, "big")
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    forged = io.BytesIO()
    with zipfile.ZipFile(forged, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("small", b"\0" * (200 << 20))
    forged_bytes = bytearray(forged.getvalue())
    forged_bytes[22:26] = struct.pack("<I", 10)  # the size that the local header tells
    many = many_entries(200_000)
    bombs = {
        "zeros": zeros.getvalue(),
        "many members": members,
        "8 EiB": bytes(header) + b"\0" * 4096,
        "forged zip": bytes(forged_bytes),
        "many entries": many,
        "deep": tar_of(({"name": "/".join(["d"] * 3000)}, b"x"), format=tarfile.PAX_FORMAT),
    }
    before, rss = tree(session), broker.rss_kb()
    for name, bomb in bombs.items():
        began = time.monotonic()
        answer = put(session, "", bomb)
        assert 400 <= answer.status_code < 500, f"{name}: {answer.status_code} {answer.text[:200]}"
        took = time.monotonic() - began
        assert took < 10 * SLOWNESS or took < 3 * SLOWNESS * seconds_for_many_files(tmp_path / name), name
        assert tree(session) == before and not leftovers(session), name
    assert broker.grew_less_than(32 * 1024, rss)


def test_gz_in_gz_is_not_unwrapped_twice(session: Session) -> None:
    inner = gzip.compress(tar_of(({"name": "inner"}, b"x")))
    assert put(session, "gzgz", gzip.compress(inner)).status_code == 400
    assert not (session.workspace / "gzgz").exists()


def test_budgets_of_bytes_and_entries(make_broker) -> None:
    broker = make_broker(max_upload_bytes=100_000, max_upload_entries=10)
    session = broker.open(new_id("budget"))
    assert put(session, "", tar_of(*[({"name": f"f{i}"}, b"") for i in range(10)])).status_code == 200
    assert put(session, "x", tar_of(*[({"name": f"f{i}"}, b"") for i in range(11)])).status_code == 413
    assert put(session, "y", tar_of(({"name": "a/b/c/d/e/f/g/h/i/j/k"}, b""))).status_code == 413
    assert put(session, "z", gzip.compress(tar_of(({"name": "f"}, b"\0" * 100_001)))).status_code == 413
    assert put(session, "z", gzip.compress(tar_of(({"name": "f"}, b"\0" * 100_000)))).status_code == 200
    assert sorted(os.listdir(session.workspace)) == sorted([f"f{i}" for i in range(10)] + ["z"])


# ---- broken and interrupted


@pytest.mark.parametrize("cut", [0, 100, 512, 700, 5000])
@pytest.mark.parametrize("format", FORMATS)
def test_half_an_archive_changes_nothing(session: Session, format: str, cut: int) -> None:
    session.stdout("mkdir -p half; echo old > half/f")
    name = "halfsrc"
    session.stdout(f"mkdir -p {name}; echo new > {name}/f; head -c 100000 /dev/urandom > {name}/g")
    whole = get(session, name, format=format).content
    answer = put(session, "half", whole[:cut] if cut else b"", format=format)
    assert answer.status_code == 400, answer.text
    assert session.stdout("cat half/f; ls half") == "old\nf\n" and not leftovers(session)


def test_what_is_no_archive(session: Session) -> None:
    before = tree(session)
    for garbage in (os.urandom(100_000), b"PK\x03\x04" + os.urandom(1000), b"\x1f\x8b" + os.urandom(1000), b"\x28\xb5\x2f\xfd" + os.urandom(1000)):
        assert put(session, "", garbage).status_code == 400
    assert tree(session) == before


def test_an_interrupted_upload_changes_nothing(broker: Broker, session: Session) -> None:
    session.stdout("mkdir -p cut; echo old > cut/f")
    content = tar_of(({"name": "f"}, b"new"), *[({"name": f"g{i}"}, b"x" * 5000) for i in range(200)])
    for chunked in (False, True):
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(content)}"
        half = content[: len(content) // 2]
        with socket.create_connection(("127.0.0.1", broker.port)) as raw:
            raw.sendall(
                f"PUT /sessions/{session.id}/archive?path=cut HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {session.token}\r\n{framing}\r\n\r\n".encode()
            )
            raw.sendall(b"%x\r\n%b\r\n" % (len(half), half) if chunked else half)
            wait_until(lambda: any("g50" in files for _, _, files in os.walk(session.workspace)), what="half of it is unpacked")
        wait_until(lambda: not leftovers(session), what="the staging is gone")
        assert session.stdout("cat cut/f; ls cut") == "old\nf\n"


def test_who_may(broker: Broker, session: Session) -> None:
    other = broker.open(new_id("other"))
    for token in (other.token, ""):
        for method in ("GET", "PUT"):
            answer = broker.http.request(method, f"/sessions/{session.id}/archive", headers={"X-Sandbox-Token": token})
            assert answer.status_code == 401
