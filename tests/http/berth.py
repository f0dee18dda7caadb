"""What every HTTP test stands on: a berthd of one's own, sessions in it, and a view of the engine from outside.

Environment (contrib/check sets all of it):
  BERTHD               the program under test, default build/berthd
  DOCKER_HOST          unix:// address of the engine; never one that serves anything but tests
  BERTH_IMAGE          the sandbox image in that engine, default berth-python:latest
  BERTH_TEST_SLOWNESS  factor on every deadline here, for instrumented builds, default 1
  BERTH_TEST_PRELOAD   a library that every broker is started with (tests/jitter)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse
import uuid
from pathlib import Path
from typing import Any, Callable, Iterator, TypeVar

import httpx
from httpcore._sync import http11

ROOT = Path(__file__).resolve().parents[2]
BERTHD = os.environ.get("BERTHD", str(ROOT / "build" / "berthd"))
IMAGE = os.environ.get("BERTH_IMAGE", "berth-python:latest")
SLOWNESS = float(os.environ.get("BERTH_TEST_SLOWNESS", "1"))
SUPERVISORS_AT_REST = 4  # that a sandbox holds for the next runs, at most (agent_crew.h)
PORTABLE_WALK = bool(os.environ.get("BERTH_TEST_PORTABLE_WALK"))  # every broker walks as if the kernel had no openat2
PRELOAD = os.environ.get("BERTH_TEST_PRELOAD")
TOKEN = "service-token-of-the-tests"

# What a sanitizer writes when it finds something; it must fail the test that ran meanwhile even if the answer was right.
SANITIZER_REPORT = re.compile(r"ERROR: \w*Sanitizer|WARNING: ThreadSanitizer|runtime error:|SUMMARY: \w*Sanitizer")

T = TypeVar("T")
N = TypeVar("N", int, float)


def at_pace(seconds: N) -> N:
    """A limit of the product's within which something must have been done: as much longer as this machine may be slower."""
    return seconds * max(1, round(SLOWNESS / 2))


def mend_httpcore() -> None:
    """httpcore (1.0.9) may close a connection under another thread's request: it finds an idle one readable, which is how it knows one that the
    server has closed, when that thread has taken it meanwhile and its answer is there. Now whoever looks holds it, and one that is over is nobody's."""
    is_over = http11.HTTP11Connection.has_expired

    def has_expired(self: http11.HTTP11Connection) -> bool:
        with self._state_lock:
            if self._state != http11.HTTPConnectionState.IDLE or not is_over(self):
                return False
            self._state = http11.HTTPConnectionState.CLOSED
            return True

    http11.HTTP11Connection.has_expired = has_expired  # type: ignore[method-assign]


mend_httpcore()


def wait_until(condition: Callable[[], T], deadline: float = 10.0, what: str = "", interval: float = 0.02) -> T:
    """Wait for a condition, and fail with its name when it does not come true in time. Returns what made it true."""
    end = time.monotonic() + deadline * SLOWNESS
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline * SLOWNESS:.1f} s: {what or condition}")
        time.sleep(interval)


