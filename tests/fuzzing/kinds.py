"""Every fuzzer by its kind."""

from __future__ import annotations

from tests.fuzzing import companions, graphs, jobs, kineto, losses, nsys, perfetto, traces
from tests.fuzzing.running import Fuzzer

KINDS = {
    "kineto": Fuzzer(kineto.mutated, kineto.answered, ending=".bin", limit_s=10),
    "traces": Fuzzer(traces.mutated, traces.answered),
    "jobs": Fuzzer(jobs.mutated, jobs.answered, ending=".zip"),
    "losses": Fuzzer(losses.mutated, losses.answered, ending=".zip"),
    "graphs": Fuzzer(graphs.mutated, graphs.answered, ending=".npz", limit_s=20),
    "nsys": Fuzzer(nsys.mutated, nsys.answered, ending=".sqlite", limit_s=20),
    "perfetto": Fuzzer(perfetto.mutated, perfetto.answered, ending=".pftrace", limit_s=20),
    "companions": Fuzzer(companions.mutated, companions.answered, ending=".beside", limit_s=20),
}
"""Bytes of Kineto files, what traces mean, ranks of jobs, what traces and jobs lose, saved graphs,
and other formats."""
