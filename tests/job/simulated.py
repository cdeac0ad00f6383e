"""Simulated jobs, as a user has them: files in a folder."""

from __future__ import annotations

import tempfile
from typing import Any

import pandas as pd
from hypothesis import HealthCheck, Phase, settings

from htagraph.job.job import Job
from htagraph.job.loading import load_job
from tests.examples import one_in
from tests.synth.program import (
    Action,
    Clock,
    Collective,
    Group,
    JobProgram,
    Launch,
    Machine,
    Op,
    Program,
    Spend,
)
from tests.synth.simulated import SimulatedJob
from tests.synth.simulator import simulate_job

MACHINE = Machine(launch_latency_ns=5_000, stream_gap_ns=1_000, sync_return_ns=2_000)
WORLD = Group("0", (0, 1, 2))
FEW = settings(
    one_in(3),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
"""Few examples, none shrunk: examples are whole jobs, and to shrink one takes long."""


def loaded(simulated: SimulatedJob) -> Job:
    """The job that its files hold; it keeps its graphs and needs the files no more."""
    with tempfile.TemporaryDirectory() as folder:
        simulated.write(folder)
        return load_job(folder)


def meet(
    operation: str = "allreduce", *, root: int = 0, dur_ns: int = 10_000, group: Group = WORLD
) -> Op:
    """An operator that launches one collective."""
    collective = Collective("ncclDevKernel_Generic", dur_ns, group, operation, root=root)
    return Op("record_param_comms", (Spend(1_000), Launch(collective, 20, cost_ns=4_000)))


def three(
    *bodies: tuple[Action, ...], clocks: tuple[Clock, ...] = (), metadata: str = "seq"
) -> SimulatedJob:
    """A job of three ranks; all begin at time 0."""
    common: dict[str, Any] = {"groups": (WORLD,), "metadata": metadata}
    ranks = tuple(
        Program(body, MACHINE, rank, 3, start_ns=0, base_time_ns=0, **common)
        for rank, body in enumerate(bodies)
    )
    return simulate_job(JobProgram(ranks, clocks))


def tiles(path: pd.DataFrame, start_ns: int) -> list[tuple[int, int, int, str]]:
    """Rank, start, end and bound of tiles from a time on; equal neighbors are one tile."""
    out: list[tuple[int, int, int, str]] = []
    for rank, start, dur, bound in zip(
        path["rank"], path["start_ns"], path["dur_ns"], path["bound"], strict=True
    ):
        first, last = max(int(start), start_ns), int(start + dur)
        if last <= first:
            continue
        if out and out[-1][0] == rank and out[-1][3] == bound and out[-1][2] == first:
            out[-1] = (int(rank), out[-1][1], last, str(bound))
        else:
            out.append((int(rank), first, last, str(bound)))
    return out
