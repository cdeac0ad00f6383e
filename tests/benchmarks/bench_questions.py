"""Each question and the same call of HTA, in one run on one machine.

``python -m tests.benchmarks.bench_questions --hta PYTHON``: PYTHON is an interpreter that has HTA
0.6.1 (``pip install traceinsight``). Times are the best of three, after loading; ratios above 1 say
how many times faster we are.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.public_traces import FOLDER

TRACES = FOLDER / "hta"
FILES = {
    "df_index_resolver": TRACES / "df_index_resolver" / "df_index_resolver.json.gz",
    "trace_diff/control": TRACES / "trace_diff" / "control" / "control.json.gz",
}
AFTER = TRACES / "trace_diff" / "test" / "test.json.gz"
_OTHER_SIDE = r"""
import json, logging, sys, tempfile, time
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
from hta.common.trace_call_graph import CallGraph
from hta.trace_diff import LabeledTrace, TraceDiff
path, after, n_runs = sys.argv[1], sys.argv[2], int(sys.argv[3])

def load():
    from hta.common.trace_file import get_trace_files
    return TraceAnalysis(trace_files=[path])

began = time.perf_counter()
analysis = load()
out = {"load": time.perf_counter() - began}
rank = analysis.t.get_ranks()[0]
folder = tempfile.mkdtemp()

def queue():
    series = analysis.get_queue_length_time_series(ranks=[rank])
    analysis.get_time_spent_blocked_on_full_queue(series)

def diff():
    from hta.common.trace import Trace
    return TraceDiff.compare_traces(control, test)

calls = {
    "temporal_breakdown": lambda: analysis.get_temporal_breakdown(visualize=False),
    "overlap": lambda: analysis.get_comm_comp_overlap(visualize=False),
    "kernel_breakdown": lambda: analysis.get_gpu_kernel_breakdown(visualize=False),
    "idle_time": lambda: analysis.get_idle_time_breakdown(ranks=[rank], visualize=False),
    "launch_stats": lambda: analysis.get_cuda_kernel_launch_stats(ranks=[rank], visualize=False),
    "queue_length": lambda: analysis.get_queue_length_time_series(ranks=[rank]),
    "queue_blocked": queue,
    "memory_bandwidth": lambda: analysis.get_memory_bw_time_series(ranks=[rank]),
    "annotation_breakdown": lambda: analysis.get_gpu_user_annotation_breakdown(
        use_gpu_annotation=False, visualize=False
    ),
    "operator_tree": lambda: CallGraph(analysis.t, ranks=[rank]),
    "kernel_patterns": lambda: analysis.get_frequent_cuda_kernel_sequences(
        "aten::addmm", folder, rank=rank, min_pattern_len=1
    ),
}
for name, call in calls.items():
    best = float("inf")
    for _ in range(n_runs if name not in ("kernel_patterns", "operator_tree") else 1):
        began = time.perf_counter()
        try:
            call()
        except Exception as error:
            best = None
            out[name + " error"] = repr(error)[:200]
            break
        best = min(best, time.perf_counter() - began)
    out[name] = best
try:
    from hta.common.trace import Trace
    files = (("Control", path), ("Test", after))
    control, test = (LabeledTrace(label, t=Trace({0: file})) for label, file in files)
    for side in (control, test):
        side.t.parse_traces()
        side.t.decode_symbol_ids()
    began = time.perf_counter()
    TraceDiff.compare_traces(control, test)
    out["diff"] = time.perf_counter() - began
except Exception as error:
    out["diff"] = None
    out["diff error"] = repr(error)[:200]
print("RESULT" + json.dumps(out))
"""


def _best(call: Callable[[], object], n_runs: int) -> float:
    """The shortest of several calls, after a first one that compiles."""
    call()
    times = []
    for _ in range(n_runs):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def ours(path: Path, after: Path, n_runs: int) -> dict[str, float]:
    """The time of each of our questions, and of loading and compiling."""
    import htagraph as hg
    from htagraph.explain.differences import kernel_diff, op_diff
    from htagraph.queries.communication import overlap
    from htagraph.queries.counters import counters, launch_stats, queue_blocked
    from htagraph.queries.kernels import kernel_breakdown, kernel_patterns
    from htagraph.queries.operators import annotation_breakdown, operator_tree
    from htagraph.queries.steps import idle_categories, idle_time, temporal_breakdown

    dag = hg.load(path).compile().dag
    other = hg.load(after).compile().dag
    at = dag.span
    calls: dict[str, Callable[[], object]] = {
        "load": lambda: hg.load(path).compile(),
        "temporal_breakdown": lambda: temporal_breakdown(dag, at),
        "overlap": lambda: overlap(dag, at),
        "kernel_breakdown": lambda: (
            kernel_breakdown(dag, at),
            kernel_breakdown(dag, at, by="name"),
        ),
        "idle_time": lambda: idle_categories(dag, at),
        "idle_time by cause": lambda: idle_time(dag, at),
        "launch_stats": lambda: launch_stats(dag, at),
        "queue_length": lambda: counters(dag, at),
        "queue_blocked": lambda: queue_blocked(dag, at),
        "memory_bandwidth": lambda: counters(dag, at, name="memory_bandwidth"),
        "annotation_breakdown": lambda: annotation_breakdown(dag, at),
        "operator_tree": lambda: operator_tree(dag, at),
        "kernel_patterns": lambda: kernel_patterns(dag, at, under="aten::addmm", min_length=1),
        "diff": lambda: (op_diff(dag, other), kernel_diff(dag, other)),
    }
    return {name: _best(call, n_runs) for name, call in calls.items()}


def theirs(python: str, path: Path, after: Path, n_runs: int) -> dict[str, float]:
    """The time of each of HTA's calls, measured in its own interpreter."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(_OTHER_SIDE)
        script.flush()
        command = [python, script.name, str(path), str(after), str(n_runs)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    if not lines:
        raise SystemExit(f"HTA failed:\n{done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(lines[-1].removeprefix("RESULT"))
    return result


def main() -> None:
    """Print a table of times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hta", required=True, help="interpreter that has HTA (traceinsight)")
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    ratios = []
    for name, path in FILES.items():
        mine = ours(path, AFTER, asked.runs)
        other = theirs(asked.hta, path, AFTER, asked.runs)
        print(f"\n{name}\n{'question':24} {'ours ms':>10} {'HTA ms':>10} {'ratio':>8}")
        for question, seconds in mine.items():
            hta = other.get(question)
            theirs_ms = hta * 1e3 if hta else float("nan")
            ratio = f"{hta / seconds:8.1f}" if hta else f"{'-':>8}"
            print(f"{question:24} {seconds * 1e3:10.1f} {theirs_ms:10.1f} {ratio}")
            if hta and question != "load":
                ratios.append(hta / seconds)
        print({key: value for key, value in other.items() if key.endswith("error")} or "")
    print(f"\nquestions: median ratio {statistics.median(ratios):.1f}, least {min(ratios):.1f}")
    sys.exit(min(ratios) < 1)


if __name__ == "__main__":
    main()
