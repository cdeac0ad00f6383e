"""How near the estimates of occupancy and SM activity come.

    python -m tests.benchmarks.bench_occupancy [TRACE ...]

With traces: each kernel against Kineto's ``est. achieved occupancy %``, which rests on the CUDA
toolkit's own calculator. Without: kernels whose blocks last unequally long, through a scheduler
that gives each free slot the next block, against the estimate, which takes them to last equally
long. Both print a table for ``docs/accuracy.md``.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import htagraph as hg
from htagraph.lookup.sm_activity import LaunchGeometry, geometry_devices, launch_geometry
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind

F64 = npt.NDArray[np.float64]

OPT_IN_BYTES = 48 * 1_024
"""More shared memory a block has to ask for; Kineto's figure does not know that it did."""
N_SMS, RESIDENT, N_RUNS = 108, 2, 20
SPREADS = {"equal": 0.0, "spread 20%": 0.2, "spread 50%": 0.5}
SIZES = (0.3, 0.6, 1.2, 1.8, 3.2, 10.2)


class Against(NamedTuple):
    """Kernels of a trace: our figures in percent, and Kineto's."""

    peak: F64
    mean: F64
    kineto: F64
    opted_in: npt.NDArray[np.bool_]
    dur_ns: F64


def against_kineto(dag: Dag) -> Iterator[Against]:
    """Kernels of each device whose occupancy Kineto gives."""
    events = dag.events
    for number, device in geometry_devices(dag).items():
        said = events.column("occupancy")
        mine = (events.kind == EventKind.KERNEL) & (events.device == number) & (said >= 0)
        kernels = np.flatnonzero(mine)
        geometry = launch_geometry(dag, kernels, device)
        kernels, geometry = kernels[geometry.warps > 0], geometry.take(geometry.warps > 0)
        if not len(kernels):
            continue
        per_sm = np.minimum(geometry.n_blocks / device.n_sms, geometry.resident)
        n_waves = geometry.n_full_waves(device.n_sms) + 1
        mean = geometry.n_blocks / (n_waves * device.n_sms)
        threads = np.prod([np.maximum(events.column(f"block_{a}")[kernels], 1) for a in "xyz"], 0)
        yield Against(
            100 * per_sm * threads / device.threads_per_sm,
            100 * mean * geometry.warps / device.warps_per_sm,
            said[kernels].astype(np.float64),
            events.column("shared_memory")[kernels] > OPT_IN_BYTES,
            events.dur_ns[kernels].astype(np.float64),
        )


def print_traces(paths: list[str]) -> None:
    """Print the table of traces."""
    found = [one for path in paths for one in against_kineto(hg.load(path).compile().dag)]
    every = Against(*(np.concatenate(column) for column in zip(*found, strict=True)))
    print("| kernels | number | Kineto says | error, median | p90 | largest |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, rows, ours in (
        ("up to 48 KB of shared memory, its formula", ~every.opted_in, every.peak),
        ("the same, averaged over waves", ~every.opted_in, every.mean),
        ("more than 48 KB, averaged over waves", every.opted_in, every.mean),
    ):
        error = np.abs(ours[rows] - every.kineto[rows])
        values = " | ".join(f"{x:.1f}" for x in (*np.percentile(error, (50, 90)), error.max()))
        said = np.average(every.kineto[rows], weights=every.dur_ns[rows])
        is_now = np.average(ours[rows], weights=every.dur_ns[rows])
        print(f"| {name} | {rows.sum():,} | {said:.0f}%, here {is_now:.0f}% | {values} |")


def simulated_activity(durations: F64) -> float:
    """Share of multiprocessors with a block, of a kernel whose blocks last so long."""
    free = [(0.0, slot // N_SMS, slot % N_SMS) for slot in range(N_SMS * RESIDENT)]
    heapq.heapify(free)
    busy: list[list[tuple[float, float]]] = [[] for _ in range(N_SMS)]
    for duration in durations.tolist():
        at, depth, sm = heapq.heappop(free)
        busy[sm].append((at, at + duration))
        heapq.heappush(free, (at + duration, depth, sm))
    end = max(last for spans in busy for _, last in spans) if len(durations) else 1.0
    covered = 0.0
    for spans in busy:
        reached = 0.0
        for first, last in sorted(spans):
            covered += max(last - max(first, reached), 0.0)
            reached = max(reached, last)
    return covered / (end * N_SMS)


def print_simulated() -> None:
    """Print the table of simulated kernels."""
    random = np.random.default_rng(0)
    print(f"| blocks / slots of the device | {' | '.join(SPREADS)} | estimate |")
    print("| --- " * (len(SPREADS) + 2) + "|")
    for size in SIZES:
        n_blocks = round(size * N_SMS * RESIDENT)
        one = np.array([1])
        geometry = LaunchGeometry(n_blocks * one, one, RESIDENT * one, 0 * one)
        n_full = int(geometry.n_full_waves(N_SMS)[0])
        left = n_blocks - n_full * N_SMS * RESIDENT
        estimate = (n_full + min(left / N_SMS, 1)) / (n_full + 1)
        cells = []
        for spread in SPREADS.values():
            runs = [
                simulated_activity(np.maximum(random.normal(1, spread, n_blocks), 0.05))
                for _ in range(N_RUNS if spread else 1)
            ]
            cells.append(f"{np.mean(runs):.0%}")
        print(f"| {size:.1f} | {' | '.join(cells)} | {estimate:.0%} |")


if __name__ == "__main__":
    print_traces(sys.argv[1:]) if len(sys.argv) > 1 else print_simulated()
