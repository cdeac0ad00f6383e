"""A browser: whichever Chromium is on this machine."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Sandboxes of containers have no room for Chromium's own.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]


@dataclass
class Tab:
    """A page of the browser, its errors and its network requests."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def watch(self) -> Tab:
        """Note complaints and requests from now on."""
        self.page.on("console", lambda said: self._note(said.type, said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        return self

    def until(self, expression: str, *, at_most_s: float = 20) -> None:
        """Wait until JavaScript is true. Playwright's own way needs eval, which pages forbid."""
        ends = time.monotonic() + at_most_s
        while not self.page.evaluate(expression):
            assert time.monotonic() < ends, f"never true: {expression}"
            self.page.wait_for_timeout(30)

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium; tests are skipped where none is."""
    executable = next((found for name in NAMES if (found := shutil.which(name))), None)
    if executable is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def tab(browser: Any, request: pytest.FixtureRequest) -> Iterator[Tab]:
    """A new tab of a laptop; parametrized indirectly by its color scheme."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, color_scheme=getattr(request, "param", "light")
    )
    yield Tab(context.new_page()).watch()
    context.close()
