"""What keeps a sandbox in: limits, system calls, network, process 1. Tried from inside a real session, and looked at from the host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import pytest

from berth import IMAGE, SLOWNESS, SUPERVISORS_AT_REST, TOKEN, Broker, Session, wait_until

MEMORY = 96 * 1024 * 1024
PIDS = 100
CAPS = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7}
EPERM, ENOSYS = 1, 38


@pytest.fixture(scope="module")
def module_broker(_module_brokers: Any) -> Broker:
    """Narrow limits of its own, so that each can be reached in a moment."""
    return _module_brokers.make(
        mem_limit="96m", cpus=1.5, cpu_shares=512, pids_limit=PIDS, tmpfs_size="8m", execute_timeout=60, log_level="debug"
    )


def host_status(pid: int, field: str) -> str:
    """A field of /proc/<pid>/status as the host sees it."""
    found = re.search(rf"^{field}:\s+(.+)$", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert found, field
    return found.group(1)


def cgroup_value(pid: int, controller: str, v1_name: str, v2_name: str) -> str:
    """What the kernel holds the process's cgroup to: the file of version 1 or 2, whichever this host uses."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return Path(f"/sys/fs/cgroup/{controller}{path}/{v1_name}").read_text().strip()
    path = Path(f"/proc/{pid}/cgroup").read_text().rsplit("0::", 1)[1].strip()
    return Path(f"/sys/fs/cgroup{path}/{v2_name}").read_text().strip()


def report(session: Session, program: str, **body: Any) -> Any:
    """The JSON that a Python program inside prints."""
    result = session.python(program, **body)
    assert result["exit_code"] == 0, result
    return json.loads(result["stdout"])


def pids(session: Session) -> float:
    """How many processes it has; beyond any bound while it does not say in time."""
    usage = session.inspect(usage=True)["usage"]
    return usage["pids"] if usage else float("inf")


# ---- I1: nothing is left of what has ended

COUNT_ZOMBIES = """
import os
n = 0
for p in os.listdir('/proc'):
    if p.isdigit():
        try:
            n += open(f'/proc/{p}/stat').read().rsplit(')', 1)[1].split()[0] == 'Z'
        except OSError:
            pass
print(n)
"""


def test_three_hundred_orphans_leave_no_zombie(sandbox: Session) -> None:
    for _ in range(300):
        assert sandbox.sh("(sleep 0.1 &) ; :")["exit_code"] == 0
    wait_until(lambda: sandbox.python(COUNT_ZOMBIES)["stdout"] == "0\n", 2, "no zombie is left")
    # Process 1, and supervisors that rest: their runs have no process left.
    wait_until(lambda: pids(sandbox) <= 1 + SUPERVISORS_AT_REST, 5, "no process is left")


# ---- I2: fork bombs

