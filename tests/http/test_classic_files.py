"""Files as the classic wire has them (pydantic-ai-backend up to 0.2.29): every outcome inside a 200, any path of the sandbox."""

from __future__ import annotations

import base64
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from berth import Broker, Session, wait_until


def call(s: Session, op: str, **body: Any) -> Any:
    answer = s.request("POST", f"/{op}", json=body)
    assert answer.status_code == 200, f"{op} {body}: {answer.status_code} {answer.text}"
    return answer.json()


def read(s: Session, path: str, **body: Any) -> str:
    return call(s, "read", path=path, **body)["content"]


def read_bytes(s: Session, path: str) -> bytes:
    return base64.b64decode(call(s, "read_bytes", path=path)["content_b64"], validate=True)


def write(s: Session, path: str, content: bytes) -> dict[str, Any]:
    return call(s, "write", path=path, content_b64=base64.b64encode(content).decode())


def edit(s: Session, path: str, old: str, new: str, **body: Any) -> dict[str, Any]:
    return call(s, "edit", path=path, old_string=old, new_string=new, **body)


def exists(s: Session, path: str) -> bool:
    return call(s, "exists", path=path)["exists"]


MADE = r"""
mkdir -p src/pkg empty gr/sub gr/.h
printf 'alpha\nbeta\ngamma\ndelta\n' > lines.txt
printf 'import os\n' > src/a.py; printf 'import sys\n' > src/pkg/c.py
: > empty.txt; printf '\n' > newline.txt; printf 'a\nb' > nonl.txt; printf 'one\r\ntwo\r\n' > crlf.txt
printf 'caf\351\n' > latin1.txt; printf '\357\273\277bom line\nsecond\n' > bom.txt; printf '\211PNG\r\n\032\n\000\000\377\200\201' > pic.bin
ln -s lines.txt link_in.txt; ln -s src link_dir; ln -s /etc/hostname link_out.txt; ln -s nowhere dangling; ln -s loop loop; mkfifo fifo
printf 'outside\n' > /srv/outside.txt; printf 'temporary\n' > /tmp/t.txt
"""


@pytest.fixture(scope="module", params=[{}, {"native_files": False}, {"workspace_root": None}], ids=["host", "native files off", "no root"])
def shared(request: pytest.FixtureRequest, _module_brokers: Any, module_broker: Broker) -> Iterator[Session]:
    """One session for everything that only looks: what the host answers, and the same through the sandbox."""
    broker = _module_brokers.make(**request.param) if request.param else module_broker
    s = broker.open("classic-shared")
    s.stdout(MADE)
    yield s
    s.close(purge=True)


@pytest.fixture
def fresh(sandbox: Session) -> Session:
    sandbox.stdout(MADE)
    return sandbox


# ---- read


