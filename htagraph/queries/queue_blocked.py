"""Time in which launch queues were full, and launch calls blocked by them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.intervals import sum_by_code
from htagraph.lookup.counter_levels import counter_levels, queue_changes
from htagraph.lookup.queues import queues
from htagraph.model.answers import QUEUE_BLOCKED
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind
from htagraph.model.window import Window


def queue_blocked(dag: Dag, window: Window, *, max_queue_length: int = 1_024) -> pd.DataFrame:
    """Time in which each stream's launch queue was full, and time of blocked launch calls.

    Parameters
    ----------
    max_queue_length : int, default=1_024
        Outstanding launches from which on a queue counts as full.

    Returns
    -------
    DataFrame, schema `answers.QUEUE_BLOCKED`
        One row per stream with work. A blocked call returned only when work started and made room.
    """
    by, events, edges = queues(dag, "stream"), dag.events, dag.edges
    found = counter_levels(queue_changes(dag), window)
    full = found.value >= max_queue_length
    full_ns = sum_by_code(found.track[full], (found.end_ns - found.start_ns)[full], len(by))
    blocked = edges.head[edges.kind == EdgeKind.QUEUE] >> 1
    work = np.flatnonzero(np.isin(dag.launch, blocked) & (dag.launch >= 0))
    call, first = np.unique(dag.launch[work], return_index=True)
    begin = np.clip(events.ts_ns[call], window.start_ns, window.end_ns)
    end = np.clip(events.end_ns[call], window.start_ns, window.end_ns)
    queue = by.of_event[work[first]]
    inside = end > begin
    return QUEUE_BLOCKED.frame(
        {
            "device": by.device,
            "stream": by.stream,
            "full_ns": full_ns,
            "full_share": full_ns / max(window.dur_ns, 1),
            "n_blocked": np.bincount(queue[inside], minlength=len(by)),
            "blocked_ns": sum_by_code(queue[inside], (end - begin)[inside], len(by)),
        }
    )
