"""Project quotas of ext4 and XFS, on a kernel that has them: Debian's, in a virtual machine without hardware help. What runs in it is
tests/inside/project_quota.c with src/workspace/workspace_project.c itself."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from berth import ROOT

NEEDED = ["virtio_pci", "virtio_blk", "crc32c_generic", "crc32c-intel", "quota_v2", "ext4", "xfs"]


def kernel() -> tuple[Path, Path]:
    """The newest installed kernel image that has its modules beside it: (image, modules)."""
    for image in sorted(glob.glob(os.environ.get("BERTH_VM_KERNEL", "/boot/vmlinuz-*-amd64")), reverse=True):
        modules = Path(image).parent.parent / "lib" / "modules" / Path(image).name.removeprefix("vmlinuz-")
        if (modules / "kernel").is_dir():
            return Path(image), modules
    raise AssertionError("no kernel with modules: contrib/install-deps vm")


def in_order(modules: Path) -> list[Path]:
    """Modules with what they need before them."""
    by_name = {path.stem.replace("-", "_"): path for path in (modules / "kernel").rglob("*.ko")}
    order: list[Path] = []

    def add(name: str) -> None:
        path = by_name.get(name.replace("-", "_"))  # none: built in
        if path is None or path in order:
            return
        for below in re.findall(rb"depends=([^\0]*)\0", path.read_bytes())[0].decode().split(","):
            add(below)
        order.append(path)

    for name in NEEDED:
        add(name)
    return order


def disk(path: Path, *mkfs: str) -> Path:
    with open(path, "wb") as file:
        file.truncate(512 * 1024 * 1024)
    subprocess.run([*mkfs, path], check=True, capture_output=True)
    return path


@pytest.mark.full
@pytest.mark.timeout(600)
def test_ext4_and_xfs_keep_the_limits_of_projects(tmp_path: Path) -> None:
    image, modules = kernel()
    root = tmp_path / "root"
    (root / "modules").mkdir(parents=True)
    program = root / "init"
    source = [ROOT / "tests/inside/project_quota.c", ROOT / "src/workspace/workspace_project.c"]
    subprocess.run(["cc", "-static", "-O1", "-Wall", "-D_GNU_SOURCE", "-I", ROOT / "src/workspace", *source, "-o", program], check=True)
    order = in_order(modules)
    for path in order:
        shutil.copy(path, root / "modules")
    (root / "modules" / "order").write_text("".join(f"/modules/{path.name}\n" for path in order))
    initramfs = tmp_path / "initramfs"
    with open(initramfs, "wb") as out:
        names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
        subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names.encode(), stdout=out, check=True)
    disks = [
        disk(tmp_path / "ext4", "mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota"),
        disk(tmp_path / "xfs", "mkfs.xfs", "-q"),
        disk(tmp_path / "plain", "mkfs.ext4", "-q"),
    ]
    drives = [part for path in disks for part in ("-drive", f"file={path},format=raw,if=virtio,cache=unsafe")]
    done = subprocess.run(
        ["qemu-system-x86_64", "-accel", "tcg", "-m", "512", "-nographic", "-nodefaults", "-serial", "stdio", "-no-reboot", "-kernel", image]
        + ["-initrd", initramfs, "-append", "console=ttyS0 quiet panic=-1", *drives],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=500,
    )  # fmt: skip
    said = [line.strip() for line in done.stdout.splitlines()]
    print("\n".join(line for line in said if line))
    wrong = [line for line in said if line.startswith("not ok")]
    assert "end" in said and not wrong, done.stdout[-4000:] + done.stderr[-2000:]
    assert sum(line.startswith("ok ") for line in said) == 2 * 17 + 5, "each of its judgements"
