"""POST …/move, …/copy, …/chmod, and GET …/find: files by name, moved, copied and changed without a process in the sandbox."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
from berth import SLOWNESS, Broker, Session, new_id


@pytest.fixture(scope="module")
def session(module_broker: Broker) -> Session:
    return module_broker.open(new_id("verbs"))


def post(session: Session, verb: str, **params: str):
    return session.request("POST", f"/{verb}", params={("from" if k == "source" else k): v for k, v in params.items()})


def find(session: Session, **params):
    answer = session.request("GET", "/find", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def paths(found) -> list[str]:
    return [entry["path"] for entry in found["entries"]]


def leftovers(session: Session) -> list[str]:
    return [name for name in os.listdir(session.workspace) if name.startswith(".berth-")]


def test_moves_files_links_and_directories(session: Session) -> None:
    session.stdout("mkdir -p mv/d/e mv/to; echo f > mv/f; ln -s nowhere mv/l; echo g > mv/d/e/g")
    for name in ("f", "l", "d"):
        assert post(session, "move", source=f"mv/{name}", to=f"/workspace/mv/to/{name}").status_code == 204
    assert session.stdout("cat mv/to/f mv/to/d/e/g; readlink mv/to/l; ls mv") == "f\ng\nnowhere\nto\n"


def test_a_move_replaces_only_when_told_and_never_a_directory(session: Session) -> None:
    session.stdout("mkdir -p mr/dir; echo a > mr/a; echo b > mr/b; ln -s b mr/l")
    assert post(session, "move", source="mr/a", to="mr/b").status_code == 409
    assert post(session, "move", source="mr/a", to="mr/dir", replace="true").status_code == 409
    assert post(session, "move", source="mr/dir", to="mr/b", replace="true").status_code == 409
    assert session.stdout("cat mr/a mr/b") == "a\nb\n"
    assert post(session, "move", source="mr/a", to="mr/l", replace="true").status_code == 204
    assert session.stdout("cat mr/l mr/b; ls mr") == "a\nb\nb\ndir\nl\n"


@pytest.mark.parametrize("verb", ["move", "copy"])
def test_where_it_cannot_go(session: Session, verb: str) -> None:
    session.stdout("mkdir -p bad/d; echo x > bad/f; rm -f bad/out; ln -s / bad/out; [ -e bad/p ] || mkfifo bad/p")
    for source, to, expected in [
        ("bad/none", "bad/x", 404), ("bad/f", "bad/none/x", 404), ("bad/f", "bad/out/tmp/x", 409), ("bad/out/etc/passwd", "bad/x", 409),
        ("bad/d", "bad/d/e", 400), ("", "bad/x", 400), ("bad/f", "", 400), ("../x", "bad/x", 400), ("bad/f", "/etc/x", 400),
        ("bad/f", ".berth-0123456789abcdef", 400), ("bad/f", "n" * 256, 400), ("bad/f/x", "bad/x", 400),
    ]:  # fmt: skip
        answer = post(session, verb, source=source, to=to)
        assert answer.status_code == expected, f"{verb} {source} {to}: {answer.status_code} {answer.text}"
    assert post(session, verb, source="bad/f").status_code == 422
    assert session.stdout("cat bad/f; ls bad/d") == "x\n" and not Path("/tmp/x").exists() and not leftovers(session)


def test_copies_a_tree_whole(session: Session) -> None:
    session.stdout(
        "mkdir -p cp/d/e cp/d/ro; echo f > cp/d/f; chmod 640 cp/d/f; touch -d '2001-02-03 04:05:06.5' cp/d/f cp/d/e; ln -s /etc/passwd cp/d/l;"
        "echo r > cp/d/ro/r; chmod 555 cp/d/ro; mkfifo cp/d/p; head -c 3000000 /dev/urandom > cp/d/big"
    )
    answer = post(session, "copy", source="cp/d", to="cp/copy")
    assert answer.status_code == 200 and answer.json()["skipped"] == 1 and answer.json()["entries"] == 7, answer.text
    compare = "cd cp/%s; find . ! -name p ! -path . -printf '%%p %%y %%m %%T@ %%l\\n' | sort; sha256sum f big ro/r; stat -c %%Y ."
    assert session.stdout(compare % "d") == session.stdout(compare % "copy")
    assert post(session, "copy", source="cp/d", to="cp/copy", replace="true").status_code == 409
    assert post(session, "copy", source="cp/d/f", to="cp/d/big").status_code == 409
    assert post(session, "copy", source="cp/d/f", to="cp/d/big", replace="true").status_code == 200
    assert session.stdout("cat cp/d/big; readlink cp/copy/l") == "f\n/etc/passwd\n" and not leftovers(session)


def test_chmod(session: Session) -> None:
    session.stdout("mkdir -p ch/d; echo f > ch/f; ln -s f ch/l; mkfifo ch/p; ln -s /etc ch/out")
    assert post(session, "chmod", path="ch/f", mode="751").status_code == 204
    assert post(session, "chmod", path="ch/d", mode="0700").status_code == 204
    assert session.stdout("stat -c %a ch/f ch/d") == "751\n700\n"
    for path, mode, expected in [
        ("ch/l", "777", 409), ("ch/p", "777", 409), ("ch/none", "777", 404), ("ch/out/passwd", "777", 409),
        ("ch/f", "4755", 422), ("ch/f", "rwx", 422), ("ch/f", "888", 422), ("ch/f", "", 422), ("../x", "777", 400),
    ]:  # fmt: skip
        assert post(session, "chmod", path=path, mode=mode).status_code == expected, (path, mode)
    assert session.stdout("stat -c %a ch/f") == "751\n" and stat.S_IMODE(os.stat("/etc/passwd").st_mode) == 0o644


# ---- find


def test_finds_by_globs(session: Session) -> None:
    session.stdout("mkdir -p g/a/b/c g/.hid; touch g/x.c g/a/x.c g/a/b/y.c g/a/b/c/z.h g/.hid/h.c 'g/a/[q].c' g/a/b/é.txt")
    everything = paths(find(session, path="g", limit=1000))
    for glob, expected in [
        ("*.c", ["g/.hid/h.c", "g/a/[q].c", "g/a/b/y.c", "g/a/x.c", "g/x.c"]),
        ("**/*.c", ["g/.hid/h.c", "g/a/[q].c", "g/a/b/y.c", "g/a/x.c", "g/x.c"]),
        ("a/*.c", ["g/a/[q].c", "g/a/x.c"]),
        ("a/**/*.c", ["g/a/[q].c", "g/a/b/y.c", "g/a/x.c"]),
        ("a/**", [p for p in everything if p.startswith("g/a/")]),
        ("**/b/*", ["g/a/b/c", "g/a/b/y.c", "g/a/b/é.txt"]),
        ("?.txt", ["g/a/b/é.txt"]),
        ("[x-z].{c,h}", ["g/a/b/c/z.h", "g/a/b/y.c", "g/a/x.c", "g/x.c"]),
        ("[!x].c", ["g/.hid/h.c", "g/a/b/y.c"]),
        ("\\[q\\].c", ["g/a/[q].c"]),
        ("nothing", []),
        ("(", []),
    ]:
        assert paths(find(session, path="g", glob=glob)) == expected, glob


def test_a_tree_within_bounds(session: Session) -> None:
    session.stdout("mkdir -p t/1/2/3; touch t/f t/1/f; ln -s / t/link; mkfifo t/fifo")
    found = find(session, path="t")
    assert [(e["path"], e["kind"]) for e in found["entries"]] == [
        ("t/1", "directory"), ("t/1/2", "directory"), ("t/1/2/3", "directory"), ("t/1/f", "file"), ("t/f", "file"), ("t/fifo", "other"), ("t/link", "link"),
    ]  # fmt: skip
    assert not found["truncated"] and found["truncated_by"] is None
    assert paths(find(session, path="t", depth=1)) == ["t/1", "t/f", "t/fifo", "t/link"]
    found = find(session, path="t", limit=2)
    assert len(found["entries"]) == 2 and found["truncated"] and found["truncated_by"] == "entries"
    for path, expected in [("t/none", 404), ("t/f", 404), ("t/link", 404), ("t/link/etc", 404), ("../t", 400)]:
        assert session.request("GET", "/find", params={"path": path}).status_code == expected, path
    assert session.request("GET", "/find", params={"depth": "0"}).status_code == 422


def test_one_bad_entry_does_not_fail_the_rest(session: Session) -> None:
    session.stdout(
        "mkdir -p odd/q; cd odd; echo a>a; ln -s nowhere dang; ln -s loop loop; mkdir -m 000 locked; printf x > \"$(printf 'bad\\377n')\"; cd q;"
        "touch \"$(printf 'a\\nb')\" ' c ' ./-n '#' '%41' 'é'"
    )
    found = find(session, path="odd", depth=1)
    names = {entry["path_encoded"]: entry for entry in found["entries"]}
    assert set(names) == {"odd/a", "odd/dang", "odd/loop", "odd/locked", "odd/bad%FFn", "odd/q"}
    assert names["odd/bad%FFn"]["path"] == "odd/bad�n"
    answer = session.request("GET", "/content?path=" + "odd/bad%FFn")
    assert answer.content == b"x"
    assert session.request("DELETE", "/content?path=odd/bad%FFn").status_code == 204
    assert len(find(session, path="odd", depth=1)["entries"]) == 5
    listed = find(session, path="odd/q")["entries"]
    assert sorted(entry["path"] for entry in listed) == sorted(f"odd/q/{name}" for name in ("a\nb", " c ", "-n", "#", "%41", "é"))
    for entry in listed:
        assert session.request("GET", f"/content?path={entry['path_encoded']}").status_code == 200


def test_a_deep_chain_and_cycles_of_links(session: Session) -> None:
    session.python(
        "import os\nos.makedirs('deep', exist_ok=True); os.chdir('deep')\n"
        "for i in range(3000):\n    os.mkdir('d'); os.chdir('d')\nopen('bottom', 'w').close()"
    )
    session.stdout("mkdir -p c/d/e; ln -s .. c/d/e/up; ln -s . c/d/self; echo needle > c/d/f")
    began = time.monotonic()
    assert paths(find(session, path="deep", glob="bottom")) == ["deep/" + "d/" * 3000 + "bottom"]
    assert [p for p in paths(find(session, path="c")) if p.endswith("/f")] == ["c/d/f"]
    assert time.monotonic() - began < 5 * SLOWNESS
    assert session.request("DELETE", "/content", params={"path": "deep"}).status_code == 204


def test_on_stored_workspaces_read_only(broker: Broker) -> None:
    session = broker.open(new_id("stored"))
    session.stdout("mkdir d; echo needle > d/f")
    session.close()
    answer = broker.client.get(f"/workspaces/{session.id}/find", params={"glob": "*"})
    assert paths(answer.json()) == ["d", "d/f"]
    answer = broker.client.get(f"/workspaces/{session.id}/search", params={"pattern": "needle"})
    assert [match["path"] for match in answer.json()["matches"]] == ["d/f"]
    for verb in ("move", "copy", "chmod"):
        assert broker.client.post(f"/workspaces/{session.id}/{verb}").status_code == 404
    assert broker.client.get(f"/workspaces/{new_id()}/find").status_code == 404


def test_who_may(broker: Broker, session: Session) -> None:
    other = broker.open(new_id("other"))
    for method, verb in [("POST", "move"), ("POST", "copy"), ("POST", "chmod"), ("GET", "find"), ("GET", "search")]:
        answer = broker.http.request(method, f"/sessions/{session.id}/{verb}", headers={"X-Sandbox-Token": other.token})
        assert answer.status_code == 401
