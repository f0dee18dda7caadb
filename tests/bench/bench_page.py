"""How long the page's table of sessions takes to answer a key in its filter, with five thousand sessions.

  bench_page.py --berthd PATH [--sessions N] [--rounds N] [--json FILE] [--no-targets]

Needs the packages of tests/ui/requirements.txt and Chromium, as the tests of the page do: contrib/check makes build/venv-ui. The sessions sleep and the
engine is the tests' own. A name is typed and taken back, key by key; the time is from the key to the frame that shows its answer, taken in the browser, and
the work what the page's own thread had of the processor for it. Exit status 1 when the median key takes longer than 100 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import CDPSession, Page, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "http"))

TARGET_MS = 100
TYPED = "s-04321"
# A frame is painted after its requestAnimationFrame; what is queued there runs behind it.
WATCH = """() => {
    window.took = [];
    document.querySelector('input[type=search]').addEventListener('beforeinput', () => {
        const began = performance.now();
        requestAnimationFrame(() => setTimeout(() => {
            window.took.push(performance.now() - began);
            window.seen?.();
        }));
    });
}"""


# Without looking again and again, which would be work of the page's as well.
SEEN = "count => window.took.length === count || new Promise(resolve => { window.seen = resolve })"


def worked_ms(devtools: CDPSession) -> float:
    return next(metric["value"] for metric in devtools.send("Performance.getMetrics")["metrics"] if metric["name"] == "TaskDuration") * 1000


def keys(page: Page, rounds: int) -> list[float]:
    page.get_by_role("searchbox", name="Filter sessions").focus()
    page.evaluate(WATCH)
    pressed = 0
    for _ in range(rounds):
        for key in [*TYPED, *["Backspace"] * len(TYPED)]:
            page.keyboard.press(key)
            pressed += 1
            page.evaluate(SEEN, pressed)
    return page.evaluate("window.took")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--berthd", required=True)
    parser.add_argument("--sessions", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--no-targets", action="store_true")
    options = parser.parse_args()
    os.environ["BERTHD"] = os.path.abspath(options.berthd)
    from berth import Broker
    from fake_engine import FakeEngine
    from sleeping import write_sleeping

    engine = FakeEngine()
    with tempfile.TemporaryDirectory(prefix="berth-bench-", dir="/tmp") as home, sync_playwright() as playwright:
        broker = Broker(Path(home) / "broker", engine, ui_enabled=True, max_open_sessions=2 * options.sessions, idle_timeout=86400).start()
        broker.terminate()
        write_sleeping(broker, options.sessions)
        broker.start(120)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{broker.url}/ui#/sessions")
        page.get_by_label("Service token").fill(str(broker.settings["token"]))
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text(f"{options.sessions:,} sessions")).to_be_visible(timeout=60_000)
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
        before_ms = worked_ms(devtools)
        took = sorted(keys(page, options.rounds))
        work = (worked_ms(devtools) - before_ms) / len(took)
        rows = page.get_by_role("row").count()
        browser.close()
        broker.kill9()
    engine.close()
    median, late, worst = statistics.median(took), took[int(len(took) * 0.95)], took[-1]
    print(f"a key in the filter of {options.sessions} sessions: median {median:.0f} ms, 95 % {late:.0f} ms, slowest {worst:.0f} ms, of {len(took)}; {work:.1f} ms of work; {rows} rows in the document")
    if options.json:
        Path(options.json).write_text(json.dumps({"median_ms": median, "p95_ms": late, "slowest_ms": worst, "work_ms": work, "keys": len(took), "rows": rows}, indent=2) + "\n")
    return 0 if options.no_targets or median < TARGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
