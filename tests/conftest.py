"""How hard hypothesis tries, what coverage sees, and which tests need traces that are not here."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.public_traces import FOLDER, is_here

_N_LEFT_OUT = pytest.StashKey[int]()

settings.register_profile("dev", deadline=None)
settings.register_profile(
    "ci",
    max_examples=50,  # half of the usual: CI runs often, and other examples every time
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Leave laws, and tests marked slow, out of coverage, which more than doubles their time.

    They go through the same code many times over; what they alone reach is not counted.
    """
    is_law = is_hypothesis_test(getattr(item, "function", None))
    coverage = Coverage.current()
    if coverage is None or not (is_law or item.get_closest_marker("slow")):
        return (yield)
    coverage.stop()
    coverage.get_data()  # keeps what was seen so far; a start forgets it
    try:
        return (yield)
    finally:
        coverage.start()


def _needs_missing_traces(item: pytest.Item) -> bool:
    names = [name for mark in item.iter_markers("public") for name in mark.args]
    return not all(map(is_here, names))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of public traces that are not here: one line says how many, not one each."""
    left_out = [item for item in items if _needs_missing_traces(item)]
    config.stash[_N_LEFT_OUT] = len(left_out)
    if left_out:
        kept = set(items) - set(left_out)
        items[:] = [item for item in items if item in kept]
        config.hook.pytest_deselected(items=left_out)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that prints, if this is a worker of xdist."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["n_left_out"] = session.config.stash.get(_N_LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear how many tests a worker of xdist left out: each collects all tests."""
    node.config.stash[_N_LEFT_OUT] = getattr(node, "workeroutput", {}).get("n_left_out", 0)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say how many tests were left out, and how to get what they need."""
    if n := config.stash.get(_N_LEFT_OUT, 0):
        terminalreporter.write_line(
            f"{n} tests were left out: they need public traces "
            f"(`python -m tests.public_traces` fetches them into {FOLDER})"
        )
