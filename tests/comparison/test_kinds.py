"""Steps that come in kinds: each is compared with its own, as often as it occurs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import htagraph as hg
from htagraph.comparison.run_diff import RunDiff
from htagraph.comparison.run_profile import Kind, RunProfile
from htagraph.comparison.samples import graph_samples
from htagraph.errors import GraphError
from htagraph.lookup.steady_steps import steady_steps
from tests.comparison.profiles import profile
from tests.synth.program import Action, Annotation, Op, Program, Spend
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank

MS = 1_000_000
MICRO, UPDATE = {"gemm": 40, "relu": 40}, {"gemm": 40, "relu": 40, "adam": 40}


def run_of(kinds: str, micro_ms: float = 100, update_ms: float = 150, **more: int) -> RunProfile:
    """A run of micro-steps (a) and steps that update (b), with a nanosecond of spread."""
    kind = [min("ab".index(one), len(set(kinds)) - 1) for one in kinds]
    steps = [
        int((update_ms if one == "b" else micro_ms) * MS) + n % 2 for n, one in enumerate(kinds)
    ]
    kernels = {
        name: [MS if name in (UPDATE if one == "b" else MICRO) else 0 for one in kinds]
        for name in UPDATE
    }
    return profile({"compute": steps}, kernels, kind=kind, **more)


def recorded(program: Program) -> RunProfile:
    """The profile of a program as it runs."""
    return hg.run_profile(hg.Trace.from_events(simulate(program).events))


def unlike(program: Program, n_more: int = 3) -> Program:
    """The program with other work in each step: so many operators more than in the one before."""
    more = (Op("aten::log", (Spend(1_000),)),) * n_more
    return with_more(program, lambda name: more * int(name.removeprefix("ProfilerStep#")))


def with_more(program: Program, more: Callable[[str], tuple[Action, ...]]) -> Program:
    """The program with more actions at the end of its steps, by their names."""
    body = [
        replace(one, body=(*one.body, *more(one.name))) if isinstance(one, Annotation) else one
        for one in program.body
    ]
    return replace(program, body=tuple(body))


def test_gradient_accumulation_is_compared():
    """The optimizer runs and gradients are reduced in every second step; half as often per step."""
    before, after = (
        recorded(training_rank(steps=8, accumulate=2, fault=fault, seed=seed))
        for fault, seed in (("exposed_allreduce", 1), ("none", 2))
    )

    assert after.facts == "trace, 7 compared of 7 steps of 2 kinds, 4.25 ms each"
    assert RunDiff(before, after).verdict() == (
        "Steps are 40% faster: 7.05 ms a step is 4.25 ms now; 2.78 ms less in communication."
    )


def test_steps_that_all_differ_are_compared_by_what_they_share():
    """Four steps, each with other work: what is in all of them has noise, and a cause."""
    before, after = (
        recorded(unlike(training_rank(steps=4, fault=fault, seed=seed)))
        for fault, seed in (("exposed_allreduce", 1), ("none", 2))
    )

    assert before.most_are_odd == after.most_are_odd == ""
    found = RunDiff(before, after)
    assert found.verdict() == (
        "The work that all steps share is 60% faster: 10.9 ms of a step is 4.40 ms now; "
        "6.56 ms less in communication."
    )
    assert found.notes[0] == (
        "Where: communication -6.56 ms in all_reduce (6x as many calls). "
        "In every step -6.56 ms in ncclDevKernel_AllReduce_Sum_f32_RING_LL. Noise: 878 us a step. "
        "Steps vary in what they do: only work that all of them do as often is compared, 100% of "
        "the time before, 100% after."
    )


def test_where_a_capture_begins_changes_nothing():
    """Steps of 100 and 150 ms in turn: three of one and two of the other, or the reverse."""
    found = RunDiff(run_of("ababa"), run_of("babab"))

    assert found.verdict() == ("No change beyond noise (1.25 ms): 125 ms a step is 125 ms now.")
    assert found.facts[0] == "run, 5 compared of 5 steps of 2 kinds, 125 ms each"


def test_a_change_of_one_kind_counts_as_often_as_it_occurs():
    """8 ms more in every fourth step are 2 ms a step."""
    found = RunDiff(run_of("aaabaaab"), run_of("aaabaaab", update_ms=158))

    assert found.delta_ns == 2 * MS
    assert found.verdict() == (
        "Steps are 1.8% slower: 112 ms a step is 114 ms now; 2.00 ms more in GPU compute."
    )


def test_kinds_that_occur_less_often_are_another_program():
    """Every second step before, every sixth after."""
    found = RunDiff(run_of("ab" * 6), run_of("aaaaab" * 2))

    assert found.verdict() == "Not comparable: steps of one kind are 50% before, 83% after."


def test_a_kind_that_the_other_run_lacks_is_left_out():
    """Two steps of twelve update before, none after."""
    found = RunDiff(run_of("aaaaabaaaaab"), run_of("a" * 10))

    assert (
        found.verdict() == "No change beyond noise (1.00 ms): 100 ms a typical step is 100 ms now."
    )
    assert found.notes[0].endswith("; without 2 steps of other work")


def test_what_occurs_once_in_each_run_is_told_apart():
    """Four steps of gradient accumulation: one of each updates, and has no noise."""
    found = RunDiff(run_of("aaab"), run_of("aaab", update_ms=170))

    assert (
        found.verdict() == "No change beyond noise (1.00 ms): 100 ms a typical step is 100 ms now."
    )
    assert found.notes[0] == "One step of each run does other work: 150 ms is now 170 ms."


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ((), "at least one kind"),
        ((Kind(4, 4, said="odd"),), "at least one kind"),
        ((Kind(4, 0),), "at least one"),
        ((Kind(4, 4),), "of no kind"),
        ((Kind(2, 2),) * 3, "exactly one whole of each kind"),
    ],
)
def test_kinds_that_do_not_fit_the_parts_are_a_defect(kinds, said):
    """Of a stored baseline as of any answer."""
    with pytest.raises(GraphError, match=said):
        replace(run_of("abab"), kinds=kinds)


@settings(max_examples=20)
@given(
    kinds=st.tuples(*[st.lists(st.integers(0, 2), min_size=6, max_size=12)] * 2),
    seed=st.integers(0, 99),
)
def test_differences_of_kinds_add_up(kinds, seed):
    """By bound, operator and name, to the nanosecond; of equal runs they are zero."""
    draw = np.random.default_rng(seed)
    runs = []
    for drawn in kinds:
        kind = np.unique(drawn, return_inverse=True)[1].tolist()
        times = {name: draw.integers(0, 10**9, len(kind)).tolist() for name in "abc"}
        runs.append(profile(times, times, kind=kind))
    found = RunDiff(*runs)

    for by in ("bound", "op", "name"):
        assert found.critical_path(by=by)["delta_ns"].sum() == found.delta_ns
    assert (RunDiff(runs[0], runs[0]).critical_path()["delta_ns"] == 0).all()


@settings(max_examples=20)
@given(n=st.integers(2, 6), seed=st.integers(0, 99))
def test_runs_of_the_same_kinds_differ_by_their_means(n, seed):
    """The mean of all steps, to a nanosecond for each kind that is rounded."""
    lengths = np.random.default_rng(seed).integers(1, 10**9, (2, 2 * n)).tolist()
    kernels = {"gemm": [1] * 2 * n}
    found = RunDiff(*(profile({"a": one}, kernels, kind=[0, 1] * n) for one in lengths))

    assert found.delta_ns == pytest.approx(np.mean(lengths[1]) - np.mean(lengths[0]), abs=2)


@pytest.mark.parametrize(("every", "n_kinds"), [(4, 4), (5, 4)])
def test_four_kinds_are_compared(every: int, n_kinds: int):
    """Two steps of each: of five kinds, those of the fifth are outliers."""
    log = (Op("aten::log", (Spend(1_000),)),) * 3
    program = with_more(
        training_rank(steps=2 * every),
        lambda name: log * (int(name.removeprefix("ProfilerStep#")) % every),
    )
    found = graph_samples(hg.Trace.from_events(simulate(program).events).compile())

    assert (len(found.kinds), found.n_odd) == (n_kinds, 2 * (every - n_kinds))


def test_a_named_range_makes_a_kind():
    """One event of a hundred and fifty is no other work, but tells which steps update."""
    log = (Annotation("log 17", (Spend(2_000),)),)
    program = with_more(
        training_rank(steps=6, layers=20), lambda name: log if name[-1] in "14" else ()
    )
    dag = hg.Trace.from_events(simulate(program).events).compile().dag
    found = steady_steps(dag)

    assert found.is_same_work.all()
    assert found.kind.tolist() == [0, 1, 0, 0, 1, 0]


def test_a_job_has_kinds_of_steps(tmp_path):
    """Those in which all ranks do the same."""
    simulate_job(training_job(ranks=2, steps=8, accumulate=2)).write(tmp_path)
    found = hg.run_profile(hg.load_job(tmp_path))

    assert [(kind.n_steps, kind.n_compared) for kind in found.kinds] == [(3, 3), (4, 4)]
    assert found.facts == "job, 2 ranks, 7 compared of 7 steps of 2 kinds, 4.27 ms each"
    assert hg.diff(found, found).verdict().endswith("4.27 ms a step is 4.27 ms now.")
