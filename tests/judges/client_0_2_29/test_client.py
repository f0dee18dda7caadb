"""Every method of RemoteSandbox and WorkspaceArchive of 0.2.29, over a live broker: what each returns or raises.

The values are what the reference's own server made of the same calls, but for two of its faults: an empty file was "not found",
and a search of the default root found nothing.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

import pytest
from pydantic import ValidationError
from pydantic_ai_backends.remote import RemoteSandbox, WorkspaceArchive, WorkspaceArchiveError

from berth import TOKEN, Broker, new_id
from live import Pool

BINARY = bytes(range(256))


@pytest.fixture(scope="module")
def broker(module_pool: Pool) -> Broker:
    return module_pool.make()


def remote(broker: Broker, session_id: str | None = None, token: str = TOKEN, **more: Any) -> RemoteSandbox:
    return RemoteSandbox(broker.url, token=token, session_id=session_id, **more)


@pytest.fixture
def sandbox(broker: Broker) -> Iterator[RemoteSandbox]:
    """A sandbox with four files in /workspace/a."""
    sandbox = remote(broker, new_id(), tenant="acme", runtime="python")
    sandbox.write("a/one.txt", "alpha\nbeta\ngamma\n")
    sandbox.write("a/b.bin", BINARY)
    sandbox.write("a/empty.txt", "")
    sandbox.write("a/ünï 日本.txt", "zażółć\n")
    yield sandbox
    sandbox.stop(purge=True)


@pytest.fixture
def archive(broker: Broker) -> Iterator[WorkspaceArchive]:
    archive = WorkspaceArchive(broker.url, token=TOKEN)
    yield archive
    archive.close()


def result(value: Any) -> tuple[Any, ...]:
    """A WriteResult or EditResult: path, error, and the occurrences of an edit."""
    return (value.path, value.error, *([value.occurrences] if hasattr(value, "occurrences") else []))


class TestOpening:
    def test_nothing_is_asked_before_the_first_operation(self, broker: Broker) -> None:
        sandbox = remote(broker, new_id())
        assert sandbox.is_alive() is False
        assert sandbox.resource_usage() is None
        assert sandbox.server_timeout == 60.0
        sandbox.stop()
        assert broker.client.get(f"/sessions/{sandbox.session_id}").status_code == 404

    def test_the_first_operation_opens_the_session(self, broker: Broker) -> None:
        sandbox = remote(broker, new_id(), tenant="acme", runtime="python")
        answer = sandbox.execute("echo hi")
        assert (answer.output, answer.exit_code, answer.truncated) == ("hi\n", 0, False)
        assert sandbox.server_timeout == 300.0
        sandbox.start()  # again: nothing happens
        assert sandbox.id == sandbox.session_id
        assert sandbox.is_alive() is True
        usage = sandbox.resource_usage()
        assert usage is not None and usage.memory_limit_bytes == 1 << 30 and usage.memory_bytes and usage.pids
        assert broker.client.get(f"/sessions/{sandbox.session_id}").json()["tenant"] == "acme"
        sandbox.stop(purge=True)

    def test_an_id_of_its_own_is_made_up(self, broker: Broker) -> None:
        assert re.fullmatch(r"remote-[0-9a-f]{12}", remote(broker).session_id)

    @pytest.mark.parametrize("bad", [{"session_id": "../x"}, {"tenant": "a b"}])
    def test_a_bad_name_is_refused_without_asking(self, broker: Broker, bad: dict[str, str]) -> None:
        with pytest.raises(ValidationError):
            RemoteSandbox(broker.url, token=TOKEN, **bad)

    def test_a_taken_id_is_409_and_reuse_shares_it(self, broker: Broker, sandbox: RemoteSandbox) -> None:
        with pytest.raises(RuntimeError, match=r"refused to open a session \(HTTP 409\)"):
            remote(broker, sandbox.session_id).start()
        assert remote(broker, sandbox.session_id, reuse=True).read("a/one.txt") == "alpha\nbeta\ngamma"

    def test_an_unknown_runtime_is_400_and_an_operation_degrades(self, broker: Broker) -> None:
        with pytest.raises(RuntimeError, match=r"refused to open a session \(HTTP 400\).*ruby"):
            remote(broker, new_id(), runtime="ruby").start()
        answer = remote(broker, new_id(), runtime="ruby").execute("id")
        assert (answer.output, answer.exit_code) == ("Error: sandbox service unavailable", 1)

    def test_a_wrong_token_is_401(self, broker: Broker) -> None:
        with pytest.raises(RuntimeError, match=r"refused to open a session \(HTTP 401\)"):
            remote(broker, new_id(), token="nope").start()

    def test_eight_threads_open_it_once(self, broker: Broker) -> None:
        sandbox = remote(broker, new_id())
        with ThreadPoolExecutor(8) as pool:
            outputs = list(pool.map(lambda number: sandbox.execute(f"echo {number}").output, range(8)))
        assert outputs == [f"{number}\n" for number in range(8)]
        sandbox.stop(purge=True)


class TestExecute:
    def test_both_streams_arrive_in_order_with_the_status(self, sandbox: RemoteSandbox) -> None:
        answer = sandbox.execute("echo o; echo e >&2; exit 3")
        assert (answer.output, answer.exit_code, answer.truncated) == ("o\ne\n", 3, False)

    def test_a_timeout_is_124(self, sandbox: RemoteSandbox) -> None:
        answer = sandbox.execute("sleep 5", timeout=1)
        assert (answer.output, answer.exit_code, answer.truncated) == ("", 124, False)

    def test_long_output_is_cut_at_a_hundred_thousand_bytes(self, sandbox: RemoteSandbox) -> None:
        answer = sandbox.execute("yes | head -c 200000")
        assert (answer.output, answer.exit_code, answer.truncated) == ("y\n" * 50000, 0, True)


class TestFiles:
    def test_write_answers_with_the_absolute_path(self, sandbox: RemoteSandbox) -> None:
        assert result(sandbox.write("x/y.txt", "1")) == ("/workspace/x/y.txt", None)
        assert result(sandbox.write("x/ünï.bin", b"\0\xff")) == ("/workspace/x/ünï.bin", None)
        assert sandbox.execute("od -An -tx1 x/*.bin").output == " 00 ff\n"

    def test_nothing_is_written_below_a_file(self, sandbox: RemoteSandbox) -> None:
        path, error = result(sandbox.write("a/one.txt/x", "x"))
        assert path is None and error
        assert sandbox.read("a/one.txt") == "alpha\nbeta\ngamma"

    def test_read(self, sandbox: RemoteSandbox) -> None:
        assert sandbox.read("a/one.txt") == "alpha\nbeta\ngamma"
        assert sandbox.read("a/one.txt", 1, 1) == "beta\n\n[... 1 more lines. Use offset=2 to read more.]"
        assert sandbox.read("a/one.txt", 99) == "[End of file]"
        assert sandbox.read("a/empty.txt") == "[End of file]"
        assert sandbox.read("a/ünï 日本.txt") == "zażółć"
        assert sandbox.read("nope.txt") == "Error: File 'nope.txt' not found"
        assert sandbox.read("a/b.bin") == "[Error: [Binary File]]"
        with pytest.raises(ValidationError):
            sandbox.read("a/one.txt", -1)

    def test_read_bytes(self, sandbox: RemoteSandbox) -> None:
        assert sandbox.read_bytes("a/b.bin") == BINARY
        assert sandbox.read_bytes("nope") == b""

    def test_edit(self, sandbox: RemoteSandbox) -> None:
        assert result(sandbox.edit("a/one.txt", "beta", "BETA")) == ("/workspace/a/one.txt", None, 1)
        path, error, occurrences = result(sandbox.edit("a/one.txt", "zzz", "y"))
        assert (path, occurrences) == (None, None) and "'zzz'" in error and "not found" in error
        path, error, occurrences = result(sandbox.edit("a/one.txt", "a", "A"))
        assert (path, occurrences) == (None, None) and "4 times" in error and "replace_all" in error
        assert result(sandbox.edit("a/one.txt", "a", "A", True)) == ("/workspace/a/one.txt", None, 4)
        assert sandbox.read("a/one.txt") == "AlphA\nBETA\ngAmmA"
        path, error, occurrences = result(sandbox.edit("nope.txt", "a", "A"))
        assert (path, occurrences) == (None, None) and "'nope.txt' not found" in error

    def test_exists_means_a_regular_file(self, sandbox: RemoteSandbox) -> None:
        assert [sandbox.exists(path) for path in ("a/one.txt", "a", "nope")] == [True, False, False]


class TestLooking:
    def test_ls_info(self, sandbox: RemoteSandbox) -> None:
        assert [(row["name"], row["path"], row["is_dir"], row["size"]) for row in sandbox.ls_info("a")] == [
            ("b.bin", "a/b.bin", False, 256),
            ("empty.txt", "a/empty.txt", False, 0),
            ("one.txt", "a/one.txt", False, 17),
            ("ünï 日本.txt", "a/ünï 日本.txt", False, 11),
        ]
        assert sandbox.ls_info("nope") == []

    def test_glob_info(self, sandbox: RemoteSandbox) -> None:
        texts = [("empty.txt", "a/empty.txt", None), ("one.txt", "a/one.txt", None), ("ünï 日本.txt", "a/ünï 日本.txt", None)]
        for rows in (sandbox.glob_info("*.txt"), sandbox.glob_info("**/*.txt", "a")):
            assert [(row["name"], row["path"], row["size"]) for row in rows] == texts
        assert sandbox.glob_info("*.zzz") == []

    def test_grep_raw(self, sandbox: RemoteSandbox) -> None:
        hit = {"line_number": 2, "line": "beta"}
        assert sandbox.grep_raw("beta", "a") == [{"path": "a/one.txt"} | hit]
        assert sandbox.grep_raw("beta") == [{"path": "./a/one.txt"} | hit]
        assert sandbox.grep_raw("beta", ignore_hidden=False) == [{"path": "./a/one.txt"} | hit]
        assert sandbox.grep_raw("beta", "a", "*.bin", False) == []
        assert sandbox.grep_raw("qqqq", "a") == []
        error = sandbox.grep_raw("[", "a")
        assert isinstance(error, str) and error


class TestEnding:
    def test_another_object_sees_the_end_and_degrades_to_neutral_values(self, broker: Broker, sandbox: RemoteSandbox) -> None:
        other = remote(broker, sandbox.session_id, reuse=True)
        other.start()
        sandbox.stop()
        assert other.is_alive() is False
        assert other.execute("id").output == "Error: sandbox service unavailable"
        assert other.read("a/one.txt") == "Error: could not read 'a/one.txt'"
        assert other.read_bytes("a/one.txt") == b""
        assert result(other.write("x", "y")) == (None, "Error: could not write 'x'")
        assert result(other.edit("x", "y", "z")) == (None, "Error: could not edit 'x'", None)
        assert other.grep_raw("x") == "Error: could not search for 'x'"
        assert (other.exists("a/one.txt"), other.ls_info("a"), other.glob_info("*")) == (False, [], [])

    def test_the_same_object_opens_again_on_the_same_files(self, sandbox: RemoteSandbox) -> None:
        sandbox.stop()
        assert sandbox.read("a/one.txt") == "alpha\nbeta\ngamma"

    def test_stop_with_purge_leaves_nothing_and_twice_is_fine(self, broker: Broker, sandbox: RemoteSandbox, archive: WorkspaceArchive) -> None:
        sandbox.stop(purge=True)
        with pytest.raises(WorkspaceArchiveError):
            archive.ls(sandbox.session_id)
        assert not (broker.root / sandbox.session_id).exists()
        sandbox.stop()


class TestArchive:
    def test_ls(self, sandbox: RemoteSandbox, archive: WorkspaceArchive) -> None:
        rows = archive.ls(sandbox.session_id, "a")
        assert [(row["name"], row["path"], row["size"]) for row in rows] == [
            ("b.bin", "a/b.bin", 256),
            ("empty.txt", "a/empty.txt", 0),
            ("one.txt", "a/one.txt", 17),
            ("ünï 日本.txt", "a/ünï 日本.txt", 11),
        ]
        assert sorted(rows[0]) == ["is_dir", "modified_at", "name", "path", "size"]
        assert [row["path"] for row in archive.ls(sandbox.session_id)] == ["a"]
        assert archive.ls(sandbox.session_id, "/workspace/a") == rows

    def test_read(self, sandbox: RemoteSandbox, archive: WorkspaceArchive) -> None:
        assert archive.read(sandbox.session_id, "a/one.txt") == "alpha\nbeta\ngamma"
        assert archive.read(sandbox.session_id, "a/one.txt", 1, 1) == "beta\n\n[... 1 more lines. Use offset=2 to read more.]"
        assert archive.read(sandbox.session_id, "a/empty.txt") == "[End of file]"
        assert archive.read_bytes(sandbox.session_id, "a/b.bin") == BINARY

    @pytest.mark.parametrize(("path", "status"), [("a/b.bin", 400), ("nope", 404), ("../../etc/passwd", 400)])
    def test_what_cannot_be_read_raises_with_the_status(self, sandbox: RemoteSandbox, archive: WorkspaceArchive, path: str, status: int) -> None:
        with pytest.raises(WorkspaceArchiveError) as caught:
            archive.read(sandbox.session_id, path)
        assert caught.value.status_code == status

    def test_an_unknown_id_a_wrong_token_and_nobody_there(self, broker: Broker, archive: WorkspaceArchive) -> None:
        for made, session_id, status in (
            (archive, "nosuch", 404),
            (WorkspaceArchive(broker.url, token="nope"), "nosuch", 401),
            (WorkspaceArchive("http://127.0.0.1:9", token=TOKEN), "nosuch", None),
        ):
            with pytest.raises(WorkspaceArchiveError) as caught:
                made.ls(session_id)
            assert caught.value.status_code == status

    def test_it_reads_on_after_the_session_was_closed(self, broker: Broker, sandbox: RemoteSandbox, archive: WorkspaceArchive) -> None:
        sandbox.stop()
        assert archive.read(sandbox.session_id, "a/one.txt") == "alpha\nbeta\ngamma"
        assert broker.client.get(f"/sessions/{sandbox.session_id}").status_code == 404
        broker.purge(sandbox.session_id)
