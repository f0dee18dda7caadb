"""GET …/watch?path=: changes below a directory as server-sent events."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from berth import PORTABLE_WALK, SLOWNESS, Broker, Session, new_id, wait_until


class Watch:
    """A stream that is read by a thread of its own."""

    def __init__(self, session: Session, path: str) -> None:
        self.events: queue.Queue[tuple[str, dict]] = queue.Queue()
        self.ended = threading.Event()
        self.stream = session.broker.http.stream("GET", f"/sessions/{session.id}/watch", params={"path": path}, headers={"X-Sandbox-Token": session.token})
        self.answer = self.stream.__enter__()
        assert self.answer.status_code == 200
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        assert self.events.get(timeout=5 * SLOWNESS)[0] == "ready"

    def _read(self) -> None:
        kind = ""
        try:
            for line in self.answer.iter_lines():
                if line.startswith("event: "):
                    kind = line[7:]
                elif line.startswith("data: "):
                    self.events.put((kind, json.loads(line[6:])))
        except (httpx.HTTPError, httpx.StreamError, OSError):  # closed by close()
            pass
        self.ended.set()

    def until(self, kind: str, path: str, timeout: float = 10) -> list[tuple[str, str]]:
        """What came up to and with this one."""
        seen = []
        end = time.monotonic() + timeout * SLOWNESS
        while True:
            try:
                got, data = self.events.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {kind} {path}, but {seen[-20:]}") from None
            seen.append((got, data.get("path", "")))
            if seen[-1] == (kind, path):
                return seen

    def close(self) -> None:
        with contextlib.suppress(OSError):  # ended by the other side
            self.answer.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.stream.__exit__(None, None, None)


@pytest.fixture(scope="module")
def session(module_broker: Broker) -> Session:
    return module_broker.open(new_id("watch"))


def test_tells_what_changes(session: Session) -> None:
    session.stdout("mkdir -p w/sub")
    watch = Watch(session, "w")
    try:
        session.stdout("echo x > w/f")
        assert ("modified", "w/f") in watch.until("modified", "w/f")
        session.stdout("chmod 700 w/f")
        watch.until("attributes", "w/f")
        session.stdout("echo x > w/sub/g")
        watch.until("created", "w/sub/g")
        session.stdout("mv w/f w/sub/f2")
        assert ("moved_from", "w/f") in watch.until("moved_to", "w/sub/f2")
        session.stdout("rm w/sub/g")
        watch.until("deleted", "w/sub/g")
        session.stdout("mkdir -p w/n/e/w; echo deep > w/n/e/w/f")
        watch.until("created", "w/n/e/w/f")
        session.stdout("mv w/n w/moved; echo more > w/moved/e/h")
        watch.until("created", "w/moved/e/h")
        session.stdout("ln -s /etc w/out; touch 'w/é \"q'")
        assert ("created", "w/out") in watch.until("created", 'w/é "q')
        session.write("/workspace/w/by-the-host", b"x")
        assert not any(".berth-" in path for _, path in watch.until("moved_to" if PORTABLE_WALK else "created", "w/by-the-host"))
        session.write("/workspace/w/by-the-host", b"y")
        assert not any(".berth-" in path for _, path in watch.until("moved_to", "w/by-the-host"))
    finally:
        watch.close()


def test_ends_when_the_directory_goes(session: Session) -> None:
    session.stdout("mkdir -p gone/d")
    watch = Watch(session, "gone")
    session.stdout("rm -r gone")
    watch.until("gone", "gone")
    wait_until(watch.ended.is_set, what="the stream has ended")
    watch.close()


def test_says_when_it_lost_events(broker: Broker, session: Session) -> None:
    """A reader that does not read: the kernel's queue is bounded, and so are we."""
    session.stdout("mkdir -p flood")
    before = broker.rss_kb()
    answer = broker.http.build_request("GET", f"/sessions/{session.id}/watch", params={"path": "flood"}, headers={"X-Sandbox-Token": session.token})
    response = broker.http.send(answer, stream=True)
    done = session.python(
        "import os\nnames = ['flood/' + c * 200 for c in 'ab']\nfor n in names: open(n, 'w').close()\n"
        "for i in range(150000):\n  for n in names: os.chmod(n, 0o600)"
    )
    assert done["exit_code"] == 0, done
    assert broker.grew_less_than(8 * 1024, before)
    kinds = set()
    for line in response.iter_lines():
        if line.startswith("event: "):
            kinds.add(line)
        if line == "event: lost":
            break
    assert "event: lost" in kinds
    response.close()


def test_streams_leave_nothing(broker: Broker, session: Session) -> None:
    session.stdout("mkdir -p l")
    Watch(session, "l").close()
    files, threads = broker.fd_count(), broker.thread_count()
    for i in range(100):
        watch = Watch(session, "l")
        watch.close()
    wait_until(lambda: broker.fd_count() <= files + 2 and broker.thread_count() <= threads + 2, what="all streams are gone")


def test_what_cannot_be_watched(broker: Broker, session: Session) -> None:
    session.stdout("mkdir -p c; echo x > c/f; [ -L c/l ] || ln -s / c/l")
    for path, expected in [("c/none", 404), ("c/f", 404), ("c/l", 404), ("c/l/etc", 404), ("../x", 400)]:
        assert session.request("GET", "/watch", params={"path": path}).status_code == expected, path
    assert broker.http.get(f"/sessions/{session.id}/watch").status_code == 401


def test_many_directories(session: Session) -> None:
    session.python("import os\nfor i in range(9000):\n  os.makedirs(f'many/{i // 100}/{i}', exist_ok=True)")
    began = time.monotonic()
    watch = Watch(session, "many")
    assert time.monotonic() - began < 5 * SLOWNESS
    kinds = [watch.events.get(timeout=5 * SLOWNESS)[0]]
    assert kinds == ["lost"]
    watch.close()


def test_a_swapped_link_is_not_watched(session: Session, broker: Broker) -> None:
    outside = broker.home / "outside-watch"
    outside.mkdir()
    session.stdout("mkdir -p s/d")
    watch = Watch(session, "s")
    session.stdout(f"mkdir s/n; rmdir s/n; ln -s {outside} s/n; rmdir s/d; ln -s {outside} s/d; touch s/end1")
    watch.until("created", "s/end1")
    (outside / "secret").write_text("x")
    session.stdout("touch s/end2")
    assert not any("secret" in path for _, path in watch.until("created", "s/end2"))
    watch.close()


@pytest.mark.full
def test_no_silent_stream_is_cut_or_kept_back_by_a_proxy(session: Session) -> None:
    """U1, for all streams of events that may be silent: three comments within a minute, and a word to proxies that would gather them."""
    run = session.request("POST", "/runs", json={"argv": ["sleep", "600"]}).json()["run_id"]
    streams = {"events": "/events", "output": f"/sessions/{session.id}/runs/{run}/output", "watch": f"/sessions/{session.id}/watch"}
    comments: dict[str, int] = {}

    def listen(name: str, path: str) -> None:
        with session.broker.client.stream("GET", path, headers={"Accept": "text/event-stream"}) as answer:
            assert answer.status_code == 200
            assert answer.headers["x-accel-buffering"] == "no" and answer.headers["cache-control"] in ("no-cache", "no-store")
            comments[name] = 0
            for line in answer.iter_lines():
                comments[name] += line.startswith(":")
                if comments[name] == 3:
                    return

    with ThreadPoolExecutor(len(streams)) as pool:
        for waiting in [pool.submit(listen, name, path) for name, path in streams.items()]:
            waiting.result(60 * SLOWNESS)
    assert comments == dict.fromkeys(streams, 3)
