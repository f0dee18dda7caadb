"""Faults that other products had with files and workspaces, where no other file has their test: F2, F3, W2 and W4 of the collection.

F1 is test_jail_races; F4, F5, F10 test_verbs and test_content; F6 test_content and test_classic_files; F7, F8 test_search; F9 test_wire_archive and
test_classic_files; F11 test_content and test_search; W3 test_purge; A1, A2 test_archive_io.
"""

from __future__ import annotations

import io
import os
import tarfile
import urllib.parse
from typing import Any, Callable

import pytest
from berth import Broker, Session


def find(session: Session, **params: Any) -> list[str]:
    answer = session.request("GET", "/find", params=params)
    assert answer.status_code == 200, answer.text
    return sorted(entry["path"] for entry in answer.json()["entries"])


def test_f2_one_bad_entry_costs_itself_only(make_broker: Callable[..., Broker]) -> None:
    """As an unprivileged user, whom a directory without rights keeps out."""
    session = make_broker(sandbox_uid=1234).open("s")
    session.stdout("echo a>a; ln -s nowhere dang; ln -s loop loop; mkdir locked; echo x > locked/x; chmod 000 locked")
    everything = ["a", "dang", "locked", "loop"]
    assert find(session) == everything
    # The wire hands a listing with links over to the sandbox: 409, not a failure of the whole.
    assert session.files("list", "/workspace").status_code == 409
    assert {"a", "locked"} <= {entry["name"] for entry in session.broker.archive("s", "ls", path=".").json()}
    assert session.request("GET", "/content", params={"path": "dang"}).status_code == 404
    assert 400 <= session.files("list", "/workspace/locked").status_code < 500
    assert 400 <= session.request("GET", "/content", params={"path": "locked/x"}).status_code < 500
    assert session.request("GET", "/search", params={"pattern": "a"}).json()["matches"][0]["path"] == "a"
    answer = session.request("GET", "/archive", params={"format": "tar"})
    assert answer.status_code == 200 and {"a", "dang", "loop"} <= set(tarfile.open(fileobj=io.BytesIO(answer.content)).getnames())


def test_f3_files_of_owners_that_nobody_knows(sandbox: Session) -> None:
    sandbox.stdout("mkdir -p d/e; echo needle > f; echo needle > d/e/g; chown -h 54321:54322 f d/e/g d; chown 4294967294:4294967294 d/e")
    assert find(sandbox) == ["d", "d/e", "d/e/g", "f"]
    assert {entry["name"] for entry in sandbox.files("list", "/workspace").json()} == {"d", "f"}
    assert [m["path"] for m in sandbox.request("GET", "/search", params={"pattern": "needle"}).json()["matches"]] == ["d/e/g", "f"]
    grep = sandbox.request("POST", "/files/grep", json={"pattern": "needle", "path": "."})
    assert grep.status_code in (200, 404), grep.text
    for op, body in (("ls", {"path": "."}), ("read", {"path": "f"})):
        assert sandbox.broker.archive(sandbox.id, op, **body).status_code == 200
    answer = sandbox.request("GET", "/archive", params={"format": "tar"})
    member = tarfile.open(fileobj=io.BytesIO(answer.content)).getmember("f")
    assert answer.status_code == 200 and not (member.uname or member.gname), "no name out of the host's list of users"


