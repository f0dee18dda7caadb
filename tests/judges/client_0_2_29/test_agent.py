"""An agent of pydantic-ai works its way through a task in a sandbox, by way of the 0.2.29 client."""

from __future__ import annotations

from typing import Callable

from pydantic_ai import Agent
from pydantic_ai_backends import ConsoleCapability
from pydantic_ai_backends.permissions import PERMISSIVE_RULESET
from pydantic_ai_backends.remote import RemoteSandbox

from berth import TOKEN, Broker, new_id
from scripted_agent import ScriptedModel, look_again, mend_the_mean


async def test_an_agent_mends_a_program_and_finds_it_again(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    session = new_id("agent")

    def sandbox() -> RemoteSandbox:
        return RemoteSandbox(broker.url, token=TOKEN, session_id=session, tenant="acme", runtime="python", reuse=True)

    model = ScriptedModel(mend_the_mean())
    first = sandbox()
    agent = Agent(model, capabilities=[ConsoleCapability(backend=first, permissions=PERMISSIVE_RULESET)])
    assert (await agent.run("Mend the mean.")).output == "mended"
    assert len(model.calls) == 9
    ops = {event["op"] for event in broker.client.get(f"/sessions/{session}/events").json()["events"]}
    assert {"write", "exec", "glob", "grep", "read", "edit", "ls"} <= ops

    first.stop()  # the turn is over; the files stay
    second = sandbox()
    later = Agent(ScriptedModel(look_again()), capabilities=[ConsoleCapability(backend=second, permissions=PERMISSIVE_RULESET)])
    assert (await later.run("Is it still there?")).output == "still there"
    second.stop(purge=True)
    assert not (broker.root / session).exists()
