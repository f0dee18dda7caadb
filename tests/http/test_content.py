"""GET, PUT and DELETE …/content?path=: one file as it lies, of any size, of sessions and of stored workspaces."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import time
from pathlib import Path

import pytest
from berth import PORTABLE_WALK, SLOWNESS, Broker, Session, new_id, wait_until

ALL_BYTES = bytes(range(256)) * 3


@pytest.fixture(scope="module")
def session(module_broker: Broker) -> Session:
    return module_broker.open(new_id("content"))


def get(session: Session, path: str, **headers: str):
    return session.request("GET", "/content", params={"path": path}, headers=headers)


def put(session: Session, path: str, content, **headers: str):
    return session.request("PUT", "/content", params={"path": path}, content=content, headers=headers)


def quoted(name: bytes) -> str:
    return "".join(f"%{b:02X}" for b in name)


def get_raw_name(session: Session, name: bytes, method: str = "GET", **kwargs):
    return session.request(method, f"/content?path={quoted(name)}", **kwargs)


def leftovers(session: Session) -> list[str]:
    return [name for name in os.listdir(session.workspace) if name.startswith(".berth-")]


# ---- the good case


@pytest.mark.parametrize("content", [b"", b"x", ALL_BYTES, b"a\r\nb\nc", b"\xef\xbb\xbfbom", os.urandom(3_000_000)], ids=["empty", "x", "all-bytes", "line-ends", "bom", "random"])
def test_what_was_put_is_got(session: Session, content: bytes) -> None:
    answer = put(session, "sub/dir/file", content)
    assert answer.status_code in (200, 201) and answer.json()["size"] == len(content)
    assert session.stdout("sha256sum < sub/dir/file").split()[0] == hashlib.sha256(content).hexdigest()
    answer = get(session, "/workspace/sub/dir/file")
    assert answer.status_code == 200 and answer.content == content


def test_an_upload_larger_than_a_body_in_memory(session: Session) -> None:
    block = os.urandom(1024 * 1024)
    answer = put(session, "large", (block for _ in range(100)))
    assert answer.status_code == 201, answer.text
    expected = hashlib.sha256(block * 100).hexdigest()
    assert hashlib.sha256(get(session, "large").content).hexdigest() == expected
    assert not leftovers(session)


def test_tells_created_from_replaced_and_keeps_the_mode(session: Session) -> None:
    assert put(session, "m", b"1").status_code == 201
    session.stdout("chmod 750 m")
    answer = put(session, "m", b"22")
    assert answer.status_code == 200 and answer.json() == {"path": "m", "path_encoded": "m", "size": 2, "created": False}
    assert stat.S_IMODE((session.workspace / "m").stat().st_mode) == 0o750
    assert session.stdout("stat -c %u m") == session.stdout("id -u")


def test_a_file_that_is_read_while_it_is_replaced_is_whole(session: Session) -> None:
    put(session, "swap", b"a" * 500_000)
    for letter in b"bcdefgh":
        put(session, "swap", bytes([letter]) * 500_000)
        content = get(session, "swap").content
        assert len(content) == 500_000 and len(set(content)) == 1


def test_deletes(session: Session) -> None:
    session.stdout("mkdir -p tree/a/b; echo x > tree/a/b/f; ln -s /etc/passwd tree/l; mkfifo tree/p")
    assert session.request("DELETE", "/content", params={"path": "tree"}).status_code == 204
    assert not (session.workspace / "tree").exists()
    assert session.request("DELETE", "/content", params={"path": "tree"}).status_code == 404
    assert session.request("DELETE", "/content", params={"path": ""}).status_code == 400
    assert Path("/etc/passwd").exists()


def test_a_stored_workspace_is_read_without_a_session(module_broker: Broker) -> None:
    session = module_broker.open(new_id("stored"))
    put(session, "f", b"kept")
    session.close()
    answer = module_broker.client.get(f"/workspaces/{session.id}/content", params={"path": "f"})
    assert answer.status_code == 200 and answer.content == b"kept"
    assert module_broker.client.put(f"/workspaces/{session.id}/content", params={"path": "f"}, content=b"x").status_code == 405
    assert get(session, "f").status_code == 410  # its token is that of a closed session


# ---- ranges and conditions


@pytest.mark.parametrize(
    "asked, status, expected, told",
    [
        ("bytes=0-9", 206, ALL_BYTES[:10], "bytes 0-9/768"),
        ("bytes=760-", 206, ALL_BYTES[760:], "bytes 760-767/768"),
        ("bytes=-5", 206, ALL_BYTES[-5:], "bytes 763-767/768"),
        ("bytes=-5000", 206, ALL_BYTES, "bytes 0-767/768"),
        ("bytes=700-99999999999999999999999", 206, ALL_BYTES[700:], "bytes 700-767/768"),
        ("bytes=768-", 416, b"", "bytes */768"),
        ("bytes=99999999999999999999999-", 416, b"", "bytes */768"),
        ("bytes=-0", 416, b"", "bytes */768"),
        ("bytes=5-2", 200, ALL_BYTES, None),
        ("bytes=0-1,4-5", 200, ALL_BYTES, None),
        ("bytes=a-b", 200, ALL_BYTES, None),
        ("lines=0-1", 200, ALL_BYTES, None),
    ],
)
def test_ranges(session: Session, asked: str, status: int, expected: bytes, told: str | None) -> None:
    put(session, "r", ALL_BYTES)
    answer = get(session, "r", Range=asked)
    assert (answer.status_code, answer.content, answer.headers.get("content-range")) == (status, expected, told)


def test_etags(session: Session) -> None:
    put(session, "e", b"1234")
    etag = get(session, "e").headers["etag"]
    assert etag.startswith('"') and get(session, "e").headers["etag"] == etag
    for list_of_tags in (etag, f'"x", {etag}', f"W/{etag}", "*"):
        answer = get(session, "e", **{"If-None-Match": list_of_tags})
        assert answer.status_code == 304 and answer.content == b"" and answer.headers["etag"] == etag
    assert get(session, "e", **{"If-None-Match": '"x"'}).status_code == 200
    assert get(session, "e", **{"If-Range": etag, "Range": "bytes=0-0"}).status_code == 206
    # The same size, and the time of modification set back by hand: it is another file all the same.
    session.stdout("t=$(stat -c %y e); echo -n 4321 > e; touch -d \"$t\" e")
    answer = get(session, "e", **{"If-None-Match": etag})
    assert answer.status_code == 200 and answer.content == b"4321"
    assert get(session, "e", **{"If-Range": etag, "Range": "bytes=0-0"}).status_code == 200


def test_head_is_refused_as_everywhere(session: Session) -> None:
    assert session.request("HEAD", "/content", params={"path": "x"}).status_code == 405


def test_a_slice_of_a_large_sparse_file_is_cheap(module_broker: Broker, session: Session) -> None:
    session.stdout("truncate -s 8G big; printf 0123456789 | dd of=big conv=notrunc status=none")
    get(session, "big", Range="bytes=0-9")  # loads what is loaded once
    before = module_broker.rss_kb()
    began = time.monotonic()
    assert get(session, "big", Range="bytes=0-9").content == b"0123456789"
    assert time.monotonic() - began < 1 * SLOWNESS
    with socket.create_connection(("127.0.0.1", module_broker.port)) as raw:
        raw.sendall(
            f"GET /sessions/{session.id}/content?path=big HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {session.token}\r\n\r\n".encode()
        )
        got = 0
        while got < 200_000_000:
            got += len(raw.recv(1 << 20))
    assert module_broker.grew_less_than(16 * 1024, before)
    session.stdout("rm big")


# ---- what a browser is told


def test_types_are_judged_by_the_bytes(session: Session) -> None:
    script = b"<!DOCTYPE html><html><script>alert(1)</script></html>"
    put(session, "x.png", script, **{"Content-Type": "image/png"})
    answer = get(session, "x.png")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["content-disposition"].startswith("attachment;")
    put(session, "x.html", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0")
    assert get(session, "x.html").headers["content-type"].startswith("image/png")


@pytest.mark.parametrize("name", ["x.html", "x.svg", "x.foo", "x.md"])
def test_script_of_a_user_stays_inert_whatever_its_name(session: Session, name: str) -> None:
    """U2"""
    content = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>' if name == "x.svg" else b"<!DOCTYPE html><script>alert(1)</script>"
    put(session, name, content, **{"Content-Type": "text/html"})
    answer = get(session, name)
    assert answer.content == content
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"] and "allow-scripts" not in answer.headers["content-security-policy"]
    assert answer.headers["content-disposition"].startswith("attachment;")


@pytest.mark.parametrize(
    "name, plain, encoded",
    [
        (b"a b.txt", "a b.txt", "a%20b.txt"),
        ("Übung 日本.txt".encode(), None, "%C3%9Cbung%20%E6%97%A5%E6%9C%AC.txt"),
        (b'q"uote\\.txt', "q_uote__txt".replace("__txt", "_.txt"), "q%22uote%5C.txt"),
        (b"cr\r\nSet-Cookie: a=b", None, "cr%0D%0ASet-Cookie%3A%20a%3Db"),
        (b"bad\xffn", "bad_n", "bad%EF%BF%BDn"),
        (b'"><img src=x onerror=alert(1)>.txt', None, "%22%3E%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E.txt"),
    ],
)
def test_names_in_the_disposition(session: Session, name: bytes, plain: str | None, encoded: str) -> None:
    (Path(os.fsdecode(os.fsencode(session.workspace) + b"/" + name))).write_bytes(b"content")
    answer = get_raw_name(session, name)
    assert answer.status_code == 200 and answer.content == b"content"
    disposition = answer.headers["content-disposition"]
    assert disposition.endswith(f"filename*=UTF-8''{encoded}")
    assert "set-cookie" not in answer.headers
    if plain:
        assert f'filename="{plain}"' in disposition


# ---- odd names and odd files


@pytest.mark.parametrize(
    "name", [b"bad\xff\xfen", b"a\nb", b" c ", b"-n", b"#", b"%41", "é".encode(), b"n" * 255, b"a?b&c=d", b"\x01\x7f"]
)
def test_every_name_goes_in_and_out(session: Session, name: bytes) -> None:
    assert get_raw_name(session, name, "PUT", content=b"put").status_code == 201
    assert (Path(os.fsdecode(os.fsencode(session.workspace) + b"/" + name))).read_bytes() == b"put"
    assert get_raw_name(session, name).content == b"put"
    assert get_raw_name(session, name, "DELETE").status_code == 204
    assert get_raw_name(session, name).status_code == 404


def test_files_that_are_none(session: Session) -> None:
    session.stdout(
        "mkdir -p odd; cd odd; mkfifo fifo; ln -s nowhere dangling; ln -s loop loop; ln -s /etc/passwd out; ln -s ../../.. up; ln -s /proc/self/root proc;"
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; mkdir dir; echo hidden > real"
    )
    for name, read, write in [
        ("fifo", 409, 409), ("sock", 409, 409), ("dangling", 404, 409), ("loop", 404, 409), ("out", 404, 409),
        ("up/etc/passwd", 404, 409), ("proc/etc/passwd", 404, 409), ("dir", 400, 400), ("none", 404, 201),
        ("real/below", 404, 400), ("n" * 256, 400, 400),
    ]:
        for began, answer, expected in [
            (time.monotonic(), get(session, f"odd/{name}"), read),
            (time.monotonic(), put(session, f"odd/{name}", b"new"), write),
        ]:
            assert answer.status_code == expected, f"{answer.request.method} {name}: {answer.status_code} {answer.text}"
            assert time.monotonic() - began < 2 * SLOWNESS
    assert "root" in Path("/etc/passwd").read_text() and session.stdout("cat odd/real") == "hidden\n"


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "/workspacex/f", "a\0b", "/workspace/../etc/passwd"])
def test_paths_that_lead_out(session: Session, path: str) -> None:
    assert get(session, path).status_code == 400
    assert put(session, path, b"x").status_code == 400
    assert session.request("DELETE", "/content", params={"path": path}).status_code == 400


@pytest.mark.parametrize("session_id", ["..%2F..%2Fetc", "%2e%2e", "..", ".", "%2Fetc", "a%00b", "a%2Fb", "a" * 5000, "A%CC%81"])
def test_an_id_is_no_path(broker: Broker, session_id: str) -> None:
    victim = broker.home / "victim"
    victim.mkdir(exist_ok=True)
    (victim / "keep").write_text("kept")
    before = sorted(os.listdir(broker.root))
    for base in ("sessions", "workspaces"):
        for method in ("GET", "PUT", "DELETE"):
            answer = broker.client.request(method, f"/{base}/{session_id}/content?path=keep", content=b"x" if method == "PUT" else None)
            assert answer.status_code in (400, 404, 405, 414, 422, 431), f"{method} {session_id}: {answer.status_code}"
    assert (victim / "keep").read_text() == "kept" and sorted(os.listdir(broker.root)) == before


def test_who_may(broker: Broker, session: Session) -> None:
    other = broker.open(new_id("other"))
    put(session, "mine", b"secret")
    for token in (other.token, "", session.token[:-1], session.token + "x"):
        for method in ("GET", "PUT", "DELETE"):
            answer = broker.http.request(
                method, f"/sessions/{session.id}/content", params={"path": "mine"}, headers={"X-Sandbox-Token": token}
            )
            assert answer.status_code == 401
    assert broker.http.get(f"/workspaces/{session.id}/content", params={"path": "mine"}, headers={"X-Sandbox-Token": session.token}).status_code == 401
    assert get(session, "mine").content == b"secret"


def test_missing_fields_and_forms(session: Session) -> None:
    assert session.request("GET", "/content").status_code == 422
    answer = session.request("PUT", "/content", params={"path": "form"}, files={"file": b"x"})
    assert answer.status_code == 415 and not (session.workspace / "form").exists()


# ---- the interrupted case


def send_half(broker: Broker, session: Session, path: str, chunked: bool) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", broker.port))
    framing = "Transfer-Encoding: chunked" if chunked else "Content-Length: 2000000"
    raw.sendall(
        f"PUT /sessions/{session.id}/content?path={path} HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {session.token}\r\n{framing}\r\n\r\n".encode()
    )
    raw.sendall(b"f4240\r\n" + b"n" * 1_000_000 + b"\r\n" if chunked else b"n" * 1_000_000)
    return raw


def unfinished_files(broker: Broker) -> list[str]:
    """What the broker writes without a name yet, or (where it walks as on old kernels) under a name of its own."""
    found = []
    for fd in os.listdir(f"/proc/{broker.pid}/fd"):
        try:
            target = os.readlink(f"/proc/{broker.pid}/fd/{fd}")
        except FileNotFoundError:
            continue
        if "/.slots/" in target and (target.endswith("(deleted)") or "/.berth-" in target):
            found.append(target)
    return found


@pytest.mark.parametrize("chunked", [False, True])
def test_an_interrupted_upload_leaves_the_old_file_and_nothing_else(broker: Broker, session: Session, chunked: bool) -> None:
    put(session, "old", b"old")
    session.stdout("ls -A > /tmp/before")
    for path in ("old", "fresh"):
        raw = send_half(broker, session, path, chunked)
        wait_until(lambda: unfinished_files(broker), what="half of it is on the disk")
        raw.close()
        wait_until(lambda: not unfinished_files(broker), what="the upload has ended")
    assert get(session, "old").content == b"old" and get(session, "fresh").status_code == 404
    assert session.stdout("ls -A | diff - /tmp/before") == "" and not leftovers(session)


def test_uploads_that_are_killed_with_the_broker_leave_the_old_file(make_broker) -> None:
    broker = make_broker()
    session = broker.open(new_id("killed"))
    put(session, "old", b"old")
    raw = send_half(broker, session, "old", False)
    wait_until(lambda: unfinished_files(broker), what="half of it is on the disk")
    broker.crash()
    raw.close()
    assert get(session, "old").content == b"old"
    assert PORTABLE_WALK or not leftovers(session)  # what has a name is swept by the first opening a minute later


def test_over_the_limit(make_broker) -> None:
    broker = make_broker(max_upload_bytes=1000)
    session = broker.open(new_id("limit"))
    assert put(session, "f", b"x" * 1000).status_code == 201
    began = time.monotonic()
    assert put(session, "f", b"y" * 200_000_000).status_code == 413
    assert time.monotonic() - began < 5 * SLOWNESS
    answer = put(session, "f", (b"y" * 600 for _ in range(2)))
    assert answer.status_code == 413
    assert get(session, "f").content == b"x" * 1000 and not leftovers(session)


def test_a_refusal_comes_before_the_body(broker: Broker, session: Session) -> None:
    for path, token, status in [("f", "wrong", 401), ("../f", session.token, 400)]:
        with socket.create_connection(("127.0.0.1", broker.port)) as raw:
            raw.sendall(
                f"PUT /sessions/{session.id}/content?path={path} HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {token}\r\n"
                "Content-Length: 200000000\r\nExpect: 100-continue\r\n\r\n".encode()
            )
            assert raw.recv(100).startswith(f"HTTP/1.1 {status} ".encode())


def test_no_root_no_files(make_broker) -> None:
    broker = make_broker(workspace_root=None)
    session = broker.open(new_id("rootless"))
    assert get(session, "f").status_code == 409 and put(session, "f", b"x").status_code == 409
