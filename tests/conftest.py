"""The folder of real traces as a fixture, how hard hypothesis tries, and what coverage sees."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.real_traces import FOLDER

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


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """Folder of the real traces; a test that needs it is skipped where it is absent."""
    if not FOLDER.is_dir():
        pytest.skip("needs ../shared/traces")
    return FOLDER