@pytest.mark.parametrize(
    "body, content",
    [
        ({"path": "lines.txt"}, "alpha\nbeta\ngamma\ndelta"),
        ({"path": "/workspace/lines.txt"}, "alpha\nbeta\ngamma\ndelta"),
        ({"path": ".//lines.txt"}, "alpha\nbeta\ngamma\ndelta"),
        ({"path": "lines.txt/"}, "alpha\nbeta\ngamma\ndelta"),
        ({"path": "src/../lines.txt"}, "alpha\nbeta\ngamma\ndelta"),
        ({"path": "lines.txt", "offset": 1, "limit": 1}, "beta\n\n[... 2 more lines. Use offset=2 to read more.]"),
        ({"path": "lines.txt", "offset": 4}, "[End of file]"),
        ({"path": "lines.txt", "offset": 10**30}, "[End of file]"),
        ({"path": "lines.txt", "offset": "1"}, "beta\ngamma\ndelta"),
        ({"path": "newline.txt"}, ""),
        ({"path": "empty.txt"}, "[End of file]"),
        ({"path": "crlf.txt"}, "one\ntwo"),
        ({"path": "latin1.txt"}, "café"),
        ({"path": "bom.txt"}, "bom line\nsecond"),
        ({"path": "pic.bin"}, "[Error: [Binary File]]"),
        ({"path": "nope"}, "Error: File 'nope' not found"),
        ({"path": "/nope/x"}, "Error: File '/nope/x' not found"),
        ({"path": "a\0b"}, "Error: File 'a\0b' not found"),
        ({"path": ""}, "Error: File '' not found"),
        ({"path": "."}, "Error: File '.' not found"),
        ({"path": "src"}, "Error: File 'src' not found"),
        ({"path": "lines.txt/x"}, "Error: File 'lines.txt/x' not found"),
        ({"path": "x" * 300}, f"Error: File '{'x' * 300}' not found"),
        ({"path": "fifo"}, "Error: File 'fifo' not found"),
        ({"path": "dangling"}, "Error: File 'dangling' not found"),
        ({"path": "loop"}, "Error: File 'loop' not found"),
        ({"path": "/dev/null"}, "Error: File '/dev/null' not found"),
        ({"path": "link_in.txt"}, "alpha\nbeta\ngamma\ndelta"),
        ({"path": "link_dir/a.py"}, "import os"),
        ({"path": "/srv/outside.txt"}, "outside"),
        ({"path": "../srv/outside.txt"}, "outside"),
        ({"path": "/tmp/t.txt"}, "temporary"),
    ],
)
def test_a_read_answers_lines_or_says_why_not(shared: Session, body: dict[str, Any], content: str) -> None:
    assert call(shared, "read", **body) == {"content": content}


@pytest.mark.parametrize("body, loc", [({}, "path"), ({"path": 5}, "path"), ({"path": "x", "offset": -1}, "offset"), ({"path": "x", "limit": 0}, "limit"), ({"path": "x", "offset": None}, "offset")])
def test_a_read_that_is_wrongly_asked_is_422(shared: Session, body: dict[str, Any], loc: str) -> None:
    answer = shared.request("POST", "/read", json=body)
    assert answer.status_code == 422 and answer.json()["detail"][0]["loc"] == ["body", loc]


def test_links_lead_within_the_sandbox_never_on_the_host(shared: Session) -> None:
    assert read(shared, "link_out.txt") == shared.stdout("cat /etc/hostname").strip()
    assert read(shared, "link_out.txt") != Path("/etc/hostname").read_text().strip()


def test_read_bytes_gives_bytes_or_nothing(shared: Session) -> None:
    assert read_bytes(shared, "pic.bin") == b"\x89PNG\r\n\x1a\n\0\0\xff\x80\x81"
    assert read_bytes(shared, "link_in.txt") == b"alpha\nbeta\ngamma\ndelta\n"
    assert read_bytes(shared, "/srv/outside.txt") == b"outside\n"
    for path in ("empty.txt", "nope", "src", "", "fifo", "dangling", "a\0b"):
        assert read_bytes(shared, path) == b""


def test_the_limit_on_reads_is_inclusive(make_broker: Callable[..., Broker]) -> None:
    s = make_broker(max_read_bytes=1000).open("limited")
    for place in ("", "/srv/"):
        s.stdout(f"head -c 1000 /dev/zero | tr '\\0' x > {place}at.txt; head -c 1001 /dev/zero | tr '\\0' x > {place}over.txt")
        assert read(s, place + "at.txt") == "x" * 1000
        assert read(s, place + "over.txt").startswith("[Error: File is 1001 bytes, over the 1000-byte read limit.")
        assert len(read_bytes(s, place + "at.txt")) == 1000 and read_bytes(s, place + "over.txt") == b""
        refused = edit(s, place + "over.txt", "x", "y")
        assert refused["error"].startswith("File is 1001 bytes, over the 1000-byte read limit.") and refused["path"] is None


@pytest.mark.parametrize("path, there", [("lines.txt", True), ("/workspace/lines.txt", True), ("link_in.txt", True), ("link_out.txt", True), ("../srv/outside.txt", True), ("/tmp/t.txt", True), ("src", False), ("nope", False), ("dangling", False), ("fifo", False), ("", False), ("a\0b", False), ("/etc", False)])
def test_exists_is_about_regular_files(shared: Session, path: str, there: bool) -> None:
    assert call(shared, "exists", path=path) == {"exists": there}


