"""Sessions of several tenants live at random while something is killed every few seconds; all of it is written down, and checker.py judges.

  soak.py --seconds N [--seed N] [--workers N] [--history FILE]

A private engine (with live restore) and a broker of its own; environment as for the HTTP tests (berth.py). Exit status 1 when the checker finds
anything. What an answer said is the promise; what got no answer, or one that is neither yes nor no, may have happened or not.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "http"))
import httpx  # noqa: E402

import checker  # noqa: E402
from berth import Broker, OwnEngine, wait_until  # noqa: E402

TENANTS = {"red": {"max_open_sessions": 5, "max_resident_sessions": 2}, "green": {"max_resident_sessions": 3, "max_running_commands": 2}, "blue": {}}
MAX_SESSIONS = 6
POOL = 2
IDS_PER_WORKER = 3


class History:
    def __init__(self, path: Path) -> None:
        self.file = open(path, "w")
        self.lock = threading.Lock()

    def add(self, kind: str, **record: Any) -> None:
        with self.lock:
            self.file.write(json.dumps({"kind": kind, "at": round(time.monotonic(), 4)} | record) + "\n")

    def close(self) -> None:
        self.file.close()


class Soak:
    def __init__(self, seconds: float, seed: int, workers: int, history: History, home: Path) -> None:
        self.random = random.Random(seed)
        self.history = history
        self.workers = workers
        self.until = time.monotonic() + seconds
        self.over = threading.Event()
        self.engine = OwnEngine(live_restore=True)
        self.broker = Broker(
            home / "broker", self.engine, max_sessions=MAX_SESSIONS, evict_idle_after=0, idle_timeout=86400, pool=f"python={POOL}",
            cleanup_interval=5, freeze_after=3,
        )
        self.failures: list[str] = []

    # ---- one request

    def call(self, method: str, path: str, token: str | None = None, timeout: float = 60, **kwargs: Any) -> tuple[int, httpx.Response | None]:
        """(status, answer); status 0: no answer."""
        try:
            client = self.broker.http if token else self.broker.client
            headers = {"X-Sandbox-Token": token} if token else None
            answer = client.request(method, path, headers=headers, timeout=timeout, **kwargs)
            return answer.status_code, answer
        except httpx.HTTPError:
            return 0, None

    def patiently(self, request: Callable[[], tuple[int, httpx.Response | None]], good: tuple[int, ...], limit: float = 400) -> tuple[int, httpx.Response | None]:
        """Until the answer is a clear one."""
        end = time.monotonic() + limit
        while True:
            status, answer = request()
            if status in good:
                return status, answer
            if time.monotonic() > end:
                raise AssertionError(f"no clear answer within {limit} s: {status} {answer.text if answer is not None else ''}")
            time.sleep(0.1)

    # ---- a worker: its sessions are its alone, so that their history is a sequence

    def worker(self, number: int) -> None:
        rng = random.Random(f"{self.random.random()}-{number}")
        tenants = list(TENANTS)
        sessions = [{"id": f"w{number}-{i}", "tenant": tenants[(number + i) % len(tenants)], "token": None, "count": 0} for i in range(IDS_PER_WORKER)]
        try:
            while time.monotonic() < self.until:
                self.step(rng, rng.choice(sessions))
            for session in sessions:
                session["number"] = number
        except Exception as error:  # told at the end, by name
            self.failures.append(f"worker {number}: {error!r}")
        self.finals = getattr(self, "finals", [])
        self.finals.extend(sessions)

    def step(self, rng: random.Random, session: dict[str, Any]) -> None:
        if session["token"] is None:
            self.open(session)
            return
        verb = rng.choices(
            (self.write, self.append, self.read, self.hibernate, self.wake, self.close, self.purge), (30, 30, 20, 6, 4, 6, 3)
        )[0]
        verb(session)

    def note(self, session: dict[str, Any], op: str, status: int, **more: Any) -> None:
        self.history.add("op", id=session["id"], tenant=session["tenant"], op=op, status=status, **more)

    def open(self, session: dict[str, Any]) -> None:
        """A 200, or a 429 that leaves it closed."""
        body = {"session_id": session["id"], "tenant": session["tenant"], "reuse": True}
        status, answer = self.patiently(lambda: self.call("POST", "/sessions", json=body), (200, 429))
        if status == 200:
            session["token"] = answer.json()["token"]  # type: ignore[union-attr]
        self.note(session, "open", status)

    def write(self, session: dict[str, Any]) -> None:
        session["count"] += 1
        name, content = f"f{session['count']}", f"{session['id']} {session['count']}\n"
        status, _ = self.call("POST", f"/sessions/{session['id']}/files/write", session["token"], params={"path": f"/workspace/{name}"}, content=content.encode())
        self.note(session, "write", status, name=name, content=content)

    def append(self, session: dict[str, Any]) -> None:
        session["count"] += 1
        body = {"argv": ["/bin/sh", "-c", f"echo {session['count']} >> log"], "run_id": f"{session['count']:032x}"}
        status, answer = self.call("POST", f"/sessions/{session['id']}/run", session["token"], json=body)
        ok = status == 200 and answer.json()["exit_code"] == 0  # type: ignore[union-attr]
        self.note(session, "append", status if ok or status != 200 else 0, line=str(session["count"]))

    def files_of(self, session: dict[str, Any]) -> dict[str, str] | None:
        """Everything in its workspace, by the archive: no engine is needed for it. None: no clear answer."""
        status, answer = self.call("POST", f"/workspaces/{session['id']}/ls", json={"path": "/"})
        if status != 200:
            return None
        found = {}
        entries = answer.json()  # type: ignore[union-attr]
        for entry in entries["entries"] if isinstance(entries, dict) else entries:
            status, answer = self.call("POST", f"/workspaces/{session['id']}/read", json={"path": entry["name"], "offset": 0, "limit": 100000})
            if status != 200:
                return None
            found[entry["name"]] = answer.json()["content"]  # type: ignore[union-attr]
        return found

    def read(self, session: dict[str, Any]) -> None:
        files = self.files_of(session)
        if files is not None:
            self.history.add("files", id=session["id"], files=files)
        status, _ = self.call("GET", f"/sessions/{session['id']}", session["token"])
        self.note(session, "inspect", status)

    def hibernate(self, session: dict[str, Any]) -> None:
        self.note(session, "hibernate", self.call("POST", f"/sessions/{session['id']}/hibernate", session["token"])[0])

    def wake(self, session: dict[str, Any]) -> None:
        self.note(session, "wake", self.call("POST", f"/sessions/{session['id']}/wake", session["token"])[0])

    def close(self, session: dict[str, Any]) -> None:
        self.note(session, "closing", 0)
        self.patiently(lambda: self.call("DELETE", f"/sessions/{session['id']}"), (204, 404))
        self.note(session, "close", 204)
        session["token"] = None

    def purge(self, session: dict[str, Any]) -> None:
        self.note(session, "purging", 0)
        self.patiently(lambda: self.call("DELETE", f"/sessions/{session['id']}", params={"purge": "true"}), (204, 404))
        left = self.broker.root.joinpath(session["id"]).is_symlink()
        self.note(session, "purge", 204, left=left)
        session["token"] = None

    # ---- what kills

    def chaos(self) -> None:
        rng = random.Random(self.random.random())
        kinds = (self.kill_broker, self.kill_container, self.remove_container, self.pause_container, self.stop_broker, self.kill_engine)
        weights = (6, 4, 2, 2, 1, 1)
        try:
            while not self.over.wait(rng.uniform(1.5, 5)):
                kind = rng.choices(kinds, weights)[0]
                self.history.add("chaos", what=kind.__name__)
                kind(rng)
        except Exception as error:
            self.failures.append(f"chaos: {error!r}")
            self.until = 0

    def kill_broker(self, rng: random.Random) -> None:
        self.broker.kill9()
        self.broker.start()

    def stop_broker(self, rng: random.Random) -> None:
        self.broker.terminate(30)
        self.broker.start()

    def kill_engine(self, rng: random.Random) -> None:
        self.engine.kill_engine()
        if rng.random() < 0.5:
            self.broker.kill9()
            self.broker.start()
        self.engine.start_engine()

    def some_container(self, rng: random.Random) -> str | None:
        running = [c["Id"] for c in self.engine.containers("berth.install") if c["State"] == "running"]
        return rng.choice(running) if running else None

    def maltreat(self, rng: random.Random, method: str, path: str) -> None:
        container = self.some_container(rng)
        if container:
            self.engine.http.request(method, path.format(container))  # it may be gone by now, which is as well

    def kill_container(self, rng: random.Random) -> None:
        self.maltreat(rng, "POST", "/containers/{}/kill")

    def remove_container(self, rng: random.Random) -> None:
        self.maltreat(rng, "DELETE", "/containers/{}?force=1")

    def pause_container(self, rng: random.Random) -> None:
        self.maltreat(rng, "POST", "/containers/{}/pause")

    # ---- what looks

    def watch(self) -> None:
        while not self.over.wait(0.1):
            status, health = self.call("GET", "/healthz", timeout=5)
            other, tenants = self.call("GET", "/tenants", timeout=5)
            if status == 200 and other == 200:
                self.history.add("counts", resident=health.json()["sessions"], tenants=tenants.json()["tenants"])  # type: ignore[union-attr]

    def follow(self) -> None:
        """The feed, by its id over every death, as a browser would."""
        last = ""
        while not self.over.is_set():
            try:
                headers = {"Last-Event-ID": last} if last else {}
                with self.broker.client.stream("GET", "/events", params={"after": "0"}, headers=headers, timeout=20) as answer:
                    for line in answer.iter_lines():
                        if line.startswith("id: "):
                            last = line[4:]
                        elif line.startswith("event: "):
                            self.history.add("jump", what=line)
                        elif line.startswith("data:{"):
                            event = json.loads(line[5:])
                            if "seq" in event:
                                self.history.add("event", seq=event["seq"], op=event["op"])
                        if self.over.is_set():
                            return
            except httpx.HTTPError:
                self.over.wait(0.05)

    # ---- all of it

    def run(self) -> None:
        self.broker.start()
        for tenant, ceilings in TENANTS.items():
            assert self.broker.client.put(f"/tenants/{tenant}", json=ceilings).status_code == 200
        self.history.add("setup", max_sessions=MAX_SESSIONS, pool=POOL, tenants=TENANTS)
        self.finals: list[dict[str, Any]] = []
        threads = [threading.Thread(target=self.worker, args=(i,)) for i in range(self.workers)]
        lookers = [threading.Thread(target=f) for f in (self.chaos, self.watch, self.follow)]
        for thread in threads + lookers:
            thread.start()
        for thread in threads:
            thread.join()
        self.over.set()
        for thread in lookers:
            thread.join()
        if not self.failures:
            self.settle()

    def settle(self) -> None:
        """Nothing is killed any more: everything that was promised has to be there."""
        for session in self.finals:
            if session["token"]:
                status, _ = self.call("GET", f"/sessions/{session['id']}", session["token"])
                self.note(session, "inspect", status)
                body = {"argv": ["/bin/sh", "-c", "test -e log || : > log"], "run_id": "f" * 32}
                status, answer = self.patiently(lambda: self.call("POST", f"/sessions/{session['id']}/run", session["token"], json=body), (200, 404, 401))
                self.note(session, "inspect", status)
                files = self.files_of(session)
                self.history.add("files", id=session["id"], files=files)
        open_ids = [s["session_id"] for s in self.broker.sessions()]
        mine = {str(self.broker.workspace_of(i).resolve()): i for i in open_ids}

        def held() -> list[dict[str, Any]]:
            return [
                {"id": c["Id"][:12], "slot": c["Labels"]["berth.slot"], "state": c["State"], "session": next((mine[m["Source"]] for m in c["Mounts"] if m.get("Source") in mine), None)}
                for c in self.engine.containers("berth.install")
            ]

        def quiet() -> bool:  # the pool is full, and nobody's containers are gone
            nobodys = [c for c in held() if c["session"] is None and c["state"] == "running"]
            return len(nobodys) == POOL

        wait_until(quiet, 60, "only the pool's containers run beside the sessions'")
        self.history.add("containers", containers=held(), open=open_ids)
        for session in self.finals:
            self.patiently(lambda: self.call("DELETE", f"/sessions/{session['id']}", params={"purge": "true"}), (204, 404))

        def left() -> tuple[int, int]:  # a slot goes after its container
            return len(self.engine.containers("berth.install")), len(list((self.broker.root / ".slots").iterdir()))

        wait_until(lambda: left() == (POOL, POOL), 60, "the pool's containers and their slots are all that is left")
        containers, slots = left()
        self.history.add("left", containers=containers, slots=slots, names=[p.name for p in self.broker.root.iterdir() if not p.name.startswith(".")])
        latest = self.broker.client.get("/events?follow=false").json()["latest_seq"]
        self.history.add("latest", seq=latest, kept=[e["seq"] for e in self.broker.client.get("/events", params={"follow": "false", "after": max(0, latest - 1000)}).json()["events"]])
        self.broker.terminate(30)

    def end(self) -> None:
        if self.broker.process is not None:
            self.broker.process.kill()
            self.broker.process.wait()
        self.engine.remove_engine()


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the engine is ended as well
    options = argparse.ArgumentParser(description="random life under random death")
    options.add_argument("--seconds", type=float, default=180)
    options.add_argument("--seed", type=int, default=int(time.time()))
    options.add_argument("--workers", type=int, default=6)
    options.add_argument("--history", type=Path)
    given = options.parse_args()
    home = Path(tempfile.mkdtemp(prefix="berth-soak-"))
    home.chmod(0o711)
    path = given.history or home / "history.jsonl"
    history = History(path)
    soak = Soak(given.seconds, given.seed, given.workers, history, home)
    print(f"seed {given.seed}, history {path}, log {soak.broker.log_path}", flush=True)
    try:
        soak.run()
    finally:
        history.close()
        soak.end()
    found = soak.failures + checker.check(path)
    for line in found:
        print(line)
    print(checker.summary(path))
    if not found and not given.history:
        import shutil

        shutil.rmtree(home, ignore_errors=True)
    print("FAILED" if found else "nothing lost, nothing left, nothing exceeded")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
