"""The size of reports, the time to write them, and the time until they open.

``python -m tests.benchmarks.bench_page PATH...``: PATH is a trace, or a folder with the traces of a
job. Opened in headless Chromium, light and dark, 1,280 and 1,920 pixels wide: the time is the best
of four, from the request to the first drawn figure; complaints of the console are counted.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import htagraph as hg
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.page import write_page
from htagraph.reports.summary import Summary

_MODES = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 1920)]


def _summary(path: Path) -> Summary | JobSummary:
    """The summary that is reported."""
    if path.is_dir():
        return JobSummary(hg.load_job(path), path.name)
    trace = hg.load(path)
    return Summary(trace, trace.compile())


def _opened(browser: Any, file: Path, scheme: str, width: int) -> tuple[float, int]:
    """The time until the first figure is drawn, and the complaints once all are."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    complaints: list[str] = []
    page.on(
        "console",
        lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    began = time.perf_counter()
    page.goto(file.as_uri())
    page.wait_for_selector("[data-drawn]")
    took = time.perf_counter() - began
    for figure in page.query_selector_all("[data-figure]"):
        figure.evaluate("figure => figure.scrollIntoView({behavior: 'instant'})")
        page.wait_for_timeout(30)
    page.wait_for_function("!document.querySelector('[data-figure]:not([data-drawn])')")
    page.close()
    return took, len(complaints)


def main() -> None:
    """Print one row per report."""
    warnings.simplefilter("ignore")
    chromium = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    )
    print("| report | load to findings s | page written s | MB | opens s | complaints |")
    print("| --- | --- | --- | --- | --- | --- |")
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        for path in map(Path, sys.argv[1:]):
            began = time.perf_counter()
            summary = _summary(path)
            found = summary.verdict
            loaded = time.perf_counter()
            file = write_page(Path(folder) / "report.html", summary)
            written = time.perf_counter()
            seen = [_opened(browser, file, scheme, width) for scheme, width in _MODES]
            took, complaints = min(seconds for seconds, _ in seen), sum(n for _, n in seen)
            size = file.stat().st_size / 1e6
            times = f"{loaded - began:.2f} | {written - loaded:.2f} | {size:.1f} | {took:.2f}"
            print(f"| {path.name} | {times} | {complaints} |")
            print(
                f"  {found.findings[0].sentence if found.findings else found.withheld}",
                file=sys.stderr,
            )
        browser.close()


if __name__ == "__main__":
    main()
