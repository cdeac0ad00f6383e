"""What changes to the host save on a drawn trace, by hand."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.replay.assumptions import Assumption
from htagraph.synth import timeline
from tests.replay.drawn import drawn, saved_us


def test_a_batch_that_is_prefetched_is_there_as_long_after_the_one_before_as_it_took():
    """The first is waited for. Steps of 8 us hide that much of the other two.

    Or nothing, where it costs as much to take a batch over from another process.
    """
    graph = drawn("""
        cpu 1 |{data_loading}[work  ]{data_loading}[work  ]{data_loading}[work  ]
    """)

    assert graph.dur_ns == 66_000
    assert saved_us(graph, hg.prefetch()) == 16
    assert hg.what_if(graph, hg.prefetch()).saves_ns[:3] == (0, 16_000, 16_000)


def test_a_batch_that_an_earlier_change_shortened_is_prefetched_as_short():
    """Two workers load 14 us in 7: the first batch and three steps of 8 us are left of 66."""
    graph = drawn("""
        cpu 1 |{data_loading}[work  ]{data_loading}[work  ]{data_loading}[work  ]
    """)

    assert saved_us(graph, hg.scale("data_loading", by=0.5), hg.prefetch()) == 66 - 7 - 3 * 8


def test_a_graphed_step_costs_one_launch():
    """All is launched by a call of 10 us: the last of three kernels ends at 30, in place of 48."""
    graph = drawn("""
        us       |0         10        20        30        40        50
        cpu 1    |[op [launch >a]][op [launch >b]][op [launch >c]]
        stream 7 |         [k1 <a]         [k2 <b]         [k3 <c]
    """)

    assert saved_us(graph, hg.graphed()) == 18


@pytest.mark.parametrize(("us_per_column", "saved_us"), [(200, 800), (400, 2_800)])
def test_a_batch_costs_a_handoff_or_half_of_its_loading_at_most(
    us_per_column: int, saved_us: int
) -> None:
    """Of 2.8 ms, 2 ms are a handoff; of 5.6 ms, half slows the step. Two batches are prefetched."""
    drawing = "cpu 1 |" + "{data_loading}[work              ]" * 3
    graph = hg.Trace.from_events(timeline(drawing, us_per_column=us_per_column)).compile()

    saving = hg.what_if(graph, hg.prefetch()).saves_ns

    assert dict(saving.readings)[Assumption.RIGID] == 2 * saved_us * 1_000


@pytest.mark.parametrize(
    ("between_us", "within_us", "is_gone"),
    [(80, 0, True), (150, 0, False), (0, 800, True), (0, 1_500, False)],
)
def test_code_that_takes_long_is_no_launching(between_us, within_us, is_gone):
    """Up to 100 us between operators and 1 ms within them, both are part of launching."""
    between, within = " " * between_us, " " * within_us
    graph = drawn(f"""
        cpu 1    |[op [launch >a]]{between}[op {within}[launch >b]]
        stream 7 |         [k1 <a]         {between}{within}[k2 <b]
    """)

    assert (saved_us(graph, hg.graphed()) >= between_us + within_us) is is_gone
