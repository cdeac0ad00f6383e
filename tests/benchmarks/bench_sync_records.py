"""What a path loses without records of waits, on simulated ranks whose causes are known.

``python -m tests.benchmarks.bench_sync_records [--programs 150] [--seed 0]`` records each of some
random programs three times, with less and less, and prints a Markdown table: the share of path time
with the true bound, and without explanation. Each program weighs the same, however long it runs.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import pandas as pd
from hypothesis import HealthCheck, Phase, given, seed, settings

from htagraph.compiler.passes import compile_events
from htagraph.reports.markdown import markdown_table
from tests.judged_inference import path_time
from tests.synth.mechanisms import inference_program
from tests.synth.program import Program
from tests.synth.simulator import simulate
from tests.synth.strategies import programs

RECORDED = {
    "with records": {"sync_records": True, "sync_calls": True},
    "without records": {"sync_records": False, "sync_calls": True},
    "without records and calls": {"sync_records": False, "sync_calls": False},
}
"""What the profiler writes down of a stream that waits for another."""

REALISTIC = ("stripped waits", "late ends", "mixture")


def arbitrary_programs(n_programs: int, first: int) -> list[Program]:
    """Small programs in which nothing recurs."""
    found: list[Program] = []

    @seed(first)
    @settings(
        max_examples=n_programs,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def collect(program: Program) -> None:
        found.append(program)

    collect()
    return found


def shares(program: Program) -> list[dict[str, object]]:
    """Path time of a program, by kind of record: with the true bound, and unexplained."""
    rows: list[dict[str, object]] = []
    for recorded, flags in RECORDED.items():
        rank = simulate(replace(program, **flags))  # type: ignore[arg-type]
        for infer in (False, True):
            time = path_time(compile_events(rank.events, infer=infer), rank.truth)
            total_ns = max(time["total_ns"], 1)
            rows.append(
                {
                    "recorded": recorded,
                    "inference": "on" if infer else "off",
                    "right": time["right_ns"] / total_ns,
                    "unknown_waits": time["unexplained_ns"] / total_ns,
                }
            )
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    given_ = parser.parse_args()
    numbers = range(given_.seed, given_.seed + given_.programs)
    samples = {"random": arbitrary_programs(given_.programs, given_.seed)} | {
        kind: [inference_program(kind, number) for number in numbers] for kind in REALISTIC
    }
    found = pd.DataFrame(
        [
            {"programs": kind, **row}
            for kind, sample in samples.items()
            for program in sample
            for row in shares(program)
        ]
    )
    groups = found.groupby(["programs", "recorded", "inference"], sort=False)
    table = groups.agg(
        n=("right", "size"),
        mean=("right", "mean"),
        worst=("right", "min"),
        unexplained=("unknown_waits", "mean"),
    ).reset_index()
    for share in ("mean", "worst", "unknown_waits"):
        table[share] = table[share].map("{:.2%}".format)
    names = {"mean": "true bound, mean", "worst": "worst"}
    print(markdown_table(table.rename(columns=names)))


if __name__ == "__main__":
    main()
