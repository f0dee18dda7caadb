"""The deployment of contrib/compose.yaml, for real: the broker in a container, its files in a named volume, upgraded and rolled back."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any, Iterator

import httpx
import pytest

from berth import BERTHD, IMAGE, ROOT, SLOWNESS, Engine, OwnEngine, Session, free_port, new_id, wait_until
from compose import Project, wait_healthy

# An engine of its own, two images and eight brokers: the machine may be slow.
pytestmark = pytest.mark.timeout(300)
TOKEN = "a long random value of this deployment"

# What the application does: the standard library is all that its image needs.
APPLICATION = """
import json, os, sys, urllib.request
def call(method, path, body=None, token=os.environ["SANDBOXD_TOKEN"]):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(os.environ["SANDBOXD_URL"] + path, data, {"X-Sandbox-Token": token, "Content-Type": "application/json"}, method=method)
    return json.load(urllib.request.urlopen(request, timeout=60))
opened = call("POST", "/sessions", {"session_id": sys.argv[1]})
result = call("POST", f"/sessions/{sys.argv[1]}/run", {"argv": ["sh", "-c", "echo kept >note.txt; id -u; ls /var/run/docker.sock"], "run_id": "0" * 32}, opened["token"])
print(json.dumps([result["stdout"], result["exit_code"], call("POST", f"/workspaces/{sys.argv[1]}/read", {"path": "note.txt"})["content"]]))
"""


class Deployment:
    """compose.yaml up, and its broker spoken to from the host, by the address that the bridge gives it."""

    def __init__(self, engine: OwnEngine) -> None:
        self.engine = engine
        subprocess.run(
            [ROOT / "contrib/image/build-from-debian", "--engine", engine.socket, "--berthd", BERTHD, "--name", "berthd:first"],
            check=True, capture_output=True, timeout=120 * SLOWNESS,
        )  # fmt: skip
        engine.call("POST", "/images/berthd:first/tag?repo=berthd&tag=second")
        self.project = Project(
            engine,
            {
                "SANDBOXD_TOKEN": TOKEN,
                "APP_IMAGE": IMAGE,
                "BERTHD_IMAGE": "berthd:first",
                "SANDBOXD_RUNTIMES": f"python={IMAGE}",
                "DOCKER_SOCKET": engine.socket,
            },
        )
        self.root = self.project.volume_path("sandbox_workspaces")
        self.project.start("app", command=["sleep", "infinity"])  # its own program is the image's to say
        self.client = httpx.Client()
        self.http = httpx.Client()

    def up(self, **changes: Any) -> None:
        self.project.start("sandboxd", **changes)
        url = f"http://{self.project.address('sandboxd')}:8080"
        wait_healthy(url, self.project, "sandboxd")
        for client in (self.client, self.http):
            client.close()
        self.client = httpx.Client(base_url=url, headers={"X-Sandbox-Token": TOKEN}, timeout=60 * SLOWNESS, trust_env=False)
        self.http = httpx.Client(base_url=url, timeout=60 * SLOWNESS, trust_env=False)

    def ensure_up(self) -> None:
        if "sandboxd" not in self.project.containers:
            self.up()

    def open(self, session_id: str, **body: Any) -> Session:
        answer = self.client.post("/sessions", json={"session_id": session_id} | body)
        assert answer.status_code == 200, answer.text
        return Session(self, answer.json())  # type: ignore[arg-type]

    def sandbox_of(self, session: Session) -> str:
        source = os.path.realpath(self.root / session.id / "workspace")
        (found,) = [c["Id"] for c in self.engine.containers("berth.install") if source in [m["Source"] for m in c["Mounts"]]]
        return found


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    engine = OwnEngine()
    try:
        yield Deployment(engine)
    finally:
        engine.remove_engine()


@pytest.fixture
def up(deployment: Deployment) -> Deployment:
    deployment.ensure_up()
    return deployment


def test_the_application_has_only_a_token_and_the_broker_no_published_port(up: Deployment) -> None:
    app = up.engine.inspect(up.project.containers["app"])
    broker = up.engine.inspect(up.project.containers["sandboxd"])
    assert app["Mounts"] == [] and not app["HostConfig"]["Binds"]
    for container in (app, broker):
        assert not container["HostConfig"]["PortBindings"] and not any(container["NetworkSettings"]["Ports"].values())
    assert {m["Destination"] for m in broker["Mounts"]} == {"/var/run/docker.sock", "/workspaces"}
    assert broker["HostConfig"]["ReadonlyRootfs"] and broker["HostConfig"]["CapDrop"] == ["ALL"]

    status, output = up.project.execute("app", ["python3", "-c", APPLICATION, new_id()])
    assert status == 0, output + up.project.log("sandboxd")
    assert re.search(r'^\["0\\n", 2, "kept"\]', output, re.M), output


def test_its_image_is_small_and_tells_its_own_health(up: Deployment) -> None:
    assert up.engine.call("GET", "/images/berthd:first/json").json()["Size"] < 120_000_000
    broker = up.engine.inspect(up.project.containers["sandboxd"])
    assert broker["Config"]["Healthcheck"]["Test"] == ["CMD", "/usr/bin/berthd", "--probe"]
    assert up.project.execute("sandboxd", broker["Config"]["Healthcheck"]["Test"][1:])[0] == 0
    status, said = up.project.execute("sandboxd", ["/usr/bin/berthd", "--help"])
    assert status == 0 and "SANDBOXD_TOKEN" in said


def test_state_agent_and_workspaces_lie_in_the_named_volume(up: Deployment) -> None:
    session = up.open(new_id())
    session.write("/workspace/from-the-broker.txt", b"1")
    assert session.stdout("cat from-the-broker.txt; echo 2 >from-the-sandbox.txt") == "1"
    workspace = up.root / session.id / "workspace"
    assert (workspace / "from-the-broker.txt").read_bytes() == b"1"
    assert session.read("/workspace/from-the-sandbox.txt") == b"2\n"
    assert {"berth.db", "key"} <= set(os.listdir(up.root / ".berth"))
    assert not [name for name in os.listdir(up.root) + os.listdir(up.root / ".berth") if "proof" in name]
    sources = {m["Source"] for m in up.engine.inspect(up.sandbox_of(session))["Mounts"]}
    assert all(source.startswith(f"{up.root}/") for source in sources), sources
    assert any(Path(source).parent == up.root / ".berth" and Path(source).name.startswith("agent-") for source in sources)


def test_it_is_upgraded_in_place_with_sessions_open(up: Deployment) -> None:
    session = up.open(new_id())
    session.write("/workspace/note.txt", b"before")
    sandbox = up.sandbox_of(session)
    up.project.remove("sandboxd")
    up.up(image="berthd:second")
    # The same token, the same container: stopped by the old broker, woken by the new one.
    assert session.stdout("cat note.txt") == "before"
    assert session.token == up.open(session.id, reuse=True).token
    assert up.sandbox_of(session) == sandbox


def test_a_broker_that_is_killed_leaves_sandboxes_running_for_the_next(up: Deployment) -> None:
    session = up.open(new_id())
    session.stdout("sleep 1000 >/dev/null 2>&1 & echo $! >pid")
    sandbox, process_1 = up.sandbox_of(session), up.engine.pid(up.sandbox_of(session))
    up.project.remove("sandboxd", kill=True)
    up.up()
    assert session.stdout("kill -0 $(cat pid) && echo alive") == "alive\n"
    assert (up.sandbox_of(session), up.engine.pid(sandbox)) == (sandbox, process_1)


FIND_REFERENCE = """
. "$1/contrib/lib.sh"
bench=$BERTH_CACHE/reference-0.2.37 judges=$BERTH_CACHE/judges/clients-0.2.37
if cmp -s "$1/tests/bench/requirements-reference.txt" "$bench/requirements.installed"; then echo "$bench/bin/python"; exit; fi
mkdir -p "$BERTH_CACHE/judges"; exec 8>"$BERTH_CACHE/judges/lock"; flock 8
python_venv "$judges" "$1/tests/judges/requirements-0.2.37.txt" >&2 && echo "$judges/bin/python"
"""


class Reference:
    """pydantic-ai-backend 0.2.37's own broker, on the volume's folder as the host has it."""

    def __init__(self, engine: Engine, root: Path, home: Path) -> None:
        # The environment of contrib/bench if it is there, else that of contrib/judges, made by whoever comes first.
        made = subprocess.run(["bash", "-c", FIND_REFERENCE, "-", ROOT], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        port = free_port()
        env = {k: v for k, v in os.environ.items() if not k.startswith("SANDBOXD_")} | {
            "DOCKER_HOST": engine.address,
            "SANDBOXD_TOKEN": TOKEN,
            "SANDBOXD_PORT": str(port),
            "SANDBOXD_RUNTIMES": f"python={IMAGE}",
            "SANDBOXD_WORKSPACE_ROOT": str(root),
            "SANDBOXD_PREWARM": "false",
            "SANDBOXD_WORKSPACE_TTL": "1209600",
        }
        self.log = home / "reference.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [made.stdout.strip(), "-m", "pydantic_ai_backends.remote.server"], env=env, cwd=home, stdout=log, stderr=log
            )
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60 * SLOWNESS, trust_env=False)
        self.client = httpx.Client(base_url=self.http.base_url, headers={"X-Sandbox-Token": TOKEN}, timeout=60 * SLOWNESS, trust_env=False)

        def answers() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            try:
                return self.client.get("/healthz").status_code == 200
            except httpx.HTTPError:
                return False

        wait_until(answers, 60, "the reference answers", 0.1)

    def open(self, session_id: str, **body: Any) -> Session:
        answer = self.client.post("/sessions", json={"session_id": session_id} | body)
        assert answer.status_code == 200, answer.text
        return Session(self, answer.json())  # type: ignore[arg-type]

    def stop(self) -> None:
        self.client.close()
        self.http.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30 * SLOWNESS)
        finally:
            self.process.kill()
            self.process.wait()


@pytest.mark.timeout(600)  # the first time, what it takes to install the reference
def test_it_is_rolled_back_to_the_reference_and_forward_again(up: Deployment, tmp_path: Path) -> None:
    session = up.open(new_id())
    session.write("/workspace/ours.txt", b"ours")
    closed = up.open(new_id())
    closed.write("/workspace/old.txt", b"old")
    assert closed.close().status_code == 204
    up.project.remove("sandboxd")

    reference = Reference(up.engine, up.root, tmp_path)
    theirs = new_id()
    try:
        attached = reference.open(session.id, attach=True)
        assert attached.read("/workspace/ours.txt") == b"ours"
        attached.write("/workspace/theirs.txt", b"theirs")
        assert reference.client.post(f"/workspaces/{closed.id}/read", json={"path": "old.txt"}).json() == {"content": "old"}
        reference.open(theirs).write("/workspace/new.txt", b"new")
    finally:
        reference.stop()

    up.up(image="berthd:second")
    assert session.stdout("cat ours.txt theirs.txt") == "ourstheirs"  # with its own token, as if nothing had been
    assert up.client.post(f"/workspaces/{closed.id}/read", json={"path": "old.txt"}).json() == {"content": "old"}
    assert up.client.post(f"/workspaces/{theirs}/read", json={"path": "new.txt"}).json() == {"content": "new"}
    assert up.open(theirs, attach=True).stdout("cat new.txt") == "new"
    assert up.open(closed.id, attach=True).stdout("cat old.txt") == "old"


WRONG = {
    "no-volume": ({"volumes": ["{socket}:/var/run/docker.sock"], "read_only": False}, "SANDBOXD_STATE_DIR", "mount a volume"),
    "volume-elsewhere": (
        {"volumes": ["{socket}:/var/run/docker.sock", "sandbox_workspaces:/other"], "environment": {"SANDBOXD_STATE_DIR": "/other/.wrong"}, "read_only": False},
        "SANDBOXD_WORKSPACE_ROOT", "mount a volume",
    ),
    "tmpfs-over-it": (
        {"tmpfs": {"/workspaces/.berth": "size=64m"}}, "SANDBOXD_STATE_DIR", "something else is mounted over it",
    ),
    "another-engine": ({"volumes": ["{other}:/var/run/docker.sock", "sandbox_workspaces:/workspaces"]}, "SANDBOXD_STATE_DIR", "not the one that runs"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_mount_stops_the_start_with_the_reason(deployment: Deployment, engine: Engine, wrong: str) -> None:
    changes, setting, reason = WRONG[wrong]
    service = deployment.project.services["sandboxd"]
    changes = dict(changes)
    changes["volumes"] = [v.format(socket=deployment.engine.socket, other=engine.socket) for v in changes.get("volumes", service["volumes"])]
    changes["environment"] = service["environment"] | changes.get("environment", {})
    body = deployment.project.request("sandboxd", **changes, restart="no")
    # Its own state where it gets that far, so that the deployment's broker may go on.
    container = deployment.engine.call("POST", "/containers/create", json=body).json()["Id"]
    if "sandboxd" in deployment.project.containers:
        deployment.project.remove("sandboxd")
    try:
        deployment.engine.call("POST", f"/containers/{container}/start")
        wait_until(lambda: not deployment.engine.running(container), 20, "the broker has given up")
        said = deployment.project.log_of(container)
        assert deployment.engine.inspect(container)["State"]["ExitCode"] == 1, said
        (line,) = [line for line in said.splitlines() if line.startswith("berthd: ")]
        assert setting in line and reason in line, line
    finally:
        deployment.engine.remove(container)