# ---- write


@pytest.mark.parametrize(
    "path, told, inside",
    [
        ("w/a/b/new.txt", "/workspace/w/a/b/new.txt", "/workspace/w/a/b/new.txt"),
        ("./w//x.txt", "/workspace/w/x.txt", "/workspace/w/x.txt"),
        ("w/dir/", "/workspace/w/dir", "/workspace/w/dir"),
        ("/workspace/w/abs.txt", "/workspace/w/abs.txt", "/workspace/w/abs.txt"),
        ("../outside.txt", "/workspace/../outside.txt", "/outside.txt"),
        ("/tmp/new.txt", "/tmp/new.txt", "/tmp/new.txt"),
        ("/srv/a/b", "/srv/a/b", "/srv/a/b"),
        ("w/it's \"here\" $HOME\n.txt", "/workspace/w/it's \"here\" $HOME\n.txt", "/workspace/w/it's \"here\" $HOME\n.txt"),
        ("link_dir/through.py", "/workspace/link_dir/through.py", "/workspace/src/through.py"),
        ("-dash", "/workspace/-dash", "/workspace/-dash"),
    ],
)
def test_a_write_makes_the_file_with_its_parents(fresh: Session, path: str, told: str, inside: str) -> None:
    content = bytes(range(256))
    assert write(fresh, path, content) == {"path": told, "error": None}
    result = fresh.run(["python3", "-c", "import sys; print(open(sys.argv[1], 'rb').read().hex())", inside])
    assert result["stdout"].strip() == content.hex()
    assert read_bytes(fresh, path) == content
    assert write(fresh, path, b"") == {"path": told, "error": None}
    assert exists(fresh, path) and read(fresh, path) == "[End of file]"


@pytest.mark.parametrize("path", ["src", "src/", "", ".", "..", "/", "//", "./", "src/.", "src/..", "/workspace", "/etc", "lines.txt/x", "a\0b", "/proc/x", "fifo", "n" * 256, "/srv"])
def test_a_path_that_can_be_no_file_costs_nothing(fresh: Session, path: str) -> None:
    before = fresh.stdout("find / -xdev -path /proc -prune -o -path /sys -prune -o -ls | grep -v ' /tmp' | awk '{print $3,$5,$7,$11}' | sort | md5sum")
    answer = write(fresh, path, b"x")
    assert answer["path"] is None and answer["error"]
    after = fresh.stdout("find / -xdev -path /proc -prune -o -path /sys -prune -o -ls | grep -v ' /tmp' | awk '{print $3,$5,$7,$11}' | sort | md5sum")
    assert after == before


def test_a_write_keeps_the_mode_and_replaces_links_not_targets(fresh: Session) -> None:
    fresh.stdout("chmod 755 src/a.py; ln -s src l2")
    for path in ("src/a.py", "link_in.txt", "link_out.txt", "l2", "dangling"):
        assert write(fresh, path, b"new\n")["error"] is None
    assert fresh.stdout("stat -c %a src/a.py; cat link_in.txt l2 dangling; head -1 lines.txt; ls src; wc -l < /etc/hostname") == (
        "755\nnew\nnew\nnew\nalpha\na.py\npkg\n1\n"
    )
    assert fresh.stdout("for f in link_in.txt link_out.txt l2 dangling; do test -L $f && echo $f; done; true") == ""
    assert fresh.stdout("umask 022; stat -c '%a %u:%g' l2; stat -c '%a' src") == "644 0:0\n755\n"


def test_content_that_is_no_base64_is_400_and_leaves_no_event(fresh: Session) -> None:
    before = fresh.request("GET", "/events").json()["latest_seq"]
    for content in ("!!!", "eA", "eHh4\neHh4", "_-8=", "é", "eA==="):
        answer = fresh.request("POST", "/write", json={"path": "w/x", "content_b64": content})
        assert answer.status_code == 400 and answer.json()["detail"].startswith("content_b64 is not valid base64")
    assert not exists(fresh, "w/x")
    assert fresh.request("GET", "/events").json()["latest_seq"] == before + 1


