"""Of a window in which records were lost, the longest part without is judged, or nothing."""

from __future__ import annotations

from collections.abc import Collection

import pytest

import htagraph as hg
from htagraph.lookup.damage import WHOLE_PART
from htagraph.reports.summary import Summary
from htagraph.synth import timeline
from tests.lookup.launched import drawing


def trace(n: int, lost: Collection[int] = (), unlinked: Collection[int] = ()) -> hg.Trace:
    """As many launches, one every 20 us; of some, the kernel or its launch is lost."""
    text = drawing(n, call="launch", lost=lost, unlinked=unlinked)
    return hg.Trace.from_events(timeline(text))


@pytest.mark.parametrize(("n", "window"), [(240, "the whole trace"), (160, WHOLE_PART)])
def test_a_small_hole_is_only_told(n: int, window: str) -> None:
    """Ten launches are 4.2% of 240, and 6.3% of 160."""
    verdict = trace(n, lost=range(100, 110)).compile().verdict()

    assert (verdict.window, bool(verdict.findings)) == (window, True)
    assert " ".join(verdict.damage) == (
        "10 of 10 kernel launches between 2.00 ms and 2.20 ms have no device work: its records "
        "are missing, and the device only seems idle."
    )


@pytest.mark.parametrize(("lost", "is_judged"), [(range(21, 41), True), (range(19, 41), False)])
def test_a_part_of_a_third_is_judged_in_place_of_the_whole(
    lost: Collection[int], is_judged: bool
) -> None:
    """Of sixty launches, the first 21 or 19 are left, and the last 19."""
    verdict = trace(60, lost=lost).compile().verdict()

    assert bool(verdict.findings) == is_judged
    if is_judged:
        assert (verdict.window, verdict.dur_ns) == (WHOLE_PART, 420_000)
    else:
        assert verdict.withheld.startswith("device work or launches of 37% of the critical path")
        assert verdict.withheld.endswith(
            "32% of it can be judged: htagraph report FILE -w 0:380000"
        )


def test_a_window_that_was_asked_for_is_not_replaced() -> None:
    """It is judged, or not; and a part without holes is judged as ever."""
    graph = trace(60, lost=range(21, 41)).compile()

    assert graph.window((300_000, 700_000)).verdict().findings == ()
    assert graph.window((0, 300_000)).verdict().damage == ()


def test_lost_launches_are_lost_too() -> None:
    """Their kernels hang on the start of the window, whatever they waited for."""
    verdict = trace(60, unlinked=range(21, 41)).compile().verdict()

    assert verdict.window == WHOLE_PART
    assert verdict.damage[0].startswith("20 of 20 pieces of device work between 422 us and 813 us")


def test_of_a_device_without_records_nothing_is_judged() -> None:
    """The host alone does not say what limits the run."""
    verdict = trace(30, lost=range(30)).compile().verdict()

    assert "No part of it can be judged" in verdict.withheld
    assert verdict.damage[0].startswith("30 of 30 kernel launches in the whole trace")


def test_a_report_is_on_the_part_and_says_so() -> None:
    """With the option for all of it."""
    one = trace(60, lost=range(21, 41))
    summary = Summary.of(one, one.compile())

    assert summary.window_name == WHOLE_PART
    assert summary.caveats == [f"Left out: 773 us around {WHOLE_PART} (-w trace: all)."]
    assert Summary.of(one, one.compile(), "trace").verdict.findings == ()
