"""Webhooks: a real receiver that is dead, slow, refuses, redirects, forgets; and a broker that dies in the middle."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import sqlite3
import subprocess
import threading
import time
from typing import Any, Callable, Iterator

import pytest

from berth import BERTHD, SLOWNESS, Broker, free_port, wait_until
from fake_engine import FakeEngine

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes ....").decode()
TRACE = "0af7651916cd43dd8448eb211c80319c"


class Receiver:
    """What was sent to it, in order; answer(event, nth) says the status of each (or (status, headers)), after whatever it waits for."""

    def __init__(self, port: int = 0) -> None:
        self.lock = threading.Lock()
        self.taken: list[dict[str, Any]] = []  # answered with 2xx
        self.seen: list[dict[str, Any]] = []
        self.answer: Callable[[dict[str, Any], int], Any] = lambda event, nth: 204
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                event = json.loads(body) | {"headers": {k.lower(): v for k, v in self.headers.items()}, "body": body, "path": self.path}
                with receiver.lock:
                    receiver.seen.append(event)
                    nth = sum(e["headers"]["webhook-id"] == event["headers"]["webhook-id"] for e in receiver.seen)
                status = receiver.answer(event, nth)
                headers: dict[str, str] = {}
                if isinstance(status, tuple):
                    status, headers = status
                with receiver.lock:
                    if 200 <= status < 300:
                        receiver.taken.append(event)
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:
                    pass

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hooks?x=1"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def ops(self, session: str) -> list[str]:
        """What was taken of a session, each number once."""
        with self.lock:
            found = {e["data"]["seq"]: e["data"]["op"] for e in self.taken if e["data"]["session"] == session}
        return [found[seq] for seq in sorted(found)]

    def order(self, session: str) -> list[int]:
        with self.lock:
            return [e["data"]["seq"] for e in self.taken if e["data"]["session"] == session]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


@pytest.fixture
def hooked(fake: FakeEngine, make_broker: Callable[..., Broker], receiver: Receiver) -> Broker:
    return make_broker(engine=fake, webhook_url=receiver.url, webhook_secret=SECRET)


def verified(event: dict[str, Any], secret: str = SECRET) -> bool:
    headers = event["headers"]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + event["body"]
    wanted = base64.b64encode(hmac.digest(base64.b64decode(secret.removeprefix("whsec_")), signed, "sha256")).decode()
    return f"v1,{wanted}" in headers["webhook-signature"].split(" ")


def live(broker: Broker, name: str) -> None:
    """opened, hibernated, woken, purged."""
    session = broker.open(name, tenant="acme")
    assert broker.client.post(f"/sessions/{name}/hibernate").status_code == 200
    assert broker.client.post(f"/sessions/{name}/wake").status_code == 200
    session.close(purge=True)


LIFE = ["opened", "hibernated", "woken", "purged"]


@pytest.mark.san
def test_events_arrive_signed_in_order_and_with_their_trace(hooked: Broker, receiver: Receiver) -> None:
    answer = hooked.client.post("/sessions", json={"session_id": "one", "tenant": "acme"}, headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})
    assert answer.status_code == 200
    wait_until(lambda: receiver.ops("one") == ["opened"], what="delivered")
    event = receiver.taken[0]
    assert event["path"] == "/hooks?x=1"
    assert event["type"] == "berth.opened" and event["data"] | {"seq": 0} == {"seq": 0, "op": "opened", "session": "one", "tenant": "acme", "detail": ""}
    assert event["headers"]["content-type"] == "application/json"
    assert verified(event) and not verified(event | {"body": event["body"] + b" "})
    assert abs(int(event["headers"]["webhook-timestamp"]) - time.time()) < 60 * SLOWNESS
    assert event["headers"]["webhook-key-id"] == hashlib.sha256(base64.b64decode(SECRET.removeprefix("whsec_"))).hexdigest()[:16]
    version, trace, span, flags = event["headers"]["traceparent"].split("-")
    assert (version, trace, flags) == ("00", TRACE, "01") and span != "b7ad6b7169203331"
    feed = hooked.client.get("/events", params={"follow": "false", "after": "0"}).json()["events"]
    assert [e["seq"] for e in feed if e["session"] == "one"] == receiver.order("one")
    hooked.purge("one")
    wait_until(lambda: receiver.ops("one") == ["opened", "purged"], what="delivered")
    assert SECRET not in hooked.log() and SECRET.removeprefix("whsec_") not in hooked.log()


def test_many_sessions_each_in_its_order_by_a_receiver_that_refuses_and_dawdles(hooked: Broker, receiver: Receiver) -> None:
    def answer(event: dict[str, Any], nth: int) -> int:
        seq = event["data"]["seq"]
        if seq % 5 == 0 and nth == 1:
            return (500, 429, 302, 404, 503)[seq // 5 % 5]
        return 204

    receiver.answer = answer
    names = [f"many{i}" for i in range(12)]
    for name in names:
        live(hooked, name)
    wait_until(lambda: all(receiver.ops(name) == LIFE for name in names), 60, "all delivered")
    for name in names:
        assert receiver.order(name) == sorted(receiver.order(name)), name


def test_a_refused_event_holds_up_its_own_session_only(hooked: Broker, receiver: Receiver) -> None:
    released = threading.Event()
    receiver.answer = lambda event, nth: 500 if event["data"]["session"] == "bad" and not released.is_set() else 204
    live(hooked, "bad")
    live(hooked, "good")
    wait_until(lambda: receiver.ops("good") == LIFE, 30, "the other session's")
    assert receiver.ops("bad") == []
    assert {e["data"]["op"] for e in receiver.seen if e["data"]["session"] == "bad"} == {"opened"}
    released.set()
    wait_until(lambda: receiver.ops("bad") == LIFE, 60, "once it is taken")


def test_a_redirect_is_not_followed(hooked: Broker, receiver: Receiver) -> None:
    elsewhere = Receiver()
    try:
        receiver.answer = lambda event, nth: (307, {"Location": elsewhere.url}) if nth == 1 else 204
        hooked.open("moved")
        wait_until(lambda: receiver.ops("moved") == ["opened"], 30, "tried again at its own address")
        assert elsewhere.seen == []
        hooked.purge("moved")
    finally:
        elsewhere.close()


def test_a_dead_receiver_costs_nothing_and_is_told_all_when_it_is_back(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    port = free_port()
    broker = make_broker(engine=fake, webhook_url=f"http://127.0.0.1:{port}/", webhook_secret=SECRET)
    for i in range(5):
        live(broker, f"dead{i}")
    wait_until(lambda: "webhook.unreached" in broker.log(), what="said")
    begin = time.monotonic()
    assert broker.http.get("/healthz").status_code == 200
    assert time.monotonic() - begin < 2 * SLOWNESS
    broker.restart()  # nor does its end wait for it
    late = Receiver(port)
    try:
        wait_until(lambda: all(late.ops(f"dead{i}") == LIFE for i in range(5)), 60, "all delivered")
    finally:
        late.close()
    assert broker.log().count("webhook.unreached") <= 2  # once for each life, not for each attempt


def test_a_receiver_that_hangs_holds_up_neither_requests_nor_the_end(hooked: Broker, receiver: Receiver) -> None:
    released = threading.Event()
    receiver.answer = lambda event, nth: released.wait(120) and 204
    live(hooked, "slow")
    wait_until(lambda: len(receiver.seen) > 0, what="asked")
    live(hooked, "slow2")
    begin = time.monotonic()
    hooked.terminate()
    assert time.monotonic() - begin < 15 * SLOWNESS
    released.set()
    receiver.answer = lambda event, nth: 204
    hooked.start()
    wait_until(lambda: receiver.ops("slow2") == LIFE, 60, "delivered by the next life")


@pytest.mark.san
def test_a_killed_broker_leaves_nothing_out(hooked: Broker, receiver: Receiver) -> None:
    """At least once: whatever it was doing when it died, every number comes, each session's in order."""
    gate = threading.Semaphore(0)
    receiver.answer = lambda event, nth: (gate.acquire(timeout=5), 204)[1]
    names = [f"killed{i}" for i in range(6)]
    for life in range(3):
        for name in names[2 * life:2 * life + 2]:
            live(hooked, name)
        for _ in range(3):
            gate.release()
        wait_until(lambda: len(receiver.taken) >= 3 * (life + 1), what="in the middle")
        hooked.crash()
    for _ in range(200):
        gate.release()
    wait_until(lambda: all(receiver.ops(name) == LIFE for name in names), 60, "all delivered")
    assert all(verified(event) for event in receiver.taken)
    for name in names:
        first: list[int] = []
        for seq in receiver.order(name):
            if seq not in first:
                first.append(seq)
        assert first == sorted(first), name


