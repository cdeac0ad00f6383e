"""Idle time of streams in the three categories of HTA."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.distribution import distribution
from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import group_starts, running_latest
from htagraph.lookup.clipping import device_work
from htagraph.lookup.queues import queues
from htagraph.model.answers import IDLE_CATEGORIES
from htagraph.model.dag import Dag
from htagraph.model.schema import categorical
from htagraph.model.window import Window

_CATEGORIES = ("host_wait", "kernel_wait", "other")
_NEVER = np.iinfo(np.int64).min
_QUANTILES = (0.5, 0.9, 0.99)
"""Those that the columns are named after."""


def idle_categories(dag: Dag, window: Window, *, kernel_wait_ns: int = 30_000) -> pd.DataFrame:
    """Gaps of each stream in three categories: ``host_wait``, ``kernel_wait`` and other.

    A gap is a ``host_wait`` if the work that ends it was launched after the gap began, else a
    ``kernel_wait`` if it is short, else other. Only time between two kernels is a gap, not that
    before the first or after the last.

    Parameters
    ----------
    kernel_wait_ns : int, default=30_000, unit=ns
        Gaps shorter than this are kernel waits.

    Returns
    -------
    DataFrame, schema `answers.IDLE_CATEGORIES`
        Three rows per stream that has work in the window; all is 0 of a category without gaps.
    """
    by = queues(dag, "stream")
    work = device_work(dag, window)
    work = work.take(np.lexsort((work.end_ns, work.start_ns, by.of_event[work.event])))
    queue = by.of_event[work.event]
    starts = group_starts(queue)
    latest = work.end_ns[running_latest(work.end_ns, starts)]
    follows = np.flatnonzero(~starts)
    before, later = latest[follows - 1], work.event[follows]
    length = work.start_ns[follows] - before
    launched = gather(dag.events.ts_ns, dag.launch[later], _NEVER)
    category = np.where(launched > before, 0, np.where(length < kernel_wait_ns, 1, 2))
    is_gap = length > 0
    n, lanes = len(_CATEGORIES), np.unique(queue)
    found = distribution((queue[follows] * n + category)[is_gap], length[is_gap], _QUANTILES)
    row = np.repeat(lanes, n) * n + np.tile(np.arange(n), len(lanes))

    def of_row(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        out = np.zeros(len(by) * n, dtype=values.dtype)
        out[found.group] = values
        return out[row]

    time = of_row(found.total)
    total = time.reshape(-1, n).sum(axis=1).repeat(n)
    return IDLE_CATEGORIES.frame(
        {
            "device": by.device[row // n],
            "stream": by.stream[row // n],
            "category": categorical(row % n, _CATEGORIES),
            "n_gaps": of_row(found.n),
            "idle_ns": time,
            "idle_share": time / np.maximum(total, 1),
            "mean_ns": of_row(found.mean),
            "std_ns": of_row(found.deviation),
            "min_ns": of_row(found.smallest),
            "max_ns": of_row(found.largest),
            "p50_ns": of_row(found.quantiles[0]),
            "p90_ns": of_row(found.quantiles[1]),
            "p99_ns": of_row(found.quantiles[2]),
        }
    )
