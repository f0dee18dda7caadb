"""An agent of pydantic-ai works its way through a task in a sandbox, by way of the 0.2.37 client."""

from __future__ import annotations

from typing import Callable

import pytest
from pydantic_ai import Agent
from pydantic_ai_backends import ConsoleCapability, SandboxdWorkspace
from pydantic_ai_backends.permissions import PERMISSIVE_RULESET

from berth import TOKEN, Broker, new_id
from scripted_agent import ScriptedModel, look_again, mend_the_mean


@pytest.mark.parametrize("native_files", [True, False], ids=["native", "shell"])
async def test_an_agent_mends_a_program_and_finds_it_again(make_broker: Callable[..., Broker], native_files: bool) -> None:
    broker = make_broker(native_files=native_files)
    session = new_id("agent")

    def workspace() -> SandboxdWorkspace:
        return SandboxdWorkspace(service_url=broker.url, token=TOKEN, session_name=session, tenant="acme")

    model = ScriptedModel(mend_the_mean())
    agent = Agent(model, capabilities=[workspace(), ConsoleCapability(permissions=PERMISSIVE_RULESET)])
    assert (await agent.run("Mend the mean.")).output == "mended"
    assert len(model.calls) == 9

    broker.client.delete(f"/sessions/{session}")  # the turn is over; the files stay
    later = Agent(ScriptedModel(look_again()), capabilities=[workspace(), ConsoleCapability(permissions=PERMISSIVE_RULESET)])
    result = await later.run("Is it still there?")
    assert result.output == "still there"

    ops = [event["op"] for event in broker.client.get(f"/sessions/{session}/events").json()["events"]]
    assert ("read" in ops) is native_files and "run" in ops
    await workspace().destroy(result.workspace.ref)
    assert not (broker.root / session).exists()
