"""Causes are ranked by what each costs: what the run would be shorter by without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

import htagraph as hg
from htagraph.findings.verdict import Finding, Verdict, ordered
from htagraph.model.events import EventTable
from htagraph.synth import timeline
from tests.drawn import drawn_graph
from tests.findings.test_verdict import found, judged, one_after_another, side_by_side
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import Fault, training_job, training_rank

TIME = {
    "GPU compute",
    "communication",
    "GPU copies",
    "CPU work",
    "data loading",
    "gaps between kernels",
    "one-time setup",
}
"""Causes that are time: the run is convex in each one's scale."""


def costs(cause: str, share: float, cost: float) -> Finding:
    """A finding on a run of 1 ms."""
    return replace(found(share, cost), cause=cause)


def order(*findings: Finding) -> list[str]:
    return [one.cause for one in ordered(findings)]


def test_what_costs_most_is_first() -> None:
    """The device computes 60% of the path, but the host takes as long without it."""
    assert order(costs("GPU compute", 0.6, 0.1), costs("data loading", 0.4, 0.3)) == [
        "data loading",
        "GPU compute",
    ]


@pytest.mark.parametrize(("cost", "first"), [(0.38, "data loading"), (0.42, "CPU work")])
def test_causes_of_nearly_the_same_cost_are_ranked_by_cost(cost: float, first: str) -> None:
    """However much of the path they have: 40% costs data loading."""
    assert order(costs("data loading", 0.4, 0.4), costs("CPU work", 0.9, cost))[0] == first


@pytest.mark.parametrize(
    ("cost", "first"), [(0.19, "data loading"), (0.21, "late rank"), (0.41, "late rank")]
)
def test_a_late_rank_leads_from_half_of_the_largest_cost_on(cost: float, first: str) -> None:
    """That is 40%. The rest keeps its order."""
    found = order(
        costs("CPU work", 0.3, 0.1), costs("late rank", 0.3, cost), costs("data loading", 0.4, 0.4)
    )

    assert found[0] == first
    assert [one for one in found if one != "late rank"] == ["data loading", "CPU work"]


def test_a_cause_that_was_not_replayed_counts_by_its_share() -> None:
    unknown = replace(costs("CPU work", 0.2, 0.0), cost_ns=None)

    assert order(costs("GPU compute", 0.6, 0.1), unknown) == ["CPU work", "GPU compute"]


# Side by side.

APART = {"load": 164, "save": 164, "collect": 164, "compile": 164, "tune": 164}
"""Causes that cost less than the 180 us that two chains take."""


@pytest.mark.parametrize(
    ("parallel_us", "both"),
    [(180, ""), (235, "GPU compute and CPU work, in parallel: together cost 23%")],
)
def test_two_equal_chains_are_one_finding(parallel_us: int, both: str) -> None:
    """If without both the run is shorter by a fifth of it more than without each: 17% or 21%."""
    verdict = side_by_side(parallel_us, **APART)

    cards = [f"{one.title}: {one.said}" for one in verdict.cards if len(one.findings) == 2]
    assert cards == ([both] if both else [])