def free_port() -> int:
    """A port of this machine that nothing listens on, and no other process of these tests is given for a while: they count through a range
    below the one the kernel gives to connections (32768 and up), in a file they share."""
    first, count = 15000, 15000
    with open(Path(tempfile.gettempdir()) / f"berth-test-port-{os.getuid()}", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        port = int(file.read() or first)
        while True:
            port = first + (port - first + 1) % count
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            file.seek(0)
            file.truncate()
            file.write(str(port))
            return port


def new_id(prefix: str = "t") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def new_run_id() -> str:
    return uuid.uuid4().hex


class Engine:
    """The container engine, looked at (and maltreated) from outside, through its own socket."""

    def __init__(self, address: str | None = None) -> None:
        self.address = address or os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        if not self.address.startswith("unix://"):
            raise ValueError(f"DOCKER_HOST={self.address}: only unix:// is supported")
        self.socket = self.address.removeprefix("unix://")
        self.http = httpx.Client(
            transport=httpx.HTTPTransport(uds=self.socket), base_url="http://engine", timeout=60 * SLOWNESS
        )

    def close(self) -> None:
        self.http.close()

    def call(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        answer = self.http.request(method, path, **kwargs)
        if answer.status_code >= 400:
            raise AssertionError(f"engine: {method} {path}: {answer.status_code} {answer.text}")
        return answer

    def containers(self, *labels: str) -> list[dict[str, Any]]:
        """All containers, stopped ones too; with labels ("name" or "name=value") only those that carry them all."""
        query = {"all": "1"}
        if labels:
            query["filters"] = json.dumps({"label": list(labels)})
        return self.call("GET", "/containers/json?" + urllib.parse.urlencode(query)).json()

    def inspect(self, container: str) -> dict[str, Any]:
        return self.call("GET", f"/containers/{container}/json").json()

    def exists(self, container: str) -> bool:
        return self.http.get(f"/containers/{container}/json").status_code == 200

    def running(self, container: str) -> bool:
        answer = self.http.get(f"/containers/{container}/json")
        return answer.status_code == 200 and answer.json()["State"]["Running"]

    def pid(self, container: str) -> int:
        """The host's number of the container's process 1."""
        return self.inspect(container)["State"]["Pid"]

    def kill(self, container: str, signal_name: str = "KILL") -> None:
        self.call("POST", f"/containers/{container}/kill?signal={signal_name}")
        if signal_name == "KILL":
            wait_until(lambda: not self.running(container), what=f"container {container} dead")

    def stop(self, container: str) -> None:
        self.call("POST", f"/containers/{container}/stop?t=0")

    def pause(self, container: str) -> None:
        self.call("POST", f"/containers/{container}/pause")

    def unpause(self, container: str) -> None:
        self.call("POST", f"/containers/{container}/unpause")

    def remove(self, container: str) -> None:
        answer = self.http.delete(f"/containers/{container}?force=1&v=1")
        if answer.status_code not in (204, 404, 409):
            raise AssertionError(f"engine: remove {container}: {answer.status_code} {answer.text}")
        wait_until(lambda: not self.exists(container), what=f"container {container} removed")


class OwnEngine(Engine):
    """A private Docker engine that a test may kill: contrib/engine in a folder of its own."""

    def __init__(self, live_restore: bool = False) -> None:
        self.live_restore = live_restore
        # Not below pytest's folders: the names of the sockets in it would be too long.
        self.dir = Path(tempfile.mkdtemp(prefix="berth-engine-", dir="/tmp"))
        self.dir.chmod(0o711)
        super().__init__(f"unix://{self.dir}/docker.sock")
        try:
            self.start_engine()
            subprocess.run(
                [ROOT / "sandbox-images/build-from-debian", "--engine", self.socket], check=True, capture_output=True, timeout=300
            )
        except BaseException:
            self.remove_engine()
            raise

    def _command(self, verb: str, *options: str) -> None:
        done = subprocess.run([ROOT / "contrib/engine", verb, self.dir, *options], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"contrib/engine {verb}: {done.stderr}"

    def start_engine(self) -> None:
        self._command("start", *(["--live-restore"] if self.live_restore else []))

    def stop_engine(self) -> None:
        """Its containers are killed, then it ends as asked."""
        self._command("stop")

    def kill_engine(self) -> None:
        """kill -9: with live restore the containers go on, without it they are killed at the next start."""
        self._command("kill")

    def remove_engine(self) -> None:
        self.close()
        self._command("remove")


class Session:
    """A session of a broker, spoken to with its own token."""

    def __init__(self, broker: "Broker", opened: dict[str, Any]) -> None:
        self.broker = broker
        self.info: dict[str, Any] = opened["session"]
        self.id: str = self.info["session_id"]
        self.token: str = opened["token"]

    @property
    def workspace(self) -> Path:
        """The folder on the host that is the sandbox's work dir."""
        return self.broker.workspace_of(self.id)

    def request(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        """path is below /sessions/{id}."""
        headers = {"X-Sandbox-Token": self.token} | kwargs.pop("headers", {})
        return self.broker.http.request(method, f"/sessions/{self.id}{path}", headers=headers, **kwargs)

    def post_run(self, argv: list[str], **body: Any) -> httpx.Response:
        body = {"argv": argv, "run_id": new_run_id()} | body
        return self.request("POST", "/run", json=body)

    def run(self, argv: list[str], **body: Any) -> dict[str, Any]:
        """Run argv to its end; body may set env, timeout_seconds, run_id."""
        answer = self.post_run(argv, **body)
        assert answer.status_code == 200, f"run {argv}: {answer.status_code} {answer.text}"
        return answer.json()

    def sh(self, script: str, **body: Any) -> dict[str, Any]:
        return self.run(["/bin/sh", "-c", script], **body)

    def stdout(self, script: str, **body: Any) -> str:
        """The standard output of a shell script that must succeed."""
        result = self.sh(script, **body)
        assert result["exit_code"] == 0, result
        return result["stdout"]

    def python(self, program: str, **body: Any) -> dict[str, Any]:
        return self.run(["python3", "-c", program], **body)

    def exec(self, command: str, **body: Any) -> httpx.Response:
        """The classic wire: one shell string, both streams merged."""
        return self.request("POST", "/exec", json={"command": command} | body)

    def stop_run(self, run_id: str) -> httpx.Response:
        return self.request("POST", f"/runs/{run_id}/stop")

    def files(self, op: str, path: str, **body: Any) -> httpx.Response:
        return self.request("POST", f"/files/{op}", json={"path": path} | body)

    def files_write(self, path: str, content: bytes | Iterator[bytes]) -> httpx.Response:
        return self.request("POST", "/files/write", params={"path": path}, content=content)

    def write(self, path: str, content: bytes) -> None:
        answer = self.files_write(path, content)
        assert answer.status_code == 204, f"write {path}: {answer.status_code} {answer.text}"

    def read(self, path: str) -> bytes:
        answer = self.files("read", path)
        assert answer.status_code == 200, f"read {path}: {answer.status_code} {answer.text}"
        return answer.content

    def inspect(self, usage: bool = False) -> dict[str, Any]:
        answer = self.request("GET", "", params={"usage": "true"} if usage else None)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def events(self, after: int = 0) -> dict[str, Any]:
        answer = self.request("GET", "/events", params={"after": after})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def container(self) -> str:
        """The id of the session's container, found by what is mounted in it, not by what the broker calls it."""
        return self.broker.container_of(self.id)

    def close(self, purge: bool = False) -> httpx.Response:
        return self.request("DELETE", "", params={"purge": "true"} if purge else None)


class Broker:
    """One berthd process with folders, port and settings of its own.

    settings are the SANDBOXD_* variables in lower case without the prefix: Broker(..., max_sessions=3, workspace_root=None);
    None leaves a variable out. Not thread-safe in start and stop; requests may come from any thread.
    """

    def __init__(self, home: Path, engine: Engine, **settings: Any) -> None:
        self.home = home
        self.engine = engine
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.root = home / "workspaces"
        self.log_path = home / "berthd.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.leftovers_expected = False
        self.env: dict[str, str] = {}
        self.config: str | Path = "/dev/null"  # never the machine's own
        self.was_killed = False
        self.mounts: list[Path] = []
        home.mkdir(parents=True, exist_ok=True)
        self.root.mkdir(mode=0o711, exist_ok=True)
        self.settings: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": self.port,
            "token": TOKEN,
            "runtimes": f"python={IMAGE}",
            "workspace_root": str(self.root),
            "state_dir": str(home / "state"),
            "persist_containers": True,
        } | ({"portable_walk": True} if PORTABLE_WALK else {}) | settings
        self.http = httpx.Client(
            base_url=self.url,
            timeout=60 * SLOWNESS,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=100),
            trust_env=False,
        )
        # The operator's client: every request of it carries the service token.
        self.client = httpx.Client(
            base_url=self.url,
            headers={"X-Sandbox-Token": str(self.settings["token"] or "")},
            timeout=60 * SLOWNESS,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=100),
            trust_env=False,
        )

    # ---- the process

    def environment(self) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("SANDBOXD_")}
        env["DOCKER_HOST"] = self.engine.address
        if PRELOAD:
            env["LD_PRELOAD"] = PRELOAD
        env.setdefault("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0:exitcode=66")
        env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=0")
        env.setdefault("TSAN_OPTIONS", "halt_on_error=0:exitcode=66:second_deadlock_stack=1")
        for name, value in self.settings.items():
            if value is not None:
                text = {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
                env[f"SANDBOXD_{name.upper()}"] = text
        return env | self.env

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting for anything."""
        assert self.process is None, "it runs already"
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [BERTHD, "--config", self.config], env=self.environment(), cwd=self.home, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self.process

    def fail_to_start(self, deadline: float = 10.0) -> tuple[int, str]:
        """Start it with settings that it must refuse. Returns its exit status and what it said."""
        said_before = len(self.log())
        process = self.spawn()
        try:
            status = process.wait(deadline * SLOWNESS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"berthd started all the same:\n{self.log_tail()}") from None
        self.process = None
        return status, self.log()[said_before:]

    def start(self, deadline: float = 20.0) -> "Broker":
        """Start it and wait until /healthz answers."""
        process = self.spawn()

        def answers() -> bool:
            if process.poll() is not None:
                self.process = None
                raise AssertionError(f"berthd ended with {process.returncode} while starting:\n{self.log_tail()}")
            try:
                return self.http.get("/healthz", timeout=2 * SLOWNESS).status_code == 200
            except httpx.HTTPError:
                return False

        wait_until(answers, deadline, "berthd answers /healthz")
        return self

    def terminate(self, deadline: float = 20.0) -> int:
        """SIGTERM, and a clean end within the deadline. Returns the exit status, which must be 0."""
        process = self._take_process()
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(deadline * SLOWNESS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"berthd did not stop within {deadline * SLOWNESS:.0f} s of SIGTERM:\n{self.log_tail()}") from None
        assert status == 0, f"berthd ended with {status}:\n{self.log_tail()}"
        return status

    def kill9(self) -> None:
        self.was_killed = True
        process = self._take_process()
        process.kill()
        process.wait()

    def restart(self) -> "Broker":
        """A clean stop and a new start on the same folders and port."""
        self.terminate()
        return self.start()

    def crash(self) -> "Broker":
        """kill -9 and a new start on the same folders and port."""
        self.kill9()
        return self.start()

    def _take_process(self) -> subprocess.Popen[bytes]:
        assert self.process is not None, "it does not run"
        process, self.process = self.process, None
        if process.poll() is not None:
            raise AssertionError(f"berthd had died by itself with {process.returncode}:\n{self.log_tail()}")
        return process

    def assert_healthy(self) -> None:
        """It did not die unasked, and no sanitizer has complained."""
        if self.process is not None and self.process.poll() is not None:
            status, self.process = self.process.returncode, None
            raise AssertionError(f"berthd died by itself with {status}:\n{self.log_tail()}")
        found = SANITIZER_REPORT.search(self.log())
        if found:
            at = max(0, found.start() - 200)
            raise AssertionError(f"a sanitizer reported:\n{self.log()[at:at + 8000]}")

    @property
    def pid(self) -> int:
        assert self.process is not None, "it does not run"
        return self.process.pid

    def rss_kb(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.M).group(1))  # type: ignore[union-attr]

    def is_sanitized(self) -> bool:
        """Its memory tells nothing: a sanitizer keeps what is freed for a while."""
        maps = Path(f"/proc/{self.pid}/maps").read_text()
        return "libasan" in maps or "libtsan" in maps

    def grew_less_than(self, kb: int, since_kb: int) -> bool:
        return self.is_sanitized() or self.rss_kb() - since_kb < kb

    def fd_count(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def thread_count(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self, lines: int = 60) -> str:
        return "\n".join(self.log().splitlines()[-lines:])

    # ---- sessions

    def open(self, session_id: str | None = None, **body: Any) -> Session:
        if session_id is not None:
            body["session_id"] = session_id
        answer = self.client.post("/sessions", json=body)
        assert answer.status_code == 200, f"open {body}: {answer.status_code} {answer.text}"
        return Session(self, answer.json())

    def sessions(self, usage: bool = False) -> list[dict[str, Any]]:
        answer = self.client.get("/sessions", params={"usage": "true"} if usage else None)
        assert answer.status_code == 200, answer.text
        return answer.json()["sessions"]

    def purge(self, session_id: str) -> httpx.Response:
        return self.client.delete(f"/sessions/{session_id}", params={"purge": "true"})

    def archive(self, session_id: str, op: str, **body: Any) -> httpx.Response:
        return self.client.post(f"/workspaces/{session_id}/{op}", json=body)

    def workspace_of(self, session_id: str) -> Path:
        return self.root / session_id / "workspace"

    # ---- its containers

    def containers(self) -> list[dict[str, Any]]:
        """Containers of this very broker, told from another's by what of its folders is mounted in them."""
        home = str(self.home.resolve())
        ours = []
        for container in self.engine.containers("berth.install"):
            sources = [m.get("Source", "") for m in container.get("Mounts") or []]
            if any(source == home or source.startswith(home + "/") for source in sources):
                ours.append(container)
        return ours

    def container_of(self, session_id: str) -> str:
        workspace = str(self.workspace_of(session_id).resolve())
        found = [c["Id"] for c in self.containers() if any(m.get("Source") == workspace for m in c.get("Mounts") or [])]
        assert len(found) == 1, f"session {session_id} has {len(found)} containers: {found}"
        return found[0]

    # ---- the end

    def left_behind(self) -> list[dict[str, Any]]:
        """Containers that should be gone when no session is open."""
        if self.leftovers_expected:
            return []
        if not self.settings.get("persist_containers"):
            return self.containers()
        # Closed, not purged: those are kept, stopped, by intent.
        return [c for c in self.containers() if c["State"] not in ("exited", "created")]

    def dispose(self) -> None:
        """End it and hold it to what it promised: a bounded clean stop, no complaint of a sanitizer, no container left behind.

        Sessions that a test left open are purged first. A broker that a test killed leaves what it leaves. Folders are removed only when all went well.
        """
        alive = self.process is not None
        try:
            self.assert_healthy()
            if alive:
                for session in self.sessions():
                    answer = self.purge(session["session_id"])
                    assert answer.status_code in (204, 404), f"purge {session['session_id']}: {answer.status_code} {answer.text}"
                self.terminate()
                self.assert_healthy()
                if self.was_killed and self.left_behind():
                    # The one after a death clears away, but not if it is stopped at once: the next one does.
                    self.start()
                    wait_until(lambda: not self.left_behind(), 20, "what a death left is cleared away")
                    self.terminate()
                # The engine answers a second request to remove that there is no such container while it still lists it.
                wait_until(lambda: all(c["State"] != "removing" for c in self.left_behind()), 20, "what is being removed is gone")
                assert not self.left_behind(), "containers left behind: " + json.dumps(self.left_behind(), indent=1)
        finally:
            if self.process is not None:
                self.process.kill()
                self.process.wait()
                self.process = None
            for container in self.containers():
                self.engine.remove(container["Id"])
            self.http.close()
            self.client.close()
        for mount in self.mounts:
            wait_until(lambda: subprocess.run(["umount", mount], capture_output=True).returncode == 0, 20, f"{mount} unmounted", 0.1)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.home)
