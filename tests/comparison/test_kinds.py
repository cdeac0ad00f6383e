"""What differs, by kind: causes, samples, work that both do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph.comparison.causes import Causes, Tables, calls_in_words, causes_of
from htagraph.comparison.limits import Limits, check_run
from htagraph.comparison.profiling import graph_profile
from htagraph.comparison.run_diff import RunDiff
from htagraph.comparison.run_profile import Kind, RunProfile
from htagraph.comparison.samples import DoneSteps, compared, graph_samples
from htagraph.errors import GraphError
from htagraph.lookup.steady_steps import steady_steps
from tests.comparison.profiles import profile, simulated
from tests.examples import one_in
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


@one_in(4)
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


@one_in(4)
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


def frame(changes: dict[tuple[str, str], int]) -> pd.DataFrame:
    """Groups that grew by so many ns, from 100 ms in 10 calls; by bound and name."""
    rows = [(bound, name, delta_ns) for (bound, name), delta_ns in changes.items()]
    found = pd.DataFrame(rows, columns=["bound", "name", "delta_ns"])
    return found.assign(
        change=np.where(found["delta_ns"] == 0, "noise", "grown"),
        calls_before=10.0,
        calls_after=10.0,
        before_ns=100 * MS,
        after_ns=100 * MS + found["delta_ns"],
        noise_ns=float(MS),
        name=found["name"].astype(object),
    )


def causes(bounds: dict[str, int], names: dict[tuple[str, str], int] | None = None) -> Causes:
    """The causes of a difference by bound, with kernels."""
    by_bound = frame({(bound, bound): delta_ns for bound, delta_ns in bounds.items()})
    by_name = frame(names or {})
    return causes_of(Tables(by_bound, frame({}), by_name, by_name, *[frame({})] * 3))


@pytest.mark.parametrize(("host_ms", "is_named"), [(9, False), (12, True)])
def test_bounds_are_named_from_a_tenth_on(host_ms: int, is_named: bool) -> None:
    """Of the whole difference, 100 ms."""
    found = causes({"compute": (100 - host_ms) * MS, "host": host_ms * MS})

    assert ("CPU operators" in found.where) is is_named


def test_three_bounds_are_named() -> None:
    """The largest."""
    bounds = dict.fromkeys(("compute", "communication", "memory", "host"), 25 * MS)

    assert causes(bounds) == (
        "25.0 ms more in GPU compute",
        "Where: GPU compute +25.0 ms; communication +25.0 ms; GPU copies +25.0 ms.",
    )


def test_one_bound_without_a_place_is_told_once() -> None:
    """In the headline."""
    assert causes({"host": -25 * MS}) == ("25.0 ms less in CPU operators", "")


@pytest.mark.parametrize(("gemm_ms", "is_named"), [(39, False), (41, True)])
def test_a_kernel_is_named_from_two_fifths_on(gemm_ms: int, is_named: bool) -> None:
    """Of the change of its bound."""
    found = causes({"compute": 100 * MS}, {("compute", "gemm"): gemm_ms * MS})

    assert ("of it in gemm (each 41% slower)" in found.where) is is_named


@pytest.mark.parametrize(
    ("gemm_ms", "said"),
    [
        (43, "GPU compute +100 ms, +43.0 ms of it in gemm (each 43% slower)"),
        (89, "GPU compute +100 ms, +89.0 ms of it in gemm (each 89% slower)"),
        (91, "GPU compute +91.0 ms in gemm (each 91% slower)"),
        (120, "GPU compute +100 ms in gemm (each 2.2x as long)"),  # others got faster
    ],
)
def test_a_kernel_gets_no_more_than_it_has(gemm_ms: int, said: str) -> None:
    """From nine tenths on, it is the cause; before, one of several."""
    found = causes({"compute": 100 * MS}, {("compute", "gemm"): gemm_ms * MS})

    assert found == ("100 ms more in GPU compute", f"Where: {said}.")


@pytest.mark.parametrize(
    ("calls", "took_ns", "said"),
    [
        (12.0, 1_245, "20% more calls"),  # each 4%: a sixth of the change
        (12.0, 1_300, "20% more calls, each 8% slower"),
        (10.3, 1_236, "each 20% slower"),  # 3% more calls: an eighth
        (10.8, 1_296, "8% more calls, each 20% slower"),
        (10.04, 1_014, "each 1% slower"),  # 0.4% more calls print as none
    ],
)
def test_calls_and_their_times_are_named_from_a_fifth_on(
    calls: float, took_ns: int, said: str
) -> None:
    """Of what both change, from 10 calls in 1 us; half a percent is none."""
    row: dict[Any, Any] = {"calls_before": 10.0, "before_ns": 1_000}

    assert calls_in_words(row | {"calls_after": calls, "after_ns": took_ns}) == said


def _graph(drawing: str):
    return hg.Trace.from_events(hg.synth.timeline(drawing)).compile()


def test_steps_last_until_the_device_has_done_them():
    """The host runs ahead: its ranges take 16 us each, the device 19."""
    found = graph_samples(
        _graph("""
            us       |0         10        20        30        40        50        60        70
            cpu 1    |{ProfilerStep#0}{ProfilerStep#1}{ProfilerStep#2}
            cpu 1    | [launch >a]     [launch >b]     [launch >c]
            stream 7 |          [gemm <a          ][gemm <b          ][gemm <c          ]
        """)
    )

    assert found.frame["dur_ns"].tolist() == [29_000, 19_000, 19_000]
    assert found.n_steps == 3


def test_the_first_step_of_a_trace_is_left_out_where_three_others_are_alike():
    """And it says so; it is not odd."""
    four, three = (
        graph_samples(hg.Trace.from_events(simulated(1, steps=n).events).compile()) for n in (4, 3)
    )

    assert four.rows.tolist() == [1, 2, 3]
    assert (four.left_out[-1], four.n_odd) == ("step 0, the first of the trace", 0)
    assert three.rows.tolist() == [0, 1, 2]


def test_a_step_that_does_other_work_is_named():
    """With what it does besides."""
    found = graph_profile(
        _graph("""
            us    |0         10        20        30        40        50        60        70
            cpu 1 |{ProfilerStep#0  }{ProfilerStep#1}{ProfilerStep#2 [save   ]}{ProfilerStep#3 }
        """)
    )

    assert (found.usual.n_compared, found.usual.n_odd) == (3, 1)
    assert found.usual.left_out[0].startswith("ProfilerStep#2: 1 event more than usual (+1 save)")


@pytest.mark.parametrize(("n_odd", "more"), [(6, 0), (8, 2)])
def test_six_outlier_steps_are_named(n_odd: int, more: int):
    """The rest are counted."""
    n = 20 + n_odd
    end_ns = np.cumsum([100_000] * 20 + [300_000] * n_odd)
    same, every = np.zeros(n, dtype=np.int64), np.ones(n, dtype=bool)
    names = np.array([f"step {number}" for number in range(n)], dtype=object)
    steps = DoneSteps(names, np.append(0, end_ns[:-1]), end_ns, same, same - 1)
    found = compared(steps, every, every, lambda: [""] * n)

    assert found.n_odd == n_odd
    assert sum("longer than usual" in line for line in found.left_out) == 6
    assert found.left_out[-1].startswith("… and ") is (more > 0)


def test_a_profile_is_small():
    """It keeps the longest names, cut to 240 characters, and the lengths of 200 steps."""
    steps = "".join(f"{{ProfilerStep#{number:<5}}}" for number in range(210))
    ops = "".join(f"[aten::op{number:<5}]" for number in range(210))
    many = graph_profile(_graph(f"cpu 1 |{ops}"))
    named = [sum(one.part == part for one in many.parts) for part in ("op", "name", "operator")]
    long = graph_profile(_graph(f"cpu 1 |[{'x' * 300}]"))

    assert named == [101, 101, 151]  # the last one is all others
    assert len(graph_profile(_graph(f"cpu 1 |{steps}")).steps_ns) == 200
    assert max(len(one.name) for one in long.parts) == 240


def test_a_trace_without_steps_is_one_window():
    """All of it."""
    found = graph_samples(_graph("cpu 1 |[aten::mm      ][aten::relu]"))

    assert (found.unit, found.n_steps, len(found.rows)) == ("window", 0, 0)
    assert np.array_equal(found.frame["dur_ns"], [28_000])


def run(seed: int, *, slow: float = 1.0, gathers: int = 40, gather: float = 1.0) -> RunProfile:
    """Six steps of twelve operators of 200 us, one slow, and gathers of 20 us as data want it."""
    draw = np.random.default_rng(seed)

    def spend(us: float) -> Spend:
        return Spend(int(1_000 * us * draw.normal(1, 0.005)))

    def step() -> tuple[Op, ...]:
        layers = [Op(f"aten::op{n}", (spend(200 * (slow if n == 3 else 1)),)) for n in range(12)]
        n_gathers = int(draw.integers(gathers // 2, gathers * 2))
        return (*layers, *(Op("aten::index", (spend(20 * gather),)) for _ in range(n_gathers)))

    body = tuple(Annotation(f"ProfilerStep#{n}", step()) for n in range(6))
    return hg.run_profile(hg.Trace.from_events(simulate(Program(body)).events))


@pytest.fixture(scope="module")
def before() -> RunProfile:
    """A run whose steps have other numbers of gathers each."""
    return run(1)


def test_what_steps_share_is_compared_and_the_rest_is_told(before: RunProfile):
    """31% of the time are gathers, whose number varies: their noise hides nothing."""
    found = RunDiff(before, run(2))

    assert found.verdict() == (
        "No change beyond noise (24.0 us) in the work that all steps share: 2.40 ms of a step "
        "is 2.40 ms now."
    )
    assert found.notes[0] == (
        "Steps vary in what they do: only work that all of them do as often is compared, 69% of "
        "the time before, 69% after; left out: aten::index (31%)."
    )


def test_a_change_of_shared_work_breaks_a_limit_and_has_its_cause(before: RunProfile):
    """One operator of twelve takes twice as long."""
    found = check_run(run(3, slow=2.0), Limits(fail_above=0.05), baseline=before)

    assert found.state == "broken"
    assert found.verdict().startswith(
        "Failed: the work that all steps share is 8.4% slower, limit 5%: 2.40 ms of a step is "
        "2.60 ms"
    )
    assert " in aten::op3 (each " in found.notes[0]


def test_steps_that_share_little_are_compared_as_a_whole():
    """Gathers are seven eighths of the time."""
    found = RunDiff(run(1, gathers=600), run(2, gathers=600))

    assert not found.is_part
    assert "share 12% of their time. They are compared as a whole." in found.notes[0]
    assert not found.is_change


def test_two_names_that_are_left_out_are_told():
    """Of three whose number varies, those with most time."""
    kinds = {"aten::index": 300_000, "aten::gather": 200_000, "aten::scatter": 100_000}

    def program(seed: int) -> RunProfile:
        draw = np.random.default_rng(seed)
        body = [
            Annotation(
                f"ProfilerStep#{step}",
                (
                    Op("aten::mm", (Spend(20_000_000),)),
                    *(
                        Op(name, (Spend(ns),))
                        for name, ns in kinds.items()
                        for _ in range(int(draw.integers(1, 20)))
                    ),
                ),
            )
            for step in range(6)
        ]
        return hg.run_profile(hg.Trace.from_events(simulate(Program(tuple(body))).events))

    said = RunDiff(program(1), program(2)).notes[0]

    assert "left out: aten::index (12%), aten::gather (10%)." in said
