"""A report on replayed work says whether launches or the graphs are what costs."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.cli.inputs import windowed
from htagraph.explain.self_time import ReplayTime
from htagraph.findings.window_bounds import replay_bound
from htagraph.reports.json_document import json_document
from htagraph.reports.markdown import markdown_summary
from htagraph.reports.summary import Summary
from htagraph.synth import timeline
from tests.real_traces import located

LATE = """
    us       |0         10        20        30        40        50
    cpu 1    |[graph >a]                    [graph >b]
    stream 7 |  [k <a]  [m <a]                    [k <b]  [m <b]
"""


def summary_of(drawing: str) -> Summary:
    trace = hg.Trace.from_events(timeline(drawing))
    return Summary(trace, trace.compile())


@pytest.mark.parametrize(
    ("times", "bound"),
    [
        (ReplayTime(9, 1_000, 600, 10, 350, 340), "launch"),
        (ReplayTime(9, 1_000, 900, 300, 90, 80), "graph"),
        (ReplayTime(9, 1_000, 950, 20, 40, 30), "kernels"),
        (ReplayTime(9, 1_000, 300, 10, 600, 20), ""),
    ],
)
def test_what_costs_most_is_named(times: ReplayTime, bound: str) -> None:
    """Late launches, gaps between nodes, the kernels themselves, or something else."""
    assert replay_bound(times) == bound


@pytest.mark.parametrize(
    ("times", "bound"),
    [
        (ReplayTime(9, 1_000, 600, 10, 350, 60), "launch"),
        (ReplayTime(9, 1_000, 600, 10, 350, 40), "kernels"),
        (ReplayTime(9, 1_000, 450, 10, 350, 40), ""),
    ],
)
def test_lost_time_is_named_from_a_twentieth_on(times: ReplayTime, bound: str) -> None:
    """Less lost, it is the kernels where they are most of the window."""
    assert replay_bound(times) == bound


def test_the_sentence_has_the_numbers() -> None:
    """28 of 50 us in replays, 4 of them gaps; 22 us idle, 14 of them before the next call."""
    assert summary_of(LATE).verdict.replays == (
        "Launch-bound: the host launches the next graph too late. Replays of captured graphs (2) "
        "take 56.0% of the window: the device is busy for 85.7% of that and idle between nodes for "
        "14.3%. Between replays it is idle for 44.0% of the window, for 28.0% before the host "
        "calls the next launch."
    )


def test_the_sentence_stands_in_the_summary_and_the_numbers_in_the_document() -> None:
    """For people and for programs."""
    summary = summary_of(LATE)
    replays = json_document(summary)["replays"]

    assert "Launch-bound: the host launches the next graph too late." in markdown_summary(summary)
    assert replays == {
        "n_replays": 2,
        "window_ns": 50_000,
        "inside_ns": 28_000,
        "gap_ns": 4_000,
        "idle_ns": 22_000,
        "late_ns": 14_000,
        "bound": "launch",
        "sentence": summary.verdict.replays,
    }


def test_work_that_is_launched_one_by_one_is_not_judged_so() -> None:
    """Nothing is said of graphs."""
    summary = summary_of("cpu 1 |[launch >a][sync @* ]\nstream 7 |   [k <a       ]")

    assert summary.verdict.replays == ""
    assert json_document(summary)["replays"] is None


@pytest.mark.public("tracelens/vllm_piecewise_graph.json.gz")
def test_a_real_decode_step_is_bound_by_its_graphs() -> None:
    """From the first kernel on: the replays follow each other, and are full."""
    trace = hg.load(located("tracelens/vllm_piecewise_graph.json.gz"))
    graph = windowed(trace.compile(), "151231271:307697688")

    assert json_document(Summary(trace, graph))["replays"]["bound"] == "kernels"
