"""GET /events: numbered without a gap, told once where something is missing, and nobody pays for a reader that does not read."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

import httpx
import pytest

from berth import SLOWNESS, TOKEN, Broker, wait_until
from fake_engine import FakeEngine


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


@pytest.fixture
def broker(fake: FakeEngine, make_broker: Callable[..., Broker]) -> Broker:
    return make_broker(engine=fake)


class Reader:
    """One stream of events, read by a thread into `records`."""

    def __init__(self, broker: Broker, last: str | None = None, **query: Any) -> None:
        headers = {"X-Sandbox-Token": TOKEN} | ({"Last-Event-ID": last} if last else {})
        self.records: list[dict[str, Any]] = []
        self.comments = 0
        self.ended = threading.Event()
        self.client = httpx.Client(base_url=broker.url, timeout=60, trust_env=False)
        self.context = self.client.stream("GET", "/events", params=query, headers=headers)
        self.answer = self.context.__enter__()
        assert self.answer.status_code == 200, self.answer.read()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        record: dict[str, Any] = {}
        try:
            for line in self.answer.iter_lines():
                if line.startswith(":"):
                    self.comments += 1
                elif line:
                    name, _, value = line.partition(":")
                    record[name] = value.removeprefix(" ")
                else:
                    if "data" in record:
                        self.records.append(record | json.loads(record["data"]))
                    record = {}
        except httpx.HTTPError:
            pass
        self.ended.set()

    def seqs(self) -> list[int]:
        return [r["seq"] for r in self.records if "seq" in r]

    def close(self) -> None:
        self.client.close()


@pytest.fixture
def read(broker: Broker) -> Iterator[Callable[..., Reader]]:
    made: list[Reader] = []

    def make(**query: Any) -> Reader:
        made.append(Reader(broker, **query))
        return made[-1]

    yield make
    for reader in made:
        reader.close()


def latest(broker: Broker) -> int:
    return broker.client.get("/events?follow=false").json()["latest_seq"]


def events(broker: Broker, count: int) -> None:
    """So many events, without anything happening."""
    for _ in range(count):
        assert broker.client.put("/tenants/noise", json={"max_open_sessions": 5}).status_code == 200


@pytest.mark.san
def test_what_happens_is_told_at_once_and_in_order(broker: Broker, read: Callable[..., Reader]) -> None:
    reader = read()
    assert reader.answer.headers["content-type"].startswith("text/event-stream")
    assert reader.answer.headers["cache-control"] == "no-cache" and reader.answer.headers["x-accel-buffering"] == "no"
    session = broker.open("s", tenant="acme")
    session.request("POST", "/hibernate")
    session.run(["say", "x"])
    assert [e["op"] for e in session.events()["events"]] == ["run"], "the wire's own has what the wire records, and nothing else"
    session.close(purge=True)
    wait_until(lambda: len(reader.records) == 4, 5, "four events")
    assert [(r["op"], r["session"], r["tenant"]) for r in reader.records] == [(op, "s", "acme") for op in ("opened", "hibernated", "woken", "purged")]
    first = reader.seqs()[0]
    assert reader.seqs() == list(range(first, first + 4))
    begun = time.monotonic()
    broker.open("t")
    wait_until(lambda: len(reader.records) == 5, 5, "the next")
    assert time.monotonic() - begun < 1 * SLOWNESS


def test_the_service_token_only(broker: Broker) -> None:
    session = broker.open("s")
    for token in (None, "wrong", session.token):
        headers = {"X-Sandbox-Token": token} if token else {}
        assert broker.http.get("/events", headers=headers).status_code == 401
        assert broker.http.get("/tenants", headers=headers).status_code == 401


def test_refusals_policies_and_tenants_are_on_it(broker: Broker, read: Callable[..., Reader]) -> None:
    reader = read()
    assert broker.client.put("/policy", json={"max_sessions": 1}).status_code == 200
    broker.open("s")
    assert broker.client.post("/sessions", json={"session_id": "t", "tenant": "acme"}).status_code == 429
    assert broker.client.put("/tenants/acme", json={"max_open_sessions": 2}).status_code == 200
    wait_until(lambda: len(reader.records) == 4, 5)
    assert [r["op"] for r in reader.records] == ["policy", "opened", "refused", "tenant"]
    assert "max_sessions" in reader.records[0]["detail"] and "limit" in reader.records[2]["detail"]


@pytest.mark.parametrize("query, expected", [({"tenant": "a"}, ["s1", "s3"]), ({"session": "s2"}, ["s2"]), ({"op": "opened"}, ["s1", "s2", "s3"]), ({"op": "none"}, []), ({"tenant": "a", "session": "s2"}, [])])
def test_filters(broker: Broker, read: Callable[..., Reader], query: dict[str, str], expected: list[str]) -> None:
    reader = read(**query, after=0)
    for name, tenant in (("s1", "a"), ("s2", "b"), ("s3", "a")):
        broker.open(name, tenant=tenant)
    everything = read(after=0)
    wait_until(lambda: len(everything.records) == 3 and len(reader.records) >= len(expected), 5)
    assert [r["session"] for r in reader.records] == expected


def test_it_goes_on_where_it_was_over_kill_9(broker: Broker, read: Callable[..., Reader]) -> None:
    reader = read(after=0)
    for i in range(5):
        broker.open(f"s{i}")
    wait_until(lambda: len(reader.records) == 5, 5)
    last = reader.records[-1]["id"]
    broker.crash()
    wait_until(reader.ended.is_set, 5, "its end is seen")
    again = read(last=last)
    broker.open("after")
    wait_until(lambda: again.records, 5)
    assert again.records[0]["seq"] == reader.seqs()[-1] + 1 and again.records[0]["session"] == "after"
    whole = read(after=0)
    wait_until(lambda: len(whole.records) == 6, 5)
    assert whole.seqs() == list(range(1, 7))


@pytest.mark.parametrize("last", ["00000000-1", "nonsense", "7", "' OR 1=1", "-5", "99999999999999999999999"])
def test_a_foreign_id_is_reset_once(broker: Broker, read: Callable[..., Reader], last: str) -> None:
    broker.open("s")
    reader = read(last=last)
    wait_until(lambda: len(reader.records) >= 2, 5)
    assert reader.records[0]["event"] == "reset" and reader.records[0]["reason"] == "foreign"
    assert [r.get("seq") for r in reader.records[1:]] == list(range(1, latest(broker) + 1))


def test_a_future_and_a_stale_id_are_reset_once(broker: Broker, read: Callable[..., Reader]) -> None:
    broker.open("s")
    install = read(after=0)
    wait_until(lambda: install.records, 5)
    store = install.records[0]["id"].rpartition("-")[0]
    future = read(last=f"{store}-4711")
    wait_until(lambda: len(future.records) >= 2, 5)
    assert (future.records[0]["event"], future.records[0]["reason"], future.records[0]["latest"]) == ("reset", "future", 1)
    broker.terminate()
    database = sqlite3.connect(broker.home / "state" / "berth.db")
    database.execute("UPDATE feed SET at_unix_us = 0")
    database.execute("INSERT INTO feed (at_unix_us, op, session, tenant, detail) SELECT 0, op, session, tenant, detail FROM feed, (WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<100) SELECT i FROM n)")
    database.commit()
    database.close()
    broker.start()
    before = latest(broker)
    events(broker, 80)
    stale = read(last=f"{store}-3")
    wait_until(lambda: len(stale.records) > 1 and stale.records[-1].get("seq") == before + 80, 5)
    assert (stale.records[0]["event"], stale.records[0]["reason"]) == ("reset", "stale")
    assert stale.seqs() == list(range(stale.records[0]["first"], before + 81)), "what is older than a week is gone, the rest is whole"
    assert sum(r.get("event") == "reset" for r in stale.records) == 1


def test_silence_is_broken_by_a_ping(broker: Broker, read: Callable[..., Reader]) -> None:
    reader = read()
    wait_until(lambda: reader.comments >= 1, 15, "a ping")
    assert reader.records == []


def refuse(broker: Broker, count: int) -> None:
    """So many refusals, quickly: many requests at once on one connection, then their answers."""
    body = b'{"session_id":"%s"}' % (b"r" * 64)
    request = f"POST /sessions HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {TOKEN}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    with socket.create_connection(("127.0.0.1", broker.port)) as connection:
        for _ in range(0, count, 20):
            connection.sendall(request * 20)
            data = b""
            while data.count(b"HTTP/1.1 429") < 20 or not data.endswith(b"}"):
                got = connection.recv(65536)
                assert got, data[-200:]
                data += got


@pytest.mark.paced
def test_a_reader_that_never_reads_costs_nothing(broker: Broker, read: Callable[..., Reader]) -> None:
    """U1: it is stuck among what was kept when it came, ten thousand more happen; another reader gets them all, and it is told what it missed."""
    broker.terminate()
    database = sqlite3.connect(broker.home / "state" / "berth.db")
    database.execute(
        "INSERT INTO feed (at_unix_us, op, session, tenant, detail) SELECT ?, 'filler', ?, '', ? FROM"
        " (WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<10000) SELECT i FROM n)", (int(time.time() * 1e6), "s" * 64, "\x01" * 230),
    )
    database.commit()
    database.close()
    broker.start()
    assert broker.client.put("/policy", json={"max_sessions": 0}).status_code == 200
    first = latest(broker)
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.connect(("127.0.0.1", broker.port))
    lazy.sendall(f"GET /events?after=1 HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {TOKEN}\r\n\r\n".encode())
    eager = read()
    before = broker.rss_kb()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: refuse(broker, 2600), range(4)))
    wait_until(lambda: eager.seqs() and eager.seqs()[-1] >= first + 10400, 20, "the other has all")
    got = eager.seqs()
    gaps = [(a, b) for a, b in zip(got, got[1:]) if b != a + 1]
    assert not gaps and got[0] == first + 1, f"without a gap: {gaps}, {latest(broker) - first} numbers, {len(got)} read, {[r for r in eager.records if 'event' in r]}"
    assert broker.grew_less_than(8192, before)
    kept = broker.client.get("/events?follow=false").json()
    assert kept["latest_seq"] - kept["first_seq"] + 1 == 10_000, "no more are kept"
    lazy.settimeout(10)
    data = b""
    while b"event: lagged" not in data[-70000:]:
        got = lazy.recv(65536)
        assert got and len(data) < 40_000_000, "not a word of what it missed"
        data += got
    lazy.close()


def test_a_thousand_that_come_and_go_leave_nothing(broker: Broker) -> None:
    request = f"GET /events?after=0 HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: {TOKEN}\r\n\r\n".encode()

    def cycle() -> None:
        with socket.create_connection(("127.0.0.1", broker.port)) as connection:
            connection.sendall(request)
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")

    threads = broker.thread_count()  # without a reader
    for _ in range(20):
        cycle()
    wait_until(lambda: broker.thread_count() <= threads, 10, "the first are gone")
    descriptors = broker.fd_count()
    for _ in range(1000):
        cycle()
    wait_until(lambda: broker.thread_count() <= threads and broker.fd_count() <= descriptors, 15, "all gone")
    held = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(130)]
    for connection in held:
        connection.sendall(request)
    answers = [connection.recv(4096).split(b" ")[1] for connection in held]
    assert answers.count(b"429") == 2 and answers.count(b"200") == 128
    assert broker.http.get("/healthz").status_code == 200
    for connection in held:
        connection.close()


def test_nothing_forges_an_event(broker: Broker, read: Callable[..., Reader]) -> None:
    reader = read()
    assert broker.client.put("/policy", json={"default_runtime": "x\n\ndata: forged\n\n"}).status_code in (400, 422)
    broker.client.post("/sessions", json={"session_id": "a\n\ndata: forged"})
    broker.open("s")
    wait_until(lambda: reader.records, 5)
    assert [r["op"] for r in reader.records] == ["opened"]


def test_a_stop_ends_the_streams(broker: Broker, read: Callable[..., Reader]) -> None:
    readers = [read() for _ in range(20)]
    begun = time.monotonic()
    broker.terminate()
    assert time.monotonic() - begun < 8 * SLOWNESS
    for reader in readers:
        wait_until(reader.ended.is_set, 5)


def test_hup_reads_the_policy_file_again(fake: FakeEngine, make_broker: Callable[..., Broker], tmp_path: Any) -> None:
    import signal

    overrides = tmp_path / "policy.json"
    overrides.write_text('{"max_sessions": 3}')
    broker = make_broker(engine=fake, policy_overrides=str(overrides), cleanup_interval=3600)
    assert broker.client.get("/policy").json()["max_sessions"] == 3
    overrides.write_text('{"max_sessions": 4}')
    broker.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    wait_until(lambda: broker.client.get("/policy").json()["max_sessions"] == 4, 5, "in force")
    broker.client.put("/policy", json={"max_sessions": 9})
    broker.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    wait_until(lambda: broker.client.get("/policy").json()["max_sessions"] == 4, 5, "although it did not change")
    overrides.write_text("{broken")
    said_before = len(broker.log())
    broker.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    wait_until(lambda: "event=policy.overrides" in broker.log()[said_before:], 5, "it was read")
    assert broker.client.get("/policy").json()["max_sessions"] == 4
    assert [e["op"] for e in broker.client.get("/events?follow=false&op=policy").json()["events"]] == ["policy"] * 3
