"""Rows of an answer as slices of a track on top of a trace: whatever has a time and a name.

::

    Findings: patterns   [copy, gemm][relu]   [copy, gemm][relu]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.rows import rows
from htagraph.errors import QueryError
from htagraph.model.categories import CRITICAL_PATH
from htagraph.model.labels import name_label
from htagraph.writers.slice_packets import Arg, Slices, Strings
from htagraph.writers.tracks import Tracks

_FORMS = {"i": "int", "u": "int", "f": "float", "b": "flag"}
"""Form of an argument by the kind of its dtype; others are texts."""


def times_of(frame: pd.DataFrame) -> tuple[str, str]:
    """The columns with the start and with the name of each row.

    Raises
    ------
    QueryError
        If its rows have no start, no length or no name.
    """
    start = next((name for name in ("start_ns", "ts_ns") if name in frame), "")
    named = next((str(name) for name in frame if frame[name].dtype.kind == "O"), "")
    if not start or not named or "dur_ns" not in frame:
        hint = "give an answer with start_ns or ts_ns, dur_ns and a name, such as idle_intervals()."
        raise QueryError("these rows cannot be drawn over time.", hint=hint)
    return start, named


def answer_slices(
    title: str, frame: pd.DataFrame, zero_ns: int, tracks: Tracks, strings: Strings
) -> Slices:
    """Rows of an answer as slices of a track; other columns are arguments.

    Parameters
    ----------
    title : str
        Name of the track.
    zero_ns : int, unit=ns
        Time that is 0 in the file.
    tracks, strings
        Get new entries.

    Raises
    ------
    QueryError
        If rows have no time or no name, or begin before the trace.
    """
    start, named = times_of(frame)
    ts_ns, dur_ns = frame[start].to_numpy(np.int64) - zero_ns, frame["dur_ns"].to_numpy(np.int64)
    if ts_ns.min(initial=0) < 0:
        raise QueryError(
            f"{title}: rows begin before the trace.", hint="give answers about this trace."
        )
    placed = rows(np.zeros(len(frame), dtype=np.int32), ts_ns, ts_ns + dur_ns)
    # Viewers order roots by name: this one comes after the findings, before the devices.
    root = tracks.root(f"Findings: {title}")
    n_rows = int(placed.row.max(initial=0)) + 1
    uuids = np.array([tracks.child(title, root, order) for order in range(n_rows)])
    others = [str(name) for name in frame if name not in (start, named, "dur_ns")]
    return Slices(
        ts_ns=ts_ns,
        dur_ns=dur_ns,
        track=uuids[placed.row],
        name=strings.add(frame[named].map(_text)),
        category=np.broadcast_to(strings.add([CRITICAL_PATH]), len(frame)),
        color=np.zeros(len(frame), dtype=np.int64),
        is_instant=np.zeros(len(frame), dtype=bool),
        boundary=placed.boundary,
        args=[_argument(name, frame[name].to_numpy(), strings) for name in others if len(frame)],
    )


def _text(value: object) -> str:
    """A name as a slice shows it; a pattern by its names."""
    parts = value if isinstance(value, tuple) else (value,)
    return ", ".join(name_label(str(part)) for part in parts)


def _argument(name: str, values: npt.NDArray[np.generic], strings: Strings) -> Arg:
    """A column as an argument of all slices."""
    every = np.arange(len(values))
    match _FORMS.get(values.dtype.kind):
        case "int":
            return Arg(name, every, values.astype(np.int64), "int")
        case "float":
            return Arg(name, every, values.astype(np.float64), "float")
        case "flag":
            return Arg(name, every, values.astype(np.int64), "flag")
    return Arg(name, every, strings.add([str(value) for value in values.tolist()]), "text")
