"""The system calls of a sandbox, tried from inside one (src/engine/seccomp.def)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from berth import ROOT, Session


def test_the_kernel_refuses_what_the_table_refuses(sandbox: Session, tmp_path: Path) -> None:
    probe = tmp_path / "probe"
    subprocess.run(["cc", "-static", "-O1", "-I", ROOT / "src/engine", ROOT / "tests/inside/seccomp_probe.c", "-o", probe], check=True)
    sandbox.write("/workspace/probe", probe.read_bytes())
    result = sandbox.sh("chmod +x probe && ./probe")
    assert (result["exit_code"], result["stdout"]) == (0, "0 wrong\n")


def test_what_sandboxes_live_on_is_allowed(sandbox: Session) -> None:
    script = """
import mmap, multiprocessing, os, select, signal, socket, threading
assert multiprocessing.Pool(2).map(abs, [-1, 2]) == [1, 2]
thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
left, right = socket.socketpair(); left.send(b"x"); assert right.recv(1) == b"x"
server = socket.create_server(("127.0.0.1", 0)); client = socket.create_connection(server.getsockname())
os.mkfifo("/tmp/fifo"); os.memfd_create("m"); select.epoll(); mmap.mmap(-1, 4096); signal.setitimer(signal.ITIMER_REAL, 0)
socket.if_nameindex()
print("fine")
"""
    result = sandbox.python(script)
    assert (result["exit_code"], result["stdout"]) == (0, "thread\nfine\n"), result["stderr"]
