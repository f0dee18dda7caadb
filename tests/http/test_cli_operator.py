"""What the operator does to the broker itself: status, smoke, bench, prepare, clean, and the routes that are there for them."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Callable, Iterator

import pytest

from berth import IMAGE, Broker, Engine, new_id, wait_until
from cli import Cli, Terminal
from fake_engine import FakeEngine, slow_pull


@pytest.fixture
def cli(broker: Broker) -> Cli:
    return Cli(broker.url)


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.close()


# ---- status


def test_status_is_for_people_and_for_programs(cli: Cli, broker: Broker) -> None:
    broker.open("status-1", tenant="acme")
    wait_until(lambda: cli.run("status").returncode == 0, what="the broker is ready")
    text = cli.out("status")
    assert text.startswith(f"broker     {broker.url}, berthd ") and "acme" in text
    told = json.loads(cli.out("status", "--json"))
    assert told["sessions"]["open"] >= 1 and told["status"] == "ready"
    assert broker.purge("status-1").status_code == 204


def test_status_is_looked_at_again(cli: Cli, broker: Broker) -> None:
    terminal = Terminal(broker.url, "status", "--watch=1")
    try:
        terminal.wait_for(r"\x1b\[H\x1b\[2Jbroker")
        terminal.wait_for(r"\x1b\[H\x1b\[2Jbroker")
        terminal.type("\x03")
        assert terminal.wait_end() == -2
    finally:
        terminal.close()


# ---- smoke and bench


@pytest.mark.san
def test_smoke_tries_everything_and_leaves_nothing(cli: Cli, broker: Broker) -> None:
    lines = cli.out("smoke").splitlines()
    assert len(lines) == 10 and all(line.endswith("ms  ok") for line in lines), lines
    report = json.loads(cli.out("smoke", "--json"))
    assert report["ok"] and len(report["steps"]) == 10
    assert not [s for s in broker.sessions() if s["session_id"].startswith("smoke-")]
    assert not [name for name in broker.root.iterdir() if name.name.startswith("smoke-")]


def test_smoke_stops_where_it_goes_wrong(cli: Cli, broker: Broker) -> None:
    done = cli.run("smoke", "--runtime", "nope", status=1)
    assert done.stdout.decode().splitlines()[0].endswith("FAILED") and done.stderr.startswith(b"berth: Unknown runtime")
    assert json.loads(cli.run("smoke", "--runtime", "nope", "--json", status=1).stdout)["ok"] is False


def test_bench_counts(cli: Cli, broker: Broker) -> None:
    report = json.loads(cli.out("bench", "--count", "3", "--json"))
    assert report["a command"]["count"] == 3 and report["open a session"]["count"] == 3
    assert 0 < report["a command"]["least_ms"] <= report["a command"]["median_ms"] <= report["a command"]["most_ms"]
    assert not [s for s in broker.sessions() if s["session_id"].startswith("smoke-")]


# ---- prepare


def test_an_image_is_had_ahead(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(engine=fake, runtimes=f"python={IMAGE},other=two:2", prewarm=False)
    cli = Cli(broker.url)
    pulling, go_on = threading.Event(), threading.Event()
    fake.fault("GET", f"/images/{IMAGE}/json", (404, {"message": "no such image"}), times=2)
    pull = fake.fault("POST", "/images/create", slow_pull(pulling, go_on))
    assert [line.split()[:3] for line in cli.out("prepare").splitlines()[1:]] == [["other", "two:2", "not"], ["python", IMAGE, "not"]]
    first = cli.start("prepare", "python")
    assert pulling.wait(20)
    said = first.stdout.readline()  # type: ignore[union-attr]
    assert said.startswith(b"python: Pulling ") and b"\033" not in said
    second = cli.start("prepare", "--json", "python")  # joins
    gone = cli.start("prepare", "python")
    gone.kill()
    gone.wait()
    go_on.set()
    assert first.wait(20) == 0 and f"python: ready ({IMAGE})".encode() in first.stdout.read()  # type: ignore[union-attr]
    assert second.wait(20) == 0
    last = json.loads(second.stdout.read().splitlines()[-1])  # type: ignore[union-attr]
    assert last["event"] == "ready" and last["image_id"]
    assert pull.hit == 1
    assert cli.out("prepare", "python", "python") == 2 * f"python: ready ({IMAGE}, was here)\n"
    assert cli.out("prepare").splitlines()[2].split()[:3] == ["python", IMAGE, "here"]


def test_an_image_that_cannot_be_had(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(engine=fake, runtimes="python=one:1", prewarm=False)
    cli = Cli(broker.url)
    pulling, go_on = threading.Event(), threading.Event()
    go_on.set()
    fake.fault("GET", "/images/one:1/json", (404, {"message": "no such image"}))
    fake.fault("POST", "/images/create", slow_pull(pulling, go_on, fails=True))
    done = cli.run("prepare", "python", status=1)
    assert done.stderr.startswith(b"berth: python: ") and b"manifest unknown" in done.stderr
    assert cli.run("prepare", "nope", status=5).stderr.startswith(b"berth: nope: Unknown runtime")
    assert cli.run("prepare", "--all", "python").returncode == 2


def test_a_stop_does_not_wait_for_a_registry(fake: FakeEngine, make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(engine=fake, runtimes="python=one:1", prewarm=False)
    pulling, go_on = threading.Event(), threading.Event()
    fake.fault("GET", "/images/one:1/json", (404, {"message": "no such image"}))
    fake.fault("POST", "/images/create", slow_pull(pulling, go_on))
    waiting = Cli(broker.url).start("prepare", "python")
    assert pulling.wait(20)
    broker.terminate()
    assert waiting.wait(20) in (1, 3)
    go_on.set()


# ---- clean


def test_what_a_lost_broker_left_is_found_and_removed(make_broker: Callable[..., Broker], engine: Engine) -> None:
    broker = make_broker()
    lost, kept = broker.open(new_id("lost")), broker.open(new_id("kept"))
    left = {lost.container(), kept.container()}
    other = make_broker()
    others = other.open(new_id("other")).container()
    broker.kill9()
    for file in Path(broker.settings["state_dir"]).glob("berth.db*"):
        file.unlink()
    broker.start()
    cli = Cli(broker.url)
    broker.open(kept.id)  # its files are there, and get a container of their own
    listed = {c["id"]: c for c in broker.client.get("/orphans").json()["containers"]}
    assert left <= set(listed) and all(listed[c]["below_root"] for c in left)
    assert not listed[others]["below_root"]
    text = cli.out("clean")
    assert text.count("below this broker's root") == 2 and text.endswith("to do it, berth clean --yes\n")
    assert all(engine.exists(c) for c in left)
    assert cli.out("clean", "--yes").endswith("removed: 2\n")
    assert not any(engine.exists(c) for c in left) and engine.exists(others)
    assert cli.out("clean").endswith("there is nothing to remove\n")
    # What is another's goes when it is named only; what is none is not touched, whoever names it.
    answer = broker.client.post("/orphans/remove", json={"containers": ["f" * 64, others[:12]]}).json()
    assert answer["removed"] == [] and len(answer["failed"]) == 2 and engine.exists(others)
    assert cli.run("clean", "--yes", "f" * 64, status=5).stderr
    assert cli.run("clean", "--yes", "abc", status=2).stderr
    other.kill9()
    other.leftovers_expected = True
    assert cli.out("clean", "--yes", others[:12]).endswith("removed: 1\n")
    assert not engine.exists(others)
    assert broker.client.post("/orphans/remove", json={"containers": "all"}).status_code == 422