def test_w2_a_stopped_one_is_browsed_and_stays_stopped(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    session = broker.open("s")
    session.write("/workspace/d/f", b"needle\n")
    container = session.container()
    assert session.request("POST", "/hibernate").status_code == 200
    stopped = broker.engine.inspect(container)["State"]

    def browse(base: str) -> None:
        for path in ("content?path=d/f", "find", "search?pattern=needle", "archive?format=tar"):
            answer = broker.client.get(f"/{base}/s/{path}")
            assert answer.status_code == 200 and answer.content, path

    browse("sessions")
    assert session.read("/workspace/d/f") == b"needle\n"
    assert session.close().status_code == 204
    browse("workspaces")
    for op in ("ls", "tree"):
        assert broker.archive("s", op, path=".").status_code == 200
    now = broker.engine.inspect(container)["State"]
    assert not now["Running"] and now["StartedAt"] == stopped["StartedAt"]
    # Neither does it need the engine to be there.
    broker.terminate()
    broker.env["DOCKER_HOST"] = f"unix://{broker.home}/nobody-listens-here.sock"
    broker.start()
    browse("workspaces")
    broker.terminate()
    del broker.env["DOCKER_HOST"]
    broker.start()


ODD_IDS = ["..%2F..%2Fvictim", "%2e%2e", ".", "..", "%2Fetc", "a%00b", "a%2Fb", "a" * 5000, "A%CC%81", "..%2Fvictim", "victim%2F..%2F..%2Fvictim"]


@pytest.mark.parametrize("session_id", ODD_IDS)
def test_w4_an_id_is_no_path(broker: Broker, session_id: str) -> None:
    victim = broker.root.parent / "victim"
    (victim / "workspace").mkdir(parents=True, exist_ok=True)
    (victim / "workspace" / "keep").write_text("kept")
    before = sorted(os.listdir(broker.root)), sorted(os.listdir(broker.root.parent))
    plain = urllib.parse.unquote(session_id)
    asked = [("DELETE", f"/sessions/{session_id}?purge=true", None), ("DELETE", f"/workspaces/{session_id}", None), ("PUT", f"/workspaces/{session_id}", {"pinned": True})]
    asked += [("GET", f"/sessions/{session_id}/content?path=keep", None), ("GET", f"/workspaces/{session_id}/content?path=keep", None)]
    asked += [("POST", f"/workspaces/{session_id}/{op}", {"path": "keep"}) for op in ("ls", "read", "read_bytes", "tree")]
    asked += [("POST", f"/sessions/{session_id}/{verb}", {"argv": ["true"]}) for verb in ("run", "runs", "fork", "hibernate", "snapshots")]
    asked += [("POST", "/sessions", {"session_id": plain}), ("POST", "/sessions", {"session_id": plain, "attach": True})]
    for method, path, body in asked:
        answer = broker.client.request(method, path, json=body)
        assert answer.status_code in (400, 404, 405, 414, 422, 431), f"{method} {path[:80]}: {answer.status_code} {answer.text[:200]}"
    assert (victim / "workspace" / "keep").read_text() == "kept"
    assert (sorted(os.listdir(broker.root)), sorted(os.listdir(broker.root.parent))) == before


@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.parametrize("how", ["asleep", "restarted"])
def test_what_is_written_while_it_sleeps_belongs_to_its_user(make_broker: Callable[..., Broker], persist: bool, how: str) -> None:
    """Also when its container is gone: the user is remembered, and nothing is done with the broker's own rights."""
    broker = make_broker(sandbox_uid=1234, persist_containers=persist)
    session = broker.open("s")
    session.stdout("echo x > mine; mkdir d")
    assert session.request("POST", "/hibernate").status_code == 200
    # What root put there the session's user may not change.
    (session.workspace / "roots").write_text("root's")
    (session.workspace / "roots").chmod(0o600)
    if how == "restarted":
        broker.restart()
    assert session.request("PUT", "/content", params={"path": "d/new"}, content=b"new").status_code == 201
    assert session.request("POST", "/copy", params={"from": "mine", "to": "copied"}).status_code in (200, 201, 204)
    for name in ("d/new", "copied"):
        status = (session.workspace / name).stat()
        assert (status.st_uid, status.st_gid) == (1234, 1234), name
    assert session.request("GET", "/content", params={"path": "roots"}).status_code >= 400
    assert session.inspect()["state"] == "hibernated" and (persist or not broker.containers())
    assert session.stdout("echo more >> d/new; cat d/new") == "newmore\n"
