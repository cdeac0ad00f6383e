"""A window that opens with work from before the profile is reported on from what follows."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.findings.opening import find_opening
from htagraph.reports.json_document import json_document
from htagraph.reports.markdown import markdown_summary
from htagraph.reports.summary import Summary
from htagraph.synth import timeline
from tests.real_traces import located

CARRIED = """
    us       |0         10        20        30        40        50        60
    cpu 1    |[launch >a]
    stream 7 |                              [old ][k <a                    ]
"""
"""`old` was from before the profile, and waited for what else was: both take 36 of 62 us."""

SHORT = """
    cpu 1    |[launch >a]
    stream 7 |   [old ][k <a                                               ]
"""
"""9 of 62 us are no reason to leave anything out."""


def trace_of(drawing: str) -> hg.Trace:
    return hg.Trace.from_events(timeline(drawing))


def summary_of(drawing: str, window: str = "") -> Summary:
    """As `htagraph report` makes it."""
    trace = trace_of(drawing)
    graph = trace.compile()
    return Summary.of(trace, graph, window)


def test_a_long_opening_is_what_the_device_worked_off() -> None:
    """Until the end of the last of it on the path."""
    found = find_opening(trace_of(CARRIED).compile().critical_path())

    assert found is not None
    assert (found.dur_ns, found.option) == (36_000, "-w 36000:62000")
    assert found.rest.dur_ns == 26_000


def test_a_short_opening_stays_in_the_report() -> None:
    """Up to a fifth of the window."""
    summary = summary_of(SHORT)

    assert (summary.opening, summary.window_name) == (None, "the whole trace")


@pytest.mark.parametrize(("columns", "is_long"), [(7, False), (10, True)])
def test_an_opening_is_long_from_a_fifth_on(columns: int, is_long: bool) -> None:
    """Of 62 us."""
    kernel = f"[k <a{' ' * (52 - columns)}]"
    drawing = f"""
    cpu 1    |[launch >a]
    stream 7 |{" " * columns}[o ]{kernel}
    """
    found = find_opening(trace_of(drawing).compile().critical_path())

    assert (found is not None) is is_long


def test_by_default_the_report_is_on_what_follows_and_says_so_first() -> None:
    """The first sentence after the facts, with both commands."""
    summary = summary_of(CARRIED)

    assert summary.graph.interval.dur_ns == 26_000
    assert summary.window_name == "the part after work from before the profile"
    assert summary.caveats[0] == (
        "The device still ran work from before the profile for 36.0 us; this report "
        "is on what follows (-w 36000:62000), and -w trace reports on all."
    )
    paragraphs = markdown_summary(summary).split("\n\n")
    assert paragraphs[2].startswith("The device still ran work")


def test_the_part_that_is_reported_on_opens_with_nothing_else() -> None:
    """What is left out once is not left out again, and the verdict is on all of the rest."""
    summary = summary_of(CARRIED)

    assert find_opening(summary.path) is None
    assert summary.verdict.findings[0].cause == "GPU compute"
    assert sum(finding.dur_ns for finding in summary.verdict.findings) == 26_000


def test_the_graph_and_its_report_judge_the_same_window() -> None:
    """Of a window that was asked for, all of it."""
    graph = trace_of(CARRIED).compile()

    assert repr(graph.verdict()) == repr(summary_of(CARRIED).verdict)
    assert graph.window((0, 62_000)).verdict().dur_ns == 62_000


def test_who_asks_for_a_window_gets_it() -> None:
    """All of the trace, which then says how to see what follows; or the part that was printed."""
    whole, part = summary_of(CARRIED, "trace"), summary_of(CARRIED, "36000:62000")

    assert (whole.graph.interval.dur_ns, part.graph.interval.dur_ns) == (62_000, 26_000)
    assert " ".join(whole.caveats) == (
        "The device still ran work from before the profile for 36.0 us; "
        "-w 36000:62000 reports on what follows."
    )
    assert part.caveats == []


@pytest.mark.public("tracelens/sglang_Qwen3-8B_decode.json.gz")
def test_a_real_capture_that_began_while_the_device_was_busy() -> None:
    """Of 474 ms of a decode step, 463 ms are work from before; the rest is one replay."""
    trace = hg.load(located("tracelens/sglang_Qwen3-8B_decode.json.gz"))
    summary = Summary.of(trace, trace.compile())

    assert "from before the profile for 463 ms" in summary.caveats[0]
    assert summary.verdict.withheld == ""
    assert summary.verdict.replays.startswith("Graph-bound")


def test_programs_are_told_what_was_left_out() -> None:
    """How long, from where on, and whether the window lacks it."""
    left, kept = (json_document(summary_of(CARRIED, window)) for window in ("", "trace"))

    start_ns = left["window"]["start_ns"]
    assert left["opening"] == {"dur_ns": 36_000, "start_ns": start_ns, "is_left_out": True}
    assert kept["opening"] == {"dur_ns": 36_000, "start_ns": start_ns, "is_left_out": False}
    assert left["caveats"][0].startswith("The device still ran work")
    assert json_document(summary_of(SHORT))["opening"] is None
