"""Load, compile and find the path of every real trace.

``python -m tests.benchmarks.bench_pipeline [FOLDER]`` prints a Markdown table. Times are of one run
each, after a first one that loads what is compiled once per machine.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

import htagraph as hg
from htagraph.model.kinds import EventKind
from htagraph.report.markdown import markdown_table
from tests.real_traces import FOLDER, traces_in


def measured(file: Path) -> dict[str, object]:
    """One row of the table."""
    times = [time.perf_counter()]
    trace = hg.load(file)
    times.append(time.perf_counter())
    graph = trace.compile()
    times.append(time.perf_counter())
    path = graph.critical_path()
    assert path.segments["dur_ns"].sum() == path.dur_ns
    times.append(time.perf_counter())
    top = path.breakdown()["share"].head(3).items()
    load, compiling, walking = np.diff(times)
    return {
        "events": f"{len(trace.recording.events):,}",
        "kernels": f"{np.count_nonzero(trace.recording.events.kind == EventKind.KERNEL):,}",
        "edges": f"{len(graph.dag.edges):,}",
        "load s": f"{load:.2f}",
        "compile s": f"{compiling:.2f}",
        "path s": f"{walking:.3f}",
        "top three bounds": ", ".join(
            f"{name.replace('_', ' ')} {share:.0%}" for name, share in top
        ),
        "unexplained": f"{path.unexplained_share:.1%}",
    }


def main(folder: Path) -> None:
    """Print the table of all traces below a folder."""
    files = traces_in(folder)
    measured(files[0])
    rows = [{"file": str(file.relative_to(folder))[:48], **measured(file)} for file in files]
    print(markdown_table(pd.DataFrame(rows)))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
