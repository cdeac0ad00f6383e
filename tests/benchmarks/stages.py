"""What one process measures, stage by stage, as JSON: ``python stages.py WAY TRACE``.

``WAY`` is ``pipeline`` (load, compile, path, ten questions), ``commands`` (whole processes, and
what it takes to inflate the file), ``reopen`` (a graph that was saved), or ``hta``: HTA's load, its
critical path of the whole trace, and its ten questions. An interpreter that has HTA runs this file
too, so it imports nothing of this repository but the package, and that only where it is measured.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

STAGES: dict[str, dict[str, float]] = {}
"""Of each stage: wall time, CPU time, and peak memory up to its end."""

ENTRY = "STAGES"
"""What the line with the answer begins with."""


def peak_bytes() -> int:
    """The most memory that this process had; what its parent had does not count."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def cpu_s() -> float:
    """CPU time of this process and its finished children, in seconds."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Measure a block."""
    began, cpu_began = time.perf_counter(), cpu_s()
    yield
    wall_s = time.perf_counter() - began
    STAGES[name] = {"wall_s": wall_s, "cpu_s": cpu_s() - cpu_began, "peak_bytes": peak_bytes()}


def pipeline(trace: Path) -> None:
    """Load, compile, path and questions; leave the saved graph next to the trace for `reopen`."""
    with stage("import"):
        import pandas  # noqa: F401, ICN001 - its import is not the first stage's

        import htagraph as hg
    with stage("load"):
        read = hg.load(trace)
    with stage("compile"):
        graph = read.compile()
    with stage("path"):
        path = graph.critical_path()
        assert path.segments["dur_ns"].sum() == path.dur_ns
    del path
    with stage("ten questions"):
        for ask in (
            graph.temporal_breakdown,
            graph.overlap,
            graph.kernel_breakdown,
            graph.idle_categories,
            graph.launch_stats,
            graph.counters,
            graph.queue_blocked,
            lambda: graph.counters(name="memory_bandwidth"),
            graph.annotation_breakdown,
            lambda: graph.annotation_breakdown(on="device"),
        ):
            ask()
    graph.save(saved_graph(trace))


def saved_graph(trace: Path) -> Path:
    """Where `pipeline` leaves the graph of a trace."""
    return trace.with_name(f"{trace.name}.htagraph.npz")


def commands(trace: Path) -> None:
    """Inflate the file, which every reader has to; then the three main commands, each a process."""
    if trace.suffix == ".gz":
        with stage("inflate"), gzip.open(trace) as file:
            while file.read(1 << 20):
                pass
    with tempfile.TemporaryDirectory() as folder:
        for name, options in {
            "htagraph path": ("path", str(trace)),
            "verdict": ("report", str(trace), "--no-files"),
            "report": ("report", str(trace), "--out", str(Path(folder) / "report")),
        }.items():
            began = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-m", "htagraph", *options, "--quiet"], stdout=subprocess.DEVNULL
            )
            _, status, used = os.wait4(process.pid, 0)
            assert status == 0, name
            STAGES[name] = {
                "wall_s": time.perf_counter() - began,
                "cpu_s": used.ru_utime + used.ru_stime,
                "peak_bytes": used.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
            }


def reopen(trace: Path) -> None:
    """A saved graph, and the critical path of it."""
    import htagraph as hg

    with stage("reopen"):
        hg.TraceGraph.open(saved_graph(trace)).critical_path().segments  # noqa: B018


def hta(trace: Path) -> None:
    """HTA's calls that answer the same."""
    logging.disable(logging.CRITICAL)
    with stage("import"):
        from hta.trace_analysis import TraceAnalysis
    with stage("load"):
        analysis = TraceAnalysis(trace_files=[str(trace)])
    (rank,) = analysis.t.get_ranks()
    with stage("path"):
        _, is_found = analysis.critical_path_analysis(rank, "", None)
    assert is_found

    def blocked() -> None:
        series = analysis.get_queue_length_time_series(ranks=[rank])
        analysis.get_time_spent_blocked_on_full_queue(series)

    asked: tuple[Callable[[], object], ...] = (
        lambda: analysis.get_temporal_breakdown(visualize=False),
        lambda: analysis.get_comm_comp_overlap(visualize=False),
        lambda: analysis.get_gpu_kernel_breakdown(visualize=False),
        lambda: analysis.get_idle_time_breakdown(ranks=[rank], visualize=False),
        lambda: analysis.get_cuda_kernel_launch_stats(ranks=[rank], visualize=False),
        lambda: analysis.get_queue_length_time_series(ranks=[rank]),
        blocked,
        lambda: analysis.get_memory_bw_time_series(ranks=[rank]),
        lambda: analysis.get_gpu_user_annotation_breakdown(False, visualize=False),
        lambda: analysis.get_gpu_user_annotation_breakdown(True, visualize=False),
    )
    with stage("ten questions"):
        for ask in asked:
            ask()


WAYS = {way.__name__: way for way in (pipeline, commands, reopen, hta)}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    WAYS[sys.argv[1]](Path(sys.argv[2]))
    print(ENTRY + json.dumps(STAGES))
