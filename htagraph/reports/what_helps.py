"""What would help, for people: the opportunities with one row for each thing that one could do."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd

from htagraph.model.labels import name_label
from htagraph.model.units import human_duration
from htagraph.replay.candidates import TWICE_AS_FAST

__all__ = ["NOT_REPLAYED", "UNCHANGED", "UNKNOWN", "clocks_in_words", "notes_on", "what_helps"]

_INTRO = (
    "Predicted saving of each change alone, from replaying the run with it; at least and at most "
    "allow for what the trace does not record. Savings do not add up."
)
UNKNOWN = "What limits this window is not known well enough to predict savings."
NOT_REPLAYED = (
    "This job has too many events to be replayed for a report; htagraph what-if handles larger "
    "jobs."
)
UNCHANGED = "None of the changes tried makes this window shorter."

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
    "launches": "as a graph",
    "data loading": "prefetched",
}
"""What is done about a target, by the kind of change."""
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
        Columns of `answers.OPPORTUNITIES`; ``alone_ns`` only if other ranks make a difference.

    Examples
    --------
    >>> import htagraph as hg
    >>> graph = hg.load(hg.demo_trace("dataloader")).compile()
    >>> what_helps(graph.opportunities())[["kind", "target", "saves_ns"]].head(1)
          kind        target  saves_ns
    0  without  data loading  17094049
    """
    kind, left = opportunities["kind"], opportunities["left_share"]
    shown = opportunities[
        (opportunities["saves_ns"] > 0) & ~((kind == "kernel") & (left != TWICE_AS_FAST))
    ]
    out = pd.DataFrame(
        {
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
        }
    )
    is_told = (out["alone_ns"] != out["saves_ns"]).any()
    return out if is_told else out.drop(columns="alone_ns")


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
