"""How the path of a trace that is read in parts differs from that of the whole trace.

``python -m tests.benchmarks.bench_parts FILE ... [--parts 4]`` prints a line for each trace.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import htagraph as hg
from htagraph.readers.byte_stream import content_of


def moved_share(file: Path, n_parts: int) -> tuple[int, int, float]:
    """Number of parts and of steps, and the share of the path that has another bound."""
    judged = hg.stepwise_verdict(file, part_bytes=max(len(content_of(file)) // n_parts, 1))
    path = hg.load(file).compile().critical_path()
    moved_ns = path.breakdown()["dur_ns"].sub(judged.by_bound["dur_ns"], fill_value=0).abs().sum()
    return judged.n_parts, judged.n_steps, moved_ns / 2 / max(path.dur_ns, 1)


def main() -> None:
    """Print how close the parts of each file are."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--parts", type=int, default=4)
    asked = parser.parse_args()
    for file in asked.files:
        n_parts, n_steps, share = moved_share(file, asked.parts)
        print(f"{file.name}  {n_parts} parts, {n_steps} steps: {share:.2%} has another bound")


if __name__ == "__main__":
    main()
