"""Threads of a pool: they do the same work, and are idle until something gives one of them work.

A server has pools of threads that do the same work. Between two pieces of it a thread runs nothing,
and what hands it the next one (a request) is often not recorded. Such a gap is not its own time.

::

    exec#1   [request]            [request]          a gap: waits for work
    exec#2             [request]
    exec#3        [request]
"""

from __future__ import annotations

import re

import numpy as np

from htagraph.algorithms.codes import distinct
from htagraph.compiler.flows import worker_lanes
from htagraph.compiler.stretches import plain_names, usual_wait_ns
from htagraph.compiler.structure import Structure
from htagraph.model.arrays import I32, Bools
from htagraph.model.step_markers import PROFILER_STEP

_DIGITS = re.compile(r"\d+")
_FEWEST = 3
"""Threads that make a pool; two may do the same work by accident (chosen)."""
_NEARLY_ALL = 0.9
"""Share of what a thread of a pool runs that others of the pool run, too (chosen)."""


def _pools(structure: Structure) -> list[list[int]]:
    """Lanes whose threads have one name but for numbers, and neither step, launch nor call."""
    events = structure.events
    launches = structure.is_launch
    steps = events.named(events.symbols.searched(PROFILER_STEP)) & events.is_host
    busy = {*distinct(events.lane[launches]).tolist(), *distinct(events.lane[steps]).tolist()}
    busy |= set(worker_lanes(structure).values())
    pools: dict[tuple[int | str, str], list[int]] = {}
    for lane in distinct(events.lane[structure.host]).tolist():
        name = _DIGITS.sub("#", events.lanes.thread[lane])
        if name and lane not in busy:
            pools.setdefault((events.lanes.pid[lane], name), []).append(lane)
    return [lanes for lanes in pools.values() if len(lanes) >= _FEWEST]


def pool_lanes(structure: Structure) -> Bools:
    """Whether each lane is a thread of a pool: nearly all that it runs, two others run, too."""
    events, host = structure.events, structure.host
    is_member = np.zeros(max(len(events.lanes), 1), dtype=bool)
    if not len(structure.queue):
        return is_member
    pools = _pools(structure)
    if not pools:
        return is_member
    top = host[structure.parent[host] < 0]
    names = plain_names(events)[top]
    for lanes in pools:
        rows = np.flatnonzero(np.isin(events.lane[top], lanes))
        pairs = np.unique(np.stack([names[rows], events.lane[top[rows]]]), axis=1)
        shared = np.flatnonzero(np.bincount(pairs[0]) >= _FEWEST)
        n_lanes = len(is_member)
        n_all = np.bincount(events.lane[top[rows]], minlength=n_lanes)
        alike = rows[np.isin(names[rows], shared)]
        n_alike = np.bincount(events.lane[top[alike]], minlength=n_lanes)
        is_member |= (n_all > 0) & (n_alike >= _NEARLY_ALL * n_all)
    return is_member


def waits_for_work(structure: Structure, tail: I32, head: I32) -> Bools:
    """Whether between two boundaries of a thread, with nothing around, it waits for work.

    Parameters
    ----------
    tail, head : ndarray of shape (n,), dtype=int32
        Nodes of one thread each.

    Returns
    -------
    ndarray of shape (n,), dtype=bool
    """
    times = structure.events.node_ts_ns
    waits: Bools = times[head] - times[tail] > usual_wait_ns(structure)
    rows = np.flatnonzero(waits)
    if len(rows):
        waits[rows] = pool_lanes(structure)[structure.events.lane[head[rows] >> 1]]
    return waits
