"""Where PyTorch's DataLoader spends its time."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np

from htagraph.lookup.selecting import under_mask
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind

__all__ = ["Loading", "find_loading"]

Loading = Literal["", "in process", "by workers", "after workers", "pinned by a thread"]

_LOADER = re.compile(r"_(SingleProcess|MultiProcessing)DataLoaderIter")
_WORKERS = re.compile(r"_MultiProcessingDataLoaderIter")
_PINS = re.compile(r"^aten::pin_memory$")
_MOST = 0.5
"""More than half is most: test_data_loaders draws a little more and a little less of each."""


def find_loading(dag: Dag) -> Loading:
    """Where most of the time of DataLoaders goes.

    Returns
    -------
    str
        "in process": the step makes batches itself. "by workers": the step waits for workers.
        "after workers": operators in the step, after the workers. "pinned by a thread": pinning
        takes most of that time. "": there is no DataLoader.
    """
    events = dag.events
    loads = events.named(events.symbols.searched(_LOADER)) & events.is_host
    loads &= ~under_mask(dag, loads)
    by_workers = loads & events.named(events.symbols.searched(_WORKERS))
    all_ns, workers_ns = (int(events.dur_ns[rows].sum()) for rows in (loads, by_workers))
    if workers_ns <= _MOST * all_ns:
        return "in process" if all_ns else ""
    inside = (events.kind == EventKind.OP) & (dag.parent >= 0)
    inside[inside] = by_workers[dag.parent[inside]]
    if events.dur_ns[inside].sum() > _MOST * workers_ns:
        return "after workers"
    pins = events.named(events.symbols.searched(_PINS)) & events.is_host
    pins &= ~np.isin(events.lane, events.lane[by_workers])
    return "pinned by a thread" if events.dur_ns[pins].sum() > _MOST * workers_ns else "by workers"
