"""A btrfs of a broker's own, on a loop image, as its workspace root. Needs root and mkfs.btrfs."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from berth import Broker


def mount_btrfs(broker: Broker, size_mib: int = 1024) -> None:
    """Before the broker's first start. It is unmounted when the broker is disposed of."""
    if os.geteuid() != 0:
        pytest.skip("no root")
    assert shutil.which("mkfs.btrfs"), "no mkfs.btrfs: contrib/install-deps test"
    image = broker.home / "btrfs.image"
    with open(image, "wb") as file:
        file.truncate(size_mib * 1024 * 1024)
    subprocess.run(["mkfs.btrfs", "-q", image], check=True, capture_output=True)
    subprocess.run(["mount", "-o", "loop", image, broker.root], check=True, capture_output=True)
    broker.mounts.append(broker.root)
    broker.root.chmod(0o711)


def sync(broker: Broker) -> None:
    """Everything is written, and counted."""
    subprocess.run(["btrfs", "filesystem", "sync", broker.root], check=True, capture_output=True)


def qgroups(broker: Broker) -> dict[str, int]:
    """Number of each quota group ("0/256", "190/…"): bytes that it refers to."""
    sync(broker)
    told = subprocess.run(["btrfs", "qgroup", "show", "--raw", broker.root], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    rows = [line.split() for line in told.stdout.splitlines()]
    return {row[0]: int(row[1]) for row in rows if row and row[0][0].isdigit()}


def subvolumes(broker: Broker) -> set[str]:
    """The quota groups of those that are there."""
    told = subprocess.run(["btrfs", "subvolume", "list", broker.root], check=True, capture_output=True, text=True)
    return {f"0/{line.split()[1]}" for line in told.stdout.splitlines()}
