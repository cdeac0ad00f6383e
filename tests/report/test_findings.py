"""Findings: the planted fault comes first, and no verdict is better than a guess."""

from __future__ import annotations

import pytest

from htagraph import Trace
from htagraph.report.findings import find_bounds
from htagraph.synth import simulate, timeline, training_rank


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("none", "compute"),
        ("dataloader", "data loading"),
        ("sync_in_loop", "host wait"),
        ("small_kernels", "host"),
        ("exposed_allreduce", "communication"),
        ("blocking_copy", "blocking copy"),
        ("full_queue", "compute"),
    ],
)
def test_the_first_finding_names_the_planted_fault(fault, cause, seed):
    """A full launch queue is no fault: the host runs so far ahead that the device is never without work."""
    path = Trace.from_events(simulate(training_rank(fault=fault, seed=seed)).events).compile().critical_path()

    first = find_bounds(path).findings[0]

    assert first.cause == cause


def test_findings_are_ranked_and_share_the_window():
    """The largest claim first; nothing is claimed twice."""
    path = Trace.from_events(simulate(training_rank()).events).compile().critical_path()

    found = find_bounds(path).findings

    assert [finding.dur_ns for finding in found] == sorted((finding.dur_ns for finding in found), reverse=True)
    assert sum(finding.dur_ns for finding in found) == path.dur_ns
    assert all(sum(dur_ns for _, dur_ns in finding.parts) == finding.dur_ns for finding in found)


def test_evidence_says_what_and_how_long():
    """Two kernels of one name are one line of evidence."""
    path = (
        Trace.from_events(
            timeline("""
            cpu 1    |[graph >a]
            stream 7 |     [gemm <a    ][gemm <a    ][relu <a]
        """)
        )
        .compile()
        .critical_path()
    )

    (compute,) = (finding for finding in find_bounds(path).findings if finding.cause == "compute")

    assert [(item.label, item.dur_ns, item.n_segments) for item in compute.evidence] == [
        ("gemm", 26_000, 2),
        ("relu", 9_000, 1),
    ]


def test_code_that_was_not_recorded_is_called_so():
    """A gap inside an annotation is not the annotation's own work."""
    path = (
        Trace.from_events(
            timeline("""
            cpu 1    |{train step                      }
            cpu 1    |                        [aten::mm]
        """)
        )
        .compile()
        .critical_path()
    )

    assert find_bounds(path).findings[0].evidence[0].label == "unrecorded code in train step"


def test_no_verdict_where_the_path_is_mostly_unexplained():
    """The second kernel was enqueued long before and nothing says why it waited."""
    path = (
        Trace.from_events(
            timeline("""
            cpu 1    |[launch >a][launch >b]
            stream 7 |     [k1 <a]
            stream 9 |                                                                              [k2 <b]
        """)
        )
        .compile()
        .critical_path()
    )

    verdict = find_bounds(path)

    assert (verdict.findings, "unexplained" in verdict.withheld) == ((), True)


def test_no_verdict_on_an_empty_trace():
    """There is nothing to be bound by."""
    verdict = find_bounds(Trace.from_events(timeline("")).compile().critical_path())

    assert verdict.withheld == "nothing was recorded in this window."
