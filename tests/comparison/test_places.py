"""A comparison names the place of host code that takes longer, in words that both runs share."""

from __future__ import annotations

import numpy as np
import pytest

import htagraph as hg
from htagraph.comparison.run_diff import RunDiff
from htagraph.comparison.run_profile import RunProfile
from htagraph.comparison.samples import code_places, gap_edges
from tests.drawn import drawn_graph
from tests.real_traces import CAPTURES
from tests.synth.program import Annotation, Op, Program, Spend
from tests.synth.simulator import simulate


def run(*, sleep_us: int = 5, optimizer_ops: int = 3) -> RunProfile:
    """Four steps of a model, with code after `zero_grad`, and an optimizer of many operators."""
    us = 1_000

    def step(number: int) -> tuple[object, ...]:
        return (
            Op("aten::mm", (Spend(500 * us + number),)),
            Annotation("Optimizer.zero_grad#SGD.zero_grad", (Spend(10 * us),)),
            Spend(sleep_us * us),
            Op("aten::relu", (Spend(100 * us),)),
            Annotation(
                "Optimizer.step#SGD.step",
                tuple(
                    action
                    for n in range(optimizer_ops)
                    for action in (Op(f"aten::op{n}_", (Spend(20 * us),)), Spend(10 * us))
                ),
            ),
        )

    body = tuple(Annotation(f"ProfilerStep#{n}", step(n)) for n in range(4))
    return hg.run_profile(hg.Trace.from_events(simulate(Program(body)).events))


def test_code_that_takes_longer_has_a_place():
    """A sleep between two ranges, as a comparison says where it is."""
    found = RunDiff(run(), run(sleep_us=305))

    assert found.verdict() == (
        "Steps are 43% slower: 705 us a step is 1.01 ms now; 300 us more in untraced code."
    )
    assert found.notes[0] == (
        "Where: untraced code +300 us after Optimizer.zero_grad#SGD.zero_grad. Noise: 7.05 us a "
        "step."
    )


def test_a_change_that_is_everywhere_is_named_after_what_calls_it():
    """Twenty more operators with a gap after each: the range that has them all."""
    assert RunDiff(run(), run(optimizer_ops=23)).notes[0] == (
        "Where: CPU operators +400 us; untraced code +200 us in Optimizer.step#SGD.step; "
        "Optimizer.step#SGD.step and what it calls +600 us (each 7.67x as long). Noise: 7.05 us a "
        "step."
    )


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("capture", "said"),
    [
        ("sleep", " after Optimizer.zero_grad#Adam.zero_grad"),
        ("gc", " after Optimizer.zero_grad#Adam.zero_grad"),
        ("generator", " before aten::randn"),
        ("loader0", " in DataLoader.__next__ (each "),
        ("customfn", "of it in SlowBackBackward (new)"),
        ("smallops", "aten::add and what it calls +8.85 ms (new)"),
        ("optimizer", "Optimizer.step#Adam.step and what it calls +18.9 ms (each 13x as long)"),
    ],
)
def test_planted_host_time_of_real_runs_has_its_place(capture: str, said: str):
    """Against the run without a fault."""
    before, after = (
        hg.run_profile(hg.load(CAPTURES / f"single/{name}.pt.trace.json.gz"))
        for name in ("baseline", capture)
    )

    assert said in RunDiff(before, after).notes[0]


def test_a_place_is_the_neighbour_and_the_code_if_stacks_were_recorded():
    """Lines have other numbers in the next version of a file, so they have none; steps neither."""
    graph = hg.load(CAPTURES / "single/json_stack.pt.trace.json.gz", stacks=True).compile()
    segments = graph.critical_path().segments
    edge = gap_edges(segments)
    longest = int(edge[segments["dur_ns"].where(edge >= 0, 0).to_numpy().argmax()])

    assert code_places(graph.dag, edge)[longest] == (
        "after aten::layer_norm, at single.py in parse_features"
    )


def test_a_place_has_no_number_of_a_step():
    """Or no two steps would share it."""
    dag = drawn_graph("""
        us    |0         10        20        30
        cpu 1 |{ProfilerStep#7}           [aten::add]
    """).dag

    places = code_places(dag, np.arange(len(dag.edges.tail)))
    assert "after ProfilerStep" in places.values()


def test_a_job_names_the_place_on_the_rank_of_its_path():
    """A rank that sleeps between loading a batch and the forward pass."""
    before, after = (
        hg.run_profile(hg.load_job(CAPTURES / "jobs" / name)) for name in ("ddp_2", "ddp_sleep_2")
    )

    assert " after DataLoader.__next__" in RunDiff(before, after).notes[0]
