"""How often a change is seen where there is none, and how often one of 5% is found.

    python tests/benchmarks/bench_noise.py [TRACE ...]

Without traces: steps are drawn, of several distributions and spreads, through the rule that
comparisons use, with the steps that are not alike left out. Prints a table for `docs/gate.md`. With
traces: each is compared with itself, its odd steps with its even ones, its first half with its
second.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

import htagraph as hg
from htagraph.arrays.welch import Sample
from htagraph.comparison.profiling import path_parts, profile_of, work_parts
from htagraph.comparison.run_diff import RunDiff, noise_ns
from htagraph.comparison.run_profile import Kind, RunProfile
from htagraph.comparison.samples import Samples, done_steps, graph_samples, sample_frame
from htagraph.lookup.steady_steps import are_near
from htagraph.run.graph import TraceGraph

F64 = npt.NDArray[np.float64]

STEP_NS = 100_000_000
N_PAIRS = 4_000
SIZES = (3, 4, 5, 7, 10)
SPREADS = (0.003, 0.01, 0.02)
FEWEST_STEPS = 4


def _correlated(random: np.random.Generator, shape: tuple[int, int], rho: float) -> F64:
    """Values of which each is like the one before."""
    noise, out = random.normal(size=shape), np.empty(shape)
    out[:, 0] = noise[:, 0]
    for step in range(1, shape[1]):
        out[:, step] = rho * out[:, step - 1] + np.sqrt(1 - rho**2) * noise[:, step]
    return out


DRAWN: dict[str, Callable[[np.random.Generator, tuple[int, int]], F64]] = {
    "normal": lambda random, shape: random.normal(size=shape),
    "heavy tails (t, 3)": lambda random, shape: random.standard_t(3, size=shape) / np.sqrt(3),
    "one in five slow": lambda random, shape: 2.5 * (random.random(shape) < 0.2) - 0.5,
    "like the step before (0.3)": lambda random, shape: _correlated(random, shape, 0.3),
    "like the step before (0.5)": lambda random, shape: _correlated(random, shape, 0.5),
}


def _sample(lengths_ns: npt.NDArray[np.int64]) -> Sample:
    """The alike ones of some steps."""
    near = are_near(lengths_ns, np.ones(len(lengths_ns), dtype=bool))
    return Sample.of(lengths_ns[near] if near.sum() >= 3 else lengths_ns)


def _seen(before: F64, after: F64, *, first: bool) -> float:
    """Share of pairs of runs in which a change is seen."""
    n_seen = 0
    for pair in zip(before, after, strict=True):
        one, other = (_sample((STEP_NS * lengths).astype(np.int64)) for lengths in pair)
        is_change = np.abs(other.mean - one.mean) > noise_ns([one], [other], first=[first])
        n_seen += bool(is_change[0])
    return n_seen / len(before)


def print_rates() -> None:
    """Print how often a change is seen, without one and with one of 5%."""
    random = np.random.default_rng(0)
    print("| steps of a run | spread | n | seen without a change | seen of 5% |")
    print("| --- | --- | --- | --- | --- |")
    for name, drawn in DRAWN.items():
        for spread in SPREADS:
            none, some = [], []
            for n in SIZES:
                runs = [1 + spread * drawn(random, (N_PAIRS, n)) for _ in range(3)]
                first = n == 3  # of three steps, the first of the trace is one
                none.append(_seen(runs[0], runs[1], first=first))
                some.append(_seen(runs[0], 1.05 * runs[2], first=first))
            sizes, found = ", ".join(map(str, SIZES)), ", ".join(f"{rate:.0%}" for rate in some)
            alarms = ", ".join(f"{rate:.1%}" for rate in none)
            print(f"| {name} | {spread:.1%} | {sizes} | {alarms} | {found} |")
    quiet = 1 + 0.003 * random.normal(size=(N_PAIRS, 10))
    for n in (3, 5):
        noisy = 1 + 0.03 * random.normal(size=(N_PAIRS, n))
        rate = _seen(quiet, noisy, first=False)
        print(f"a quiet baseline of 10 steps (0.3%) against {n} noisy ones (3%): {rate:.1%}")
    noisy = 1 + 0.03 * random.normal(size=(N_PAIRS, 3))
    rate = _seen(quiet[:, :3], noisy, first=True)
    print(f"a quiet baseline of 3 steps (0.3%) against 3 noisy ones (3%): {rate:.1%}")


KINDS = {"abab": (2, 2), "ababab": (3, 3), "aaabaaab": (6, 2), "abcabc": (2, 2, 2)}
"""Steps of several kinds, and how many there are of each."""


def _of_kinds(random: np.random.Generator, counts: tuple[int, ...], last: float) -> list[Sample]:
    """Steps of each kind in many runs, as shares of a mean step; those of the last vary so much."""
    found = []
    for kind, n in enumerate(counts):
        spread = 0.01 * (last if kind == len(counts) - 1 else 1)
        x = (1 + spread * random.normal(size=(N_PAIRS, n))) * n / sum(counts)
        std = x.std(axis=1, ddof=1)
        found.append(Sample(n, x.mean(1), std, x[:, 0], x[:, -1], x.min(1), x.max(1)))
    return found


def print_kinds() -> None:
    """Print the same for steps of several kinds, with a spread of 1%."""
    random = np.random.default_rng(0)
    for name, counts in KINDS.items():
        for last in (1, 5):
            before, same, slow = (_of_kinds(random, counts, last) for _ in range(3))
            rates = []
            for after, factor in ((same, 1), (slow, 1.05)):
                means = [sum(one.mean for one in run) for run in (before, after)]
                apart = np.abs(factor * means[1] - means[0])
                rates.append((apart > noise_ns(before, after)).mean())
            print(
                f"{name}, the last kind varies {last}x: {rates[0]:.1%} seen, {rates[1]:.0%} of 5%"
            )


def _every_alike(graph: TraceGraph) -> Samples:
    """The steps of a graph that are alike, the first among them: so that halves have enough."""
    steps = done_steps(graph.dag)
    lengths_ns = steps.end_ns - steps.start_ns
    same = steps.kind == np.bincount(steps.kind).argmax()
    kept = same & are_near(lengths_ns, same)
    n = int(kept.sum())
    frame = sample_frame(steps.names[kept], steps.start_ns[kept], lengths_ns[kept])
    rows, kind = np.flatnonzero(kept), np.zeros(n, dtype=np.int64)
    return Samples(frame, "step", len(kept), rows, kind, (Kind(n, n),))


def _some(graph: TraceGraph, samples: Samples, rows: slice) -> RunProfile:
    """The profile of some of the steps of a graph."""
    part = samples._replace(
        frame=samples.frame.iloc[rows].reset_index(drop=True),
        rows=samples.rows[rows],
        kind=samples.kind[rows],
        kinds=(Kind(len(samples.rows[rows]), len(samples.rows[rows])),),
    )
    parts = [
        *path_parts(graph.critical_path().segments, part),
        *work_parts(graph.dag, part.frame, part.rows, part.kind),
    ]
    return profile_of("part", part, parts, devices="", world_size=0, n_ranks=1)


def print_traces(paths: list[Path]) -> None:
    """Print the verdicts on traces compared with themselves."""
    warnings.simplefilter("ignore")
    for path in paths:
        graph = hg.load(path).compile()
        if graph_samples(graph).n_steps < FEWEST_STEPS:
            continue
        samples = _every_alike(graph)
        n = len(samples.frame)
        print(f"{path.name}: {n} steps alike")
        pairs = {
            "itself": (slice(None), slice(None)),
            "odd against even": (slice(0, n, 2), slice(1, n, 2)),
            "first half against second": (slice(0, n // 2), slice(n - n // 2, n)),
        }
        for what, rows in pairs.items():
            found = RunDiff(*(_some(graph, samples, part) for part in rows))
            print(f"  {what}: {found.verdict()}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print_traces([Path(arg) for arg in sys.argv[1:]])
    else:
        print_rates()
        print_kinds()
