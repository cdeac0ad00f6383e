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
_NUMBERS_OF_ROWS = ["pid", "tid", "ts", "dur"]
_MAX_US = 1e15
"""Later times are damage: 30 years."""
_LONGEST_US = 1e11
"""Longer slices are damage: a day. Keeps sums of a step within 64 bits."""
_MAX_NUMBER = 1e9
"""Larger numbers of steps, chunks and micro-batches are damage."""


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
        listed = document["traceEvents"] if isinstance(document, dict) else document
        events = pd.DataFrame(
            [one for one in listed if isinstance(one, dict) and isinstance(one.get("args"), dict)]
        )
        events[_NUMBERS_OF_ROWS] = _numbers(events, _NUMBERS_OF_ROWS)
        place = _places(events[(events["ph"] == "M") & (events["name"] == "thread_name")])
        slices = events[events["ph"] == "X"]
        args = pd.DataFrame(slices["args"].tolist(), index=slices.index)
        keys = pd.MultiIndex.from_frame(slices[["pid", "tid"]])
        table = pd.concat(
            [
                place.reindex(keys).set_axis(slices.index),
                slices["name"].map(str),
                _numbers(args, _NUMBERS).pipe(lambda one: one.where(one.abs() <= _MAX_NUMBER)),
                slices[["ts", "dur"]],
            ],
            axis=1,
        )
    except TraceFormatError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise TraceFormatError(
            "the timeline of workers is damaged.", path=path, hint="copy the file again."
        ) from exc
    usable = table["dur"].between(0, _LONGEST_US) & table["ts"].abs().le(_MAX_US)
    usable &= table["step"].notna() & table["pp"].notna()
    table, n_lost = table[usable], len(usable) - int(usable.sum())
    if table.empty:
        raise TraceFormatError("the timeline has no slices of workers.", path=path)
    return _typed(table), n_lost


def _numbers(rows: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Some columns as numbers, NaN where they hold none."""
    given = rows.reindex(columns=names)
    return pd.DataFrame(
        {name: pd.to_numeric(given[name], errors="coerce").astype(np.float64) for name in names}
    )


def _places(names: pd.DataFrame) -> pd.DataFrame:
    """Worker and kind of each thread that is named by them."""
    names = names[names["pid"].between(0, _MAX_NUMBER) & names["tid"].notna()]
    found = [_THREAD.fullmatch(str(args.get("name")).strip()) for args in names["args"]]
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
