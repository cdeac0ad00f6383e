"""Time inside and between replays of captured graphs."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.explain.self_time import ReplayTime, replay_time
from htagraph.model.window import Window
from htagraph.synth import timeline

LATE = """
    us       |0         10        20        30        40        50
    cpu 1    |[graph >a]                    [graph >b]
    stream 7 |  [k <a]  [m <a]                    [k <b]  [m <b]
"""
"""Each replay takes 14 us, 2 of them between its nodes; the second is called 14 us too late."""


def found_in(drawing: str) -> ReplayTime:
    dag = compile_events(timeline(drawing))
    return replay_time(dag, dag.span)


def test_time_is_split_into_replays_gaps_in_them_and_idle_time_between() -> None:
    """By hand; before the first replay the device is idle for 2 us."""
    found = found_in(LATE)

    assert (found.n_replays, found.window_ns) == (2, 50_000)
    assert (found.inside_ns, found.gap_ns) == (28_000, 4_000)
    assert (found.idle_ns, found.late_ns) == (22_000, 14_000)


def test_work_beside_the_replays_is_neither_gap_nor_idle() -> None:
    """A copy fills the gap of the first replay and most of the time after it."""
    found = found_in(LATE + "    stream 9 |        [copy                  ]\n")

    assert (found.gap_ns, found.idle_ns) == (2_000, 6_000)


def test_of_a_window_only_the_part_inside_counts() -> None:
    """The second replay's second node alone."""
    dag = compile_events(timeline(LATE))
    start_ns = dag.span.start_ns
    window = Window(start_ns + 46_000, start_ns + 49_000, "part")

    assert replay_time(dag, window) == ReplayTime(1, 3_000, 3_000, 0, 0, 0)


def test_without_replays_there_is_no_such_time() -> None:
    """Launched one by one."""
    assert found_in("cpu 1 |[launch >a]\nstream 7 |   [k <a]") == ReplayTime()


def test_idle_time_that_no_launch_ends_is_not_late() -> None:
    """After the second replay the device is idle for 20 us more."""
    dag = compile_events(timeline(LATE))
    found = replay_time(dag, Window(0, 70_000, "longer"))

    assert (found.idle_ns, found.late_ns) == (42_000, 14_000)
