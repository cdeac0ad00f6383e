"""What a run is shorter by without a function: predicted by a replay, and measured.

``python -m tests.functions_removed FOLDER``: a folder of pairs of runs, ``CASE.before_stack.*`` with
Python stacks, and ``CASE.truth.json`` with the function that was planted (``fn``), and by how much
the steps of the run without it are shorter, in ms: untraced (``wall_saving_ms``), without time in
which the machine ran others (``saving_ms``), and traced (``traced_wall_saving_ms``).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import htagraph as hg


class Removed(NamedTuple):
    """A function of a run: its rank by own time, and what a step is shorter by without it, in ms."""

    case: str
    function: str
    rank: int
    step_ms: float
    predicted_ms: float
    backward_ms: float
    """Time of the gradients of its operators, which a replay leaves."""
    measured_ms: tuple[float, float, float]
    """Untraced, and with stacks, by the wall; and by the time that the run had the machine."""


def removed(truth: Path) -> Removed | None:
    """The planted function; None if the case names none that has path time."""
    told = json.loads(truth.read_text())
    case, planted = told["case"], re.compile(told.get("fn") or "(?!)")
    (file, *_) = [*truth.parent.glob(f"{case}.before_stack.*"), None]
    if file is None:
        return None
    graph = hg.load(file, stacks=True).compile()
    found = graph.functions().reset_index(drop=True)
    named = found[found["function"].map(lambda name: planted.fullmatch(name) is not None)]
    if not len(named):
        return None
    first = named.iloc[0]
    n_steps = 1e6 * max(graph.critical_path().n_steps, 1)
    saved_ns = hg.what_if(graph, hg.remove(first["frame"])).saves_ns.expected_ns
    names = ("wall_saving_ms", "traced_wall_saving_ms", "saving_ms")
    return Removed(
        case,
        first["function"],
        int(named.index[0]) + 1,
        graph.dur_ns / n_steps,
        saved_ns / n_steps,
        first["backward_ns"] / n_steps,
        tuple(told[name] for name in names),
    )


def all_removed(folder: Path) -> Iterator[Removed]:
    """Those of a folder."""
    return filter(None, map(removed, sorted(folder.glob("*.truth.json"))))


if __name__ == "__main__":
    print(
        "case function rank  step  predicted +backward  measured: wall, traced, quiet (ms a step)"
    )
    for one in all_removed(Path(sys.argv[1])):
        measured = "  ".join(f"{ms:6.1f}" for ms in one.measured_ms)
        print(
            f"{one.case:18}{one.function:18}{one.rank:2}{one.step_ms:8.1f}{one.predicted_ms:8.1f}"
            f"{one.backward_ms:8.1f}    {measured}"
        )
