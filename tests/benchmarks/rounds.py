"""Runs of each way to analyze a trace, in processes of their own that take turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.stages import ENTRY, saved_graph

HERE = Path(__file__).resolve().parents[2]
OURS = "htagraph"
_OUR_WAYS = ("pipeline", "commands", "reopen")
_VERSION = "from importlib.metadata import version; print(version({!r}))"
_HTA_NAMES = ("traceinsight", "HolisticTraceAnalysis")

Run = dict[str, dict[str, float]]
"""Of each stage: ``wall_s``, ``cpu_s`` and ``peak_bytes``."""


@dataclass(frozen=True)
class Contender:
    """What analyzes a trace: this package, or HTA."""

    name: str
    python: str
    ways: tuple[str, ...]

    def run(self, trace: Path) -> Run:
        """Every stage once; an empty run where it fails."""
        stages: Run = {}
        for way in self.ways:
            done = subprocess.run(
                [self.python, str(HERE / "tests/benchmarks/stages.py"), way, str(trace)],
                env={**os.environ, "PYTHONPATH": str(HERE)},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                print(f"{self.name}, {way}: {done.stderr[-500:]}", file=sys.stderr)
                return {}
            answer = next(line for line in done.stdout.splitlines() if line.startswith(ENTRY))
            stages |= json.loads(answer.removeprefix(ENTRY))
        return stages


def contenders(hta: list[str]) -> list[Contender]:
    """Ourselves, and each HTA by its version."""
    found = [Contender(OURS, sys.executable, _OUR_WAYS)]
    for python in hta:
        asked = (
            subprocess.run(
                [python, "-c", _VERSION.format(name)], capture_output=True, text=True, check=False
            )
            for name in _HTA_NAMES
        )
        version = next(done.stdout.strip() for done in asked if done.returncode == 0)
        found.append(Contender(f"HTA {version}", python, ("hta",)))
    return found


def rounds(trace: Path, of: list[Contender], n_runs: int) -> Iterator[dict[str, list[Run]]]:
    """Yield the runs of each contender on a trace, after each round, in which all take turns.

    One of ours before is not counted: it compiles what is compiled once on a machine, and reads the
    file into memory.
    """
    of[0].run(trace)
    runs: dict[str, list[Run]] = {one.name: [] for one in of}
    for _ in range(n_runs):
        for one in of:
            runs[one.name].append(one.run(trace))
        yield runs
    saved_graph(trace).unlink(missing_ok=True)
