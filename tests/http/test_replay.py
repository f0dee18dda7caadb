"""The answers of the reference, 0.2.29 (classic) and 0.2.37 (current), recorded once, against ours: tests/replay/replay.py says how."""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import pytest

from berth import IMAGE, SLOWNESS, TOKEN, Broker, wait_until

sys.path.insert(0, str(Path(__file__).parents[1] / "replay"))

from replay import Outcome, Player, compare, deviations, load  # noqa: E402

GENERATIONS = ("current", "classic")
# What differs from the defaults, as the tables say in their meta.config; "" is a table for the defaults.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "": {},
    "capacity": {
        "runtimes": f"python={IMAGE},alt={IMAGE};mem_limit=256m;cpus=1",
        "default_runtime": "python",
        "max_sessions": 1,
        "evict_idle_after": 0,
        "max_open_sessions": 3,
        "max_sessions_per_tenant": 2,
        "execute_timeout": 2,
        "max_read_bytes": 1000,
        "persist_containers": False,
        "ui_enabled": True,
    },
    "bare": {"workspace_root": None, "persist_containers": False},
}
TABLES = {f"{g}-{c}" if c else g: settings for g in GENERATIONS for c, settings in CONFIGURATIONS.items()}

pytestmark = pytest.mark.timeout(300)


def _keys(table: str) -> list[tuple[str, str, int]]:
    seen: Counter[tuple[str, str]] = Counter()
    keys = []
    for step in load(table):
        if "do" not in step:
            seen[step["group"], step["name"]] += 1
            keys.append((step["group"], step["name"], seen[step["group"], step["name"]]))
    return keys


class Replays:
    """Each table is played once, on a broker of its own, when its first case is looked at. Those of other configurations, which mostly
    wait, are played beside each other."""

    def __init__(self, make: Callable[..., Broker]) -> None:
        self.make = make
        self.pool = ThreadPoolExecutor()
        self.plays: dict[str, Future[dict[tuple[str, str, int], Outcome]]] = {}
        self.told: set[str] = set()

    def of(self, table: str) -> dict[tuple[str, str, int], Outcome]:
        if table not in self.plays:
            together = [t for t, settings in TABLES.items() if settings] if TABLES[table] else [table]
            for one in together:
                self.plays[one] = self.pool.submit(self._play, self.make(**TABLES[one]), one)
        if table in self.told:
            pytest.fail(f"the table could not be played to its end: {self.plays[table].exception()!r}", pytrace=False)
        if self.plays[table].exception():
            self.told.add(table)
        return self.plays[table].result()

    def _play(self, broker: Broker, table: str) -> dict[tuple[str, str, int], Outcome]:
        def container(session: str) -> str:
            if broker.settings["workspace_root"]:
                return broker.container_of(session)
            (only,) = broker.containers()
            return only["Id"]

        def seen_dead(session: str) -> bool:
            return broker.client.get(f"/sessions/{session}").json()["alive"] is False

        def kill(session: str) -> None:
            broker.engine.kill(container(session))
            wait_until(lambda: seen_dead(session), what="the broker sees that the container is dead")

        def remove(session: str) -> None:
            broker.engine.remove(container(session))
            wait_until(lambda: seen_dead(session), what="the broker sees that the container is gone")

        def runs(session: str, words: str) -> bool:
            """A process of exactly these words: what is about to become it is not it yet."""
            script = r"for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline; echo; done 2>/dev/null"
            answer = broker.client.post(f"/sessions/{session}/run", json={"argv": ["sh", "-c", script], "run_id": "f" * 32})
            return f"{words} " in answer.json()["stdout"].splitlines()

        def wait_for(session: str, words: str) -> None:
            wait_until(lambda: runs(session, words), what=f"{words} runs in {session}")

        outcomes = Player(broker.url, TOKEN, kill, remove, wait_for, 60 * SLOWNESS).play(load(table))
        return {outcome.key: outcome for outcome in outcomes}


@pytest.fixture(scope="module")
def replays(_module_brokers: Any) -> Replays:
    return Replays(_module_brokers.make)


@pytest.mark.parametrize(
    ("table", "key"),
    [pytest.param(t, key, id=f"{t}-{key[0]}-{key[1]}-{key[2]}") for t in TABLES for key in _keys(t)],
)
def test_the_answer_is_the_references(replays: Replays, table: str, key: tuple[str, str, int]) -> None:
    outcome = replays.of(table)[key]
    found = compare(outcome)
    listed = [d for d in deviations(table.partition("-")[0]) if d.names(key)]
    if not listed:
        assert not found, f"{outcome.step['method']} {outcome.step['path']}: " + "\n".join(found)
        return
    assert found, f"listed as a deviation, and does not differ: {listed[0].why}"
    wrong = listed[0].refuses(outcome)
    assert not wrong, f"not the listed deviation ({listed[0].why}): " + "\n".join(wrong)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_deviation_names_a_case(generation: str) -> None:
    keys = [key for table in TABLES if table.startswith(generation) for key in _keys(table)]
    for deviation in deviations(generation):
        assert any(deviation.names(key) for key in keys), deviation
        assert deviation.why
