"""A web application that gives every user a sandbox and never touches the engine: the reference's own page about it, as tests.

The page's service is two files of Python; here it is berthd with the same fields as environment. All else is as on the page, client included.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator

import httpx
import pytest
from pydantic_ai_backends.remote import RemoteSandbox, WorkspaceArchive, WorkspaceArchiveError

from berth import Broker, wait_until
from live import Pool

SERVICE_TOKEN = "a long random value"
DAY = 24 * 3600

# 1. The service: SandboxdConfig(token=…, runtimes=…, …), field by field.
CONFIGURATION: dict[str, Any] = {
    "token": SERVICE_TOKEN,
    "runtimes": "python=python:3.12-slim,datascience=my-registry/python-ds:v3",
    "default_runtime": "python",
    # Ceilings the client cannot raise.
    "max_sessions": 20,
    "mem_limit": "1g",
    "cpus": 2.0,
    "pids_limit": 512,
    "network_mode": "none",
    "execute_timeout": 300,
    # Installed packages survive: the container is stopped, not discarded. (Broker sets workspace_root.)
    "persist_containers": True,
    # Nobody has to remember to clean up abandoned workspaces.
    "workspace_ttl": 14 * DAY,
    "idle_timeout": 1800,
    # One tenant cannot take the whole pool.
    "max_sessions_per_tenant": 5,
}


@pytest.fixture(scope="module")
def service(module_pool: Pool) -> Broker:
    return module_pool.make(**CONFIGURATION)


# 3. The agent's sandbox.
def sandbox_for(service: Broker, session_id: str, tenant: str) -> RemoteSandbox:
    """One sandbox per session, reattached on later turns. No I/O happens here."""
    return RemoteSandbox(service.url, token=SERVICE_TOKEN, session_id=session_id, tenant=tenant, runtime="python", reuse=True)


# Choosing a session scope.
@dataclass
class Context:
    tenant_id: uuid.UUID = field(default_factory=uuid.uuid4)
    run_id: uuid.UUID = field(default_factory=uuid.uuid4)
    conversation_id: uuid.UUID = field(default_factory=uuid.uuid4)
    user_id: uuid.UUID = field(default_factory=uuid.uuid4)
    agent_id: uuid.UUID = field(default_factory=uuid.uuid4)


SCOPE_KEYS = {
    "run": lambda ctx: ctx.run_id,
    "conversation": lambda ctx: ctx.conversation_id,
    "user": lambda ctx: ctx.user_id,
    "agent": lambda ctx: ctx.agent_id,
}


def session_id_for(scope: str, ctx: Context) -> str:
    return f"{ctx.tenant_id.hex[:8]}-{SCOPE_KEYS[scope](ctx).hex}"


# Showing the files to your users: the two routes of the page's proxy, without the framework around them.
class Refused(Exception):
    """The HTTPException of the page."""

    def __init__(self, status_code: int, detail: str) -> None:
        self.status_code = status_code
        super().__init__(detail)


class FileProxy:
    def __init__(self, url: str, token: str = SERVICE_TOKEN) -> None:
        self.archive = WorkspaceArchive(url, token=token)

    def list_files(self, ctx: Context, path: str = ".") -> list[dict[str, Any]]:
        try:
            return list(self.archive.ls(session_id_for("conversation", ctx), path))
        except WorkspaceArchiveError as error:
            raise Refused(error.status_code or 502, str(error)) from error

    def read_file(self, ctx: Context, path: str) -> str:
        try:
            return self.archive.read(session_id_for("conversation", ctx), path)
        except WorkspaceArchiveError as error:
            raise Refused(error.status_code or 502, str(error)) from error


@pytest.fixture
def ctx() -> Context:
    return Context()


@pytest.fixture
def conversation(service: Broker, ctx: Context) -> Iterator[RemoteSandbox]:
    """The sandbox of a conversation in which the agent has written a report."""
    sandbox = sandbox_for(service, session_id_for("conversation", ctx), "acme")
    sandbox.write("out/report.md", "# Findings\nAll is well.\n")
    yield sandbox
    service.purge(sandbox.session_id)


class TestTheService:
    def test_the_configuration_is_in_force(self, service: Broker, conversation: RemoteSandbox) -> None:
        policy = service.client.get("/policy").json()
        for name in ("max_sessions", "mem_limit", "cpus", "pids_limit", "network_mode", "execute_timeout", "persist_containers", "workspace_ttl"):
            assert policy[name] == CONFIGURATION[name], name
        assert {row["alias"]: row["image"] for row in policy["runtimes"]} == dict(
            pair.split("=") for pair in CONFIGURATION["runtimes"].split(",")
        )
        limits = service.engine.inspect(service.container_of(conversation.session_id))["HostConfig"]
        assert (limits["Memory"], limits["NanoCpus"], limits["PidsLimit"], limits["NetworkMode"]) == (1 << 30, 2_000_000_000, 512, "none")

    def test_a_client_cannot_name_an_image_or_raise_a_ceiling(self, service: Broker) -> None:
        answer = service.client.post("/sessions", json={"runtime": "python:3.12-slim"})
        assert answer.status_code == 400
        opened = service.client.post("/sessions", json={"session_id": "greedy", "mem_limit": "64g", "image": "evil"})
        assert opened.status_code == 200  # what is not a field of the request is not looked at
        limits = service.engine.inspect(service.container_of("greedy"))
        assert (limits["HostConfig"]["Memory"], limits["Config"]["Image"]) == (1 << 30, "python:3.12-slim")
        service.purge("greedy")

    def test_a_sandbox_costs_nothing_until_a_tool_is_called(self, service: Broker, ctx: Context) -> None:
        sandbox_for(service, session_id_for("run", ctx), "acme")
        assert service.client.get(f"/sessions/{session_id_for('run', ctx)}").status_code == 404


class TestSessionIds:
    def test_a_tenants_prefix_and_a_conversations_uuid_make_an_id(self, service: Broker, conversation: RemoteSandbox) -> None:
        assert len(conversation.session_id) == 41
        assert service.client.get(f"/sessions/{conversation.session_id}").json()["tenant"] == "acme"

    @pytest.mark.parametrize("bad", ["../../etc", "a/b", ".hidden", "", "x" * 65, "a b", "ä"])
    def test_anything_else_is_refused(self, service: Broker, bad: str) -> None:
        assert service.client.post("/sessions", json={"session_id": bad}).status_code == 422


class TestScopes:
    """What the id is keyed on decides who reads whose files."""

    @pytest.mark.parametrize(
        ("scope", "same_conversation", "same_user"),
        [("run", False, False), ("conversation", True, False), ("user", False, True), ("agent", True, True)],
    )
    def test_who_shares_a_sandbox(self, service: Broker, ctx: Context, scope: str, same_conversation: bool, same_user: bool) -> None:
        colleague = Context(ctx.tenant_id, conversation_id=ctx.conversation_id, agent_id=ctx.agent_id)
        other_chat = Context(ctx.tenant_id, user_id=ctx.user_id, agent_id=ctx.agent_id)
        mine = sandbox_for(service, session_id_for(scope, ctx), "acme")
        mine.write("note.txt", "mine")
        for them, shares in ((colleague, same_conversation), (other_chat, same_user)):
            theirs = sandbox_for(service, session_id_for(scope, them), "acme")
            assert theirs.exists("note.txt") is shares
            if not shares:
                theirs.stop(purge=True)
        mine.stop(purge=True)


class TestCapacity:
    def test_one_tenant_cannot_take_the_whole_pool(self, service: Broker) -> None:
        greedy = [sandbox_for(service, f"greedy-{number}", "greedy") for number in range(6)]
        try:
            for sandbox in greedy[:5]:
                sandbox.start()
            with pytest.raises(RuntimeError, match="HTTP 429"):
                greedy[5].start()
            modest = sandbox_for(service, "modest", "modest")
            assert modest.execute("echo in").output == "in\n"
            modest.stop(purge=True)
        finally:
            for sandbox in greedy:
                sandbox.stop(purge=True)


class TestShowingFiles:
    def test_an_old_conversation_is_browsed_without_a_container(self, service: Broker, ctx: Context, conversation: RemoteSandbox) -> None:
        container = service.container_of(conversation.session_id)
        conversation.stop()
        wait_until(lambda: not service.engine.running(container), what="the container is stopped")
        proxy = FileProxy(service.url)
        assert [(row["name"], row["is_dir"]) for row in proxy.list_files(ctx)] == [("out", True)]
        assert [row["path"] for row in proxy.list_files(ctx, "out")] == ["out/report.md"]
        assert proxy.read_file(ctx, "out/report.md") == "# Findings\nAll is well."
        assert not service.engine.running(container)

    def test_it_works_while_the_session_is_open_too(self, service: Broker, ctx: Context, conversation: RemoteSandbox) -> None:
        assert FileProxy(service.url).read_file(ctx, "out/report.md") == conversation.read("out/report.md")

    def test_a_real_status_is_passed_on_instead_of_an_empty_folder(self, service: Broker, ctx: Context, conversation: RemoteSandbox) -> None:
        for proxy, context, path, status in (
            (FileProxy(service.url), Context(), ".", 404),  # no such conversation
            (FileProxy(service.url), ctx, "../..", 400),
            (FileProxy(service.url, "mistyped"), ctx, ".", 401),
            (FileProxy("http://127.0.0.1:9"), ctx, ".", 502),  # not there at all
        ):
            with pytest.raises(Refused) as caught:
                proxy.list_files(context, path)
            assert caught.value.status_code == status

    def test_the_session_token_opens_a_shell_but_no_archive(self, service: Broker, conversation: RemoteSandbox) -> None:
        """Why the page says not to hand it to the browser."""
        opened = service.client.post("/sessions", json={"session_id": conversation.session_id, "reuse": True}).json()
        headers = {"X-Sandbox-Token": opened["token"]}
        assert service.http.post(f"/sessions/{conversation.session_id}/exec", json={"command": "id"}, headers=headers).status_code == 200
        assert service.http.post(f"/workspaces/{conversation.session_id}/ls", json={}, headers=headers).status_code == 401
        assert service.http.get("/sessions", headers=headers).status_code == 401


class TestWatching:
    def test_health_sessions_and_events(self, service: Broker, conversation: RemoteSandbox) -> None:
        headers = {"X-Sandbox-Token": SERVICE_TOKEN}
        health = httpx.get(f"{service.url}/healthz").json()
        assert (health["status"], health["limit"]) == ("ok", 20) and health["sessions"] >= 1

        listed = httpx.get(f"{service.url}/sessions", params={"usage": True}, headers=headers).json()["sessions"]
        usage = next(row["usage"] for row in listed if row["session_id"] == conversation.session_id)
        assert 0 < usage["memory_bytes"] < usage["memory_limit_bytes"] == 1 << 30

        conversation.execute("echo newest")
        events = httpx.get(f"{service.url}/sessions/{conversation.session_id}/events", headers=headers).json()["events"]
        assert [event["op"] for event in events] == ["write", "exec"]
        assert events[-1]["target"] == "echo newest"

    def test_the_page_for_browsers_is_there_only_when_asked_for(self, service: Broker) -> None:
        assert httpx.get(f"{service.url}/ui").status_code == 404


class TestCleaningUp:
    def test_stop_keeps_the_files_and_what_was_installed_for_the_next_turn(self, service: Broker, conversation: RemoteSandbox) -> None:
        conversation.execute("echo installed > /opt/package")
        conversation.stop()
        later = sandbox_for(service, conversation.session_id, "acme")
        assert later.execute("cat /opt/package").output == "installed\n"
        assert later.exists("out/report.md")

    def test_stop_with_purge_drops_container_and_files(self, service: Broker, ctx: Context, conversation: RemoteSandbox) -> None:
        container = service.container_of(conversation.session_id)
        conversation.stop(purge=True)
        assert not service.engine.exists(container)
        assert not (service.root / conversation.session_id).exists()
        with pytest.raises(Refused) as caught:
            FileProxy(service.url).list_files(ctx)
        assert caught.value.status_code == 404

    def test_a_deleted_conversation_is_purged_long_after_its_session_was_closed(self, service: Broker, conversation: RemoteSandbox) -> None:
        """The page purges with a RemoteSandbox that never started anything; that client sends nothing then. The request it means:"""
        conversation.stop()
        answer = service.client.delete(f"/sessions/{conversation.session_id}", params={"purge": "true"})
        assert answer.status_code == 204
        assert not (service.root / conversation.session_id).exists()
        assert service.client.get("/sessions").json()["sessions"] == []

    def test_a_workspace_nobody_opened_for_two_weeks_is_swept(self, module_pool: Pool, tmp_path: Path) -> None:
        clock = tmp_path / "clock"
        clock.write_text("0")
        broker = module_pool.make(start=False, cleanup_interval=1, **CONFIGURATION)
        broker.env["BERTH_TEST_CLOCK"] = str(clock)
        broker.start()
        for name in ("abandoned", "resumed"):
            sandbox = sandbox_for(broker, name, "acme")
            sandbox.write("note.txt", name)
            sandbox.stop()

        move_clock(clock, 13 * DAY)
        archive = WorkspaceArchive(broker.url, token=SERVICE_TOKEN)
        resumed = sandbox_for(broker, "resumed", "acme")
        assert resumed.read("note.txt") == "resumed"
        resumed.stop()
        assert archive.read("abandoned", "note.txt") == "abandoned"

        move_clock(clock, 15 * DAY)
        wait_until(lambda: not (broker.root / "abandoned").exists(), what="the abandoned workspace is swept")
        with pytest.raises(WorkspaceArchiveError):
            archive.ls("abandoned")
        assert archive.read("resumed", "note.txt") == "resumed"


def move_clock(clock: Path, seconds: int) -> None:
    """The broker's wall clock, that many seconds on. It looks at the file when its time of change differs."""
    part = clock.with_suffix(".part")
    part.write_text(f"{seconds * 1000} {seconds * 1000}")  # time that passed, not a clock that was set
    os.utime(part, (seconds, seconds))
    part.replace(clock)
