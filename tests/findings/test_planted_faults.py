"""A fault planted in a random job is what the report names first."""

from __future__ import annotations

import pytest

from tests.findings.planted import CAUSES, diagnose, repair_loader

N_JOBS = 5
"""Of each kind; ``python -m tests.benchmarks.bench_findings`` prints the table over more."""


@pytest.mark.slow
@pytest.mark.parametrize("fault", CAUSES)
def test_the_first_finding_names_the_planted_fault(fault: str) -> None:
    """Whatever ranks, layers, steps, clocks and jitter are; a late rank by its number."""
    wrong = [
        outcome
        for outcome in (diagnose(fault, seed) for seed in range(N_JOBS))
        if not outcome.is_right
    ]

    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", CAUSES)
def test_findings_on_a_job_never_share_more_than_its_window(fault: str) -> None:
    """All attributed time and unknown waits are the window."""
    outcome = diagnose(fault, N_JOBS)

    assert sum(finding.path_ns for finding in outcome.verdict.findings) <= outcome.dur_ns
    assert all(
        sum(dur for _, dur in finding.ranks) == finding.path_ns
        for finding in outcome.verdict.findings
    )


@pytest.mark.parametrize("seed", range(12))
def test_a_repair_saves_no_more_than_the_cost(seed: int) -> None:
    """More time may be attributed: where the loader was, the device takes over."""
    repair = repair_loader(seed)

    assert 0 < repair.saved_ns <= repair.cost_ns <= repair.attributed_ns
