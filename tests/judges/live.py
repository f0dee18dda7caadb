"""How upstream's own tests reach a live broker.

Their test classes are imported and collected as they are; two things are given to them: a Harness that starts a berthd where
theirs builds a service in the same process, and a choice of those tests that touch nothing but HTTP.
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import httpx
import pytest

from berth import SLOWNESS, Broker, Engine

HARNESS_TOKEN = "service-secret"  # the constant of upstream's module
RUNTIMES = "python=python:3.12-slim,node=node:20-slim"


class Pool:
    """The brokers of a test or a module, and their end."""

    def __init__(self, engine: Engine, home: Path) -> None:
        self.engine = engine
        self.home = home
        self.all: list[Broker] = []

    def make(self, *, start: bool = True, **settings: Any) -> Broker:
        broker = Broker(self.home / f"broker{len(self.all)}", self.engine, **settings)
        self.all.append(broker)
        return broker.start() if start else broker

    def dispose(self) -> None:
        errors = []
        for broker in self.all:
            try:
                broker.dispose()
            except Exception as error:  # the others must be ended as well
                errors.append(error)
        assert not errors, "\n\n".join(map(str, errors))


class LiveHarness:
    """Upstream's Harness(**SandboxdConfig fields), with a broker of its own behind it, configured through the environment.

    `built` stays empty: what the double records about its sandboxes nobody knows here."""

    pool: Pool | None = None

    def __init__(self, **config: Any) -> None:
        assert LiveHarness.pool is not None
        self.built: dict[str, Any] = {}
        self.config = types.SimpleNamespace(**({"workspace_root": None, "default_runtime": "python"} | config))
        # A field that is None is an empty variable (none), not one that is absent (the default).
        fields = {name: "" if value is None else value for name, value in config.items()}
        settings = {"token": HARNESS_TOKEN, "runtimes": RUNTIMES, "default_runtime": "python", "workspace_root": None, "persist_containers": None}
        self.broker = LiveHarness.pool.make(**(settings | fields))

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.broker.url, timeout=60 * SLOWNESS, trust_env=False)


def tests_of(cls: type) -> set[str]:
    return {name for name in dir(cls) if name.startswith("test_")}


def only(cls: type, *names: str) -> type:
    """A class of upstream's tests with these of them and no others."""
    return _hide(cls, tests_of(cls) - _known(cls, names))


def without(cls: type, *names: str) -> type:
    """A class of upstream's tests with all but these."""
    return _hide(cls, _known(cls, names))


def needs_the_double(cls: type, **reasons: str) -> type:
    """A class of upstream's tests of which some can only pass on the double: they must go on failing, or the reason is wrong."""
    _known(cls, tuple(reasons))

    def marked(name: str, reason: str) -> Any:
        test = getattr(cls, name)

        @pytest.mark.xfail(reason=reason, strict=True)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return test(*args, **kwargs)

        wrapper.__wrapped__ = test  # pytest reads the names of fixtures from it
        wrapper.__name__ = name
        return wrapper

    return type(cls.__name__, (cls,), {name: marked(name, reason) for name, reason in reasons.items()} | {"__module__": cls.__module__})


def _known(cls: type, names: tuple[str, ...]) -> set[str]:
    unknown = set(names) - tests_of(cls)
    assert not unknown, f"{cls.__name__} has no {sorted(unknown)}"
    return set(names)


def _hide(cls: type, names: set[str]) -> type:
    return type(cls.__name__, (cls,), {name: None for name in names} | {"__module__": cls.__module__})