def test_nine_megabytes_are_written(fresh: Session) -> None:
    content = bytes(9 * 1024 * 1024)
    for path in ("w/nine.bin", "/srv/nine.bin"):
        assert write(fresh, path, content)["error"] is None
    assert fresh.stdout("cat w/nine.bin /srv/nine.bin | wc -c").strip() == str(2 * len(content))


# ---- edit


def test_edits_count_and_replace(fresh: Session) -> None:
    write(fresh, "e.txt", b"one two two\nthree two\n")
    assert edit(fresh, "e.txt", "one", "uno") == {"path": "/workspace/e.txt", "error": None, "occurrences": 1}
    refused = edit(fresh, "e.txt", "two", "2")
    assert refused == {"path": None, "error": "String 'two' found 3 times. Use replace_all=True to replace all, or provide more context.", "occurrences": None}
    assert edit(fresh, "./e.txt", "two", "2", replace_all=True) == {"path": "/workspace/e.txt", "error": None, "occurrences": 3}
    assert edit(fresh, "e.txt", "2\nthree", "2\n3\nthree")["occurrences"] == 1
    assert edit(fresh, "e.txt", "three", "three")["error"] is None
    assert edit(fresh, "e.txt", "zz", "y")["error"] == "String 'zz' not found in file"
    assert read_bytes(fresh, "e.txt") == b"uno 2 2\n3\nthree 2\n"
    assert edit(fresh, "e.txt", "", "-")["error"].startswith("String '' found 19 times.")
    assert edit(fresh, "e.txt", "", "-", replace_all=True)["occurrences"] == 19


def test_edits_outside_and_of_encodings(fresh: Session) -> None:
    assert edit(fresh, "/srv/outside.txt", "out", "in") == {"path": "/srv/outside.txt", "error": None, "occurrences": 1}
    assert edit(fresh, "link_dir/a.py", "os", "re") == {"path": "/workspace/link_dir/a.py", "error": None, "occurrences": 1}
    assert fresh.stdout("cat /srv/outside.txt src/a.py") == "inside\nimport re\n"
    assert edit(fresh, "crlf.txt", "one\r\n", "1\r\n")["error"] is None and read_bytes(fresh, "crlf.txt") == b"1\r\ntwo\r\n"
    assert edit(fresh, "latin1.txt", "fé", "ff")["error"] is None and read_bytes(fresh, "latin1.txt") == b"caff\n"
    assert edit(fresh, "bom.txt", "second", "2nd")["error"] is None and read_bytes(fresh, "bom.txt") == b"bom line\n2nd\n"


@pytest.mark.parametrize("path", ["nope", "src", "", ".", "link_in.txt", "link_out.txt", "dangling", "fifo", "a\0b", "/nope/x"])
def test_what_is_no_file_is_not_edited(fresh: Session, path: str) -> None:
    assert edit(fresh, path, "a", "b") == {"path": None, "error": f"File '{path}' not found", "occurrences": None}


def test_binary_is_not_edited_and_what_grows_without_bound_neither(fresh: Session) -> None:
    assert edit(fresh, "pic.bin", "a", "b")["error"] == "[Binary File]"
    write(fresh, "many.txt", b"a" * 100000)
    answer = edit(fresh, "many.txt", "a", "b" * 100000, replace_all=True)
    assert answer["path"] is None and "larger than" in answer["error"]
    assert read_bytes(fresh, "many.txt") == b"a" * 100000


@pytest.mark.parametrize("path", ["count.txt", "/srv/count.txt"])
def test_edits_beside_each_other_lose_nothing(fresh: Session, path: str) -> None:
    write(fresh, path, "".join(f"<{i}>" for i in range(12)).encode())
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda i=i: answers.append(edit(fresh, path, f"<{i}>", f"[{i}]"))) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [a["occurrences"] for a in answers] == [1] * 12
    assert read(fresh, path) == "".join(f"[{i}]" for i in range(12))


