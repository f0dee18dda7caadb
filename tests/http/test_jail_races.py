"""The jail, proved: a program in the sandbox swaps directories, files and links while every route that takes a path is used on them.

Nothing outside may be read, changed, measured or shown to exist. TRIES of the check, TRIES_FULL with --full (marker full).
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import tarfile
import threading
import time
from pathlib import Path

import httpx
import pytest
from berth import SLOWNESS, Broker, Session, new_id

TRIES = int(os.environ.get("BERTH_JAIL_TRIES", "10000"))
TRIES_FULL = 100_000
SECRET = "S3CRET-OF-THE-HOST"
FRESH = "berth-jail-planted"
SIZE = 424242
# The size as a number of its own: a fraction of a second, or part of a longer number, tells nothing.
SIZE_TOLD = re.compile(rb"(?<![\d.])%d(?![\d.])" % SIZE)

# Swaps at the pace of the kernel: d is a directory or a link out of the workspace, f a file or a link; also by exchange in one step.
SWAPPER = r"""
import ctypes, os, sys, time
out, stop, end = sys.argv[1], 'stop', time.monotonic() + 40
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs('race/d/sub', exist_ok=True)
for name in ('hostname', 'x', 'sub/x'):
    open('race/d/' + name, 'w').write('inside\n')
os.makedirs('race/real', exist_ok=True)
open('race/f', 'w').write('inside\n')
for name, target in (('ld', out), ('lf', out + '/secret'), ('lu', '../../../../../../..' + out)):
    if not os.path.lexists('race/' + name):
        os.symlink(target, 'race/' + name)
EXCHANGE = 2
def exchange(a, b):
    libc.renameat2(-100, a.encode(), -100, b.encode(), EXCHANGE)
n = 0
while not os.path.exists(stop) and time.monotonic() < end:
    exchange('race/d', 'race/ld'); exchange('race/d', 'race/ld')
    exchange('race/f', 'race/lf'); exchange('race/f', 'race/lf')
    exchange('race/d', 'race/lu'); exchange('race/d', 'race/lu')
    exchange('race/d/sub', 'race/lu'); exchange('race/d/sub', 'race/lu')
    try:
        if n % 64 == 0:
            for name in ('d/x', 'd/hostname', 'd/sub/x', 'f'):
                if not os.path.exists('race/' + name):
                    os.makedirs(os.path.dirname('race/' + name), exist_ok=True)
                    open('race/' + name, 'w').write('inside\n')
    except OSError:
        pass
    n += 1
