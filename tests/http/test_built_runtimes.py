"""Runtimes whose image is built: by packages or a folder with a Dockerfile, once, named by what goes in, and what happens when it cannot be."""

from __future__ import annotations

import http.server
import os
import re
import shutil
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from berth import IMAGE, Broker, Engine, wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], Path]:
    """folder(commands): a folder with a Dockerfile of these commands on the tests' image."""

    def make(commands: str, name: str = "context") -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "Dockerfile").write_text(f"FROM {IMAGE}\n{commands}\n")
        return tmp_path / name

    return make


@pytest.fixture
def alias(engine: Engine) -> Iterator[str]:
    """Of this test alone; what was built for it is removed."""
    name = f"built-{uuid.uuid4().hex[:12]}"
    yield name
    for image in images(engine, name):
        engine.http.delete(f"/images/{image}?force=1")


class Gate:
    """What a build waits at until the test lets it go on: its commands are on the host's network."""

    def __init__(self) -> None:
        self.asked, self.released = threading.Event(), threading.Event()
        gate = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                gate.asked.set()
                gate.released.wait(60)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def command(self, alias: str, before: str = "true") -> str:
        return f"RUN {before} && python3 -c \"import urllib.request as u; u.urlopen('http://127.0.0.1:{self.server.server_port}/{alias}', timeout=90)\""


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.released.set()
    gate.server.shutdown()
    gate.server.server_close()


def images(engine: Engine, alias: str) -> list[str]:
    listed = engine.call("GET", "/images/json").json()
    return sorted(tag for image in listed for tag in image["RepoTags"] or [] if tag.startswith(f"berth-runtime/{alias}:"))


def events(broker: Broker, name: str) -> list[str]:
    return [line for line in broker.log().splitlines() if f"event={name} " in line]


# Commands run on the host's network: an engine without a bridge has no other.
SETTINGS = {"build_network": "host", "prewarm": False}


def test_a_folder_with_a_dockerfile_is_built_once_and_named_by_its_content(
    make_broker: Callable[..., Broker], folder: Callable[..., Path], alias: str, engine: Engine
) -> None:
    context = folder("COPY note.txt /note.txt\nRUN echo made >/made.txt\nENV COLOUR=blue")
    (context / "note.txt").write_text("from the folder")
    broker = make_broker(runtimes=f"{alias}=;dockerfile={context}", **SETTINGS)
    with ThreadPoolExecutor(3) as pool:
        sessions = list(pool.map(lambda n: broker.open(f"s{n}"), range(3)))
    assert sessions[0].stdout("cat /note.txt /made.txt; echo $COLOUR") == "from the foldermade\nblue\n"
    assert len(events(broker, "image.build")) == 1, "one build for three openings"
    (runtime,) = broker.client.get("/policy").json()["runtimes"]
    assert runtime["builds"] is True and images(engine, alias) == [runtime["image"]]
    assert runtime["description"] == f"built from {context}"

    broker.restart()
    assert broker.open("again").stdout("cat /note.txt") == "from the folder"
    assert len(events(broker, "image.build")) == 1, "what is there is not built again"

    (context / "note.txt").write_text("changed")
    broker.restart()
    assert broker.open("changed").stdout("cat /note.txt") == "changed"
    assert len(images(engine, alias)) == 2


def test_a_folder_that_changed_since_the_start_is_not_built_under_the_old_name(
    make_broker: Callable[..., Broker], folder: Callable[..., Path], alias: str, engine: Engine
) -> None:
    context = folder("RUN true")
    broker = make_broker(runtimes=f"{alias}=;dockerfile={context}", **SETTINGS)
    folder("RUN false")
    assert broker.client.post("/sessions", json={"session_id": "s"}).status_code == 502
    assert "is not what it was at the start" in broker.log() and images(engine, alias) == []


def test_commands_and_environment_of_a_definition(make_broker: Callable[..., Broker], alias: str) -> None:
    runtimes = (
        f'{{"{alias}": {{"runtime": {{"name": "x", "base_image": "{IMAGE}", "setup_commands": ["echo one >/one", "echo two >>/one"], '
        f'"env_vars": {{"GREETING": "a \\"b\\" $HOME"}}}}, "mem_limit": "128m"}}}}'
    )
    broker = make_broker(runtimes=runtimes, **SETTINGS)
    assert broker.open("s").stdout('cat /one; echo "$GREETING"') == 'one\ntwo\na "b" $HOME\n'


def test_a_build_that_fails_tells_the_operator_and_is_not_tried_again_at_once(
    make_broker: Callable[..., Broker], folder: Callable[..., Path], alias: str
) -> None:
    context = folder("RUN echo a secret of the build >&2; exit 7")
    broker = make_broker(runtimes=f"{alias}=;dockerfile={context},python={IMAGE}", **SETTINGS)
    first = broker.client.post("/sessions", json={"session_id": "s", "runtime": alias})
    assert first.status_code == 502 and "could not be built" in first.json()["detail"], first.text
    second = broker.client.post("/sessions", json={"session_id": "s", "runtime": alias})
    assert second.status_code == 502 and re.search(r"tried again in \d+ s", second.json()["detail"]), second.text
    for answer in (first, second):
        assert "secret" not in answer.text and "exit 7" not in answer.text
    (line,) = events(broker, "image.not_built")
    assert "returned a non-zero code: 7" in line and "again_in_s=30" in line
    assert len(events(broker, "image.build")) == 1
    assert broker.open("other", runtime="python").stdout("echo fine") == "fine\n"


