"""Eight times the events cost about eight times the work: counts, not time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.benchmarks.growth import SIZES

pytestmark = pytest.mark.slow

LIMIT = 1.6
"""Times the growth of the events. Sorting and halving add a quarter; the square is 8."""


@pytest.fixture(scope="module")
def work() -> dict[str, list[int]]:
    """The work of each question at each size, counted in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.growth"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, list[int]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "question",
    [
        "opportunities",  # 13 times: each device-wide wait was for each of 500 streams
        "verdict",
        "report",
        "cost",  # 66 times: of as many names as events, each a replay
        "cost_of_four",  # 62 times: the same of names with four events
    ],
)
def test_work_grows_with_the_events(question: str, work: Any) -> None:
    ratios = [each / work[question][0] for each in work[question]]

    for size, ratio in zip(SIZES, ratios, strict=True):
        assert ratio < LIMIT * size / SIZES[0], (question, ratios)


def test_a_verdict_retimes_the_graph_for_its_causes_only(work: Any) -> None:
    """Three causes once each, and their fixes by up to six readings; of all changes, 80."""
    assert max(work["re-timings of verdict"]) <= 15
    assert min(work["re-timings of opportunities"]) > 70


def test_a_report_replays_no_more_than_its_verdict(work: Any) -> None:
    assert work["re-timings of report"] == work["re-timings of verdict"]
