"""Nearly critical chains: nearly as long as the part of the critical path next to them.

::

    more critical    ====A==========================B====>
    chain                [ c1 ][   c2   ][ c3 ]- - -        could be over later by its float

All nodes of a chain have the same float. The chain begins with its tail on the more critical
chain, and ends when it arrives at its head there; the time left until that head happens is float.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.binding import bind
from htagraph.arrays.codes import gather
from htagraph.arrays.reach import chains
from htagraph.errors import GraphError
from htagraph.explain.edge_bounds import edge_bounds
from htagraph.explain.segments import NO_EVENT_NAMES
from htagraph.lookup.attribution import names_or_empty, op_names, track_labels
from htagraph.model.answers import NEAR_CRITICAL
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, bound_in_words
from htagraph.model.labels import name_label
from htagraph.model.schema import labelled
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window
from htagraph.replay.rehearsal import Rehearsal
from htagraph.replay.replay import Replay


class NearChains(NamedTuple):
    """Chains by float, then longest first, and the edges of each."""

    # start_ns, end_ns, float_ns: cut at the start of the window
    start_ns: I64
    end_ns: I64
    float_ns: I64
    # leaves, joins: node that a chain comes from, and node that it leads to; -1 for none
    leaves: I64
    joins: I64
    chain: I64  # Of shape (k,). Chain of each part, sorted by chain and time.
    edge: I64  # Of shape (k,). Edge of the replay whose time a part is.
    # begin_ns, until_ns: of shape (k,). The parts of a chain tile it.
    begin_ns: I64
    until_ns: I64


def near_chains(
    dag: Dag, replay: Replay, window: Window, *, within_ns: int, least_ns: int, top: int
) -> NearChains:
    """The first chains of a window with float up to ``within_ns`` and length from ``least_ns``."""
    ts_ns, weight = replay.ts_ns, replay.weight_ns
    latest_ns = replay.latest_ns(replay.bounds(window).until)
    float_ns = latest_ns - ts_ns
    tiebreak = dag.events.tiebreak[replay.node >> 1]
    binding = bind(replay.tail, replay.head, replay.kind, weight, ts_ns, tiebreak)
    onward = bind(replay.head, replay.tail, replay.kind, weight, -latest_ns, tiebreak)
    next_ns = gather(latest_ns, gather(replay.head, onward, 0)) - gather(weight, onward, 0)
    onward = np.where(latest_ns == next_ns, onward, -1)
    is_near = (float_ns > 0) & (float_ns <= within_ns)
    is_near &= (ts_ns > window.start_ns) & (ts_ns <= window.end_ns)
    number, first, last = chains(float_ns, is_near, binding, replay.tail)

    entry, leave = binding[first], onward[last]
    from_node = gather(replay.tail, entry).astype(np.int64)
    to_node = gather(replay.head, leave).astype(np.int64)
    start_ns = np.maximum(
        np.where(entry >= 0, gather(ts_ns, from_node, 0), ts_ns[first]), window.start_ns
    )
    end_ns = ts_ns[last] + gather(weight, leave, 0)
    dur_ns = end_ns - start_ns
    row = np.flatnonzero((dur_ns >= least_ns) & (dur_ns > 0))
    row = row[np.lexsort((start_ns[row], -dur_ns[row], float_ns[last[row]]))][:top]

    rank = np.full(len(first), -1, dtype=np.int64)
    rank[row] = np.arange(len(row))
    nodes = np.flatnonzero(gather(rank, number) >= 0)
    nodes = nodes[binding[nodes] >= 0]
    closing = np.flatnonzero(leave[row] >= 0)
    chain = np.concatenate([rank[number[nodes]], closing])
    edge = np.concatenate([binding[nodes], leave[row[closing]]]).astype(np.int64)
    begin = np.maximum(ts_ns[replay.tail[edge]], window.start_ns)
    until = ts_ns[replay.tail[edge]] + weight[edge]
    order = np.lexsort((until, begin, chain))
    order = order[(until > begin)[order]]
    parts_ns = np.zeros(len(row), dtype=np.int64)
    np.add.at(parts_ns, chain[order], (until - begin)[order])
    if parts_ns.tolist() != dur_ns[row].tolist():
        raise GraphError("the parts of a chain do not add up to its length.")
    return NearChains(
        start_ns=start_ns[row],
        end_ns=end_ns[row],
        float_ns=float_ns[last[row]],
        leaves=gather(replay.node, from_node[row]),
        joins=gather(replay.node, to_node[row]),
        chain=chain[order],
        edge=edge[order],
        begin_ns=begin[order],
        until_ns=until[order],
    )


_WITHIN = 20
"""By default, float is at most the window divided by this. Chosen: test_slack draws chains
on both sides, of this and of the next."""
_LEAST = 1_000
"""Chains shorter than the window divided by this are left out. Chosen."""
_MOSTLY = 0.5
"""More than half is mostly: test_slack has chains of 45% and 58%."""
_WORTH_SAYING = 0.05
"""Share below which a bound is not listed: it would be a rounding error to a reader. Chosen:
test_slack has shares on both sides."""
_KEYS = ("bound", "name", "op", "track")
_NOTHING_BEFORE = "(start of the trace)"
_NOTHING_AFTER = "(end of the window)"


def near_critical(dag: Dag, window: Window, *, within_ns: int = 0, top: int = 20) -> pd.DataFrame:
    """Chains of events that would be critical if delayed by a little.

    ::

        cpu 1    |[launch >a][launch >b]        [sync @*]    9 us behind: the host, until it waits
        stream 7 |      [a <a                       ]        the path
        stream 9 |                 [b <b   ]                 13 us behind

    `within_ns`: largest float of a chain; 0 for a twentieth of the window. Least float first, then
    the longest, without those shorter than a thousandth of the window. A chain ends where it leaves
    or joins one with less float.
    """
    replay = Rehearsal(dag, window).expected.replay
    found = near_chains(
        dag,
        replay,
        window,
        within_ns=within_ns or window.dur_ns // _WITHIN,
        least_ns=-(-window.dur_ns // _LEAST),
        top=top,
    )
    dur_ns = found.end_ns - found.start_ns
    parts = _parts(dag, replay, found)
    bounds = np.searchsorted(found.chain, np.arange(len(dur_ns) + 1))
    made_of = [parts.iloc[begin:end] for begin, end in pairwise(bounds.tolist())]
    most = {key: [_sums(part, key).index[0] for part in made_of] for key in _KEYS}
    bounds_ns = [_sums(part, "bound") for part in made_of]
    return NEAR_CRITICAL.frame(
        {
            "said": [
                _said(part, int(dur), int(left))
                for part, dur, left in zip(made_of, dur_ns, found.float_ns, strict=True)
            ],
            "float_ns": found.float_ns,
            "dur_ns": dur_ns,
            "start_ns": found.start_ns,
            "end_ns": found.end_ns,
            "track": most["track"],
            "n_tracks": [part["track"].nunique() for part in made_of],
            "bound": labelled(most["bound"], Bound.labels()),
            "bound_share": np.array([sums.iloc[0] for sums in bounds_ns], dtype=np.float64)
            / dur_ns,
            "bounds": [_shares(sums) for sums in bounds_ns],
            "name": most["name"],
            "op": most["op"],
            "n_events": [part.loc[part["event"] >= 0, "event"].nunique() for part in made_of],
            "leaves": _names_at(dag, found.leaves, _NOTHING_BEFORE),
            "joins": _names_at(dag, found.joins, _NOTHING_AFTER),
        }
    )


def _parts(dag: Dag, replay: Replay, found: NearChains) -> pd.DataFrame:
    """Parts of the chains with their bounds, events and tracks."""
    edges = replay.edges.take(found.edge)
    event = edges.event.astype(np.int64)
    where = np.where(event >= 0, event, edges.head >> 1)
    bound = edge_bounds(dag, edges)
    nameless = np.array([NO_EVENT_NAMES.get(one, "(host gap)") for one in Bound], dtype=object)
    return pd.DataFrame(
        {
            "dur_ns": found.until_ns - found.begin_ns,
            "event": event,
            "bound": np.array(Bound.labels(), dtype=object)[bound],
            "name": np.where(event >= 0, names_or_empty(dag, event), nameless[bound]),
            "op": op_names(dag, event),
            "track": track_labels(dag, where),
            "is_device": dag.events.is_device[where],
        }
    )


def _sums(part: pd.DataFrame, key: str) -> pd.Series[int]:
    """Time by group, most first; ties in order of occurrence."""
    sums = part.groupby(key, sort=False)["dur_ns"].sum()
    return sums.sort_values(ascending=False, kind="stable")


def _shares(sums: pd.Series[int]) -> str:
    """Groups with their shares, without the smallest: ``host 62%, launch 38%``."""
    shares = sums / sums.sum()
    worth = shares[shares >= _WORTH_SAYING]
    return ", ".join(f"{bound_in_words(name)} {share:.0%}" for name, share in worth.items())


def _said(part: pd.DataFrame, dur_ns: int, float_ns: int) -> str:
    """A chain in one sentence."""
    tracks = _sums(part, "track")
    track = tracks.index[0]
    on_device = bool(part.loc[part["track"] == track, "is_device"].iloc[0])
    where = f"device chain on {track}" if on_device else f"host chain on thread {track}"
    if len(tracks) > 1:
        where += f" and {human_count(len(tracks) - 1, 'other track')}"
    doing = _sums(part.assign(doing=part["op"].where(part["op"] != "", part["name"])), "doing")
    share = doing.iloc[0] / dur_ns
    most = name_label(doing.index[0])
    what = f"mostly {most}" if share > _MOSTLY else f"{share:.0%} {most}"
    return f"{where}, {human_duration(dur_ns)}, is {human_duration(float_ns)} behind: {what}"


def _names_at(dag: Dag, nodes: I64, none: str) -> list[str]:
    """Names of the events of nodes; `none` for -1."""
    names = names_or_empty(dag, np.where(nodes >= 0, nodes >> 1, -1))
    return [name if node >= 0 else none for name, node in zip(names, nodes, strict=True)]
