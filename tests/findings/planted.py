"""Random simulated jobs with a planted fault: what a report says first, what its repair saves."""

from __future__ import annotations

import random
import tempfile
from typing import Any, NamedTuple

from htagraph.findings.verdict import Finding, Verdict
from htagraph.findings.window_bounds import find_bounds
from htagraph.job.loading import load_job
from htagraph.reports.job_summary import JobSummary
from htagraph.run.trace import Trace
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job

CAUSES = {
    "none": "GPU compute",
    "straggler": "late rank",
    "dataloader": "data loading",
    "sync_in_loop": "GPU synchronization",
    "small_kernels": "CPU work",
    "exposed_allreduce": "communication",
    "synchronous_copy": "synchronous copies",
    "full_queue": "full launch queue",
    "recompile": "recompilation",
}
"""What names each planted fault; without one, a job is bound by compute."""

_RANKS = {"straggler": [2, 4], "full_queue": [1, 2]}
"""Of jobs with some faults: a straggler needs others; a queue is full on each rank by itself."""

_LAYER_NS = 850_000
"""A layer's part of a step, forward and backward, about."""


class Outcome(NamedTuple):
    """What was planted and what was found."""

    fault: str
    options: dict[str, Any]
    dur_ns: int
    verdict: Verdict

    @property
    def first(self) -> Finding | None:
        """The first finding; of a full queue the first after compute.

        A full queue is one that compute cannot drain: the larger of the two stands first, and
        compute is necessary.
        """
        found = self.verdict.findings
        if self.fault == "full_queue" and found and found[0].cause == "GPU compute":
            found = found[1:]
        return found[0] if found else None

    @property
    def is_right(self) -> bool:
        """Whether the first finding names the planted fault; a late rank by its number, too."""
        if self.first is None or self.first.cause != CAUSES[self.fault]:
            return False
        return self.fault != "straggler" or self.first.ranks[0][0] == self.options["straggler"]


def drawn_options(fault: str, seed: int) -> dict[str, Any]:
    """Options of a random job: ranks, steps and layers, parallelism, clocks, jitter.

    A straggler is late by 1.5 to 4 times the length of a step, for whatever reason.
    """
    source = random.Random(f"{fault} {seed}")  # noqa: S311  no secret
    ranks = source.choice(_RANKS.get(fault, [1, 2, 4]))
    layers = source.randint(2, 6)
    options: dict[str, Any] = {
        "ranks": ranks,
        "steps": source.randint(2, 3),
        "layers": layers,
        "tensor": source.choice([1, 2]) if ranks == 4 else 1,
        "max_offset_ns": source.choice([0, 3_000_000]),
        "max_drift_ppb": source.choice([0, 2_000]),
        "jitter_ns": source.choice([0, 500]),
        "seed": seed,
    }
    if fault != "straggler":
        return options | {"fault": fault}
    return options | {
        "straggler": source.randrange(ranks),
        "delay": source.choice(["python", "op", "data_loading", "kernel"]),
        "delay_ns": int(layers * _LAYER_NS * source.uniform(1.5, 4)),
    }


def diagnose(fault: str, seed: int) -> Outcome:
    """Report on a random job with a fault, read from its files as a user's would be."""
    options = drawn_options(fault, seed)
    with tempfile.TemporaryDirectory() as folder:
        simulate_job(training_job(**options)).write(folder)
        summary = JobSummary(load_job(folder), fault)
        return Outcome(fault, options, summary.path.dur_ns, summary.verdict)


class Repair(NamedTuple):
    """Attributed time and cost of a finding, and what its repair saved."""

    attributed_ns: int
    cost_ns: int
    saved_ns: int


def repair_loader(seed: int) -> Repair:
    """Repair of a random rank's slow data loader: the same program without its delay."""
    source = random.Random(f"repair {seed}")  # noqa: S311  no secret
    layers = source.randint(1, 6)
    options: dict[str, Any] = {
        "ranks": 1,
        "steps": source.randint(1, 4),
        "layers": layers,
        "straggler": 0,
        "delay": "data_loading",
    }
    delay_ns = int(layers * _LAYER_NS * source.uniform(0.2, 4))
    jobs = [training_job(**options, delay_ns=delay, seed=seed) for delay in (delay_ns, 0)]
    ranks = [simulate(job.ranks[0]) for job in jobs]
    graphs = [Trace.from_events(rank.events).compile().window("trace") for rank in ranks]
    paths = [graph.critical_path() for graph in graphs]
    loading = next(
        finding for finding in find_bounds(paths[0]).findings if finding.cause == "data loading"
    )
    return Repair(loading.path_ns, loading.cost_ns or 0, paths[0].dur_ns - paths[1].dur_ns)
