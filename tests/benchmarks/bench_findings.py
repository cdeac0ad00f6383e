"""How often the first finding names the fault planted in a random job.

Run as ``python -m tests.benchmarks.bench_findings [JOBS]``; JOBS is the number of jobs of each
kind, 30 by default: 270 in all, of which 30 have no fault. Prints one row per fault, each job that
was judged wrong, and what repairing the data loaders of JOBS random ranks saves, as a share of the
cost and of the attributed time.
"""

from __future__ import annotations

import statistics
import sys

from tests.findings.planted import CAUSES, Outcome, diagnose, repair_loader

_N_JOBS = 30


def main() -> None:
    """Judge the jobs and print the table."""
    n_jobs = int(sys.argv[1]) if len(sys.argv) > 1 else _N_JOBS
    wrong: list[Outcome] = []
    right = 0
    print("| planted | finding | named first | its share of the job, least and median |")
    print("| --- | --- | --- | --- |")
    for fault, cause in CAUSES.items():
        outcomes = [diagnose(fault, seed) for seed in range(n_jobs)]
        wrong += [outcome for outcome in outcomes if not outcome.is_right]
        good = [
            outcome.first.share
            for outcome in outcomes
            if outcome.is_right and outcome.first is not None
        ]
        right += len(good)
        shares = f"{min(good):.0%}, {statistics.median(good):.0%}" if good else "-"
        print(f"| {fault} | {cause} | {len(good)} of {n_jobs} | {shares} |")
    print(f"\n{right} of {n_jobs * len(CAUSES)} right ({right / (n_jobs * len(CAUSES)):.1%})")
    for outcome in wrong:
        found = [
            (finding.cause, round(finding.share, 3)) for finding in outcome.verdict.findings[:3]
        ]
        print(f"wrong: {outcome.fault} {outcome.options}: {found or outcome.verdict.withheld}")
    repairs = [repair_loader(seed) for seed in range(n_jobs)]
    for said, shares in {
        "the cost": [repair.saved_ns / repair.cost_ns for repair in repairs],
        "the attributed time": [repair.saved_ns / repair.attributed_ns for repair in repairs],
    }.items():
        least, middle, most = min(shares), statistics.median(shares), max(shares)
        print(f"repairs saved {least:.0%} to {most:.0%} of {said}, {middle:.0%} at the median")


if __name__ == "__main__":
    main()
