"""What a run is shorter by without a function: predicted by a replay, and measured.

``python -m tests.functions_removed FOLDER``: pairs of runs, ``CASE.before_stack.*`` with Python
stacks, and ``CASE.truth.json`` with the function that was planted (``fn``), and what the steps of
the run without it were shorter by when nothing was recorded: by the wall (``wall_saving_ms`` of
``wall_before_ms``), and by the time in which they had the machine (``saving_ms`` of
``quiet_before_ms``).
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
    """A function: its rank by own time, and shares of a step that the run is shorter by."""

    case: str
    function: str
    rank: int
    predicted_ms: float
    predicted: float
    backward: float
    """What the gradients of its operators take; a replay leaves them."""
    by_wall: float
    by_quiet: float


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
    first, whole_ns = named.iloc[0], graph.dur_ns
    saves = hg.what_if(graph, hg.remove(first["frame"])).saves_ns
    assert saves is not None
    return Removed(
        case,
        first["function"],
        int(named.index[0]) + 1,
        saves.expected_ns / max(graph.critical_path().n_steps, 1) / 1e6,
        saves.expected_ns / whole_ns,
        first["backward_ns"] / whole_ns,
        told["wall_saving_ms"] / told["wall_before_ms"],
        told["saving_ms"] / told["quiet_before_ms"],
    )


def all_removed(folder: Path) -> Iterator[Removed]:
    """Those of a folder."""
    return filter(None, map(removed, sorted(folder.glob("*.truth.json"))))


if __name__ == "__main__":
    print("case              function        rank   ms a step  predicted +gradients   wall  quiet")
    for one in all_removed(Path(sys.argv[1])):
        print(
            f"{one.case:18}{one.function:18}{one.rank:2}{one.predicted_ms:12.1f}"
            f"{one.predicted:11.0%}{one.backward:11.0%}{one.by_wall:7.0%}{one.by_quiet:7.0%}"
        )
