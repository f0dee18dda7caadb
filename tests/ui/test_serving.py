"""How the page is served: what a browser is told, what it may keep, and how little it has to fetch first."""

from __future__ import annotations

import gzip
import re
from typing import Any, Callable

import httpx
import pytest
from playwright.sync_api import expect

from berth import Broker
from conftest import Tab

FIRST_VIEW_MAX_BYTES = 150_000
HEAVY = re.compile(r"terminal|editor|chart")


def fetch(broker: Broker, path: str, **headers: str) -> httpx.Response:
    # No encoding is asked for unless named.
    return broker.http.get(path, headers={"Accept-Encoding": "identity"} | {k.replace("_", "-"): v for k, v in headers.items()})


def scripts(broker: Broker) -> list[str]:
    return re.findall(r'(?:src|href)="(/ui/[^"]+)"', fetch(broker, "/ui").text)


def test_the_page_allows_nothing_but_itself(broker: Broker) -> None:
    answer = fetch(broker, "/ui")
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'" and policy["style-src"] == "'self'"
    assert policy["connect-src"] == "'self'" and policy["frame-ancestors"] == "'none'" and policy["base-uri"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'" and policy["trusted-types"] == "'none'"
    # What Chromium writes itself while somebody types, see route_ui.c; nothing else is inline.
    assert policy.pop("style-src-attr") == "'unsafe-inline'" and not any("unsafe" in value for value in policy.values())
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert "<style" not in answer.text and " style=" not in answer.text and "onload" not in answer.text
    assert not re.findall(r"<script(?![^>]*\bsrc=)", answer.text), "a script inline"
    assert not re.findall(r'(?:src|href)="(?!/ui/)', answer.text), "something from elsewhere"


def test_files_are_kept_for_ever_and_the_page_is_asked_for_again(broker: Broker) -> None:
    page = fetch(broker, "/ui")
    assert page.headers["Cache-Control"] == "no-cache"
    assert fetch(broker, "/ui", If_None_Match=page.headers["ETag"]).status_code == 304
    found = scripts(broker)
    assert any(path.endswith(".js") for path in found) and any(path.endswith(".css") for path in found)
    for path in found:
        answer = fetch(broker, path)
        assert answer.status_code == 200
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Type"].split(";")[0] in ("text/javascript", "text/css", "image/svg+xml")
        assert fetch(broker, path, If_None_Match=answer.headers["ETag"]).status_code == 304
    for path in ("/ui/absent.js", "/ui/..%2f..%2fetc%2fpasswd", "/ui/index-.js", "/ui/%00"):
        assert fetch(broker, path).status_code == 404, path


def test_forms_are_the_same_bytes(broker: Broker) -> None:
    path = next(path for path in scripts(broker) if path.endswith(".js"))
    plain = fetch(broker, path)
    assert "Content-Encoding" not in plain.headers
    tags = {plain.headers["ETag"]}
    for accepted, coding in (("gzip", "gzip"), ("gzip, br", "br"), ("br;q=0, gzip;q=0.5", "gzip"), ("deflate, BR", "br")):
        # Read as sent: the client would unpack it.
        with broker.http.stream("GET", path, headers={"Accept-Encoding": accepted}) as answer:
            raw = b"".join(answer.iter_raw())
        assert answer.headers["Content-Encoding"] == coding, accepted
        assert answer.headers["Vary"] == "Accept-Encoding"
        assert len(raw) < len(plain.content) / 2
        if coding == "gzip":
            assert gzip.decompress(raw) == plain.content
        tags.add(answer.headers["ETag"])
    assert len(tags) == 3, "each form has a tag of its own"
    for refused in ("gzip;q=0", "x-gzip, brotli", ""):
        with broker.http.stream("GET", path, headers={"Accept-Encoding": refused}) as answer:
            assert "Content-Encoding" not in answer.headers, refused


def test_without_the_setting_there_is_no_page(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    assert fetch(broker, "/ui").status_code == 404
    assert broker.http.get("/").json()["ui_url"] is None
    assert not [path for path in broker.http.get("/").json()["endpoints"] if path.startswith("/ui")]


@pytest.mark.parametrize("view", ["overview", "sessions"])
def test_the_first_view_is_small(broker: Broker, make_tab: Callable[..., Tab], view: str) -> None:
    tab = make_tab(broker)
    loaded: dict[str, int] = {}
    urls: dict[str, str] = {}
    devtools = tab.context.new_cdp_session(tab.page)
    devtools.send("Network.enable")

    def on_response(event: dict[str, Any]) -> None:
        urls[event["requestId"]] = event["response"]["url"]

    def on_finished(event: dict[str, Any]) -> None:
        if "/ui" in urls.get(event["requestId"], ""):
            loaded[urls[event["requestId"]]] = int(event["encodedDataLength"])

    devtools.on("Network.responseReceived", on_response)
    devtools.on("Network.loadingFinished", on_finished)
    tab.open(f"#/{view}")
    expect(tab.page.get_by_role("heading", level=1)).to_be_visible()
    if view == "overview":
        expect(tab.page.get_by_role("img", name=re.compile("Openings"))).to_be_visible()
    else:
        expect(tab.page.get_by_role("region", name="Sessions")).to_be_visible()
        assert not [url for url in loaded if HEAVY.search(url)], "a heavy part was loaded unasked"
    assert loaded
    assert sum(loaded.values()) < FIRST_VIEW_MAX_BYTES, loaded
