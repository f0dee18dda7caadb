"""A purge removes everything for certain, whatever the sandbox did, and nobody else notices."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from berth import Broker, Session

DEEP = "import os\nfor i in range(10000):\n    os.mkdir('d')\n    os.chdir('d')\nopen('end', 'w').write('x')\n"
LOCKED = r"""
mkdir -p ro/x none/y 'odd
name' && echo x > ro/x/f && echo x > none/y/f && ln -s / root && ln -s .. none/up && ln ro/x/f hard && mkfifo none/pipe
echo x > "$(printf 'raw\377')" && echo x > "$(head -c 255 /dev/zero | tr '\0' n)" && chown 4321:4321 none/y
chmod 555 ro/x ro && chmod 0 none/y/f none/y none 'odd
name'
"""


def slots(broker: Broker) -> list[str]:
    return os.listdir(broker.root / ".slots")


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_takes_what_nobody_may_read_and_ten_thousand_levels(make_broker, closed: bool) -> None:
    """The levels once: they are work for the disk."""
    broker: Broker = make_broker()
    session = broker.open("s", tenant="acme")
    broker.open("kept").write("/workspace/f", b"kept")
    if not closed:
        assert session.python(DEEP)["exit_code"] == 0
    session.stdout(LOCKED)
    if closed:
        assert session.close().status_code == 204
        assert broker.client.delete("/workspaces/s").status_code == 204
        assert broker.client.delete("/workspaces/s").status_code == 404
    else:
        assert session.close(purge=True).status_code == 204
        assert session.close(purge=True).status_code in (401, 404, 410)
    assert not os.path.lexists(broker.root / "s") and len(slots(broker)) == 1
    assert Path("/etc/passwd").exists() and Path("/usr/bin").exists()
    assert broker.client.put("/tenants/acme", json={"max_disk_bytes": 1 << 40}).status_code == 200
    told = {tenant["tenant"]: tenant["disk_bytes"] for tenant in broker.client.get("/tenants").json()["tenants"]}
    assert told["acme"] == 0, "its tenant holds nothing"
    assert broker.open("kept", reuse=True).read("/workspace/f") == b"kept"


def fill(session: Session, files: int) -> None:
    """In directories of 1000, as the sandbox's user."""
    for i in range(files // 1000):
        directory = session.workspace / f"d{i}"
        directory.mkdir()
        fd = os.open(directory, os.O_RDONLY)
        for j in range(1000):
            os.close(os.open(f"f{j}", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        os.close(fd)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_takes_a_million_files(make_broker) -> None:
    broker: Broker = make_broker()
    session = broker.open("s")
    fill(session, 1_000_000)
    began = time.monotonic()
    answer = broker.client.delete("/sessions/s", params={"purge": "true"}, timeout=500)
    assert answer.status_code == 204, answer.text
    print(f"a million files in {time.monotonic() - began:.1f} s")
    assert slots(broker) == [] and not os.path.lexists(broker.root / "s")
