"""Plays the recorded requests of a reference server against a broker, and compares what comes back.

A table (*.json.xz, named for the generation and, where it is not the default, the server's configuration) is a list of steps. A step is a request with the answer the reference gave to it, or something to do in
between ("do"). Steps build on one another and run in order. In an answer, <<kind>> stands for any value of that kind; `volatile` names what
changes from run to run; $abridged and the like stand for something long. Error texts are not compared, only that they are there, and where
a list of them points. What a deviation (deviations.json) lists may differ, for the reason it gives.
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Callable, Iterator

import httpx

HERE = Path(__file__).parent

PLACEHOLDER = re.compile(r"<<([\w-]+)>>")
GENERATED_ID = re.compile(r"s-[0-9a-f]{16}")
BUSY_RUN = "b" * 32

Step = dict[str, Any]


@dataclass
class Outcome:
    """A step and what the broker answered: None if it was not asked."""

    step: Step
    key: tuple[str, str, int]
    status: int | None = None
    body: Any = None


def load(table: str) -> list[Step]:
    return json.loads(lzma.decompress((HERE / f"{table}.json.xz").read_bytes()))["steps"]


def expanded(value: Any) -> Any:
    if isinstance(value, dict):
        if list(value) == ["$repeated"]:
            before, character, times, after = value["$repeated"]
            return before + character * times + after
        return {k: expanded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [expanded(v) for v in value]
    return value


def parsed(answer: httpx.Response) -> Any:
    """The body in the form of the tables."""
    media = answer.headers.get("content-type", "")
    if not answer.content:
        return None
    if "json" in media:
        return answer.json()
    if media.startswith("application/octet-stream"):
        return answer.content
    return {"$text": answer.text, "length": len(answer.text)}


@dataclass
class Player:
    """Plays a table. `kill`, `remove` (a session's container) and `wait_for` (a process in a session) are the test's."""

    url: str
    token: str
    kill: Callable[[str], None]
    remove: Callable[[str], None]
    wait_for: Callable[[str, str], None]
    timeout: float = 200
    tokens: dict[str, str] = field(default_factory=dict)
    latest: int = 0
    generated: str = ""
    busy: str = ""
    background: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        # A connection a request, as the tables were recorded: an error may close the one it came on.
        self.http = httpx.Client(
            base_url=self.url, timeout=self.timeout, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
        )

    def play(self, steps: list[Step]) -> list[Outcome]:
        seen: Counter[tuple[str, str]] = Counter()
        outcomes = []
        for step in steps:
            if "do" in step:
                self._do(step)
                continue
            seen[step["group"], step["name"]] += 1
            outcome = Outcome(step, (step["group"], step["name"], seen[step["group"], step["name"]]))
            outcomes.append(outcome)
            if step.get("background"):
                self.background.append(threading.Thread(target=self._ask, args=(outcome,)))
                self.background[-1].start()
            else:
                self._ask(outcome)
        self.http.close()
        return outcomes

    def _do(self, step: Step) -> None:
        match step["do"]:
            case "latest":
                self.latest = self._own("GET", f"/sessions/{step['session']}/events").json()["latest_seq"]
            case "purge":
                self._own("DELETE", f"/sessions/{step['session']}?purge=true")
            case "kill":
                self.kill(step["session"])
            case "remove":
                self.remove(step["session"])
            case "wait":
                self.wait_for(step["session"], step["for"])
            case "join":
                for thread in self.background:
                    thread.join()
                self.background.clear()
            case "busy":
                # Until "free", however slow the machine: no deadline of the service ends a watched run.
                self.busy = f"/sessions/{step['session']}/runs"
                self._own("POST", self.busy, json={"argv": ["sleep", "600"], "run_id": BUSY_RUN}).raise_for_status()
            case "free":
                self._own("POST", f"{self.busy}/{BUSY_RUN}/stop").raise_for_status()
                self._own("GET", f"{self.busy}/{BUSY_RUN}", params={"wait": 30}).raise_for_status()
            case other:
                raise ValueError(other)

    def _own(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        return self.http.request(method, path, headers={"X-Sandbox-Token": self.token}, **kwargs)

    def _token(self, auth: str | None) -> bytes | None:
        if auth is None:
            return None
        if auth == "service":
            return self.token.encode()
        if auth == "part of the service token":
            return self.token[: len(self.token) // 2].encode()
        kind, _, value = auth.partition(":")
        return value.encode("latin-1") if kind == "raw" else self.tokens[value].encode()

    def _ask(self, outcome: Outcome) -> None:
        step = outcome.step
        headers: list[tuple[bytes, bytes]] = []
        if (token := self._token(step["auth"])) is not None:
            headers.append((b"X-Sandbox-Token", token))
        headers += [(k.encode(), v.replace("<<service token>>", self.token).encode()) for k, v in step.get("headers", {}).items()]
        content = None
        if "json" in step:
            content = json.dumps(expanded(step["json"])).encode()
            headers.append((b"Content-Type", b"application/json"))
        elif "raw" in step:
            content = expanded(step["raw"]).encode("utf-8", "surrogatepass")
        elif "raw_b64" in step:
            content = base64.b64decode(step["raw_b64"])
        if "content_type" in step:
            headers.append((b"Content-Type", step["content_type"].encode()))
        query = {
            k: {"<<latest>>": str(self.latest), "<<latest+16>>": str(self.latest + 16)}.get(v, v)
            for k, v in step.get("query", {}).items()
        }
        path = step["path"].replace("<<s-hex16>>", self.generated)
        answer = self.http.request(step["method"], path, params=query or None, headers=headers, content=content)
        outcome.status, outcome.body = answer.status_code, parsed(answer)
        if isinstance(outcome.body, dict) and outcome.status == 200:
            self._learn(step, outcome.body)

    def _learn(self, step: Step, body: dict[str, Any]) -> None:
        session = body.get("session")
        if isinstance(session, dict) and GENERATED_ID.fullmatch(session["session_id"]):
            self.generated = session["session_id"]
        if "keep_token" in step:
            self.tokens[step["keep_token"]] = body["token"]
        if "expect_token" in step and body["token"] != self.tokens[step["expect_token"]]:
            body["token"] = "another one than at the first open"
            step["body"]["token"] = self.tokens[step["expect_token"]]
        if "latest_seq" in body and self.latest and step["name"] != "events start over":
            # Events are numbered from where the table began to look: what is refused before it leaves none, and may be more here.
            body["latest_seq"] -= self.latest
            for event in body["events"]:
                event["seq"] -= self.latest


# -- comparing


def fits(kind: str, value: Any) -> bool:
    match kind:
        case "any":
            return True
        case "string":
            return isinstance(value, str)
        case "int" | "float" | "epoch":
            return isinstance(value, (int, float)) and not isinstance(value, bool) and (kind != "epoch" or value > 1e9)
        case "s-hex16":
            return isinstance(value, str) and GENERATED_ID.fullmatch(value) is not None
        case "iso8601":
            try:
                return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
            except ValueError:
                return False
    raise ValueError(kind)


def short(value: Any) -> str:
    text = value.decode("latin-1") if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:200] + "…"


def special(golden: dict[str, Any], got: Any) -> list[str] | None:
    """What stands for something long or not JSON. None: it is an object like others."""
    if "$omitted" in golden:
        return []
    if "$bytes_b64" in golden or "$bytes_sha256" in golden:
        same = isinstance(got, bytes) and (
            got == base64.b64decode(golden["$bytes_b64"])
            if "$bytes_b64" in golden
            else hashlib.sha256(got).hexdigest() == golden["$bytes_sha256"]
        )
        return [] if same else [f"other bytes: {short(got)}"]
    if "$abridged" in golden:
        same = isinstance(got, str) and hashlib.sha256(got.encode("utf-8", "surrogatepass")).hexdigest() == golden["sha256"]
        return [] if same else [f"a text of {golden['length_chars']} characters became {len(got) if isinstance(got, str) else short(got)}"]
    if "$abridged_list" in golden:
        same = isinstance(got, list) and len(got) == golden["length"]
        return [] if same else [f"a list of {golden['length']} became {short(got)}"]
    return None


def differences(golden: Any, got: Any, at: str, volatile: frozenset[str]) -> Iterator[str]:
    if isinstance(golden, str) and (kind := PLACEHOLDER.fullmatch(golden)):
        if not fits(kind[1], got) and not ("/usage/" in at and got is None):
            yield f"{at or 'body'}: {golden} became {short(got)}"
    elif at in volatile:
        kinds = (dict, str) if isinstance(golden, dict) and "$abridged" in golden else (type(golden), type(None))
        if not isinstance(got, kinds):
            yield f"{at or 'body'}: another type: {short(got)}"
    elif isinstance(golden, dict) and (found := special(golden, got)) is not None:
        yield from (f"{at or 'body'}: {line}" for line in found)
    elif isinstance(golden, dict) and isinstance(got, dict):
        if golden.keys() != got.keys():
            yield f"{at or 'body'}: lacks {sorted(golden.keys() - got.keys())}, adds {sorted(got.keys() - golden.keys())}"
        for key in golden.keys() & got.keys():
            if key == "size" and golden.get("is_dir") is got.get("is_dir") is True:
                continue
            if (kind := error_text(key, golden[key])) and kind == error_text(key, got[key]):
                continue
            left, right = golden[key], got[key]
            if key == "matches" and isinstance(left, list) and isinstance(right, list):  # a directory has no order
                left, right = sorted(left, key=json.dumps), sorted(right, key=json.dumps)
            yield from differences(left, right, f"{at}/{key}", volatile)
    elif isinstance(golden, list) and isinstance(got, list):
        if len(golden) != len(got):
            yield f"{at or 'body'}: {len(golden)} elements became {len(got)}: {short([x for x in got if x not in golden])}"
            return
        for index, (left, right) in enumerate(zip(golden, got, strict=True)):
            yield from differences(left, right, f"{at}/{index}", volatile)
    elif type(golden) is not type(got) or golden != got:
        yield f"{at or 'body'}: {short(golden)} became {short(got)}"


def error_text(key: str, value: Any) -> str | None:
    """Which kind of words an operation's failure is told in: they are everybody's own."""
    if not isinstance(value, str):
        return None
    if key == "content" and (prefix := re.match(r"\[?Error", value)):
        return prefix[0]
    return "error" if key == "error" else None


def refusal(body: Any) -> Any:
    """The shape of an error: a text stays a text, a list keeps what it points at; an object (the client hands it on) stays whole."""
    if not isinstance(body, dict) or "detail" not in body:
        return "no detail" if body is not None else None
    detail = body["detail"]
    if isinstance(detail, list):
        return [item["loc"] for item in detail]
    return detail if isinstance(detail, dict) else "text"


def compare(outcome: Outcome) -> list[str]:
    """What differs from the reference, in words."""
    step = outcome.step
    volatile = frozenset(step.get("volatile", ()))
    if "$status" in volatile:
        return []
    if outcome.status != step["status"]:
        return [f"status {step['status']} became {outcome.status}: {short(outcome.body)}"]
    if step["status"] >= 400:
        left, right = refusal(step["body"]), refusal(outcome.body)
        return [] if left == right else [f"refusal {left} became {right}"]
    return list(differences(step["body"], outcome.body, "", volatile))


@dataclass
class Deviation:
    generation: str
    group: str
    name: str
    why: str
    n: int | None = None
    status: int | None = None
    body: Any = ...
    adds: dict[str, Any] | None = None  # to the reference's body

    def names(self, key: tuple[str, str, int]) -> bool:
        return (self.group, self.name) == key[:2] and self.n in (None, key[2])

    def refuses(self, outcome: Outcome) -> list[str]:
        """What is wrong with an answer even in the eyes of this deviation."""
        wanted = outcome.step["status"] if self.status is None else self.status
        if outcome.status != wanted:
            return [f"status {outcome.status}, and the accepted deviation is {wanted}"]
        if self.adds is not None:
            volatile = frozenset(outcome.step.get("volatile", ()))
            return list(differences(outcome.step["body"] | self.adds, outcome.body, "", volatile))
        if self.body is not ...:
            return list(differences(self.body, outcome.body, "", frozenset()))
        if wanted >= 400 and refusal(outcome.body) == "no detail":
            return [f"status {wanted} without a detail"]
        return []


def deviations(generation: str) -> list[Deviation]:
    return [Deviation(**d) for d in json.loads((HERE / "deviations.json").read_text()) if d["generation"] == generation]