print(n)
"""


def archive() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in (f"d/{FRESH}", f"d/sub/{FRESH}", "f"):
            info = tarfile.TarInfo(name)
            info.size = 7
            tar.addfile(info, io.BytesIO(b"planted"))
    return out.getvalue()


def attacks(session: Session, broker: Broker):
    """Every route that takes a path, on the names that are being swapped."""
    content = archive()

    def own(method: str, verb: str, **params):
        body = params.pop("content", None)
        return lambda: session.request(method, f"/{verb}", params={("from" if k == "source" else k): v for k, v in params.items()}, content=body)

    def wire(verb: str, path: str, **fields):
        return lambda: session.files(verb, f"/workspace/{path}", **fields)

    def classic(verb: str, path: str, **fields):
        return lambda: session.request("POST", f"/{verb}", json={"path": f"/workspace/{path}"} | fields)

    def stored(verb: str, path: str, **fields):
        return lambda: broker.client.post(f"/workspaces/{session.id}/{verb}", json={"path": path} | fields)

    def stored_own(verb: str, **params):
        return lambda: broker.client.get(f"/workspaces/{session.id}/{verb}", params=params)

    return [
        own("GET", "content", path="race/d/secret"), own("GET", "content", path="race/f"), own("GET", "content", path="race/d/sub/secret"),
        own("PUT", "content", path=f"race/d/{FRESH}", content=b"planted"), own("PUT", "content", path="race/f", content=b"planted"),
        own("PUT", "content", path=f"race/d/sub/{FRESH}", content=b"planted"), own("PUT", "content", path="race/d/secret", content=b"planted"),
        own("DELETE", "content", path="race/d/secret"), own("DELETE", "content", path="race/d/keep"), own("DELETE", "content", path="race/d/sub/keep"),
        own("GET", "archive", path="race", format="tar"), own("GET", "archive", path="race/d", format="zip"), own("GET", "archive", path="race/d/sub"),
        own("PUT", "archive", path="race", content=content), own("PUT", "archive", path="race/d", content=content),
        own("GET", "find", path="race"), own("GET", "find", path="race/d"), own("GET", "find", path="race/d/sub"), own("GET", "find", path="", glob="**/secret"),
        own("GET", "search", path="race", pattern=SECRET[:-1]), own("GET", "search", path="race/d", pattern=SECRET[:-1]), own("GET", "search", path="race/f", pattern=SECRET[:-1]),
        own("POST", "move", source="race/d/secret", to="race/stolen"), own("POST", "move", source="race/f", to=f"race/d/{FRESH}", replace="true"),
        own("POST", "copy", source="race/d", to="race/copy"), own("POST", "copy", source="race/d/secret", to="race/stolen", replace="true"),
        own("POST", "copy", source="race/f", to=f"race/d/{FRESH}", replace="true"), own("DELETE", "content", path="race/copy"),
        own("POST", "chmod", path="race/d/secret", mode="777"), own("POST", "chmod", path="race/f", mode="777"), own("POST", "chmod", path="race/d", mode="755"),
        wire("read", "race/d/secret"), wire("read", "race/f"), wire("stat", "race/d/secret"), wire("stat", "race/f"), wire("list", "race/d"),
        wire("mkdir", f"race/d/{FRESH}"), wire("remove", "race/d/keep"), wire("realpath", "race/d/secret"),
        lambda: session.files_write(f"/workspace/race/d/{FRESH}", b"planted"), lambda: session.files_write("/workspace/race/f", b"planted"),
        *[classic("grep", "race", pattern=SECRET[:-1])] * 4, classic("grep", "race/d", pattern=SECRET[:-1], glob="*"), classic("grep", "race/f", pattern=SECRET[:-1]),
        classic("glob", "race", pattern="**/*"), classic("glob", "race/d", pattern="**/*"), classic("ls", "race/d"), classic("ls", "race"),
        classic("read", "race/d/secret"), classic("read_bytes", "race/f"), classic("exists", "race/d/only-outside"), classic("edit", "race/f", old_string=SECRET[:-1], new_string="planted"),
        classic("write", f"race/d/{FRESH}", content="planted"), classic("write", "race/f", content="planted"),
        stored("ls", "race/d"), stored("read", "race/d/secret"), stored("read_bytes", "race/f"), stored("tree", "race"),
        stored_own("content", path="race/d/secret"), stored_own("archive", path="race"), stored_own("find", path="race/d"), stored_own("search", path="race", pattern=SECRET[:-1]),
    ]  # fmt: skip


def measure(outside: Path) -> list[tuple]:
    found = []
    for directory, dirs, files in os.walk(outside):
        for name in sorted(dirs + files):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            found.append((path, status.st_mode, status.st_mtime_ns, status.st_ctime_ns, status.st_size, Path(path).read_bytes() if name in files else b""))
    return sorted(found)


def leaks(answer) -> bool:
    """Content, a name, or the size of something outside in an answer that is no refusal. (A refusal may repeat the path that was asked for.)"""
    if answer.status_code >= 400:
        return SECRET.encode() in answer.content
    if SECRET.encode() in answer.content:
        return True
    return b"only-outside" in answer.content or SIZE_TOLD.search(answer.content) is not None or answer.content.replace(b" ", b"") == b'{"exists":true}'


def race(broker: Broker, tries: int) -> None:
    session = broker.open(new_id("jail"))
    outside = Path("/var/tmp") / new_id("berth-outside")
    (outside / "sub").mkdir(parents=True)
    try:
        # Text, which is searched; of a size that shows itself wherever it is told.
        for name in ("secret", "keep", "only-outside", "sub/keep", "sub/secret", "hostname"):
            (outside / name).write_bytes((SECRET + "\n").encode() + b"\n" * (SIZE - len(SECRET) - 1))
        outside.chmod(0o777)
        before = measure(outside)
        result: list[dict] = []

        def swap() -> None:
            while not (session.workspace / "stop").exists():
                result.append(session.run(["python3", "-c", SWAPPER, str(outside)], timeout_seconds=280))

        runner = threading.Thread(target=swap)
        runner.start()
        calls = attacks(session, broker)
        statuses: dict[int, int] = {}
        bad: list[str] = []
        counter = itertools.count()
        slow: list[float] = []

        def work() -> None:
            while (n := next(counter)) < tries and not bad:
                began = time.monotonic()
                try:
                    answer = calls[n % len(calls)]()
                except httpx.HTTPError as error:
                    bad.append(f"{n % len(calls)}: {error!r}")
                    return
                slow.append(time.monotonic() - began)
                statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
                if leaks(answer) or answer.status_code >= 500:
                    bad.append(f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.content[:300]!r}")

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        session.stdout("touch stop")
        runner.join(60)
        assert not bad, bad
        assert result and all(one["exit_code"] == 0 for one in result) and sum(int(one["stdout"]) for one in result) > 50, result
        assert measure(outside) == before, "something outside was changed"
        assert statuses.get(200, 0) > tries // 20, f"too few answers that found something: {statuses}"
        assert statuses.get(404, 0) + statuses.get(409, 0) + statuses.get(400, 0) > tries // 20, f"too few races: {statuses}"
        assert sorted(slow)[len(slow) * 999 // 1000] < 5 * SLOWNESS
    finally:
        session.close(purge=True)
        for path in sorted(outside.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        outside.rmdir()


@pytest.mark.parametrize("portable", [False, True], ids=["openat2", "component by component"])
def test_nothing_outside_is_reached(make_broker, portable: bool) -> None:
    race(make_broker(portable_walk=portable), TRIES)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("portable", [False, True], ids=["openat2", "component by component"])
def test_nothing_outside_is_reached_by_many_tries(make_broker, portable: bool) -> None:
    race(make_broker(portable_walk=portable), TRIES_FULL)


# ---- every odd thing, each against each route


def odd_names(session: Session) -> list[bytes]:
    session.stdout(
        "mkdir -p odd; cd odd; mkfifo fifo; ln -s /proc/self/root proc; ln -s /etc/passwd out; ln -s loop loop; echo x > one; ln one two;"
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; echo x > \"$(printf 'n%.0s' $(seq 255))\";"
        "echo x > \"$(printf 'bad\\377n')\"; echo x > \"$(printf 'a\\nb')\"; mkdir -m 000 locked; mknod null c 1 3 2>/dev/null; :"
    )
    return sorted(os.listdir(os.fsencode(session.workspace / "odd")))


def test_each_odd_thing_against_each_route_answers_within_a_second(broker: Broker) -> None:
    session = broker.open(new_id("odd"))
    names = odd_names(session)
    assert len(names) >= 10
    broker.client.get(f"/workspaces/{session.id}/content", params={"path": "odd/one"})  # loads what is loaded once
    for name in names:
        quoted = "odd/" + "".join(f"%{byte:02X}" for byte in name)
        requests = [
            ("GET", f"content?path={quoted}", None), ("GET", f"archive?path={quoted}", None), ("GET", f"find?path={quoted}", None),
            ("GET", f"search?path={quoted}&pattern=x", None), ("POST", f"chmod?path={quoted}&mode=700", None),
            ("POST", f"copy?from={quoted}&to=odd/copied&replace=true", None), ("DELETE", "content?path=odd/copied", None),
            ("POST", f"move?from={quoted}&to=odd/moved", None), ("POST", f"move?from=odd/moved&to={quoted}", None), ("GET", f"content?path={quoted}/below", None),
            ("PUT", f"content?path={quoted}", b"new"), ("PUT", f"archive?path={quoted}", archive()), ("DELETE", f"content?path={quoted}", None),
        ]  # fmt: skip
        for method, path, content in requests:
            for base in ("sessions", "workspaces"):
                if base == "workspaces" and method != "GET":
                    continue
                began = time.monotonic()
                answer = broker.client.request(method, f"/{base}/{session.id}/{path}", content=content)
                took = time.monotonic() - began
                assert answer.status_code < 500 and b"root:" not in answer.content, f"{method} {path}: {answer.status_code} {answer.text[:200]}"
                assert took < 1 * SLOWNESS, f"{method} {path}: {took:.2f} s"
                if answer.headers.get("content-type") == "application/json" and answer.content:
                    json.loads(answer.content)
        for verb in ("read", "stat", "list", "realpath", "remove"):
            began = time.monotonic()
            answer = session.files(verb, "/workspace/odd/" + name.decode("utf-8", "replace"))
            assert answer.status_code < 500 and time.monotonic() - began < 1 * SLOWNESS
    assert "root:" in Path("/etc/passwd").read_text()
    session.close(purge=True)
