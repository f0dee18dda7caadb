"""SandboxdWorkspace of 0.2.37 over a live broker: the 40 rules of Pydantic AI's conformance suite for workspaces and upstream's 20 tests of the client.

Three times: with files answered from the host, with everything through the shell, and with an image whose user is not root (with --full
also with root's image under `sandbox_uid`): 60 of 60, but for the rule about permissions, which root bypasses.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

import httpx
import pytest
import tests.test_workspace_sandboxd as upstream
from pydantic_ai_backends.workspaces import SandboxdWorkspace
from tests.test_workspace_sandboxd_conformance import TestSandboxdWorkspaceConformance as Conformance

from berth import Broker, wait_until
from live import Pool

# By name: what the broker is given besides the defaults, and whether its image says USER 1000.
CONFIGURATIONS: dict[str, tuple[dict[str, Any], bool]] = {
    "native": ({}, False),
    "shell": ({"native_files": False}, False),
    "image_user": ({}, True),
    "sandbox_uid": ({"sandbox_uid": 1000}, False),
}


class Built:
    """Stands for what upstream's double knows of its sandboxes, asked over HTTP."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def __contains__(self, session_id: str) -> bool:
        return self.broker.client.get(f"/sessions/{session_id}").status_code == 200

    def __getitem__(self, session_id: str) -> Any:
        images = {row["alias"]: row["image"] for row in self.broker.client.get("/policy").json()["runtimes"]}
        return Sandbox(self.broker, session_id, images[self.broker.client.get(f"/sessions/{session_id}").json()["runtime"]])


@dataclass
class Sandbox:
    broker: Broker
    session_id: str
    image: str

    def _ended_by_a_signal(self) -> list[dict[str, Any]]:
        events = self.broker.client.get(f"/sessions/{self.session_id}/events").json()["events"]
        return [event for event in events if event["op"] == "run" and not event["ok"]]

    @property
    def stopped_runs(self) -> list[dict[str, Any]]:
        """What a stop leaves behind to be seen, some time after it was answered."""
        return wait_until(self._ended_by_a_signal, 20, "a run that was stopped has ended")


@dataclass
class Service:
    url: str
    root: Path
    built: Built

    def capability(self, **kwargs: Any) -> SandboxdWorkspace:
        return SandboxdWorkspace(service_url=self.url, token=upstream.TOKEN, **kwargs)


@pytest.fixture(scope="module", params=[*list(CONFIGURATIONS)[:3], pytest.param("sandbox_uid", marks=pytest.mark.full)])
def service(request: pytest.FixtureRequest, module_pool: Pool, unprivileged_image: str) -> Service:
    settings, image_has_user = CONFIGURATIONS[request.param]
    python = unprivileged_image if image_has_user else "python:3.12-slim"
    broker = module_pool.make(
        token=upstream.TOKEN, runtimes=f"python={python},node=node:20-slim", default_runtime="python", max_sessions=100, execute_timeout=30, **settings
    )
    return Service(broker.url, broker.root, Built(broker))


@pytest.fixture(scope="module")
def capability(service: Service) -> SandboxdWorkspace:
    return service.capability()


class TestConformance(Conformance):
    pass


TestSandboxdWorkspaceBackend = upstream.TestSandboxdWorkspaceBackend
TestNamedSessions = upstream.TestNamedSessions
