"""A timeline of all workers: Chrome events of threads named ``PP rank 1, TP rank 0, compute``.

A process is a data-parallel rank. A slice of communication is the transfer alone: it begins when
the last member has come, so that waiting is a gap. Steps are a sample, with pauses in between.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd

from htagraph.errors import TraceFormatError
from htagraph.readers.content import content_of
from htagraph.readers.other_formats import WORKER_TIMELINE, other_format

__all__ = ["COMPUTE", "is_worker_timeline", "read_worker_timeline"]

COMPUTE = "compute"
"""Kind of the threads that compute; others transfer, or do neither."""

_THREAD = re.compile(r"PP rank (\d{1,6}), TP rank (\d{1,6}), (\S+)")
_PLACE = ["dp", "pp", "tp", "kind"]
_NUMBERS = ["step", "model_chunk", "mb_id", "seq_id"]
_MAX_US = 1e15
"""Later times, and longer slices, are damage: 30 years."""


def is_worker_timeline(source: str | Path | bytes) -> bool:
    """Whether a file, or its content, is a timeline of workers, by its first events."""
    found = other_format(source)
    return found is not None and found.name == WORKER_TIMELINE


def read_worker_timeline(source: str | Path | bytes) -> tuple[pd.DataFrame, int]:
    """The slices of all workers, and how many events could not be read.

    Returns
    -------
    DataFrame
        Columns ``step``, ``dp``, ``pp``, ``tp`` (the worker), ``kind`` (of its thread), ``name``,
        ``chunk`` (model chunk, -1 for none), ``mb`` (micro-batch), ``seq``, ``start_ns``,
        ``dur_ns``; by step, worker and time.

    Raises
    ------
    TraceFormatError
        If it is no such timeline, or damaged.
    """
    path = None if isinstance(source, bytes) else Path(source)
    try:
        document = json.loads(content_of(source))
        events = pd.DataFrame(document["traceEvents"] if isinstance(document, dict) else document)
        is_name = (events["ph"] == "M") & (events["name"] == "thread_name")
        names = events[is_name]
        slices = events[(events["ph"] == "X") & events["args"].map(lambda one: type(one) is dict)]
        args = pd.DataFrame(slices["args"].tolist(), index=slices.index)
        place = _places(names)
        keys = pd.MultiIndex.from_frame(slices[["pid", "tid"]])
        table = pd.concat(
            [
                place.reindex(keys).set_axis(slices.index),
                slices["name"].astype(str),
                args.reindex(columns=_NUMBERS).apply(pd.to_numeric, errors="coerce"),
                slices[["ts", "dur"]].apply(pd.to_numeric, errors="coerce"),
            ],
            axis=1,
        )
    except TraceFormatError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise TraceFormatError(
            "the timeline of workers is damaged.", path=path, hint="copy the file again."
        ) from exc
    usable = table["dur"].between(0, _MAX_US) & table["ts"].abs().le(_MAX_US)
    usable &= table["step"].abs().le(_MAX_US) & table["pp"].notna()
    table, n_lost = table[usable], int((events["ph"] == "X").sum() - usable.sum())
    if table.empty:
        raise TraceFormatError("the timeline has no slices of workers.", path=path)
    return _typed(table), n_lost


def _places(names: pd.DataFrame) -> pd.DataFrame:
    """Worker and kind of each thread that is named by them."""
    found = [_THREAD.fullmatch(str(args["name"]).strip()) for args in names["args"]]
    rows = [
        (pid, tid, int(pid), int(one[1]), int(one[2]), one[3])
        for pid, tid, one in zip(names["pid"], names["tid"], found, strict=True)
        if one
    ]
    table = pd.DataFrame(rows, columns=["pid", "tid", *_PLACE])
    return table.drop_duplicates(["pid", "tid"]).set_index(["pid", "tid"])


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    """The slices with times in nanoseconds, in order."""
    start = table["ts"] - table["ts"].min()
    numbers = {"step": "step", "chunk": "model_chunk", "mb": "mb_id", "seq": "seq_id"}
    whole = {"dp": "dp", "pp": "pp", "tp": "tp", **numbers}
    typed = pd.DataFrame(
        {
            **{name: table[given].fillna(-1).astype(np.int64) for name, given in whole.items()},
            "kind": table["kind"],
            "name": table["name"],
            "start_ns": (start * 1000).round().astype(np.int64),
            "dur_ns": (table["dur"] * 1000).round().astype(np.int64),
        }
    )
    return typed.sort_values(
        ["step", "dp", "pp", "tp", "start_ns", "seq"], kind="stable", ignore_index=True
    )
