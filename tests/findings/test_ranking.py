"""Causes are ranked by cost, what the window loses to each; near-ties by share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

import htagraph as hg
from htagraph.findings.findings import ranked
from htagraph.findings.verdict import Finding, Verdict
from htagraph.findings.window_bounds import find_bounds
from htagraph.model.events import EventTable
from htagraph.synth import timeline
from tests.findings.test_verdict import found
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import Fault, training_job, training_rank

TIME = {
    "compute",
    "communication",
    "GPU copies",
    "host",
    "data loading",
    "gaps between kernels",
    "one-time setup",
}
"""Causes that are time: the window is convex in each one's scale."""


def judged(drawing: str) -> Verdict:
    return find_bounds(hg.Trace.from_events(timeline(drawing)).compile().critical_path())


def costs(cause: str, share: float, cost: float) -> Finding:
    """A finding on a window of 1 ms."""
    one = found(share)
    return replace(one, cause=cause, cost_ns=round(cost * 1_000_000))


def order(*findings: Finding) -> list[str]:
    return [one.cause for one in ranked(findings)]


def test_what_the_window_loses_most_to_is_first() -> None:
    """The device computes 60% of the path, but the host takes as long without it."""
    assert order(costs("compute", 0.6, 0.1), costs("data loading", 0.4, 0.3)) == [
        "data loading",
        "compute",
    ]


@pytest.mark.parametrize(("cost", "first"), [(0.27, "host"), (0.24, "data loading")])
def test_near_ties_are_ranked_by_share(cost: float, first: str) -> None:
    """Within 15% of the largest cost, 0.3: one parallel chain stops both."""
    assert order(costs("data loading", 0.3, 0.3), costs("host", 0.6, cost))[0] == first


def test_a_cause_that_was_not_replayed_counts_by_its_share() -> None:
    unknown = replace(costs("host", 0.2, 0.0), cost_ns=None)

    assert order(costs("compute", 0.6, 0.1), unknown) == ["host", "compute"]


EQUAL = """
    cpu 1    |[launch >a    ][aten::mm        ][launch >b    ][aten::mm        ][launch >c    ]
    stream 7 |     [k <a                         ][k <b                         ][k <c       ]
"""
"""The host never waits, and the device hardly: 81 us of one, 73 of the other."""


def test_two_equal_chains_are_balanced() -> None:
    """Neither costs more than the window is longer than the other."""
    verdict = judged(EQUAL)

    assert verdict.balance == (
        "No one cause stands out: the host and compute run side by side. Without one, the window "
        "is at most 7% shorter."
    )
    assert repr(verdict).splitlines()[1].strip().startswith("No one cause stands out")


def test_a_chain_alone_stands_out() -> None:
    assert judged("cpu 1 |[aten::mm                    ][aten::add  ]").balance == ""


def test_a_cost_far_below_the_share_says_why() -> None:
    (host,) = judged(EQUAL).findings

    assert host.cost == (
        "without it, the window would be only 6.00 us (7%) shorter: compute takes nearly as long "
        "at the same time"
    )


@pytest.mark.parametrize("fault", get_args(Fault))
def test_a_cause_that_is_time_costs_at_most_its_share(fault: Fault) -> None:
    """The window is convex in its scale, and its share of the path is the slope at one."""
    graph = hg.Trace.from_events(simulate(training_rank(fault=fault)).events).compile()
    costs = graph.opportunities().query("kind == 'cause'").set_index("cause")["saves_ns"]
    shares = graph.critical_path().attributed_time.groupby("cause")["dur_ns"].sum()

    for cause in TIME & set(costs.index):
        assert 0 <= costs[cause] <= shares[cause]


def test_work_from_before_the_capture_is_shown_and_never_ranked() -> None:
    """36 of 62 us: with the findings they add up to the window."""
    verdict = judged("""
        us       |0         10        20        30        40        50        60
        cpu 1    |[launch >a]
        stream 7 |                              [old ][k <a                    ]
    """)

    assert verdict.apart == (("work from before the profile", 36_000),)
    assert verdict.rest.startswith("The rest of the path: from before the profile 58.1%.")
    assert sum(one.dur_ns for one in verdict.findings) == 26_000


def test_a_slow_launch_call_is_what_its_kernel_waits_for() -> None:
    """25 us of the call; its kernel starts 1 us later and takes 19, and so it does without it."""
    graph = hg.Trace.from_events(
        timeline("""
            cpu 1    |[launch >a              ]            [sync @*]
            stream 7 |                          [k <a             ]
        """)
    ).compile()

    assert hg.what_if(graph, hg.scale("cudaLaunchKernel", by=0)).dur_ns == (1 + 19 + 1) * 1_000


def test_the_ranking_does_not_depend_on_the_order_of_ranks(tmp_path: Path) -> None:
    """The same job three times, with another rank late."""
    causes = []
    for late in range(3):
        folder = tmp_path / str(late)
        program = training_job(ranks=3, straggler=late, delay_ns=9_000_000, steps=3, layers=3)
        simulate_job(program).write(folder)
        findings = hg.load_job(folder).verdict().findings
        causes.append([one.cause for one in findings if one.share > 0.01])
        assert findings[0].label == f"late rank {late}"

    assert causes[0] == causes[1] == causes[2]


def test_the_ranking_does_not_depend_on_names() -> None:
    """Kernels and operators with other names of the same kind."""
    drawing = """
        cpu 1    |[op         ][launch >a][launch >b]  [sync @*                  ]
        stream 7 |                  [k1 <a         ][k2 <b                       ]
    """
    named, renamed = (
        timeline(drawing, names=names)
        for names in ({}, {"op": "aten::zzz", "k1": "gemm_a", "k2": "softmax_b"})
    )

    assert by_cause(named) == by_cause(renamed)


def by_cause(events: EventTable) -> list[tuple[str, int, int | None]]:
    verdict = find_bounds(hg.Trace.from_events(events).compile().critical_path())
    return [(one.cause, one.dur_ns, one.cost_ns) for one in verdict.findings]