def test_an_opening_waits_for_a_build_and_who_leaves_does_not_end_it(
    make_broker: Callable[..., Broker], folder: Callable[..., Path], alias: str, gate: Gate
) -> None:
    broker = make_broker(runtimes=f"{alias}=;dockerfile={folder(gate.command(alias))}", **SETTINGS)
    with pytest.raises(Exception, match="timed out"):
        broker.client.post("/sessions", json={"session_id": "gone"}, timeout=1)
    assert gate.asked.wait(60)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(broker.open, "waiting")
        try:
            wait_until(lambda: events(broker, "image.building"), 20, "progress in the log")
            assert not opening.done() and broker.http.get("/healthz").status_code == 200
        finally:
            gate.released.set()  # whatever failed, or the pool waits for ever
        assert opening.result(60).stdout("echo built") == "built\n"
    assert len(events(broker, "image.build")) == 1


def test_it_is_prepared_ahead_of_its_use_and_says_how_far_it_is(
    make_broker: Callable[..., Broker], folder: Callable[..., Path], alias: str, gate: Gate
) -> None:
    context = folder(gate.command(alias, "echo made >/made.txt"))
    broker = make_broker(runtimes=f"{alias}=;dockerfile={context}", **SETTINGS)
    said = ""
    with broker.client.stream("POST", f"/runtimes/{alias}/prepare", json={}) as answer:
        # The latest that the build said, not each line of it: what is sure to be told is what stays the latest.
        for piece in answer.iter_text():
            said += piece
            if "---> Running in " in said:
                gate.released.set()
    assert "event: progress" in said and gate.released.is_set(), said
    assert "event: ready" in said and '"was_here":false' in said, said
    assert broker.open("s").stdout("cat /made.txt") == "made\n"
    assert len(events(broker, "image.build")) == 1


def test_a_stop_ends_a_build(make_broker: Callable[..., Broker], folder: Callable[..., Path], alias: str) -> None:
    context = folder("RUN exec tail -f /dev/null")
    broker = make_broker(runtimes=f"{alias}=;dockerfile={context}", build_network="host", prewarm=True)
    wait_until(lambda: events(broker, "image.build"), 20, "prewarm builds it")
    broker.terminate(20)
    assert events(broker, "image.not_built")


def test_a_build_has_a_deadline(make_broker: Callable[..., Broker], folder: Callable[..., Path], alias: str) -> None:
    context = folder("RUN exec tail -f /dev/null")
    broker = make_broker(runtimes=f"{alias}=;dockerfile={context}", build_timeout=2, **SETTINGS)
    answer = broker.client.post("/sessions", json={"session_id": "s"})
    assert answer.status_code == 502 and "could not be built" in answer.json()["detail"], answer.text
    assert events(broker, "image.not_built")


def test_a_folder_that_cannot_be_built_stops_the_start(make_broker: Callable[..., Broker], tmp_path: Path) -> None:
    for path, reason in ((tmp_path, "has no Dockerfile"), (tmp_path / "none", "No such file")):
        status, said = make_broker(start=False, runtimes=f"x=;dockerfile={path}").fail_to_start()
        assert status == 1 and re.search(f"^berthd: SANDBOXD_RUNTIMES: x: .*{reason}", said, re.M), said
    status, said = make_broker(start=False, runtimes="x=debian:12;apt=git;apt=--option").fail_to_start()
    assert status == 1 and "is not the name of a package" in said, said


@pytest.mark.full
@pytest.mark.timeout(900)
def test_packages_of_apt_and_pip_are_installed(make_broker: Callable[..., Broker], folder: Callable[..., Path], alias: str) -> None:
    # Where PyPI is behind a mirror of this machine's, its address and authorities are needed inside as well.
    authorities = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt"
    index = f" PIP_INDEX_URL={os.environ['PIP_INDEX_URL']}" if "PIP_INDEX_URL" in os.environ else ""
    base = folder(f"COPY ca.pem /ca.pem\nENV PIP_CERT=/ca.pem{index}")
    shutil.copy(authorities, base / "ca.pem")
    prepared = make_broker(runtimes=f"{alias}=;dockerfile={base}", **SETTINGS)
    prepared.open("base")
    (runtime,) = prepared.client.get("/policy").json()["runtimes"]

    broker = make_broker(runtimes=f"{alias}={runtime['image']};apt=ripgrep python3-pip;pip=tomli", **SETTINGS)
    answer = broker.client.post("/sessions", json={"session_id": "s"}, timeout=800)
    assert answer.status_code == 200, answer.text + broker.log_tail()
    assert broker.open("s", reuse=True).stdout("echo needle | rg -c needle; python3 -c 'import tomli; print(1)'") == "1\n1\n"
