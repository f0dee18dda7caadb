"""Networks that an alias may name: what a sandbox on one reaches, what is said about it, and which ones are refused."""

from __future__ import annotations

import re
import uuid
from typing import Any, Callable, Iterator

import pytest

from berth import IMAGE, Broker, Engine, wait_until

ADDRESS = "import socket, fcntl, struct; s = socket.socket(); print(socket.inet_ntoa(fcntl.ioctl(s, 0x8915, struct.pack('256s', b'eth0'))[20:24]), end='')"
SERVE = "import http.server as h; h.HTTPServer(('0.0.0.0', 8000), h.SimpleHTTPRequestHandler).serve_forever()"
FETCH = "import sys, urllib.request; print(urllib.request.urlopen(f'http://{sys.argv[1]}:8000/note.txt', timeout=10).read().decode(), end='')"


@pytest.fixture(scope="module")
def networks(engine: Engine) -> Iterator[Callable[..., str]]:
    made: list[str] = []

    def make(**options: Any) -> str:
        name = f"berth-test-{uuid.uuid4().hex[:12]}"
        engine.call("POST", "/networks/create", json={"Name": name, "Driver": "bridge", "CheckDuplicate": True} | options)
        made.append(name)
        return name

    yield make
    for name in made:
        engine.http.delete(f"/networks/{name}")


@pytest.fixture(scope="module")
def backend(networks: Callable[..., str]) -> str:
    return networks()


@pytest.fixture(scope="module")
def module_broker(_module_brokers: Any, backend: str) -> Broker:
    return _module_brokers.make(runtimes=f"python={IMAGE},net={IMAGE};network={backend}", default_runtime="python")


def interfaces(session: Any) -> set[str]:
    return set(session.stdout("ls /sys/class/net").split())


def test_a_sandbox_is_on_the_network_of_its_alias_and_no_other(session: Callable[..., Any]) -> None:
    serving, asking = session(runtime="net"), session(runtime="net")
    assert interfaces(serving) == {"lo", "eth0"}
    serving.write("/workspace/note.txt", b"over the network")
    address = serving.python(ADDRESS)["stdout"]
    serving.sh(f'python3 -c "{SERVE}" >/dev/null 2>&1 &')
    wait_until(lambda: asking.run(["python3", "-c", FETCH, address])["stdout"] == "over the network", 20, "one reaches the other", 0.2)
    assert interfaces(session()) == {"lo"}  # the default runtime has none


def test_what_it_reaches_is_said_at_the_start_and_in_isolation(broker: Broker, backend: str, engine: Engine) -> None:
    subnet = engine.call("GET", f"/networks/{backend}").json()["IPAM"]["Config"][0]["Subnet"]
    (line,) = [line for line in broker.log().splitlines() if "event=network.reaches" in line]
    assert "runtime=net" in line and backend in line and "bridge" in line and subnet in line and "each other and outside" in line, line
    told = broker.client.get("/isolation").json()
    assert told["net"]["network"]["state"] == "not enforced" and subnet in told["net"]["network"]["detail"]
    assert told["python"]["network"] == {"state": "enforced", "detail": "none: its own loopback only"}


def test_an_internal_network_and_one_that_keeps_them_apart_are_said_to_be(
    make_broker: Callable[..., Broker], networks: Callable[..., str]
) -> None:
    inner = networks(Internal=True, Options={"com.docker.network.bridge.enable_icc": "false"})
    broker = make_broker(network_mode=inner)
    assert re.search(r'reaches="[^"]*: not each other; nothing outside"', broker.log()), broker.log()


def test_a_network_that_is_not_there_stops_the_start(make_broker: Callable[..., Broker], backend: str) -> None:
    for name in ("berth-no-such-network", backend[:-1]):
        broker = make_broker(start=False, runtimes=f"python={IMAGE},net={IMAGE};network={name}")
        status, said = broker.fail_to_start()
        assert status == 1
        (line,) = [line for line in said.splitlines() if line.startswith("berthd: ")]
        assert line == f"berthd: SANDBOXD_RUNTIMES: net: the engine has no network {name}"


@pytest.mark.parametrize("name", ["host", "container:abc", "ns:/proc/1/ns/net"])
def test_the_hosts_network_and_others_are_refused(make_broker: Callable[..., Broker], name: str) -> None:
    status, said = make_broker(start=False, runtimes=f"net={IMAGE};network={name}").fail_to_start()
    assert status == 2 and "never on the network of the host" in said, said


def test_a_network_that_went_away_is_the_engines_refusal(make_broker: Callable[..., Broker], networks: Callable[..., str], engine: Engine) -> None:
    name = networks()
    broker = make_broker(network_mode=name)
    engine.call("DELETE", f"/networks/{name}")
    answer = broker.client.post("/sessions", json={"session_id": "late"})
    assert answer.status_code == 502 and "network" in answer.json()["detail"], answer.text
    assert broker.sessions() == []
