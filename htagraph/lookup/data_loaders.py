"""The batches that a run loads, and where PyTorch's DataLoader spends its time."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np

from htagraph.lookup.attribution import loads_data
from htagraph.lookup.selecting import under_mask
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window

Loading = Literal["", "in process", "by workers", "after workers", "pinned by a thread"]

_LOADER = re.compile(r"_(SingleProcess|MultiProcessing)DataLoaderIter")
_WORKERS = re.compile(r"_MultiProcessingDataLoaderIter")
_PINS = re.compile(r"^aten::pin_memory$")
_MOST = 0.5
"""More than half is most: test_data_loaders draws a little more and a little less of each."""


def batches(dag: Dag) -> I64:
    """Outermost host ranges that load data, by thread and time."""
    events = dag.events
    loads = events.is_host & events.named(loads_data(dag))
    outer = np.flatnonzero(loads & ~under_mask(dag, loads))
    found: I64 = outer[np.lexsort((events.ts_ns[outer], events.lane[outer]))]
    return found


def n_batches(dag: Dag, window: Window) -> int:
    """Batches that are loaded in a window, by the thread that loads most."""
    events, loaded = dag.events, batches(dag)
    inside = (events.ts_ns[loaded] < window.end_ns) & (events.end_ns[loaded] > window.start_ns)
    return int(np.bincount(events.lane[loaded[inside]], minlength=1).max())


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
