"""Predicted savings against true ones: programs whose repair is simulated for real.

``python -m tests.benchmarks.bench_what_if [PAIRS] [FIRST] [KIND …]``: PAIRS is the number of pairs
of each kind of change in `tests.synth.repairs.KINDS`, 30 by default, with seeds from FIRST on.
Prints one row per kind: how many true savings lie inside the predicted interval, how wide it is,
and how wrong the expected saving is. Widths and errors are shares of the wall time. Then each pair
whose true saving lies outside.

The interval is that of the readings: here both runs are one run, and nothing differs but what is
changed. `bench_intervals` has real runs.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from typing import NamedTuple

import htagraph as hg
from htagraph.replay.rehearsal import Rehearsed
from tests.synth.program import Program
from tests.synth.repairs import KINDS, ask, repair
from tests.synth.simulator import simulate, simulate_job

_N_PAIRS = 30
_ROUNDING_NS = 100
"""Jobs have durations off the grid of repairs: each scaled one is rounded."""


class Judged(NamedTuple):
    """One pair: its true saving, and what was predicted."""

    kind: str
    seed: int
    said: str
    wall_ns: int
    true_ns: int
    low_ns: int
    high_ns: int
    expected_ns: int

    @property
    def is_inside(self) -> bool:
        """Whether the interval holds the truth."""
        return self.low_ns - _ROUNDING_NS <= self.true_ns <= self.high_ns + _ROUNDING_NS

    @property
    def width(self) -> float:
        """Width of the interval, as a share of the wall time."""
        return (self.high_ns - self.low_ns) / self.wall_ns

    @property
    def error(self) -> float:
        """Error of the expected saving, as a share of the wall time."""
        return abs(self.expected_ns - self.true_ns) / self.wall_ns


def judge(kind: str, seed: int) -> Judged:
    """Predict one pair."""
    pair = repair(kind, seed)
    change = ask(pair.change)
    if isinstance(pair.before, Program):
        graph = hg.Trace.from_events(simulate(pair.before).events).compile().window("trace")
        wall_ns = graph.dur_ns
        rehearsal: Rehearsed = hg.what_if(graph).rehearsal
        saves = rehearsal.saving((change,))
    else:
        with tempfile.TemporaryDirectory() as folder:
            simulate_job(pair.before).write(folder)
            job = hg.load_job(folder).window("trace")
            wall_ns, rehearsal = job.critical_path().dur_ns, job.rehearsal
            saves = rehearsal.saving((change,))
    # As in `Saving.of`: an error of the clocks is in both runs.
    clock_error_ns = min(rehearsal.clock_error_ns, abs(saves.expected_ns) // 2)
    read = [ns for _, ns in saves.readings]
    return Judged(
        kind,
        seed,
        f"{pair.shape}: {change}",
        wall_ns,
        pair.saving_ns,
        min(read) - clock_error_ns,
        max(read) + clock_error_ns,
        saves.expected_ns,
    )


def row(kind: str, found: list[Judged]) -> str:
    """One row of the table."""
    if not found:
        return f"| {kind} | 0 | - | - | - | - |"
    inside = sum(one.is_inside for one in found) / len(found)
    widths, errors = [one.width for one in found], [one.error for one in found]
    return (
        f"| {kind} | {len(found)} | {inside:.0%} | {statistics.median(widths):.2%} "
        f"| {statistics.median(errors):.2%} | {max(errors):.1%} |"
    )


def main() -> None:
    """Judge the pairs and print the table."""
    n_pairs = int(sys.argv[1]) if len(sys.argv) > 1 else _N_PAIRS
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    kinds = sys.argv[3:] or KINDS
    every: list[Judged] = []
    print("| change | pairs | inside | median width | expected saving, median error | worst |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind in kinds:
        found = [judge(kind, seed) for seed in range(first, first + n_pairs)]
        every += found
        print(row(kind, found), flush=True)
    print(row("all", every))
    for one in every:
        if not one.is_inside:
            print(
                f"outside: {one.kind} {one.seed}, {one.said}: of {one.wall_ns / 1e3:.1f} us, "
                f"{one.low_ns / 1e3:.1f} to {one.high_ns / 1e3:.1f} us predicted, "
                f"{one.true_ns / 1e3:.1f} us saved"
            )


if __name__ == "__main__":
    main()
