"""What answers are about by default: the whole steps of a run, without what is unlike the rest."""

from __future__ import annotations

import numpy as np
import pytest

import htagraph as hg
from htagraph.explain.default_window import left_out_in_words
from htagraph.reports.markdown import markdown_summary
from htagraph.reports.summary import Summary
from htagraph.synth import timeline
from tests.drawn import drawn_graph
from tests.real_traces import located
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

HALF_STEPS = """
    us       |0         10        20        30        40        50        60        70
    cpu 1    |[aten::mm ]    {ProfilerStep#3}{ProfilerStep#4}[aten::mm     ]
    cpu 1    |                [launch >a]     [launch >b]
    stream 7 |                         [k <a         ][k <b         ]
"""
"""Two whole steps, done at 40 and 55 us, and an operator at either end."""

CARRIED = """
    us       |0         10        20        30        40        50        60
    cpu 1    |[launch >a]
    stream 7 |                              [old ][k <a                    ]
"""
"""`old` was from before the profile, and waited for what else was: both take 36 of 62 us."""


def steps_of(*columns: int, before: int = 0, after: int = 0) -> hg.TraceGraph:
    """A trace of steps, each so many microseconds long, with host code before and after them."""
    drawn = "".join(
        f"{{ProfilerStep#{number}".ljust(width - 1) + "}" for number, width in enumerate(columns)
    )
    ends = [f"[x{' ' * (width - 3)}]" if width else "" for width in (before, after)]
    return drawn_graph(f"cpu 1 |{ends[0]}{drawn}{ends[1]}")


def bounds_us(graph: hg.TraceGraph) -> tuple[float, float]:
    """Start and end of its window since the start of the trace."""
    window, origin_ns = graph.interval, graph.dag.span.start_ns
    return (window.start_ns - origin_ns) / 1_000, (window.end_ns - origin_ns) / 1_000


def test_the_window_is_the_whole_steps_until_the_device_has_done_them() -> None:
    """The launch of the second one waits for nothing; both end with their kernels."""
    graph = drawn_graph(HALF_STEPS)
    path = graph.critical_path()

    assert bounds_us(graph) == (15.0, 55.0)
    assert (graph.interval.name, graph.n_steps, path.n_steps) == ("2 steps", 2, 2)
    assert path.step_ns == 20_000
    assert left_out_in_words(graph.left_out) == (
        "Left out: 15.0 us before the first step and 7.00 us after the last step (-w trace: all)."
    )


def test_who_asks_for_a_window_gets_it() -> None:
    """All of the trace, or a part; a step by its name is one step."""
    graph = drawn_graph(HALF_STEPS)

    assert bounds_us(graph.window("trace")) == (0.0, 62.0)
    assert graph.window("trace").left_out == ()
    assert (graph.window("trace").n_steps, graph.window("4").n_steps) == (0, 1)
    assert graph.window("4").critical_path().step_ns == 16_000
    assert bounds_us(graph.window("10us:20us")) == (10.0, 20.0)


@pytest.mark.parametrize(
    ("columns", "left_out"),
    [
        ((30, 20, 20, 20), ("step 0, the first of the trace",)),
        ((20, 20, 20, 20), ("step 0, the first of the trace",)),  # its device starts idle
        ((30, 20, 20), ()),
        ((90, 20, 20, 20), ()),
    ],
    ids=["longer", "alike", "two others", "most of the run"],
)
def test_the_first_step_is_left_out_if_three_others_are_alike(
    columns: tuple[int, ...], left_out: tuple[str, ...]
) -> None:
    """As in a comparison; but never more than half of the run."""
    graph = steps_of(*columns)

    assert graph.left_out == left_out
    assert graph.n_steps == len(columns) - len(left_out)
    assert graph.dur_ns == 1_000 * sum(columns[len(left_out) :])


def test_one_step_is_no_window() -> None:
    """It says nothing of what it is like in the middle of others."""
    graph = steps_of(20, before=15)

    assert (graph.interval, graph.n_steps) == (graph.dag.span, 0)
    assert graph.critical_path().step_ns == 0


@pytest.mark.parametrize(("after", "n_steps"), [(39, 2), (41, 0)])
def test_steps_that_are_less_than_half_are_no_window(after: int, n_steps: int) -> None:
    """Of 79 and 81 us."""
    assert steps_of(20, 20, after=after).n_steps == n_steps


@pytest.mark.parametrize(("width", "said"), [(198, True), (202, False)])
def test_what_is_less_than_a_hundredth_is_not_said(width: int, said: bool) -> None:
    """4 us before steps of 396 and of 404 us."""
    graph = steps_of(width, width, before=4)

    assert graph.n_steps == 2
    assert bool(graph.left_out) is said


@pytest.mark.parametrize("steps", [3, 9])
def test_step_time_is_the_typical_step_if_all_are_typical(steps: int) -> None:
    """To the nanosecond: both are the mean of the same steps."""
    graph = hg.Trace.from_events(simulate(training_rank(steps=steps)).events).compile()
    profile, path = hg.run_profile(graph), graph.critical_path()

    assert profile.n_compared == profile.n_steps == path.n_steps == min(steps, steps - (steps > 3))
    assert profile.typical_step_ns == path.step_ns
    assert path.breakdown(by="step")["dur_ns"].mean() == path.step_ns
    assert graph.step_times()["dur_ns"].mean() == path.step_ns


def test_an_opening_is_left_out_and_said_first() -> None:
    """Until the end of the last work from before the profile on the path."""
    trace = hg.Trace.from_events(timeline(CARRIED))
    summary = Summary.of(trace, trace.compile())

    assert bounds_us(summary.graph) == (36.0, 62.0)
    assert summary.window_name == "the part after work from before the profile"
    assert summary.caveats[0] == (
        "Left out: 36.0 us of work from before the profile (-w trace: all)."
    )
    assert summary.caveats[0] in markdown_summary(summary)
    assert summary.verdict.findings[0].cause == "GPU compute"


@pytest.mark.parametrize(("columns", "is_long"), [(7, False), (10, True)])
def test_an_opening_is_long_from_a_fifth_on(columns: int, is_long: bool) -> None:
    """Of 62 us."""
    kernel = f"[k <a{' ' * (52 - columns)}]"
    graph = drawn_graph(f"""
    cpu 1    |[launch >a]
    stream 7 |{" " * columns}[o ]{kernel}
    """)

    assert (graph.interval != graph.dag.span) is is_long


def test_all_of_a_trace_is_judged_with_its_opening_if_it_is_asked_for() -> None:
    graph = drawn_graph(CARRIED).window("trace")

    assert graph.verdict().dur_ns == 62_000
    assert np.isclose(
        graph.critical_path().breakdown().loc["work_from_before_the_profile", "dur_ns"], 36_000
    )


@pytest.mark.public("tracelens/sglang_Qwen3-8B_decode.json.gz")
def test_a_real_capture_that_began_while_the_device_was_busy() -> None:
    """Of 474 ms of a decode step, 463 ms are work from before; the rest is one replay."""
    trace = hg.load(located("tracelens/sglang_Qwen3-8B_decode.json.gz"))
    summary = Summary.of(trace, trace.compile())

    assert "463 ms of work from before the profile" in summary.caveats[0]
    assert summary.verdict.withheld == ""
    assert summary.verdict.replays.startswith("Graph-bound")
