"""Native files beside the recorded tables: sizes, odd names, faults, what is left when something fails."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, Iterator

import pytest

from berth import Broker, Session, new_id

MAX = 8 * 1024 * 1024  # max_read_bytes


@pytest.fixture(scope="module")
def shared(module_broker: Broker) -> Iterator[Session]:
    """One session for all tests that leave it as it was."""
    s = module_broker.open(new_id("shared"))
    yield s
    module_broker.purge(s.id)


@pytest.mark.parametrize("size", [0, 1, 4096, 65_535, 65_536, 65_537, 262_144, 262_145, 3_000_000, MAX])
def test_what_is_written_is_read_again(shared: Session, size: int) -> None:
    data = os.urandom(size)
    shared.write("/workspace/data", data)
    assert (shared.workspace / "data").read_bytes() == data
    answer = shared.files("read", "/workspace/data")
    assert answer.content == data
    assert answer.headers["content-type"] == "application/octet-stream"
    assert int(answer.headers["content-length"]) == size


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("over", [1, 5_000_000])
def test_a_body_over_the_limit_is_handed_over_and_the_old_file_stays(sandbox: Session, chunked: bool, over: int) -> None:
    sandbox.write("/workspace/data", b"old")
    data = b"x" * (MAX + over)
    content: Any = iter([data[i : i + 65536] for i in range(0, len(data), 65536)]) if chunked else data
    answer = sandbox.request("POST", "/files/write", params={"path": "/workspace/data"}, content=content)
    assert answer.status_code == 409
    assert sandbox.read("/workspace/data") == b"old"
    assert sorted(os.listdir(sandbox.workspace)) == ["data"]
    assert not any("data" == e["target"] and e["ok"] is False for e in sandbox.events()["events"])


def test_a_path_of_the_query_is_form_encoded(sandbox: Session) -> None:
    assert sandbox.request("POST", "/files/write?path=%2Fworkspace%2Fa+b%2Bc%25", content=b"x").status_code == 204
    assert (sandbox.workspace / "a b+c%").read_bytes() == b"x"
    assert sandbox.request("POST", "/files/write?path=/workspace/first&path=/workspace/last", content=b"y").status_code == 204
    assert sorted(os.listdir(sandbox.workspace)) == ["a b+c%", "last"]


def test_the_type_of_a_written_body_does_not_matter(sandbox: Session) -> None:
    for number, kind in enumerate(("application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")):
        answer = sandbox.request("POST", "/files/write", params={"path": f"/workspace/{number}"}, content=b"{nope", headers={"Content-Type": kind})
        assert answer.status_code == 204
        assert (sandbox.workspace / str(number)).read_bytes() == b"{nope"


@pytest.mark.parametrize("op", ["read", "stat", "list", "realpath", "mkdir", "remove"])
@pytest.mark.parametrize(
    ("path", "status"), [("", 400), ("x", 400), ("/workspace/a\0b", 400), ("/etc", 409), ("/workspace/../etc", 409), ("/workspace/./x", 409), ("//workspace", 409), ("/workspace2", 409)]
)
def test_paths_are_judged_before_anything_is_touched(shared: Session, op: str, path: str, status: int) -> None:
    answer = shared.files(op, path)
    assert answer.status_code == status
    detail = answer.json()["detail"]
    assert detail["error"] == "ValueError" if status == 400 else isinstance(detail, str)


def test_messages_name_the_part_that_failed(sandbox: Session) -> None:
    sandbox.write("/workspace/it's/deep/file", b"x")
    for op, path, status, error, message in (
        ("read", "/workspace/it's/nope/x", 404, "FileNotFoundError", "[Errno 2] No such file or directory: 'nope'"),
        ("read", "/workspace/it's", 400, "IsADirectoryError", "it's is a directory"),
        ("stat", "/workspace/it's/deep/file/below", 400, "NotADirectoryError", "[Errno 20] Not a directory: 'file'"),
        ("stat", "/workspace/isn't", 404, "FileNotFoundError", '[Errno 2] No such file or directory: "isn\'t"'),
        ("remove", "/workspace", 400, "ValueError", "refusing to remove the working directory"),
        ("list", "/workspace/it's/deep/file", 400, "NotADirectoryError", "[Errno 20] Not a directory: 'file'"),
        ("mkdir", "/workspace/it's/deep/file", 400, "FileExistsError", "[Errno 17] File exists: 'file'"),
    ):
        answer = sandbox.files(op, path)
        assert (answer.status_code, answer.json()["detail"]) == (status, {"error": error, "message": message}), (op, path)


def test_what_the_host_cannot_say_is_handed_over(sandbox: Session) -> None:
    sandbox.stdout("ln -s /etc/passwd link; ln -s . loop; mkfifo fifo; mkdir odd; touch odd/$(printf 'a\\377')")
    for path in ("/workspace/link", "/workspace/loop/loop/loop", "/workspace/fifo"):
        for op in ("read", "stat"):
            assert sandbox.files(op, path).status_code == 409, (op, path)
    assert sandbox.files("list", "/workspace").status_code == 409
    assert sandbox.files("list", "/workspace/odd").status_code == 409, "a name that is not UTF-8"
    assert sandbox.files("remove", "/workspace/odd").status_code == 204
    assert sandbox.request("POST", "/files/write", params={"path": "/workspace/link"}, content=b"evil").status_code == 409
    assert sandbox.stdout("cat /etc/passwd").startswith("root:")


def test_a_deep_tree_is_removed_from_the_host(sandbox: Session) -> None:
    sandbox.stdout("python3 -c \"import os\nfor _ in range(2000):\n os.mkdir('d'); os.chdir('d')\"")
    assert sandbox.files("remove", "/workspace/d").status_code == 204
    assert os.listdir(sandbox.workspace) == []


def test_a_listing_of_many_is_sorted_and_whole(sandbox: Session) -> None:
    sandbox.stdout("mkdir many; cd many; seq 1 5000 | xargs touch; mkdir -- B a _ .h '-x' 'é'")
    entries = sandbox.files("list", "/workspace/many/").json()
    names = [e["name"] for e in entries]
    assert len(names) == 5006 and names == sorted(names)
    assert all(e["path"] == f"/workspace/many/{e['name']}" and e["modified_at"] is None for e in entries)
    assert {e["name"] for e in entries if e["is_dir"]} == {"B", "a", "_", ".h", "-x", "é"}
    assert all((e["size"] is None) == e["is_dir"] for e in entries)


def test_writers_of_one_file_leave_one_whole_version(sandbox: Session) -> None:
    contents = [bytes([65 + i]) * 200_000 for i in range(8)]

    def write(content: bytes) -> None:
        for _ in range(5):
            sandbox.write("/workspace/shared", content)

    threads = [threading.Thread(target=write, args=(c,)) for c in contents]
    for thread in threads:
        thread.start()
    while any(t.is_alive() for t in threads):
        answer = sandbox.files("read", "/workspace/shared")
        assert answer.status_code == 404 or answer.content in contents
    for thread in threads:
        thread.join()
    assert sandbox.read("/workspace/shared") in contents
    assert os.listdir(sandbox.workspace) == ["shared"]


def test_each_operation_leaves_its_event(sandbox: Session) -> None:
    sandbox.write("/workspace/f", b"x")
    for op in ("read", "stat", "realpath"):
        assert sandbox.files(op, "/workspace/f").status_code == 200
    assert sandbox.files("list", "/workspace").status_code == 200
    assert sandbox.files("mkdir", "/workspace/d").status_code == 204
    assert sandbox.files("remove", "/workspace/gone").status_code == 404
    assert sandbox.files("read", "/etc/passwd").status_code == 409
    events = sandbox.events()["events"]
    assert [(e["op"], e["ok"], e["detail"]) for e in events] == [
        ("write", True, ""),
        ("read", True, ""),
        ("stat", True, ""),
        ("realpath", True, ""),
        ("ls", True, ""),
        ("mkdir", True, ""),
        ("remove", False, "not found"),
        ("read", False, "via the sandbox"),
    ]


def test_without_native_files_everything_is_handed_over(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(native_files=False)
    s = broker.open()
    policy = broker.client.get("/policy").json()
    assert (policy["native_files"], policy["native_writes"], policy["native_realpath"]) == (False, False, False)
    for op in ("read", "stat", "list", "realpath", "mkdir", "remove"):
        assert s.files(op, "/workspace").status_code == 409
    assert s.request("POST", "/files/write", params={"path": "/workspace/x"}, content=b"x").status_code == 409
    assert s.events()["latest_seq"] == 0, "what is off leaves no event"
    assert s.stdout("echo x > f; cat f") == "x\n"