BOMBS = {
    "shell": ["sh", "-c", "f(){ f|f& };f; wait"],
    # One that never gives up, in sessions of its own, with TERM ignored.
    "python": [
        "python3",
        "-c",
        "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "while True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: pass",
    ],
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_fork_bomb_is_contained_and_its_session_goes_on(session: Callable[..., Session], bomb: str) -> None:
    bombed, other = session(), session()
    other.stdout("true")
    with ThreadPoolExecutor(1) as pool:
        begun = time.monotonic()
        answer = pool.submit(bombed.run, BOMBS[bomb], timeout_seconds=3)
        slowest = 0.0
        while not answer.done():
            asked = time.monotonic()
            assert other.stdout("echo fine") == "fine\n"
            slowest = max(slowest, time.monotonic() - asked)
        took = time.monotonic() - begun
    # The shell's gives up by itself where no process is to be had; the other one cannot.
    assert answer.result()["timed_out"] or bomb == "shell", answer.result()
    assert took < 10 * SLOWNESS, f"the bomb's answer took {took:.1f} s"
    assert slowest < 1 * SLOWNESS, f"another session waited {slowest:.1f} s"
    begun = time.monotonic()
    assert bombed.stdout("echo ok") == "ok\n"
    assert time.monotonic() - begun < 15 * SLOWNESS
    # A shell that gave up by itself leaves background children, as any command may; after a timeout there is nobody.
    left = 1 + SUPERVISORS_AT_REST if answer.result()["timed_out"] else PIDS
    wait_until(lambda: pids(bombed) <= left, 5, "nothing of the bomb is left")


# ---- I3: limits are in force


def test_the_container_is_made_as_configured(broker: Broker, sandbox: Session) -> None:
    told = broker.engine.inspect(sandbox.container())
    host, config = told["HostConfig"], told["Config"]
    assert (host["Memory"], host["MemorySwap"]) == (MEMORY, MEMORY)
    assert (host["NanoCpus"], host["CpuShares"], host["PidsLimit"]) == (1_500_000_000, 512, PIDS)
    assert host["CapDrop"] == ["ALL"] and set(host["CapAdd"]) == set(CAPS)
    assert host["NetworkMode"] == "none" and host["IpcMode"] == "private" and host["PidMode"] == ""
    assert host["LogConfig"]["Type"] == "none" and told["LogPath"] == ""
    assert not host["Privileged"] and not host["Binds"] and not host["Devices"] and not host.get("VolumesFrom")
    assert not host["PublishAllPorts"] and not host["PortBindings"]
    assert host["RestartPolicy"]["Name"] in ("", "no") and not host["AutoRemove"]
    assert host["Init"] is False
    assert {u["Name"] for u in host["Ulimits"]} == {"nofile", "nproc"}
    assert set(host["Tmpfs"]) == {"/tmp"}
    assert {"exec", "nosuid", "nodev", "size=8m"} <= set(host["Tmpfs"]["/tmp"].split(","))
    assert host["MaskedPaths"] and host["ReadonlyPaths"]

    mounts = {m["Destination"]: m for m in told["Mounts"]}
    assert set(mounts) == {"/.berth-agent", "/workspace"}
    assert not mounts["/.berth-agent"]["RW"] and mounts["/workspace"]["RW"]
    assert Path(mounts["/workspace"]["Source"]) == sandbox.workspace.resolve()

    options = host["SecurityOpt"]
    assert [o for o in options if not o.startswith("seccomp=")] == ["no-new-privileges"]
    profile = json.loads(next(o for o in options if o.startswith("seccomp=")).removeprefix("seccomp="))
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO" and profile["defaultErrnoRet"] == EPERM
    assert config["Entrypoint"] == ["/.berth-agent"] and not config["Cmd"]
    assert config["Healthcheck"]["Test"] == ["NONE"] and not config["Tty"]
    assert config["Labels"]["berth.install"] and config["Labels"]["berth.slot"]


@pytest.mark.san
def test_the_kernel_holds_it_to_that(broker: Broker, sandbox: Session) -> None:
    sandbox.stdout("sleep 600 >/dev/null 2>&1 & echo $! > pid")
    agent = broker.engine.pid(sandbox.container())
    children = [int(p) for p in Path(f"/proc/{agent}/task/{agent}/children").read_text().split()]
    assert children, "the sleep is below process 1"
    for pid in (agent, *children):
        bits = sum(1 << n for n in CAPS.values())
        for field in ("CapEff", "CapPrm", "CapBnd"):
            assert int(host_status(pid, field), 16) & ~bits == 0, f"{field} of {pid}"
        assert int(host_status(pid, "CapInh"), 16) & ~bits == 0
        assert host_status(pid, "NoNewPrivs") == "1"
        assert host_status(pid, "Seccomp") == "2"
    assert int(cgroup_value(agent, "memory", "memory.limit_in_bytes", "memory.max")) == MEMORY
    assert int(cgroup_value(agent, "pids", "pids.max", "pids.max")) == PIDS
    quota = cgroup_value(agent, "cpu", "cpu.cfs_quota_us", "cpu.max").split()[0]
    assert int(quota) == 150_000


def test_a_memory_hog_dies_and_its_session_stays(broker: Broker, sandbox: Session) -> None:
    container, agent = sandbox.container(), broker.engine.pid(sandbox.container())
    sandbox.stdout("echo kept > /root/kept; sleep 600 >/dev/null 2>&1 & echo $! > pid")
    for hog in ("a = bytearray(10**9)", "a = []\nwhile True: a.append(bytearray(2**20))"):
        result = sandbox.python(hog)
        assert result["exit_code"] not in (0, None), result
    # A child of the command, not the command itself: the shell tells of it.
    result = sandbox.sh("python3 -c 'a = bytearray(10**9)'; echo status $?")
    assert result["exit_code"] == 0 and result["stdout"] == "status 137\n", result
    assert sandbox.stdout("cat /root/kept; kill -0 $(cat pid) && echo alive") == "kept\nalive\n"
    assert (sandbox.container(), broker.engine.pid(container)) == (container, agent), "process 1 was not to be touched"
    assert sandbox.inspect()["alive"]


def test_a_memory_hog_with_many_children_leaves_the_session_usable(sandbox: Session) -> None:
    result = sandbox.python(
        "import os\nfor i in range(20):\n  if os.fork() == 0:\n    a = bytearray(50 * 2**20)\n    import time; time.sleep(600)\n"
        "while True:\n  try: os.wait()\n  except ChildProcessError: break",
        timeout_seconds=3,
    )
    assert result["timed_out"] or result["exit_code"] is not None
    assert sandbox.stdout("echo ok") == "ok\n"


def test_a_sandbox_that_sacrifices_its_process_1_is_healed(sandbox: Session) -> None:
    sandbox.stdout("echo kept > f")
    answer = sandbox.post_run(
        ["python3", "-c", "open('/proc/self/oom_score_adj', 'w').write('0')\nopen('/proc/1/oom_score_adj', 'w').write('1000')\na = bytearray(10**9)"]
    )
    assert answer.status_code == 410 or answer.json()["exit_code"] not in (0, None), answer.text
    assert sandbox.stdout("cat f") == "kept\n"


def test_the_number_of_processes_ends_where_it_is_set(sandbox: Session) -> None:
    count = report(
        sandbox,
        "import os, json, signal\nn = 0\npids = []\ntry:\n  while n < 1000:\n    p = os.fork()\n    if p == 0:\n      signal.pause()\n"
        "    pids.append(p)\n    n += 1\nexcept OSError: pass\nfor p in pids: os.kill(p, 9)\nprint(json.dumps(n))",
    )
    assert PIDS - 10 <= count < PIDS
    assert sandbox.stdout("echo ok") == "ok\n"


def test_tmp_is_memory_of_the_size_that_was_set(sandbox: Session) -> None:
    result = sandbox.sh("head -c 20000000 /dev/zero > /tmp/big")
    assert result["exit_code"] != 0 and "space" in result["stderr"].lower(), result
    assert int(sandbox.stdout("stat -c %s /tmp/big")) <= 8 * 1024 * 1024
    # Programs may be run from it, and devices and set-user-id mean nothing there.
    assert sandbox.stdout("rm /tmp/big; cp /bin/echo /tmp/e && /tmp/e runs") == "runs\n"


def test_nothing_that_a_program_writes_ends_in_a_log_of_the_host(broker: Broker, sandbox: Session) -> None:
    result = sandbox.sh("yes > /proc/1/fd/1", timeout_seconds=5)
    assert result["exit_code"] not in (0, None), f"process 1's descriptors are out of reach: {result}"
    told = broker.engine.inspect(sandbox.container())
    assert told["LogPath"] == ""
    for folder in ("ResolvConfPath", "HostnamePath"):
        if told[folder]:
            logs = [f for f in Path(told[folder]).parent.rglob("*") if f.is_file() and f.name.endswith(".log")]
            assert not logs, logs
    assert sandbox.stdout("echo ok") == "ok\n"


def test_isolation_says_what_holds_and_what_does_not(broker: Broker) -> None:
    controls = controls_of(broker)
    states = {name: control["state"] for name, control in controls.items()}
    assert states["disk"] == "not enforced", "no quota is set up, and it must say so"
    for name in ("seccomp", "capabilities", "no_new_privileges", "memory", "swap", "cpu", "pids", "network", "tmp"):
        assert states[name] == "enforced", f"{name}: {controls[name]}"
    assert "runc" in controls["runtime"]["detail"]
    assert controls["memory"]["detail"] == f"{MEMORY >> 20} MiB" and str(PIDS) in controls["pids"]["detail"]
    assert broker.http.get("/isolation").status_code == 401


def controls_of(broker: Broker) -> dict[str, dict[str, str]]:
    """What GET /isolation says of the one runtime."""
    answer = broker.client.get("/isolation")
    assert answer.status_code == 200, answer.text
    controls: dict[str, dict[str, str]] = answer.json()["python"]
    return controls


def test_a_limit_that_is_off_is_said_to_be_off(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(mem_limit="", pids_limit="", cpus="", tmpfs_size="")
    controls = controls_of(broker)
    for name in ("memory", "pids", "cpu", "tmp", "disk"):
        assert controls[name]["state"] == "not enforced", controls[name]
    told = broker.engine.inspect(broker.open("unlimited").container())["HostConfig"]
    assert told["Memory"] == 0 and told["NanoCpus"] == 0 and not told.get("Tmpfs") and told["PidsLimit"] in (0, None, -1)


def test_a_user_that_is_not_root_has_no_capability_at_all(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(sandbox_uid=1234)
    s = broker.open("unprivileged")
    assert s.stdout("id -u; id -g; echo mine > f && cat f; stat -c %u f") == "1234\n1234\nmine\n1234\n"
    agent = broker.engine.pid(s.container())
    for field in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"):
        assert int(host_status(agent, field), 16) == 0, field
    assert s.sh("cat /proc/1/environ")["exit_code"] != 0
    assert s.sh("echo x > /etc/x")["exit_code"] != 0
    # The wire: files of another user are written by the sandbox itself, so that their owner is right.
    assert s.files_write("/workspace/from_host", b"x").status_code == 409
    assert s.read("/workspace/f") == b"mine\n"


def test_an_alias_without_capabilities_has_none(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker(runtimes=f"python={IMAGE};caps=none", sandbox_uid=None)
    s = broker.open("nocaps")
    assert s.stdout("id -u; sed -n 's/^CapEff:[^0-9]*//p' /proc/self/status") == "0\n0000000000000000\n"
    assert broker.engine.inspect(s.container())["HostConfig"]["CapAdd"] in (None, [])
    assert controls_of(broker)["capabilities"]["detail"] == "none"


# ---- N1: no network, and nothing of the broker

NO_NETWORK = """
import json, os, socket, time
def connect(family, address):
    begun = time.monotonic()
    try:
        with socket.socket(family, socket.SOCK_STREAM) as s:
            s.settimeout(10)
            s.connect(address)
            said = 'connected'
    except OSError as e:
        said = type(e).__name__ + ' ' + str(e)
    return [said, time.monotonic() - begun]
def look_up(name):
    begun = time.monotonic()
    try:
        said = 'connected ' + repr(socket.getaddrinfo(name, 80))
    except OSError as e:
        said = str(e)
    return [said, time.monotonic() - begun]
def send(family, address):
    begun = time.monotonic()
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.sendto(b'x', address)
            said = 'connected'
    except OSError as e:
        said = str(e)
    return [said, time.monotonic() - begun]
print(json.dumps({
    'internet': connect(socket.AF_INET, ('1.1.1.1', 53)),
    'internet by UDP': send(socket.AF_INET, ('1.1.1.1', 53)),
    'metadata': connect(socket.AF_INET, ('169.254.169.254', 80)),
    'bridge': connect(socket.AF_INET, ('172.17.0.1', %(port)d)),
    'broker on its loopback': connect(socket.AF_INET, ('127.0.0.1', %(port)d)),
    'IPv6': connect(socket.AF_INET6, ('2606:4700:4700::1111', 53)),
    'IPv6 metadata': connect(socket.AF_INET6, ('fd00:ec2::254', 80)),
    'IPv6 broker': connect(socket.AF_INET6, ('::1', %(port)d)),
    'DNS': look_up('example.com'),
}))
"""


@pytest.mark.san
def test_there_is_no_way_out_and_it_says_so_quickly(broker: Broker, sandbox: Session) -> None:
    for what, (said, seconds) in report(sandbox, NO_NETWORK % {"port": broker.port}).items():
        assert "connected" not in said, f"{what}: {said}"
        assert seconds < 3 * SLOWNESS, f"{what}: {said} only after {seconds:.1f} s"
    interfaces = sandbox.stdout("sed '1,2d; s/:.*//' /proc/net/dev").split()
    # Kernels put their tunnel templates into each network namespace; they are down, and stay it without CAP_NET_ADMIN.
    up = [i for i in interfaces if int(sandbox.stdout(f"cat /sys/class/net/{i}/flags").strip(), 16) & 1]
    assert up == ["lo"], interfaces
    assert sandbox.stdout("sed 1d /proc/net/route") == ""


def test_its_own_loopback_works(sandbox: Session) -> None:
    assert report(
        sandbox,
        "import functools, http.server, json, threading, urllib.request\n"
        "open('page', 'w').write('served')\n"
        "class Quiet(http.server.SimpleHTTPRequestHandler):\n  def log_message(self, *a): pass\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), Quiet)\n"
        "threading.Thread(target=server.serve_forever, daemon=True).start()\n"
        "print(json.dumps(urllib.request.urlopen(f'http://127.0.0.1:{server.server_port}/page').read().decode()))",
    ) == "served"


@pytest.mark.san
def test_nothing_of_the_broker_is_seen_inside(broker: Broker, sandbox: Session) -> None:
    seen = sandbox.sh("env; ls -la /var/run/docker.sock /run/docker.sock /run /; cat /proc/1/environ /proc/1/cmdline; cat /proc/*/environ 2>/dev/null")
    text = seen["stdout"] + seen["stderr"]
    for secret in (TOKEN, sandbox.token, "SANDBOXD", broker.engine.socket, str(broker.settings["state_dir"])):
        assert secret not in text, secret
    assert "docker.sock" not in seen["stdout"]
    for path in ("environ", "mem", "maps", "stack", "fd/0", "fd/1", "cwd/x", "root/etc/hostname"):
        result = sandbox.sh(f"cat /proc/1/{path}")
        assert result["exit_code"] != 0 and result["stdout"] == "", f"/proc/1/{path} can be read: {result}"
    # That descriptors are there may be seen; what they are may not.
    assert sandbox.sh("for f in /proc/1/fd/* /proc/1/exe /proc/1/cwd /proc/1/root; do readlink $f; done")["stdout"] == ""


# ---- system calls (the plain ones are in test_seccomp.py)


def call_numbers() -> dict[str, int]:
    """This machine's system calls by name, from the C compiler's own headers."""
    text = subprocess.run(["cc", "-E", "-dM", "-include", "sys/syscall.h", "-xc", "/dev/null"], capture_output=True, text=True, check=True).stdout
    return {name: int(number) for name, number in re.findall(r"^#define __NR_(\w+) (\d+)$", text, re.M)}


TRY_CALLS = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    got = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments])
    if got >= 0 and number in (%(clone)d, %(clone3)d):
        if got == 0:
            os._exit(0)
        os.waitpid(got, 0)
    return 0 if got >= 0 else ctypes.get_errno()
"""


def try_calls(session: Session, calls: dict[str, list[int]]) -> dict[str, int]:
    """errno of each call (0: it was let through), by whatever name it has here."""
    numbers = call_numbers()
    program = TRY_CALLS % {"clone": numbers["clone"], "clone3": numbers["clone3"]}
    program += f"print(json.dumps({{name: call(*arguments) for name, arguments in {calls!r}.items()}}))"
    return report(session, program)


@pytest.mark.san
def test_what_is_refused_by_argument_is_refused(sandbox: Session) -> None:
    numbers = call_numbers()
    high = 1 << 32
    calls: dict[str, list[int]] = {}
    families = {"ALG": 38, "VSOCK": 40, "PACKET": 17, "CAN": 29, "TIPC": 30, "BLUETOOTH": 31, "RDS": 21, "KEY": 15, "XDP": 44, "NFC": 39, "QIPCRTR": 42, "SMC": 43}
    for name, family in families.items():
        for kind in (1, 2, 3, 5):
            calls[f"socket {name} {kind}"] = [numbers["socket"], family, kind, 0]
            calls[f"socket {name} {kind} high"] = [numbers["socket"], family | high, kind, 0]
    calls["socketpair TIPC"] = [numbers["socketpair"], 30, 5, 0, -1]
    calls["raw socket"] = [numbers["socket"], 2, 3, 1]
    calls["raw IPv6 socket"] = [numbers["socket"], 10, 3, 58]
    for name, flag in {"NEWNS": 0x20000, "NEWCGROUP": 0x2000000, "NEWUTS": 0x4000000, "NEWIPC": 0x8000000, "NEWUSER": 0x10000000, "NEWPID": 0x20000000, "NEWNET": 0x40000000}.items():
        calls[f"clone {name}"] = [numbers["clone"], flag | 17, 0, 0, 0, 0]
        calls[f"clone {name} high"] = [numbers["clone"], flag | 17 | high, 0, 0, 0, 0]
        calls[f"unshare {name}"] = [numbers["unshare"], flag]
    copies = {0x40049409, 0x4020940D, 0xC0189436}
    for number in range(256):
        for size in (0x00000000, 0x50000000, 0x40080000, 0xC0180000, 0x80000000):
            request = size | 0x9400 | number
            if request in copies:
                continue
            calls[f"ioctl {request:x}"] = [numbers["ioctl"], 0, request, -1]
            calls[f"ioctl {request:x} high"] = [numbers["ioctl"], 0, request | high, -1]
    for request in (0x401C5820, 0x40086602, 0x40046602):
        calls[f"ioctl {request:x}: attributes of files"] = [numbers["ioctl"], 0, request, -1]
        calls[f"ioctl {request:x} high"] = [numbers["ioctl"], 0, request | high, -1]
    for request in (0x5000940E, 0x50009401, 0x50009417, 0x50009418, 0x5000940F, 0x40009403, 0x401C5820, 0x40086602):
        calls[f"ioctl {request:x} all high bits"] = [numbers["ioctl"], 0, request - (1 << 63) | (0x7FFFFFFF << 32), -1]
    calls["personality READ_IMPLIES_EXEC"] = [numbers["personality"], 0x0400000]
    calls["personality ADDR_NO_RANDOMIZE"] = [numbers["personality"], 0x0040000]
    calls["ptrace ATTACH 1"] = [numbers["ptrace"], 16, 1, 0, 0]
    calls["ptrace SEIZE 1"] = [numbers["ptrace"], 0x4206, 1, 0, 0]
    assert {name: errno for name, errno in try_calls(sandbox, calls).items() if errno != EPERM} == {}
    assert try_calls(sandbox, {"clone3": [numbers["clone3"], 0, 0], "clone3 with sizes": [numbers["clone3"], -1, 88]}) == {
        "clone3": ENOSYS,
        "clone3 with sizes": ENOSYS,
    }


def test_foreign_doors_to_the_kernel_are_shut(sandbox: Session) -> None:
    """The x32 and the 32-bit calls of an x86-64 kernel have numbers and arguments that the filter does not know."""
    if os.uname().machine != "x86_64":
        pytest.skip("an x86-64 kernel's doors")
    told = report(
        sandbox,
        "import ctypes, json, mmap, os\n"
        "def child(what):\n"
        "  p = os.fork()\n"
        "  if p == 0:\n"
        "    try: os._exit(0 if what() >= 0 else 1)\n"
        "    except BaseException: os._exit(2)\n"
        "  return os.waitstatus_to_exitcode(os.waitpid(p, 0)[1])\n"
        "libc = ctypes.CDLL(None)\n"
        "code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        # mov eax, 20 (getpid of i386); int 0x80; ret
        "code.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')\n"
        "door = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))\n"
        "print(json.dumps([child(lambda: libc.syscall(ctypes.c_long(0x40000000 | 39))), child(door)]), flush=True)\nos._exit(0)",
    )
    assert all(status != 0 for status in told), told


@pytest.mark.san
def test_what_programs_need_is_allowed(sandbox: Session) -> None:
    numbers = call_numbers()
    enotty, ebadf = 25, 9
    calls = {f"socket {family}": [numbers["socket"], family, kind, 0] for family, kind in ((1, 1), (2, 1), (2, 2), (10, 1), (16, 3))}
    told = try_calls(sandbox, calls)
    assert {name: errno for name, errno in told.items() if errno not in (0, 97)} == {}, told  # 97: a kernel without IPv6
    asked = try_calls(
        sandbox,
        {
            "TCGETS": [numbers["ioctl"], 0, 0x5401, -1],
            "FICLONE": [numbers["ioctl"], 0, 0x40049409, -1],
            "FICLONERANGE": [numbers["ioctl"], 0, 0x4020940D, -1],
            "FIDEDUPERANGE": [numbers["ioctl"], 0, 0xC0189436, -1],
            "GETFLAGS": [numbers["ioctl"], 0, 0x80086601, -1],
            "FSGETXATTR": [numbers["ioctl"], 0, 0x801C581F, -1],
            "plain clone": [numbers["clone"], 17, 0, 0, 0, 0],
            "getrandom": [numbers["getrandom"], 0, 0, 0],
            "ptrace of nobody": [numbers["ptrace"], 16, 99999999, 0, 0],
        },
    )
    assert asked["TCGETS"] == enotty and asked["plain clone"] == 0 and asked["getrandom"] == 0 and asked["ptrace of nobody"] == 3
    for name in ("FICLONE", "FICLONERANGE", "FIDEDUPERANGE", "GETFLAGS", "FSGETXATTR"):
        assert asked[name] not in (0, EPERM, ENOSYS) and asked[name] != 0, f"{name}: {asked[name]} ({ebadf} is fine)"


PROGRAMS = {
    "python threads": ("python3 -c 'import threading; t = threading.Thread(target=print, args=(1,)); t.start(); t.join()'", "1\n"),
    "python processes": ("python3 -c 'import subprocess; print(subprocess.check_output([\"echo\", \"x\"]))'", "b'x\\n'\n"),
    "python async": ("python3 -c 'import asyncio; asyncio.run(asyncio.sleep(0)); print(2)'", "2\n"),
    "tar keeps owners": (
        "mkdir -p d && echo x > d/f && chown 1000:1000 d/f && tar -cf t.tar d && rm -r d && tar -xf t.tar && stat -c '%u:%g' d/f",
        "1000:1000\n",
    ),
    "su": ("su -s /bin/sh nobody -c 'id -u'", "65534\n"),
    "apt-get": ("apt-get --version | head -n 1 | cut -c1-4", "apt \n"),
    "dpkg": ("dpkg -s dash | grep ^Status", "Status: install ok installed\n"),
    "cp": ("echo y > a && cp --reflink=auto a b && cat b", "y\n"),
    "fifo": ("mkfifo p && (echo z > p &) && cat p", "z\n"),
    "links": ("touch a && ln -s a l && ln a h && readlink l && stat -c %h a", "a\n2\n"),
    "xargs": ("seq 1 3 | xargs -n1 -P3 echo | sort", "1\n2\n3\n"),
    "nice": ("nice -n 5 sh -c 'echo n'", "n\n"),
    "signals": ("(trap 'echo t; exit 0' TERM; kill -TERM $(sh -c 'echo $PPID'); sleep 5)", "t\n"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_work(broker: Broker, name: str, shared: Session) -> None:
    script, expected = PROGRAMS[name]
    result = shared.sh(f"mkdir -p '/tmp/{name}' && cd '/tmp/{name}' && {{ {script}; }}")
    assert (result["exit_code"], result["stdout"]) == (0, expected), result


@pytest.fixture(scope="module")
def shared(module_broker: Broker) -> Session:
    return module_broker.open("programs")


# ---- process 1


def test_process_1_cannot_be_touched(broker: Broker, sandbox: Session) -> None:
    container, agent = sandbox.container(), broker.engine.pid(sandbox.container())
    sandbox.sh("for s in KILL TERM STOP INT HUP QUIT SEGV USR1 USR2 PIPE ALRM ABRT TSTP; do kill -$s 1; done")
    assert sandbox.stdout("echo ok") == "ok\n"
    assert (sandbox.container(), broker.engine.pid(container)) == (container, agent)
    wait_until(lambda: host_status(agent, "State").startswith("S"), what="it waits, as before (STOP would be T)")
    for attempt in (
        "echo x > /.berth-agent",
        "rm -f /.berth-agent",
        "mv /.berth-agent /x",
        "ln -f /bin/true /.berth-agent",
        "chmod 777 /.berth-agent",
        "dd if=/dev/zero of=/proc/1/mem bs=1 seek=4096 count=1",
        "mount -o remount,rw /.berth-agent",
    ):
        assert sandbox.sh(attempt)["exit_code"] != 0, attempt
    assert sandbox.stdout("echo ok") == "ok\n"
    assert broker.engine.pid(container) == agent


WRITE_TO_STREAMS = """
import os
done = 0
for p in os.listdir('/proc'):
    if not p.isdigit() or int(p) == os.getpid():
        continue
    try:
        names = os.listdir(f'/proc/{p}/fd')
    except OSError:
        continue
    for name in names:
        try:
            with open(f'/proc/{p}/fd/{name}', 'wb', 0) as f:
                f.write(b'BRTH' + b'\\x01\\x45' + b'\\xff' * 200)
                done += 1
        except OSError:
            pass
print(done)
"""


def test_a_run_cannot_write_into_the_conversation(sandbox: Session) -> None:
    """Frames made up inside reach nobody: neither process 1's nor a supervisor's descriptors can be opened."""
    sandbox.stdout("sleep 600 >/dev/null 2>&1 &")
    for _ in range(3):
        result = sandbox.python(WRITE_TO_STREAMS)
        assert result["exit_code"] == 0, result
    assert sandbox.stdout("echo ok") == "ok\n"
    assert sandbox.inspect()["alive"]


LIMIT_OTHERS = """
import json, os, resource
refused = 0
for pid in (1, os.getppid()):
    for what in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE):
        asked = resource.prlimit(pid, what)
        try:
            resource.prlimit(pid, what, (4, 4))
        except PermissionError:
            refused += 1
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
print(json.dumps([refused, resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""


def test_nobody_limits_process_1_or_a_supervisor(sandbox: Session) -> None:
    before = sandbox.stdout("ulimit -n; ulimit -f")
    assert report(sandbox, LIMIT_OTHERS) == [4, [64, 64]]
    assert sandbox.stdout("ulimit -n; ulimit -f") == before


def test_killing_everything_inside_ends_at_process_1(broker: Broker, sandbox: Session) -> None:
    container, agent = sandbox.container(), broker.engine.pid(sandbox.container())
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(sandbox.post_run, ["sleep", "20"])
        wait_until(lambda: len(Path(f"/proc/{agent}/task/{agent}/children").read_text().split()) >= 1, 5, "the other run runs")
        for _ in range(3):
            answer = sandbox.post_run(["sh", "-c", "kill -9 -1; echo survived"])
            assert answer.status_code in (200, 410), answer.text
            assert "survived" not in answer.text or answer.json()["exit_code"] is not None
        assert sandbox.stdout("echo ok") == "ok\n"
        # The runs of one session are not protected from each other's attacks, but nobody may hang on them.
        assert other.result(10 * SLOWNESS).status_code in (200, 410)
    assert (sandbox.container(), broker.engine.pid(container)) == (container, agent)
