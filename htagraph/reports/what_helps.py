"""What would help, for people: the opportunities with one row for each thing that one could do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import takewhile
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from htagraph.errors import QueryError
from htagraph.findings.verdict import LEAST_ALSO, Verdict
from htagraph.model.frames import FIRST_CHANGES
from htagraph.model.labels import name_label
from htagraph.model.units import human_duration
from htagraph.replay.candidates import TWICE_AS_FAST
from htagraph.replay.predictions import Trials

__all__ = [
    "ALONE",
    "NOT_REPLAYED",
    "UNCHANGED",
    "clocks_in_words",
    "first_changes",
    "notes_on",
    "what_helps",
]

_INTRO = (
    "Predicted saving of each change alone, from replaying the run with it; at least and at most "
    "allow for what the trace does not record. Savings do not add up: a change that shares with a "
    "row above saves less together with it."
)
ALONE = "What the run is shorter by with each change alone, replayed. Savings do not add up."
NOT_REPLAYED = (
    "This job has too many events to be replayed for a report; htagraph what-if handles larger "
    "jobs."
)
UNCHANGED = "None of the changes tried makes this run shorter."

_OTHER_RANKS = (
    "A saving is smaller, or none, for this rank alone: if the other ranks do not change, its "
    "collectives end no earlier, however early it arrives."
)

_KINDS = {
    "kernel": "twice as fast",
    "operator": "twice as fast",
    "cause": "without",
    "Python code": "without",
    "allocation": "without",
    "wait": "without wait",
    "synchronous copy": "without wait",
    "fusion": "fused",
    "overlap": "overlapped",
    "communication": "faster",
    "launches": "as a CUDA graph",
    "data loading": "prefetched",
}
"""What is done about a target, by the kind of change."""
_PARTS = {
    "kernel": "{} twice as fast",
    "operator": "{} twice as fast",
    "Python code": "no time in {}",
    "wait": "no wait in {}",
    "synchronous copy": "no wait in {}",
}
"""Changes to a part of a run, in words; those to all of it are the fixes of findings, and fusions
take longer to find."""
_N_FIRST = 8
"""Rows of `first_changes`. A limit of the screen: `opportunities` has all.

Pinned by `test_what_helps.py::test_eight_changes_are_listed`.
"""
_N_FUSED = 2
"""Kernels of a fusion that its name lists: chosen."""


def what_helps(
    opportunities: pd.DataFrame, labels: Mapping[str, str] = MappingProxyType({})
) -> pd.DataFrame:
    """Changes that would help, duplicates merged, kernels at twice their speed.

    Parameters
    ----------
    labels : mapping of str to str, optional
        Short names of targets, which `what_if` accepts.

    Returns
    -------
    DataFrame
        Columns of `answers.OPPORTUNITIES` and ``row``, to which ``shares_with`` refers;
        ``alone_ns`` only if other ranks make a difference.

    Examples
    --------
    >>> import htagraph as hg
    >>> graph = hg.load(hg.demo_trace("dataloader")).compile()
    >>> what_helps(graph.opportunities())[["row", "kind", "target", "saves_ns"]].head(1)
       row     kind        target  saves_ns
    0    1  without  data loading  17094049
    """
    kind, left = opportunities["kind"], opportunities["left_share"]
    shown = opportunities[
        (opportunities["saves_ns"] > 0) & ~((kind == "kernel") & (left != TWICE_AS_FAST))
    ]
    numbers = dict(zip(shown["change"], range(1, len(shown) + 1), strict=True))
    row = np.arange(1, len(shown) + 1)
    others = opportunities["change"].to_numpy()[shown["shares_with"].to_numpy(np.int64)]
    shares_with = [
        str(numbers[other]) if at >= 0 and numbers.get(other, own) != own else ""
        for other, at, own in zip(others, shown["shares_with"], row, strict=True)
    ]
    out = pd.DataFrame(
        {
            "row": row,
            "kind": [_KINDS[kind] for kind in shown["kind"]],
            "target": [
                labels.get(said[1]) or _target(*said)
                for said in zip(shown["kind"], shown["target"], strict=True)
            ],
            "saves_ns": shown["saves_ns"].to_numpy(np.int64),
            "saves_share": shown["saves_share"].to_numpy(np.float64),
            "low_ns": shown["low_ns"].to_numpy(np.int64),
            "high_ns": shown["high_ns"].to_numpy(np.int64),
            "alone_ns": shown["alone_ns"].to_numpy(np.int64),
            "shares_with": shares_with,
        }
    )
    is_told = (out["alone_ns"] != out["saves_ns"]).any()
    return out if is_told else out.drop(columns="alone_ns")


def first_changes(
    verdict: Verdict,
    trials: Trials[Any],
    labels_of: Callable[[Iterable[str]], Mapping[str, str]],
    *,
    by: float = 1.0,
) -> pd.DataFrame:
    """What one can do, largest saving first: the fixes of a verdict, and changes to parts.

    Each change is replayed once, alone; a part keeps half of its time, or none.

    Parameters
    ----------
    labels_of : callable
        Short names of targets.
    by : float, default=1.0
        How many times as long as what is replayed the window is.

    Returns
    -------
    DataFrame, schema `frames.FIRST_CHANGES`
        At most eight rows, of at least 1% each.
    """
    least_ns = max(LEAST_ALSO * verdict.dur_ns, 1)
    fixes = [one.fix for one in verdict.top_findings if one.fix.saves_ns is not None]
    said = [(fix.saves_ns or 0, "", fix.do.rstrip(".")) for fix in fixes]
    for one in takewhile(lambda one: one.kind != "fusion", trials.of_parts()):
        if one.kind in _PARTS and (one.kind != "kernel" or one.left == TWICE_AS_FAST):
            with suppress(QueryError):
                saved_ns = round(by * trials.rehearsal.saved_ns(one.changes))
                said.append((saved_ns, one.kind, one.target))
    first = sorted((one for one in said if one[0] >= least_ns), key=lambda one: -one[0])[:_N_FIRST]
    labels = labels_of(target for _, kind, target in first if kind)
    times = np.array([saved_ns for saved_ns, *_ in first], dtype=np.int64)
    return FIRST_CHANGES.frame(
        {
            "change": [
                _PARTS[kind].format(labels.get(target) or name_label(_target(kind, target)))
                if kind
                else target
                for _, kind, target in first
            ],
            "saves_ns": times,
            "saves_share": times / max(verdict.dur_ns, 1),
        }
    )


def notes_on(helpful: pd.DataFrame) -> str:
    """How to read what `what_helps` returns."""
    return f"{_INTRO} {_OTHER_RANKS}" if "alone_ns" in helpful else _INTRO


def clocks_in_words(error_ns: int) -> str:
    """How far the clocks of a job's ranks may be off, in one sentence.

    Examples
    --------
    >>> clocks_in_words(3_000)
    'Rank clocks may be off by 3.00 us; both ends allow for it.'
    """
    if not error_ns:
        return "The ranks' clocks agree to the nanosecond."
    return f"Rank clocks may be off by {human_duration(error_ns)}; both ends allow for it."


def _target(kind: str, target: str) -> str:
    """The target in words."""
    if kind == "Python code":
        return f"code {target}"
    if kind != "fusion":
        return target
    names = [name_label(name, width=32) for name in target.split(" + ")]
    more = f" + {len(names) - _N_FUSED} more" if len(names) > _N_FUSED else ""
    return " + ".join(names[:_N_FUSED]) + more
