"""How the answers for a step read alone differ from those of the whole trace.

``python -m tests.benchmarks.bench_windows [FOLDER ...]`` prints a line for each trace with steps:
without folders, of eleven public traces.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import htagraph as hg
from tests.real_traces import located, traces_in

_FOLDERS = ("torchrec", "megatron-tp2", "hta/nccl_parser_config", "hta/trace_filter")
_SEGMENT = ["start_ns", "dur_ns", "bound", "name"]


class Closeness(NamedTuple):
    """How close two explanations of one step are."""

    step: str
    is_same_path: bool
    moved_share: float  #: share of the step that has another bound
    is_same_verdict: bool


def closeness(file: Path) -> list[Closeness]:
    """The first, the middle and the last step of a trace, each read by itself and in the whole."""
    whole = hg.load(file).compile()
    names = whole.steps["name"].tolist()
    found = []
    for name in dict.fromkeys((*names[:1], *names[len(names) // 2 :][:1], *names[-1:])):
        one = whole.window(name, instance=0)
        other = hg.load(file, window=name, instance=0).compile().window(name, instance=0)
        paths = one.critical_path(), other.critical_path()
        segments, others = (path.segments[_SEGMENT].astype(str) for path in paths)
        bounds, theirs = (path.breakdown()["dur_ns"] for path in paths)
        moved_ns = bounds.sub(theirs, fill_value=0).abs().sum() / 2
        verdicts = [str(graph.verdict()) for graph in (one, other)]
        found.append(
            Closeness(
                name, segments.equals(others), moved_ns / one.dur_ns, verdicts[0] == verdicts[1]
            )
        )
    return found


def main() -> None:
    """Print how close the steps of each file are."""
    warnings.simplefilter("ignore")
    every = []
    folders = map(Path, sys.argv[1:]) if sys.argv[1:] else map(located, _FOLDERS)
    for file in (file for folder in folders for file in traces_in(folder)):
        if steps := closeness(file):
            every += steps
            print(file.name, *(f"{one.step}: {one.moved_share:.2%}" for one in steps), sep="  ")
    print(
        f"{len(every)} steps: {sum(one.is_same_path for one in every)} have the same path, "
        f"{sum(one.is_same_verdict for one in every)} the same verdict; at most "
        f"{max(one.moved_share for one in every):.2%} of a step have another bound"
    )


if __name__ == "__main__":
    main()