# ---- events and life


def test_each_operation_is_one_event(sandbox: Session) -> None:
    write(sandbox, "ev.txt", b"ev\n")
    read(sandbox, "ev.txt")
    read(sandbox, "missing.txt")
    read_bytes(sandbox, "ev.txt")
    read_bytes(sandbox, "missing.txt")
    edit(sandbox, "ev.txt", "ev", "EV")
    edit(sandbox, "ev.txt", "zz", "EV")
    exists(sandbox, "ev.txt")
    exists(sandbox, "missing.txt")
    call(sandbox, "ls", path=".")
    call(sandbox, "glob", pattern="*.txt", path=".")
    call(sandbox, "grep", pattern="EV", path=".")
    call(sandbox, "grep", pattern="[", path=".")
    sandbox.request("POST", "/read", json={"path": "x", "offset": -1})
    events = sandbox.request("GET", "/events").json()["events"]
    assert [(e["op"], e["target"], e["ok"], e["detail"]) for e in events] == [
        ("write", "ev.txt", True, "3 bytes"),
        ("read", "ev.txt", True, "2 chars"),
        ("read", "missing.txt", False, f"{len('Error: File %smissing.txt%s not found' % (chr(39), chr(39)))} chars"),
        ("read_bytes", "ev.txt", True, "3 bytes"),
        ("read_bytes", "missing.txt", False, "0 bytes"),
        ("edit", "ev.txt", True, "1 replaced"),
        ("edit", "ev.txt", False, "String 'zz' not found in file"),
        ("exists", "ev.txt", True, "found"),
        ("exists", "missing.txt", True, "missing"),
        ("ls", ".", True, "1 entries"),
        ("glob", "*.txt in .", True, "1 matches"),
        ("grep", "EV", True, "1 matches"),
        ("grep", "[", False, events[-1]["detail"]),
    ]
    assert events[-1]["detail"].startswith("Error: grep: ")


def test_what_the_host_can_answer_starts_no_container_again(sandbox: Session) -> None:
    write(sandbox, "src/f.txt", b"on the host\n")
    container = sandbox.container()
    sandbox.broker.engine.kill(container)
    wait_until(lambda: not sandbox.inspect()["alive"], what="the death seen")
    assert read(sandbox, "src/f.txt") == "on the host"
    assert edit(sandbox, "src/f.txt", "on", "still on")["error"] is None
    assert exists(sandbox, "src/f.txt") and len(call(sandbox, "ls", path="src")) == 1
    assert call(sandbox, "glob", pattern="*.txt")[0]["path"] == "src/f.txt"
    assert call(sandbox, "grep", pattern="host", path="src")["matches"][0]["line"] == "still on the host"
    assert not sandbox.broker.engine.running(container)
    assert read(sandbox, "/etc/hostname")  # this needs one: healed
    assert sandbox.inspect()["alive"]


@pytest.mark.parametrize("op, body", [("read", {"path": "x"}), ("read_bytes", {"path": "x"}), ("write", {"path": "x", "content_b64": ""}), ("edit", {"path": "x", "old_string": "a", "new_string": "b"}), ("exists", {"path": "x"}), ("ls", {"path": "."}), ("glob", {"pattern": "*"}), ("grep", {"pattern": "x"})])
def test_who_may_ask(shared: Session, sandbox: Session, op: str, body: dict[str, Any]) -> None:
    broker = shared.broker
    path = f"/sessions/{shared.id}/{op}"
    assert broker.http.post(path, json=body).status_code == 401
    assert broker.http.post(path, json=body, headers={"X-Sandbox-Token": sandbox.token}).status_code == 401
    assert broker.client.post(path, json=body).status_code == 200
    unknown = broker.client.post(f"/sessions/nosuch/{op}", json={})
    assert unknown.status_code == 404 and unknown.json()["detail"] == "No such session: nosuch"
    assert broker.http.post(f"/sessions/nosuch/{op}", json=body, headers={"X-Sandbox-Token": sandbox.token}).status_code == 401
