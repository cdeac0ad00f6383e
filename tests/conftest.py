"""What coverage sees, what is collected, and which tests of public traces are left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from coverage import Coverage
from hypothesis import is_hypothesis_test

import tests.examples  # noqa: F401  loads the profile of hypothesis, before any law is read
from tests.public_traces import FOLDER, is_here

_N_LEFT_OUT = pytest.StashKey[int]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Leave laws out of coverage, which more than doubles their time."""
    # They run the same code many times; lines that only laws reach do not count.
    coverage = Coverage.current()
    if coverage is None or not is_hypothesis_test(getattr(item, "function", None)):
        return (yield)
    coverage.stop()
    coverage.get_data()  # a start would forget the lines seen so far
    try:
        return (yield)
    finally:
        coverage.start()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for no examples in tests: an import that fails there would hide the file's tests."""
    # Pytest skips the examples of a module that cannot be imported, and takes what was imported
    # until then for all of it.
    found = yield
    is_test = file_path.name.startswith("test_")
    return [one for one in found if not (is_test and isinstance(one, DoctestModule))]


def _needs_missing_traces(item: pytest.Item) -> bool:
    names = [name for mark in item.iter_markers("public") for name in mark.args]
    return not all(map(is_here, names))


class _SomeCases:
    """A plugin, as a file has one hook of a name: before -m, the cases after the first are slow."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        n_seen = Counter[str]()
        for item in items:
            test = item.nodeid.partition("[")[0]
            n_seen[test] += 1
            mark = item.get_closest_marker("some")
            if mark is not None and n_seen[test] > mark.args[0]:
                item.add_marker("slow")


def pytest_configure(config: pytest.Config) -> None:
    """Choose cases before `-m` does."""
    config.pluginmanager.register(_SomeCases())


@pytest.hookimpl(trylast=True)  # after -m and -k
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
