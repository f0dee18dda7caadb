"""ls, glob and grep as the classic wire has them; on the host and, with the same answers, through the sandbox."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterator

import pytest

from berth import Broker, Session

MADE = r"""
mkdir -p src/pkg/deep empty gr/sub gr/.h .hid zz/.d zz/Dir 'my dir'
printf 'import os\nx = 1\n' > src/a.py; printf 'import sys\n' > src/b.py; printf 'import json\n' > src/pkg/c.py; printf 'deep import\n' > src/pkg/deep/d.py
for f in 10 9 B _ a .h; do printf x > zz/$f; done
printf 'foo bar\nFoo baz\na+b aab\na.b axb\ntab\there\n' > gr/x.txt; printf 'foo in md\n' > gr/sub/y.md
printf 'foo hidden dir\n' > gr/.h/z.txt; printf 'foo hidden file\n' > gr/.h.txt; printf 'foo\000\377bin\n' > gr/bin.dat
printf 'top import\nsecond line\nTODO: a:b:c\n' > top.txt; printf hid > .hid/in.txt; printf 'blank' > 'my dir/a  b.txt'
printf 'newline name\n' > 'new
line.txt'; printf 'colon import\n' > col:on.txt; : > "quote's.txt"; : > 'naïve 日本.txt'; : > -dash
ln -s src link_dir; ln -s top.txt link_file; ln -s nowhere dangling; ln -s loop loop; mkfifo fifo
mkdir -p /srv/out/in; printf 'foo outside\n' > /srv/out/in/o.txt
seq 2500 | sed 's/^/line /' > long.txt
"""


@pytest.fixture(scope="module", params=[{}, {"native_files": False}, {"workspace_root": None}], ids=["host", "native files off", "no root"])
def shared(request: pytest.FixtureRequest, _module_brokers: Any, module_broker: Broker) -> Iterator[Session]:
    broker = _module_brokers.make(**request.param) if request.param else module_broker
    s = broker.open("classic-search")
    s.stdout(MADE)
    yield s
    s.close(purge=True)


def call(s: Session, op: str, **body: Any) -> Any:
    answer = s.request("POST", f"/{op}", json=body)
    assert answer.status_code == 200, f"{op} {body}: {answer.status_code} {answer.text}"
    return answer.json()


# ---- ls


def paths(s: Session, path: str) -> list[str]:
    return [entry["path"] for entry in call(s, "ls", path=path)]


def test_ls_directories_first_then_by_name(shared: Session) -> None:
    assert paths(shared, "zz") == ["zz/.d", "zz/Dir", "zz/.h", "zz/10", "zz/9", "zz/B", "zz/_", "zz/a"]
    rows = call(shared, "ls", path="src")
    assert [(r["name"], r["is_dir"], r["modified_at"]) for r in rows] == [("pkg", True, None), ("a.py", False, None), ("b.py", False, None)]
    assert rows[1]["size"] == 16 and rows[0]["size"] > 0


@pytest.mark.parametrize("path, prefix", [("src", "src/"), ("src/", "src/"), ("src//", "src/"), ("./src", "./src/"), ("/workspace/src", "/workspace/src/"), ("link_dir", "link_dir/"), ("link_dir/", "link_dir/"), ("empty/../src", "empty/../src/")])
def test_ls_says_the_path_as_it_was_asked(shared: Session, path: str, prefix: str) -> None:
    assert paths(shared, path) == [prefix + name for name in ("pkg", "a.py", "b.py")]


def test_ls_of_the_work_dir_and_of_the_sandbox(shared: Session) -> None:
    names = {row["name"]: row for row in call(shared, "ls", path=".")}
    assert {"link_dir", "dangling", "fifo", "new\nline.txt", "naïve 日本.txt", "-dash"} <= set(names)
    assert names["link_dir"]["is_dir"] is False and names["link_dir"]["path"] == "./link_dir"
    assert paths(shared, "my dir") == ["my dir/a  b.txt"]
    assert "/etc" in paths(shared, "/") and "/srv/out" in paths(shared, "/srv") and "../srv/out" in paths(shared, "../srv")


@pytest.mark.parametrize("path", ["", "nope", "top.txt", "empty", "dangling", "loop", "fifo", "a\0b", "-la", "x" * 300])
def test_ls_of_what_has_no_entries(shared: Session, path: str) -> None:
    assert call(shared, "ls", path=path) == []


# ---- glob

PY = ["src/a.py", "src/b.py", "src/pkg/c.py", "src/pkg/deep/d.py"]


@pytest.mark.parametrize(
    "body, found",
    [
        ({"pattern": "*.py"}, PY),
        ({"pattern": "*.py", "path": "."}, PY),
        ({"pattern": "*.py", "path": ""}, PY),
        ({"pattern": "*.py", "path": " "}, PY),
        ({"pattern": "*.py", "path": "src/"}, PY),
        ({"pattern": "**/*.py"}, PY),
        ({"pattern": "src/*.py"}, PY),
        ({"pattern": "**", "path": "src"}, PY),
        ({"pattern": "src/**/*.py"}, ["src/pkg/c.py", "src/pkg/deep/d.py"]),
        ({"pattern": "[ab].py", "path": "src"}, ["src/a.py", "src/b.py"]),
        ({"pattern": "[!a].py", "path": "src/pkg"}, ["src/pkg/c.py", "src/pkg/deep/d.py"]),
        ({"pattern": "?.py", "path": "/workspace/src/pkg/deep"}, ["/workspace/src/pkg/deep/d.py"]),
        ({"pattern": "*.txt", "path": ".hid"}, [".hid/in.txt"]),
        ({"pattern": "new*line.txt"}, ["new\nline.txt"]),
        ({"pattern": "quote's*"}, ["quote's.txt"]),
        ({"pattern": "na?ve*"}, ["naïve 日本.txt"]),
        ({"pattern": "o.txt", "path": "/srv/out"}, ["/srv/out/in/o.txt"]),
        ({"pattern": "o.txt", "path": "../srv/out"}, ["../srv/out/in/o.txt"]),
        ({"pattern": "*.py", "path": "link_dir/"}, [p.replace("src", "link_dir") for p in PY]),
        ({"pattern": "*.py", "path": "link_dir"}, []),
        ({"pattern": "**/"}, []),
        ({"pattern": ""}, []),
        ({"pattern": "pkg"}, []),
        ({"pattern": "link_*"}, []),
        ({"pattern": "fifo"}, []),
        ({"pattern": "{a,b}.py", "path": "src"}, []),
        ({"pattern": "*.PY"}, []),
        ({"pattern": "/workspace/src/*.py"}, []),
        ({"pattern": "*", "path": "nope"}, []),
        ({"pattern": "*", "path": "top.txt"}, []),
        ({"pattern": "*", "path": "loop"}, []),
        ({"pattern": "*", "path": "a\0b"}, []),
        ({"pattern": "a\0b"}, []),
    ],
)
def test_glob(shared: Session, body: dict[str, Any], found: list[str]) -> None:
    rows = call(shared, "glob", **body)
    assert rows == [{"name": os.path.basename(p), "path": p, "is_dir": False, "size": None, "modified_at": None} for p in found]


# ---- grep

X, Y = ("x.txt", 1, "foo bar"), ("sub/y.md", 1, "foo in md")
HIDDEN = (".h.txt", 1, "foo hidden file"), (".h/z.txt", 1, "foo hidden dir")


def grep(s: Session, **body: Any) -> set[tuple[str, int, str]]:
    answer = call(s, "grep", **body)
    assert answer["error"] is None, answer
    rows = [(m["path"], m["line_number"], m["line"]) for m in answer["matches"]]
    assert len(rows) == len(set(rows))
    return set(rows)


def below(root: str, *rows: tuple[str, int, str]) -> set[tuple[str, int, str]]:
    return {(root + path, number, line) for path, number, line in rows}


@pytest.mark.parametrize(
    "body, found",
    [
        ({"pattern": "foo", "path": "gr"}, below("gr/", X, Y)),
        ({"pattern": "foo", "path": "gr/"}, below("gr/", X, Y)),
        ({"pattern": "foo", "path": "./gr"}, below("./gr/", X, Y)),
        ({"pattern": "foo", "path": "/workspace/gr"}, below("/workspace/gr/", X, Y)),
        ({"pattern": "foo"}, below("./gr/", X, Y)),
        ({"pattern": "foo", "path": None, "glob": None}, below("./gr/", X, Y)),
        ({"pattern": "foo", "path": ""}, below("./gr/", X, Y)),
        ({"pattern": "foo", "path": "gr", "ignore_hidden": False}, below("gr/", X, Y, *HIDDEN)),
        ({"pattern": "foo", "path": "gr", "glob": "*.md"}, below("gr/", Y)),
        ({"pattern": "foo", "path": "gr", "glob": ".*", "ignore_hidden": False}, below("gr/", HIDDEN[0])),
        ({"pattern": "foo", "path": "gr", "glob": "sub/*.md"}, set()),
        ({"pattern": "foo", "path": "gr/x.txt"}, below("gr/", X)),
        ({"pattern": "foo", "path": "gr/.h"}, below("gr/", HIDDEN[1])),
        ({"pattern": "TODO", "path": "top.txt"}, {("top.txt", 3, "TODO: a:b:c")}),
        ({"pattern": "TODO", "path": "link_file"}, {("link_file", 3, "TODO: a:b:c")}),
        ({"pattern": "deep", "path": "link_dir"}, {("link_dir/pkg/deep/d.py", 1, "deep import")}),
        ({"pattern": "colon"}, {("./col:on.txt", 1, "colon import")}),
        ({"pattern": "newline name"}, {("./new\nline.txt", 1, "newline name")}),
        ({"pattern": "foo", "path": "/srv/out"}, {("/srv/out/in/o.txt", 1, "foo outside")}),
        ({"pattern": "foo", "path": "/srv/out/in/o.txt"}, {("/srv/out/in/o.txt", 1, "foo outside")}),
        ({"pattern": "foo", "path": "../srv"}, {("../srv/out/in/o.txt", 1, "foo outside")}),
        ({"pattern": "FOO", "path": "gr"}, set()),
        ({"pattern": "a+b", "path": "gr"}, {("gr/x.txt", 3, "a+b aab")}),
        ({"pattern": "a.b", "path": "gr"}, {("gr/x.txt", 3, "a+b aab"), ("gr/x.txt", 4, "a.b axb")}),
        ({"pattern": "foo bar\\|axb", "path": "gr"}, {("gr/x.txt", 1, "foo bar"), ("gr/x.txt", 4, "a.b axb")}),
        ({"pattern": "foo bar|axb", "path": "gr"}, set()),
        ({"pattern": "^foo\\b", "path": "gr"}, below("gr/", X, Y)),
        ({"pattern": "in md\nbaz", "path": "gr"}, below("gr/", Y, ("x.txt", 2, "Foo baz"))),
        ({"pattern": "", "path": "gr/sub"}, below("gr/", Y)),
        ({"pattern": "-dash"}, set()),
        ({"pattern": "bin", "path": "gr"}, set()),
        ({"pattern": "zzzz", "path": "gr"}, set()),
        ({"pattern": "x", "path": "fifo"}, set()),
    ],
)
def test_grep(shared: Session, body: dict[str, Any], found: set[tuple[str, int, str]]) -> None:
    assert grep(shared, **body) == found


def test_grep_of_many_lines_is_in_order(shared: Session) -> None:
    answer = call(shared, "grep", pattern="line", path=".", glob="long.txt")
    assert [(m["line_number"], m["line"]) for m in answer["matches"]] == [(i, f"line {i}") for i in range(1, 2501)]


@pytest.mark.parametrize("body, words", [({"pattern": "["}, "grep: "), ({"pattern": "\\("}, "Unmatched"), ({"pattern": "a\\{2,1\\}"}, "grep: "), ({"pattern": "x", "path": "nope"}, "grep: nope: No such file or directory\n"), ({"pattern": "x", "path": "top.txt/y"}, "top.txt/y"), ({"pattern": "x", "path": "dangling"}, "dangling"), ({"pattern": "x", "path": "a\0b"}, "grep: ")])
def test_grep_says_what_is_wrong(shared: Session, body: dict[str, Any], words: str) -> None:
    answer = call(shared, "grep", **body)
    assert answer["matches"] == [] and answer["error"].startswith("Error: grep: ") and words in answer["error"]


def test_output_of_grep_ends_at_the_wires_limit(shared: Session) -> None:
    shared.stdout("mkdir -p /srv/big; yes 'a line of some length, over and over again' | head -100000 > /srv/big/f.txt; cp /srv/big/f.txt .big.txt")
    for path in (".big.txt", "/srv/big"):
        matches = call(shared, "grep", pattern="line", path=path)["matches"]
        assert 1000 < len(matches) < 3000 and matches[-1]["line"].endswith("again")


@pytest.mark.parametrize("op, body, loc", [("ls", {}, "path"), ("ls", {"path": None}, "path"), ("glob", {"path": "."}, "pattern"), ("glob", {"pattern": "*", "path": None}, "path"), ("grep", {}, "pattern"), ("grep", {"pattern": 3}, "pattern"), ("grep", {"pattern": "x", "ignore_hidden": "maybe"}, "ignore_hidden")])
def test_what_is_wrongly_asked_is_422(shared: Session, op: str, body: dict[str, Any], loc: str) -> None:
    answer = shared.request("POST", f"/{op}", json=body)
    assert answer.status_code == 422 and answer.json()["detail"][0]["loc"] == ["body", loc]


# ---- hostile trees


def test_a_pattern_made_to_take_for_ever_ends(make_broker: Callable[..., Broker]) -> None:
    s = make_broker(execute_timeout=3).open("slow")
    s.stdout("head -c 200000 /dev/zero | tr '\\0' a > f; mkdir /srv/d; cp f /srv/d")
    for path in ("f", "/srv/d/f"):
        answer = call(s, "grep", pattern=r"\(a*\)*\(a*\)*\(a*\)*b\1\2\3", path=path)
        assert answer["matches"] == [] or answer["error"]
    assert call(s, "glob", pattern="*a" * 200 + "b") == []


def test_a_deep_tree_and_names_that_are_no_utf8_are_searched(sandbox: Session) -> None:
    sandbox.python(
        "import os\n"
        "for i in range(1500):\n    os.mkdir('d'); os.chdir('d')\n"
        "open('bottom.txt', 'w').write('needle\\n')\n"
        "open(b'/workspace/bad\\xff.txt', 'w').write('needle too\\n')\n"
    )
    deep = "d/" * 1500 + "bottom.txt"
    assert [row["path"] for row in call(sandbox, "glob", pattern="bottom.txt")] == [deep]
    assert grep(sandbox, pattern="needle") == {("./" + deep, 1, "needle"), ("./bad\ufffd.txt", 1, "needle too")}
    assert [row["name"] for row in call(sandbox, "ls", path=".")] == ["d", "bad\ufffd.txt"]
