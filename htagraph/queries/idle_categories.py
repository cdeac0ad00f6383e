"""Idle time of streams in the three categories of HTA."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import sum_by_code
from htagraph.algorithms.matching import group_starts, running_latest
from htagraph.lookup.clipping import device_work
from htagraph.lookup.queues import queues
from htagraph.model.answers import IDLE_CATEGORIES
from htagraph.model.dag import Dag
from htagraph.model.schema import categorical
from htagraph.model.window import Window

_CATEGORIES = ("host_wait", "kernel_wait", "other")
_NEVER = np.iinfo(np.int64).min


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
        Three rows per stream that has work in the window.
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
    n = len(by) * len(_CATEGORIES)
    code = (queue[follows] * len(_CATEGORIES) + category)[is_gap]
    time = sum_by_code(code, length[is_gap], n)
    n_gaps = np.bincount(code, minlength=n)
    used = np.repeat(np.isin(np.arange(len(by)), queue), len(_CATEGORIES))
    row = np.flatnonzero(used)
    total = time.reshape(len(by), len(_CATEGORIES)).sum(axis=1).repeat(len(_CATEGORIES))
    return IDLE_CATEGORIES.frame(
        {
            "device": by.device[row // len(_CATEGORIES)],
            "stream": by.stream[row // len(_CATEGORIES)],
            "category": categorical(row % len(_CATEGORIES), _CATEGORIES),
            "n_gaps": n_gaps[row],
            "idle_ns": time[row],
            "idle_share": time[row] / np.maximum(total[row], 1),
        }
    )
