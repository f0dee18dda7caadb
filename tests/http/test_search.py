"""GET …/search: lines of files by a literal or an expression, bounded in time, matches and bytes."""

from __future__ import annotations

import random
import re
import threading
import time

import pytest
from berth import SLOWNESS, Broker, Session, new_id


@pytest.fixture(scope="module")
def session(module_broker: Broker) -> Session:
    return module_broker.open(new_id("search"))


def search(session: Session, pattern: str | bytes, **params):
    answer = session.request("GET", "/search", params={"pattern": pattern} | params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def hits(found) -> list[tuple[str, int, str]]:
    return sorted((m["path"], m["line"], m["text"]) for m in found["matches"])


def test_literals_are_literal(session: Session) -> None:
    session.stdout("mkdir -p l; printf '%s\\n' -n 'Save 30% now' 'x[0]' 'a:b' '((' '$(touch z)' > l/w:1; printf 'last' >> l/w:1")
    for line, pattern in enumerate(["-n", "30%", "x[0]", "a:b", "((", "$(touch z)", "last"], 1):
        found = search(session, pattern, path="l")
        assert [(p, n) for p, n, _ in hits(found)] == [("l/w:1", line)], pattern
    assert hits(search(session, "nothing", path="l")) == [] and not (session.workspace / "z").exists()


def test_expressions(session: Session) -> None:
    session.stdout("mkdir -p e; printf 'foo1\\nbar22\\nFOO3\\n\\nété 9\\nab\\tcd\\nend' > e/f")
    for pattern, lines in [
        ("foo", [1]), ("(foo|bar)[0-9]+", [1, 2]), (r"^bar\d{2}$", [2]), (r"\d", [1, 2, 3, 5]), ("^$", [4]), (r"^\w+$", [1, 2, 3, 7]),
        (r"t.\s", [5]), ("foo|end$", [1, 7]), (r"b\tc", [6]), (r"\Aend\z", [7]), ("(?<=ba)r", [2]), ("[^o]1", []), ("o(?!1)", [1]), (r"a\s+c", []),
        ("(?i)foo", [1, 3]), ("(foo|FOO)", [1, 3]), ("fo{2}", [1]), ("fo*1", [1]), ("zz|", [1, 2, 3, 4, 5, 6, 7]), (r"2\s*F", []), (r"[^x]*3", [3]),
    ]:  # fmt: skip
        assert [n for _, n, _ in hits(search(session, pattern, path="e", regex="true"))] == lines, pattern
    assert [n for _, n, _ in hits(search(session, "foo", path="e", ignore_case="true"))] == [1, 3]
    assert [n for _, n, _ in hits(search(session, "ÉTÉ", path="e", ignore_case="true"))] == [5]
    assert search(session, "1", path="e")["matches"][0]["column"] == 4


@pytest.mark.parametrize("pattern", ["(", "[", "*", "a{2", "(?<n", "\\", "(?P<x>", "((((" * 200])
def test_bad_expressions_say_why(session: Session, pattern: str) -> None:
    answer = session.request("GET", "/search", params={"pattern": pattern, "regex": "true"})
    if pattern == "a{2":  # Perl's: a brace that begins no count is itself
        assert answer.status_code == 200
    else:
        assert answer.status_code == 400 and "expression" in answer.json()["detail"]


def test_it_finds_what_a_plain_loop_finds(session: Session) -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    words = ["foo", "bar", "fo", "ba", "r", "q", "abcxy", "ab", "xy", "é", "\r", " ", "\t", "o", "A"]
    text = "".join("\n" if chance.random() < 0.15 else chance.choice(words) for _ in range(200_000))
    session.write("/workspace/random.txt", text.encode())
    lines = text.split("\n")
    for pattern in ["ab[a-z]+xy", "(foo|bar)[a-z]+q", "foo", "^fo+b", "r$", "[^a-z]ba", r"\bfoo\b", "q(o|r)+q", "(a|b|f)o*r", "é.é", "qq|rr", "o{3,}"]:
        expected = [n for n, line in enumerate(lines, 1) if re.search(pattern, line)]
        found = [n for _, n, _ in hits(search(session, pattern, path="random.txt", regex="true", limit=100000))]
        assert found == expected, f"{pattern} (seed {seed})"
    for literal in ["foo", "q", "xyab", "o\tb", "éé"]:
        expected = [n for n, line in enumerate(lines, 1) if literal in line]
        assert [n for _, n, _ in hits(search(session, literal, path="random.txt", limit=100000))] == expected, literal


def test_binary_long_and_many(session: Session) -> None:
    session.python(
        "import os\nos.makedirs('b', exist_ok=True)\nopen('b/bin','wb').write(b'needle\\0needle')\n"
        "open('b/min.js','w').write('needle' + 'x' * 3_000_000)\nopen('b/late.js','w').write('x' * 2_000_000 + 'needle' + 'y' * 9)\n"
        "open('b/huge','w').write('x' * 9_000_000 + '\\nneedle\\n')\nopen('b/t','w').write('needle\\n')"
    )
    began = time.monotonic()
    answer = session.request("GET", "/search", params={"pattern": "needle", "path": "b"})
    assert time.monotonic() - began < 2 * SLOWNESS and len(answer.content) < 64 * 1024
    found = answer.json()
    assert [(p, n) for p, n, _ in hits(found)] == [("b/huge", 2), ("b/late.js", 1), ("b/min.js", 1), ("b/t", 1)]
    assert found["binary_files"] == 1 and found["truncated_by"] == "long line"
    cut = {m["path"]: m for m in found["matches"]}
    assert cut["b/min.js"]["cut"] and len(cut["b/min.js"]["text"]) <= 512 and not cut["b/t"]["cut"]
    assert "needle" in cut["b/late.js"]["text"] and cut["b/late.js"]["column"] == 2_000_001


def test_bounds_are_told(session: Session) -> None:
    session.stdout("mkdir -p m; seq 1 5000 > m/f")
    found = search(session, "1", path="m", limit=10)
    assert len(found["matches"]) == 10 and found["truncated"] and found["truncated_by"] == "matches"
    found = search(session, "5000", path="m")
    assert len(found["matches"]) == 1 and not found["truncated"]
    session.python("open('m/wide','w').write(('w' * 500 + '\\n') * 60000)")
    found = search(session, "w", path="m", limit=100000)
    assert found["truncated_by"] == "bytes" and 30_000 < len(found["matches"]) < 35_000


@pytest.mark.parametrize("pattern", ["(a|a)*b", "(a*)*b", r"(a*)*\1b", "(x+x+)+y", "(.*)*=.*"])
def test_an_endless_expression_ends(broker: Broker, session: Session, pattern: str) -> None:
    other = broker.open(new_id("other"))
    other.write("/workspace/f", b"x")
    session.python("open('endless','w').write(('a' * 60 + 'x' * 60 + '\\n') * 2000)")
    slowest: list[float] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            began = time.monotonic()
            assert other.files("list", "/workspace").status_code == 200
            slowest.append(time.monotonic() - began)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    found = search(session, pattern, path="endless", regex="true", seconds=5)
    took = time.monotonic() - began
    over.set()
    watcher.join()
    assert took < 7 * SLOWNESS and (found["truncated_by"] in (None, "steps", "deadline"))
    assert sorted(slowest)[len(slowest) * 99 // 100] < 0.3 * SLOWNESS
    other.close(purge=True)


def test_globs_odd_names_and_odd_files(session: Session) -> None:
    session.stdout(
        "mkdir -p o/sub/.hid; cd o; echo needle > a.py; echo needle > sub/b.py; echo needle > sub/c.js; echo needle > sub/.hid/d.py; mkfifo fifo;"
        "ln -s /etc/passwd out; ln -s . self; ln -s a.py link; echo needle > \"$(printf 'bad\\377n')\"; printf 'needle \\377\\n' > bytes;"
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'"
    )
    began = time.monotonic()
    assert [p for p, _, _ in hits(search(session, "needle", path="o", glob="*.py"))] == ["o/a.py", "o/sub/.hid/d.py", "o/sub/b.py"]
    assert [p for p, _, _ in hits(search(session, "needle", path="o", glob="sub/*.py"))] == ["o/sub/b.py"]
    found = search(session, "needle", path="o")
    assert [m["path_encoded"] for m in found["matches"] if "bad" in m["path"]] == ["o/bad%FFn"]
    assert len(found["matches"]) == 6 and hits(search(session, "root", path="o")) == []
    assert [p for p, _, _ in hits(search(session, "needle", path="o/a.py"))] == ["o/a.py"]
    answer = session.request("GET", "/search?pattern=needle%20%FF&path=o")
    assert [m["path"] for m in answer.json()["matches"]] == ["o/bytes"]
    for path, expected in [("o/fifo", 409), ("o/link", 404), ("o/out", 404), ("o/none", 404), ("../o", 400)]:
        assert session.request("GET", "/search", params={"pattern": "x", "path": path}).status_code == expected, path
    assert time.monotonic() - began < 5 * SLOWNESS


def test_fields(session: Session) -> None:
    for params in [{}, {"pattern": "x", "limit": "0"}, {"pattern": "x", "limit": "x"}, {"pattern": "x", "regex": "maybe"}]:
        assert session.request("GET", "/search", params=params).status_code == 422, params
    for params in [{"pattern": ""}, {"pattern": "a\nb"}, {"pattern": "x", "glob": ""}]:
        assert session.request("GET", "/search", params=params).status_code == 400, params


def test_a_sparse_giant_is_left_alone(broker: Broker, session: Session) -> None:
    session.stdout("mkdir -p s; truncate -s 8G s/big; echo needle > s/f")
    before = broker.rss_kb()
    began = time.monotonic()
    found = search(session, "needle", path="s")
    assert hits(found) == [("s/f", 1, "needle")] and found["binary_files"] == 1
    assert time.monotonic() - began < 2 * SLOWNESS and broker.grew_less_than(16 * 1024, before)
    session.stdout("rm -r s")
