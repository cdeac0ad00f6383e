"""Cost: how much shorter the window would be if a group of events took no time."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import sum_by_code
from htagraph.errors import MissingEventsError
from htagraph.explain.critical_path import critical_path
from htagraph.explain.edge_bounds import edge_bounds, explained_until
from htagraph.explain.self_time import self_time
from htagraph.lookup.attribution import host_of, innermost, track_codes
from htagraph.lookup.clipping import device_work, host_work
from htagraph.lookup.naming import modules_at
from htagraph.model.answers import COST
from htagraph.model.arrays import I64, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, EventKind
from htagraph.model.rules import Rule
from htagraph.model.symbols import alphabetical
from htagraph.model.window import Window
from htagraph.replay.rehearsal import Rehearsal
from htagraph.replay.removal import Removal
from htagraph.replay.replay import Replay

_OF_EVENTS = ("name", "op", "module", "stream")


class _Groups(NamedTuple):
    """Groups: their names, their contents in the window, and their removal."""

    names: Texts
    n_events: I64
    time_ns: I64
    path_ns: I64
    removal: Removal


def cost(
    dag: Dag,
    window: Window,
    *,
    by: Literal["name", "op", "module", "stream", "bound", "rule"] = "name",
) -> pd.DataFrame:
    """Cost of each group: how much shorter the window would be if the group took no time.

    ::

        cpu 1    |[launch >a][launch >b]        [sync @*]    without a, the wait for b ends 9 us
        stream 7 |      [a <a                       ]        earlier: a takes 29 us, its cost is 9
        stream 9 |                 [b <b   ]

    Parameters
    ----------
    by : {"name", "op", "module", "stream", "bound", "rule"}
        Events by name, innermost operator or annotation, or innermost ``nn.Module``; device work by
        stream; time of edges by bound or by rule.

    Returns
    -------
    DataFrame, schema `answers.COST`
        Groups with anything in the window, most cost first. Costs do not add up: two groups that
        hide each other have no cost alone.

    Raises
    ------
    MissingEventsError
        By module, if no Python stack was recorded.

    Notes
    -----
    Cost (Devaux, 1999) is found by replaying the whole trace without the group: its host events
    take no own time; its kernels and copies take none, start when their stream is free, and wait
    for no launch. Work from before the profile still delays others. The start of a later window
    moves, too, so its cost may be negative. Of a bound or a rule, edges stay but take no time.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     cpu 1    |[launch >a][launch >b]        [sync @*]
    ...     stream 7 |      [a <a                       ]
    ...     stream 9 |                 [b <b   ]
    ... '''))
    >>> cost(dag, dag.span)[["group", "n_events", "time_ns", "path_ns", "cost_ns"]]
                       group  n_events  time_ns  path_ns  cost_ns
    0                      a         1    29000    35000     9000
    1  cudaDeviceSynchronize         1     9000     4000     4000
    2       cudaLaunchKernel         2    22000        0        0
    3                      b         1     9000        0        0
    """
    replay = Rehearsal(dag, window).expected.replay
    if by in _OF_EVENTS:
        found = _of_events(dag, window, replay, by)
    else:
        found = _of_edges(dag, window, replay, by)
    cost_ns = found.removal.costs_ns(window)
    kept = np.flatnonzero((found.n_events > 0) | (found.path_ns > 0))
    frame = COST.frame(
        {
            "group": found.names[kept],
            "n_events": found.n_events[kept],
            "time_ns": found.time_ns[kept],
            "path_ns": found.path_ns[kept],
            "cost_ns": cost_ns[kept],
            "cost_share": cost_ns[kept] / max(window.dur_ns, 1),
        }
    )
    return frame.sort_values(
        ["cost_ns", "path_ns", "time_ns", "group"],
        ascending=[False, False, False, True],
        ignore_index=True,
    )


def _of_events(dag: Dag, window: Window, replay: Replay, by: str) -> _Groups:
    """Groups of host events and device work."""
    rows, code, names = _coded(dag, by)
    n = len(names)
    group = np.full(len(dag.events), -1, dtype=np.int64)
    group[rows] = code
    host, work = host_work(dag, window), device_work(dag, window)
    own_ns = self_time(dag, window, host)
    own_ns[work.event] = work.dur_ns
    there = np.concatenate([host.event, work.event])
    there = there[group[there] >= 0]
    segments = critical_path(dag, window)
    on_path = gather(group, segments["event"].to_numpy(np.int64))
    on_path[segments["bound"] == Bound.WORK_FROM_BEFORE_THE_PROFILE.label] = -1
    path_ns = segments["dur_ns"].to_numpy(np.int64)[on_path >= 0]
    return _Groups(
        names,
        np.bincount(group[there], minlength=n),
        sum_by_code(group[there], own_ns[there], n),
        sum_by_code(on_path[on_path >= 0], path_ns, n),
        Removal.of_events(dag, replay, group, n),
    )


def _coded(dag: Dag, by: str) -> tuple[I64, I64, Texts]:
    """Events in a group, the code of each one's group, and the names of the groups."""
    events = dag.events
    if by == "stream":
        work = np.flatnonzero(events.is_device)
        codes, texts = track_codes(dag, work)
        tracks, at = np.unique(codes, return_inverse=True)
        labels, place = alphabetical(texts[tracks])
        return work, place[at], labels
    rows = np.flatnonzero(events.is_host | events.is_device)
    dag = dag.unrolled
    events = dag.events
    if by == "op":
        named = innermost(dag, rows, (EventKind.OP, EventKind.ANNOTATION))
    else:
        named = _modules(dag, rows) if by == "module" else rows
    rows, named = rows[named >= 0], named[named >= 0]
    symbols, code = np.unique(events.name[named], return_inverse=True)
    return rows, code.astype(np.int64), events.symbols.array[symbols]


def _modules(dag: Dag, rows: I64) -> I64:
    """Frame of the innermost module in which each event began or was launched, -1 for none."""
    frames = modules_at(dag, host_of(dag, rows))
    if len(rows) and not (frames >= 0).any():
        raise MissingEventsError(
            "the trace has no modules.",
            missing="python stacks",
            hint="record with_stack=True and with_modules=True; read stacks (--stacks).",
        )
    return frames


def _of_edges(dag: Dag, window: Window, replay: Replay, by: str) -> _Groups:
    """Groups of edge time by bound, or by rule."""
    edges, weight = replay.edges, replay.weight_ns
    times = dag.events.node_ts_ns
    if by == "bound":
        labels = Bound.labels()
        bound = times[edges.tail] + weight == times[edges.head]
        rest = np.where(bound, times[edges.head] - explained_until(dag, edges), 0)
        rest = np.clip(rest, 0, weight)
        code = edge_bounds(dag, edges).astype(np.int64)
        rest[code == Bound.UNKNOWN_WAITS] = 0
        other = np.where(rest > 0, np.int64(Bound.UNKNOWN_WAITS), -1)
    else:
        labels = Rule.labels()
        code, other = edges.rule.astype(np.int64), np.full(len(edges), -1)
        rest = np.zeros(len(edges), dtype=np.int64)
    n = len(labels)
    begin, end = times[edges.tail], times[edges.tail] + weight
    parts_ns = np.concatenate(
        [_clipped_ns(begin, end - rest, window), _clipped_ns(end - rest, end, window)]
    )
    parts = np.concatenate([code, other])
    parts, parts_ns = parts[parts_ns > 0], parts_ns[parts_ns > 0]
    segments = critical_path(dag, window)
    on_path = segments[by].cat.codes.to_numpy(np.int64)
    return _Groups(
        np.array(labels, dtype=object),
        np.bincount(parts, minlength=n),
        sum_by_code(parts, parts_ns, n),
        sum_by_code(on_path, segments["dur_ns"].to_numpy(np.int64), n),
        Removal.of_edges(
            replay, np.stack([code, other], axis=1), np.stack([rest, weight - rest], axis=1), n
        ),
    )


def _clipped_ns(begin_ns: I64, end_ns: I64, window: Window) -> I64:
    """Time of ranges inside a window."""
    inside = np.minimum(end_ns, window.end_ns) - np.maximum(begin_ns, window.start_ns)
    return np.asarray(np.maximum(inside, 0), dtype=np.int64)
