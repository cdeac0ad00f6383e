"""Device work moved to a stream of its own: what no longer waits for it, and for what instead.

::

    stream 7   [A  ][copy    ][B  ]          [A  ][B  ]
                   '-->'  '-->'       becomes    '-->'
    stream 20                                    '-->[copy    ]

B waited for A through the copy, and still does. Without that, B would start before what it needs,
and moving the copy would save more than removing it.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from htagraph.algorithms.gather import gather
from htagraph.algorithms.retime import retime
from htagraph.lookup.queues import queues
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, among
from htagraph.replay.replay import Replay, offsets_of

_MOST_STREAMS = 32
"""Streams that chosen work is found to have waited for; of more, some share a place, for the last
work of them. A limit of time, chosen like that of `latent_waits`: test_device_changes draws more.
"""


class Aside(NamedTuple):
    """The edges of a run in which some device work runs on a stream of its own.

    Parameters
    ----------
    out : ndarray of shape (m,), dtype=int64
        Edges at which other device work waited for it.
    through : ndarray of shape (n,), dtype=int64
        One of them, at which other work waited, through the chosen work, for more:
    tail, into : ndarray of shape (n,), dtype=int64
        A node, and the edge from it into the chosen work; -1 for chosen work that nothing leads to.
    before, after : ndarray of shape (k,), dtype=int64
        Chosen work that ran on one stream, and its next.
    """

    out: I64
    through: I64
    tail: I64
    into: I64
    before: I64
    after: I64

    @classmethod
    def of(cls, dag: Dag, replay: Replay, chosen: Bools) -> Self:
        """The edges of a replay, if some device work runs on a stream of its own."""
        events = dag.events
        head, tail = (replay.node[end] >> 1 for end in (replay.head, replay.tail))
        waits = events.is_device[head] & among(replay.kind, (EdgeKind.STREAM, EdgeKind.SYNC))
        out = np.flatnonzero(waits & chosen[tail] & ~chosen[head])
        work, same = streams(dag)
        mine = np.flatnonzero(chosen[work])
        stream = np.cumsum(~same)[mine]
        follows = np.flatnonzero(stream[1:] == stream[:-1])
        before, after = work[mine[follows]], work[mine[follows + 1]]
        in_turn = events.end_ns[before] <= events.ts_ns[after]
        awaited = _awaited_through(dag, replay, chosen, out)
        return cls(out, *awaited, before[in_turn], after[in_turn])


def _awaited_through(dag: Dag, replay: Replay, chosen: Bools, out: I64) -> tuple[I64, I64, I64]:
    """For what else the heads of edges out of chosen work waited: the last node of each stream."""
    nodes = np.flatnonzero(chosen[replay.node >> 1])
    rows = replay.rows_at(nodes)
    rows = rows[~among(replay.kind[rows], (EdgeKind.LAUNCH, EdgeKind.CONTENTION))]
    within = chosen[replay.node[replay.tail[rows]] >> 1]
    inner, outer = rows[within], rows[~within]
    roots = nodes[replay.offsets[nodes] == replay.offsets[nodes + 1]]
    tail = np.concatenate([replay.tail[outer], roots])
    order = np.argsort(tail, kind="stable")
    into = np.concatenate([outer, np.full(len(roots), -1)])[order]
    head = np.concatenate([replay.head[outer], roots])[order]
    tail = tail[order]
    # Edges from outside come first, each as a node of its own; then the chosen nodes, in order.
    place = np.full(len(replay.node), -1, dtype=np.int64)
    place[nodes] = len(into) + np.arange(len(nodes))
    heads = np.concatenate([place[head], place[replay.head[inner]]])
    tails = np.concatenate([np.arange(len(into)), place[replay.tail[inner]]])
    by_head = np.argsort(heads, kind="stable")
    offsets = offsets_of(heads, len(into) + len(nodes))
    stream = gather(queues(dag, "stream").of_event, replay.node[tail] >> 1) % _MOST_STREAMS
    found = []
    for one in np.unique(stream):
        last = np.full(len(into) + len(nodes), -1, dtype=np.int64)
        mine = np.flatnonzero(stream == one)
        last[mine] = mine
        last = retime(offsets, tails[by_head].astype(np.int32), np.zeros_like(heads), last)
        at = last[place[replay.tail[out]]]
        found.append((out[at >= 0], at[at >= 0]))
    through, at = map(np.concatenate, zip(*found, strict=True)) if found else (out[:0], out[:0])
    return through, replay.node[tail[at]], into[at]


def streams(dag: Dag) -> tuple[I64, Bools]:
    """Device work by stream, and whether each runs on the stream of the one before."""
    events = dag.events
    work = np.flatnonzero(events.is_device)
    work = work[np.lexsort((events.ts_ns[work], events.stream[work], events.device[work]))]
    same = np.zeros(len(work), dtype=bool)
    same[1:] = (events.stream[work[1:]] == events.stream[work[:-1]]) & (
        events.device[work[1:]] == events.device[work[:-1]]
    )
    return work, same
