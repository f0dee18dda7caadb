"""Sessions that sleep: rows of the database, which is what sessions beyond the running ones are."""

from __future__ import annotations

import sqlite3
import time
import uuid

from berth import Broker

TENANTS = 37


def write_sleeping(broker: Broker, count: int, tenants: int = TENANTS) -> None:
    """Rows s-00000, s-00001, … in the store of a broker that does not run. They have no files and no container."""
    now_ms = int(time.time() * 1000)
    with sqlite3.connect(broker.home / "state" / "berth.db") as db:
        for i in range(count):
            name, slot, tenant = f"s-{i:05}", uuid.uuid4().hex, f"tenant-{i % tenants}"
            created_ms, used_ms = now_ms - i * 1000, now_ms - i * 500
            db.execute(
                "INSERT INTO session (id, opening, nonce, tenant, runtime, slot, state, created_at_unix_ms, last_activity_unix_ms)"
                " VALUES (?, 1, ?, ?, 'python', ?, 2, ?, ?)",
                (name, uuid.uuid4().hex, tenant, slot, created_ms, used_ms),
            )
            db.execute("INSERT INTO opening (id, last) VALUES (?, 1)", (name,))
            db.execute(
                "INSERT INTO workspace (id, slot, tenant, runtime, created_at_unix_ms, last_use_unix_ms) VALUES (?, ?, ?, 'python', ?, ?)",
                (name, slot, tenant, created_ms, used_ms),
            )


def forget_sleeping(broker: Broker) -> None:
    """Take them away again, from a broker that does not run."""
    with sqlite3.connect(broker.home / "state" / "berth.db") as db:
        for table in ("session", "workspace"):
            db.execute(f"DELETE FROM {table} WHERE id GLOB 's-[0-9][0-9][0-9][0-9][0-9]'")
