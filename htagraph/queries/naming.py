"""What to call the place an event belongs to: its operator, its annotation, its Python frame."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.matching import last_before
from htagraph.algorithms.nesting import nest
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.queries.attribution import innermost

__all__ = ["MODULE", "frames_at", "labeled", "names_or_empty", "op_names"]

I64 = npt.NDArray[np.int64]
Text = npt.NDArray[np.object_]

MODULE = re.compile(r"^nn\.Module: ")
"""Names of the Python frames that stand for modules."""


def labeled(codes: npt.NDArray[np.integer], labels: Sequence[str]) -> pd.Categorical[str]:
    """Return codes of a closed vocabulary as a column of its labels."""
    return pd.Categorical.from_codes(codes.astype(np.int64), categories=pd.Index(list(labels)))


def names_or_empty(dag: Dag, events: I64) -> Text:
    """Return the name of each event, ``""`` for -1."""
    out = np.full(len(events), "", dtype=object)
    known = events >= 0
    out[known] = dag.events.names(events[known])
    return out


def op_names(dag: Dag, events: I64) -> Text:
    """Return the innermost operator or annotation that each event ran in, or was launched from; ``""`` for none."""
    return names_or_empty(dag, innermost(dag, events, (EventKind.OP, EventKind.ANNOTATION)))


def frames_at(dag: Dag, lane: I64, ts_ns: I64, pattern: re.Pattern[str] | None = None) -> I64:
    """Return the innermost Python frame of a thread at a time, -1 where none was recorded.

    Parameters
    ----------
    dag : Dag
    lane, ts_ns : ndarray of shape (n,), dtype=int64
    pattern : re.Pattern, optional
        Only frames whose names match.

    Returns
    -------
    ndarray of shape (n,), dtype=int64
    """
    events = dag.events
    wanted = events.kind == EventKind.PYTHON
    if pattern is not None:
        wanted &= events.named(events.symbols.mask(lambda name: pattern.search(name) is not None))
    frames = np.flatnonzero(wanted)
    if not len(frames):
        return np.full(len(lane), -1, dtype=np.int64)
    found = nest(events.lane[frames], events.ts_ns[frames], events.end_ns[frames])
    owner = frames[found.boundary >> 1]
    time = events.node_ts_ns[2 * owner + (found.boundary & 1)]
    # Right after the time: a frame that begins there is meant, one that ends there is not.
    position = last_before(events.lane[owner].astype(np.int64), time, lane, ts_ns + 1)
    inner = np.where(position >= 0, found.innermost[np.maximum(position, 0)], -1)
    return np.where(inner >= 0, frames[np.maximum(inner, 0)], -1)