@pytest.mark.parametrize(("load_us", "state"), [(315, "side by side"), (355, "first cause")])
def test_a_cause_of_a_third_stands_alone(load_us: int, state: str) -> None:
    """The rest of 600 us before two equal chains of 400."""
    verdict = side_by_side(400, load=load_us, save=300 - load_us // 2, collect=300 - load_us // 2)

    assert verdict.state == state
    assert verdict.findings[0].cause == "data loading"


@pytest.mark.parametrize(("unknown_us", "state"), [(180, "side by side"), (200, "hidden chain")])
def test_a_chain_of_unknown_waits_withholds_the_verdict(unknown_us: int, state: str) -> None:
    """47% or 52% of the next path. The host is all of this one, and costs 1%."""
    verdict = judged(f"""
        cpu 1    |[launch >a][launch >b][aten::mm{" " * 390}]
        stream 7 |          [k1 <a ]{" " * unknown_us}[k2 <b{" " * (392 - unknown_us)}]
    """)

    assert verdict.state == state


def test_causes_one_after_another_are_no_pair() -> None:
    """Without both, the run is as much shorter as without each."""
    assert one_after_another(load=300, save=250, step=250, aten__mm=200).pair is None


def test_the_partner_of_a_chain_may_be_off_the_path() -> None:
    """The host never waits for the device, which is busy as long."""
    verdict = judged("""
        cpu 1    |[launch >a    ][aten::mm        ][launch >b    ][aten::mm        ][launch >c    ]
        stream 7 |     [k <a                         ][k <b                         ][k <c       ]
    """)

    assert [one.cause for one in verdict.findings] == ["CPU work"]
    assert verdict.pair is not None
    assert [one.cause for one in verdict.pair.findings] == ["CPU work", "GPU compute"]
    assert verdict.pair.together_ns == verdict.dur_ns


# What a cost is.


@pytest.mark.some(1)
@pytest.mark.parametrize("fault", get_args(Fault))
def test_a_cause_that_is_time_costs_at_most_its_time_on_the_path(fault: Fault) -> None:
    """The run is convex in its scale, and its share of the path is the slope at one."""
    graph = hg.Trace.from_events(simulate(training_rank(fault=fault)).events).compile()
    costs = graph.opportunities().query("kind == 'cause'").set_index("cause")["saves_ns"]
    times = graph.critical_path().attributed_time.groupby("cause")["dur_ns"].sum()

    assert TIME & set(costs.index)
    for cause in TIME & set(costs.index):
        assert 0 <= costs[cause] <= times[cause]


@pytest.mark.some(1)
@pytest.mark.parametrize("fault", get_args(Fault))
def test_findings_and_what_is_apart_add_up_to_the_run(fault: Fault) -> None:
    """No time is charged twice, and none is left out."""
    verdict = hg.Trace.from_events(simulate(training_rank(fault=fault)).events).compile().verdict()
    apart_ns = sum(dur_ns for _, dur_ns in verdict.apart)

    assert sum(one.path_ns for one in verdict.findings) + apart_ns == verdict.dur_ns


def test_work_from_before_the_profile_is_named_and_never_ranked() -> None:
    """36 of 62 us."""
    events = timeline("""
        us       |0         10        20        30        40        50        60
        cpu 1    |[launch >a]
        stream 7 |                              [old ][k <a                    ]
    """)
    verdict = hg.Trace.from_events(events).compile().window("trace").verdict()

    assert verdict.apart == (("work from before the profile", 36_000),)
    assert verdict.also == "Also: work from before the profile 58% of the path."
    assert sum(one.path_ns for one in verdict.findings) == 26_000


def test_a_slow_launch_call_is_what_its_kernel_waits_for() -> None:
    """25 us of the call; its kernel starts 1 us later and takes 19, and so it does without it."""
    graph = drawn_graph("""
        cpu 1    |[launch >a              ]            [sync @*]
        stream 7 |                          [k <a             ]
    """)

    assert hg.what_if(graph, hg.scale("cudaLaunchKernel", by=0)).dur_ns == (1 + 19 + 1) * 1_000


@pytest.mark.slow
def test_the_ranking_does_not_depend_on_the_order_of_ranks(tmp_path: Path) -> None:
    """The same job three times, with another rank late."""
    causes = []
    for late in range(3):
        folder = tmp_path / str(late)
        program = training_job(ranks=3, straggler=late, delay_ns=9_000_000, steps=3, layers=3)
        simulate_job(program).write(folder)
        verdict = hg.load_job(folder).verdict()
        causes.append([one.cause for one in verdict.findings if one.share > 0.01])
        assert verdict.headline.startswith(f"Rank {late} is late: it costs ")

    assert causes[0] == causes[1] == causes[2]


def test_the_ranking_does_not_depend_on_names() -> None:
    """Kernels and operators with other names of the same kind."""
    drawing = """
        cpu 1    |[op         ][launch >a][launch >b]  [sync @*                  ]
        stream 7 |                  [k1 <a         ][k2 <b                       ]
    """
    drawn, renamed = (
        timeline(drawing, names=names)
        for names in ({}, {"op": "aten::zzz", "k1": "gemm_a", "k2": "softmax_b"})
    )

    assert by_cause(drawn) == by_cause(renamed)


def by_cause(events: EventTable) -> list[tuple[str, int, int | None]]:
    verdict: Verdict = hg.Trace.from_events(events).compile().verdict()
    return [(one.cause, one.path_ns, one.cost_ns) for one in verdict.findings]