def test_what_the_feed_forgot_is_told(hooked: Broker, receiver: Receiver) -> None:
    hooked.open("before")
    wait_until(lambda: receiver.ops("before") == ["opened"], what="delivered")
    hooked.terminate()
    database = sqlite3.connect(hooked.home / "state" / "berth.db")
    with database:
        database.execute("UPDATE webhook SET place = 0")
        latest = database.execute("SELECT max(seq) FROM feed").fetchone()[0]
        for _ in range(40):
            database.execute("INSERT INTO feed (at_unix_us, op, session, tenant, detail) VALUES (1000000 * strftime('%s'), 'frozen', 'x', '', '')")
        database.execute("DELETE FROM feed WHERE seq <= ?", (latest + 20,))
    database.close()
    hooked.start()
    wait_until(lambda: len(receiver.ops("x")) == 20, 30, "what is left")
    # It is no session's, and so in nobody's order: it may be the last that is taken.
    lost = wait_until(lambda: [e for e in list(receiver.taken) if e["data"]["op"] == "lost"], what="what is not left")
    assert [e["data"]["detail"] for e in lost] == [f"{latest + 20} events were forgotten before they could be delivered"]
    hooked.purge("before")


def test_two_secrets_while_one_replaces_the_other_and_a_file(fake: FakeEngine, make_broker: Callable[..., Broker], receiver: Receiver, tmp_path: Any) -> None:
    new = "whsec_" + base64.b64encode(b"another secret of some more bytes").decode()
    file = tmp_path / "secret"
    file.write_text(f"{new} {SECRET}\n")
    broker = make_broker(engine=fake, webhook_url=receiver.url, webhook_secret_file=file)
    broker.open("both")
    wait_until(lambda: receiver.ops("both") == ["opened"], what="delivered")
    assert verified(receiver.taken[0], new) and verified(receiver.taken[0], SECRET)
    broker.purge("both")


