"""What changes to the host save on a drawn trace, by hand."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.replay.assumptions import Assumption
from htagraph.replay.rehearsal import Rehearsal
from htagraph.synth import timeline
from tests.real_traces import located
from tests.replay.drawn import drawn, saved_us
from tests.synth.repairs import repair
from tests.synth.rewriting import prefetched
from tests.synth.simulator import simulate


def test_a_batch_that_is_prefetched_is_there_as_long_after_the_one_before_as_it_took():
    """The first is waited for. Steps of 8 us hide that much of the other two."""
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


BATCHES = "cpu 1 |" + "{data_loading     }[work ]" * 12
"""Twelve batches of 19 us, and steps of 7 us."""


@pytest.mark.parametrize(
    ("workers", "left_us"), [(1, 12 * 19 + 7), (2, 19 + 5 * 19 + 2 * 7), (3, 19 + 12 * 7)]
)
def test_workers_load_in_turn_and_begin_together(workers, left_us):
    """One loads all twelve one after the other; of two, each loads six."""
    graph = drawn(BATCHES)

    assert graph.dur_ns == 12 * (19 + 7) * 1_000
    assert (graph.dur_ns / 1_000) - saved_us(graph, hg.prefetch(workers)) == left_us


def test_each_thread_has_workers_of_its_own():
    """Both wait for their first batch only; the second thread begins 3 us later."""
    graph = drawn("""
        cpu 1 |{data_loading}[work  ]{data_loading}[work  ]{data_loading}[work  ]
        cpu 2 |   {data_loading}[other ]{data_loading}[other ]{data_loading}[other ]
    """)

    assert saved_us(graph, hg.prefetch(3)) == 69 - (3 + 14 + 3 * 8)


@pytest.mark.parametrize(("dur", "n_batches"), [(19, 12), (40, 30), (12, 20)])
def test_as_many_workers_as_advised_hide_nearly_all_loading(dur, n_batches):
    """What is left is the first batch, which is waited for."""
    graph = drawn("cpu 1 |" + f"{{data_loading{' ' * (dur - 14)}}}[work  ]" * n_batches)
    (found,) = [one for one in graph.verdict().findings if one.cause == "data loading"]
    scenario = hg.what_if(graph, found.fix.change)

    assert str(found.fix.change).startswith("prefetch(")
    assert scenario.saves_ns.expected_ns >= 0.88 * found.cost_ns


LOADED = {
    "captures/single/loader0.pt.trace.json.gz": 4,
    "captures/features/pyexport_stack.pt.trace.json.gz": 3,
    "captures/single/baseline.pt.trace.json.gz": 1,
}
"""Captures of three batches each, and the workers that keep up."""


@pytest.mark.parametrize("name", LOADED)
def test_workers_hide_nearly_all_later_batches_of_a_real_loader(name):
    """The first of three is waited for."""
    graph = hg.load(located(name)).compile()
    cost, saved = (
        hg.what_if(graph, change).saves_ns.expected_ns
        for change in (hg.without("data loading"), hg.prefetch(LOADED[name]))
    )

    assert saved >= 0.88 * cost * 2 / 3


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("seed", [0, 2, 3, 11])
def test_a_program_with_workers_takes_as_long_as_predicted(workers, seed):
    """Random programs with loaders, simulated before and after."""
    program = repair("prefetch", seed).before
    before, after = (
        hg.Trace.from_events(simulate(one).events).compile()
        for one in (program, prefetched(program, workers))
    )
    rehearsal = Rehearsal(before.dag, before.dag.span)

    saved_ns = before.dag.span.dur_ns - after.dag.span.dur_ns
    assert rehearsal.saved_ns((hg.prefetch(workers),)) == saved_ns > 0


def test_a_run_without_workers_is_refused():
    with pytest.raises(QueryError, match="workers must be 1 or more, not 0"):
        hg.prefetch(0)


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
