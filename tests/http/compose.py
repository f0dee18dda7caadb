"""contrib/compose.yaml started through the engine's API: there is no compose program here, and the file itself is what is to be tested.

Only what that file uses is understood; a key that is not is an error, so that nothing in it goes untested.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import yaml

from berth import ROOT, Engine, wait_until

COMPOSE = ROOT / "contrib/compose.yaml"


def interpolate(text: str, variables: dict[str, str]) -> str:
    """${NAME:-default} and ${NAME:?what is missing}, as compose reads them."""

    def value(found: re.Match[str]) -> str:
        name, kind, rest = found.groups()
        if variables.get(name):
            return variables[name]
        if kind == ":-":
            return rest
        raise AssertionError(f"compose.yaml wants {name}: {rest}")

    return re.sub(r"\$\{(\w+)(:-|:\?)([^}]*)\}", value, text)


def resolve(node: Any, variables: dict[str, str]) -> Any:
    if isinstance(node, dict):
        return {key: resolve(value, variables) for key, value in node.items()}
    if isinstance(node, list):
        return [resolve(value, variables) for value in node]
    return interpolate(node, variables) if isinstance(node, str) else node


class Project:
    """The services of compose.yaml on one engine. What it makes goes with its engine."""

    def __init__(self, engine: Engine, variables: dict[str, str]) -> None:
        self.engine = engine
        self.variables = variables
        document = resolve(yaml.safe_load(COMPOSE.read_text()), variables)
        self.name: str = document.pop("name")
        self.services: dict[str, dict[str, Any]] = document.pop("services")
        networks: dict[str, Any] = document.pop("networks")
        volumes: dict[str, Any] = document.pop("volumes")
        assert not document and not any(networks.values()) and not any(volumes.values()), "compose.yaml has more than is understood here"
        self.networks, self.volumes = set(networks), set(volumes)
        for network in networks:
            engine.call("POST", "/networks/create", json={"Name": f"{self.name}_{network}", "CheckDuplicate": True, "Driver": "bridge"})
        for volume in volumes:
            engine.call("POST", "/volumes/create", json={"Name": f"{self.name}_{volume}"})
        self.containers: dict[str, str] = {}

    def volume_path(self, volume: str) -> Path:
        """Where the host has it."""
        return Path(self.engine.call("GET", f"/volumes/{self.name}_{volume}").json()["Mountpoint"])

    def request(self, service: str, **changes: Any) -> dict[str, Any]:
        """The body of a create request for a service; changes replace keys of it."""
        wanted = self.services[service] | changes
        mounts = []
        for volume in wanted.pop("volumes", []):
            source, target = volume.split(":")
            if source in self.volumes:
                mounts.append({"Type": "volume", "Source": f"{self.name}_{source}", "Target": target})
            else:
                assert source.startswith("/"), volume
                mounts.append({"Type": "bind", "Source": source, "Target": target})
        (network,) = wanted.pop("networks")
        assert network in self.networks
        body = {
            "Image": wanted.pop("image"),
            "Env": [f"{name}={value}" for name, value in wanted.pop("environment").items()],
            "HostConfig": {
                "Mounts": mounts,
                "NetworkMode": f"{self.name}_{network}",
                "ReadonlyRootfs": wanted.pop("read_only", False),
                "CapDrop": wanted.pop("cap_drop", []),
                "CapAdd": wanted.pop("cap_add", []),
                "SecurityOpt": wanted.pop("security_opt", []),
                "Tmpfs": wanted.pop("tmpfs", {}),
                "RestartPolicy": {"Name": wanted.pop("restart")},
            },
            "NetworkingConfig": {"EndpointsConfig": {f"{self.name}_{network}": {"Aliases": [service]}}},
        }
        if "stop_grace_period" in wanted:
            body["StopTimeout"] = int(wanted.pop("stop_grace_period").removesuffix("s"))
        if "command" in wanted:
            body["Cmd"] = wanted.pop("command")
        assert set(wanted.pop("depends_on", [])) <= set(self.services)
        assert not wanted, f"compose.yaml has more than is understood here: {wanted}"
        return body

    def start(self, service: str, **changes: Any) -> str:
        body = self.request(service, **changes)
        container = self.engine.call("POST", f"/containers/create?name={self.name}-{service}-1", json=body).json()["Id"]
        self.containers[service] = container
        self.engine.call("POST", f"/containers/{container}/start")
        return container

    def remove(self, service: str, *, kill: bool = False) -> None:
        """As compose replaces one: asked to stop within its grace, then removed."""
        container = self.containers.pop(service)
        if not kill:
            self.engine.call("POST", f"/containers/{container}/stop")
            assert self.engine.inspect(container)["State"]["ExitCode"] == 0, self.log_of(container)
        self.engine.remove(container)

    def log_of(self, container: str) -> str:
        """Both streams, without the engine's eight bytes before each piece."""
        raw = self.engine.call("GET", f"/containers/{container}/logs?stdout=1&stderr=1").content
        text = b""
        while len(raw) >= 8:
            size = int.from_bytes(raw[4:8], "big")
            text, raw = text + raw[8 : 8 + size], raw[8 + size :]
        return text.decode(errors="replace")

    def log(self, service: str) -> str:
        return self.log_of(self.containers[service])

    def address(self, service: str) -> str:
        networks = self.engine.inspect(self.containers[service])["NetworkSettings"]["Networks"]
        (network,) = networks.values()
        return network["IPAddress"]

    def execute(self, service: str, argv: list[str]) -> tuple[int, str]:
        """A command with a service's image and environment, and at its place in the network. Not by the engine's exec: where the engine runs in a
        chroot, as on a machine made for one test, that enters the root of the machine."""
        asked = self.engine.inspect(self.containers[service])["Config"]
        body = {"Image": asked["Image"], "Env": asked["Env"], "Entrypoint": argv[:1], "Cmd": argv[1:]}
        body |= {"HostConfig": {"NetworkMode": f"container:{self.containers[service]}"}}
        made = self.engine.call("POST", "/containers/create", json=body).json()["Id"]
        try:
            self.engine.call("POST", f"/containers/{made}/start")
            status = self.engine.call("POST", f"/containers/{made}/wait").json()["StatusCode"]
            return status, self.log_of(made)
        finally:
            self.engine.remove(made)


def wait_healthy(url: str, project: Project, service: str, deadline: float = 20) -> None:
    container = project.containers[service]

    def answers() -> bool:
        assert project.engine.running(container), project.log_of(container)
        try:
            return httpx.get(f"{url}/healthz", timeout=2, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    try:
        wait_until(answers, deadline, f"{service} answers at {url}")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{project.log_of(container)}\n{json.dumps(project.engine.inspect(container)['State'])}") from None