def test_a_url_that_is_set_later_is_told_from_then_on(fake: FakeEngine, make_broker: Callable[..., Broker], receiver: Receiver) -> None:
    broker = make_broker(engine=fake)
    live(broker, "earlier")
    broker.terminate()
    broker.settings |= {"webhook_url": receiver.url, "webhook_secret": SECRET}
    broker.start()
    live(broker, "later")
    wait_until(lambda: receiver.ops("later") == LIFE, what="delivered")
    assert receiver.ops("earlier") == []


@pytest.mark.parametrize("settings, named", [
    ({"webhook_url": "ftp://x/", "webhook_secret": SECRET}, "SANDBOXD_WEBHOOK_URL"),
    ({"webhook_url": "http://me:pa55word@x/", "webhook_secret": SECRET}, "SANDBOXD_WEBHOOK_URL"),
    ({"webhook_url": "http://x/"}, "SANDBOXD_WEBHOOK_SECRET"),
    ({"webhook_url": "http://x/", "webhook_secret": "pa55word"}, "SANDBOXD_WEBHOOK_SECRET"),
    ({"webhook_url": "http://x/", "webhook_secret": SECRET, "webhook_secret_file": "/dev/null"}, "SANDBOXD_WEBHOOK_SECRET_FILE"),
    ({"webhook_url": "http://x/", "webhook_secret_file": "/nowhere"}, "SANDBOXD_WEBHOOK_SECRET_FILE"),
])
def test_settings_that_cannot_work_are_named_at_the_start(make_broker: Callable[..., Broker], settings: dict[str, Any], named: str) -> None:
    broker = make_broker(start=False, **settings)
    done = subprocess.run([BERTHD, "--check-config"], env=broker.environment(), capture_output=True, text=True, timeout=30 * SLOWNESS)
    assert done.returncode == 2 and named in done.stderr
    assert "pa55word" not in done.stderr and SECRET not in done.stderr
