"""What a rank's device did for a pipeline: forward and backward between receives and sends.

Sends and receives are kernels on a stream of their own. The compute stream waits for a receive, and
a send waits for the compute stream, so recorded waits cut the kernels of the operators into actions
whatever the host does meanwhile::

    receives  [recv F0   ]      [recv B0      ]
    compute               [F0  ]               [B0  ]
    sends                       [F0]                 [B0]

An action receives from the stage before and sends to the stage after, or the other way round if it
is a backward; the first stage receives nothing forward, the last one sends nothing. A step in which
an action does otherwise is of another schedule, and is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.ancestors import nearest
from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import Cover, union
from htagraph.arrays.pipelines import FORWARD, GRADIENT
from htagraph.job.pipeline_actions import RankActions, numbered, phases_of_operators, step_table
from htagraph.lookup.steps import find_steps, step_at
from htagraph.model.arrays import I64, Bools
from htagraph.model.collective_names import POINT_TO_POINT
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, EventKind, KernelClass
from htagraph.queries.communication import HOST_RANGE

_HOST_SHARE = 0.1
"""Share of its actions that the device may wait for launches, for a step to be clear. Beyond,
actions last as the host launches them, and a stage that waits for its input first seems faster than
one that need not. Chosen, as is what stages differ by that are called slow. Pinned by
test_pipeline_kernels."""


def _computed(dag: Dag, lane: int) -> tuple[I64, I64, I64]:
    """The compute stream: all its work, its kernels of forward and backward operators, and phases.

    It is the stream with most time in such kernels; both are in order.
    """
    events = dag.events
    forward, backward = phases_of_operators(dag, lane)
    phase = np.full(len(events), -1, dtype=np.int64)
    phase[forward], phase[backward] = FORWARD, GRADIENT
    is_compute = events.is_device & (dag.classification.kernel_class != KernelClass.COMMUNICATION)
    work = np.flatnonzero(is_compute)
    anchor = nearest(dag.parent, dag.launch[work].astype(np.int64), phase >= 0)
    of = np.where(events.kind[work] == EventKind.KERNEL, gather(phase, anchor), -1)
    if not (of >= 0).any():
        return work[:0], work[:0], of[:0]
    pairs = np.column_stack([events.device[work], events.stream[work]])
    queue = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    main = np.bincount(queue, np.where(of >= 0, events.dur_ns[work], 0)).argmax()
    work, of = work[queue == main], of[queue == main]
    order = np.lexsort((events.end_ns[work], events.ts_ns[work]))
    work, of = work[order], of[order]
    return work, work[of >= 0], of[of >= 0]


def _waits_between(dag: Dag, first: I64, second: I64) -> tuple[I64, I64]:
    """Pairs of device work of which the second waits for the first, on another stream."""
    edges = dag.edges
    tail, head = edges.tail >> 1, edges.head >> 1
    rows = np.flatnonzero((edges.kind == EdgeKind.SYNC) & np.isin(tail, first))
    rows = rows[np.isin(head[rows], second)]
    return tail[rows].astype(np.int64), head[rows].astype(np.int64)


def _sent_after(dag: Dag, work: I64, sends: I64, others: I64) -> tuple[I64, I64]:
    """Pairs of computed work and a send that waits for it, or for a collective that does."""
    done, sent = _waits_between(dag, work, sends)
    met, by = _waits_between(dag, others, sends)
    before, meets = _waits_between(dag, work, others)
    both = pd.DataFrame({"met": met, "sent": by}).merge(
        pd.DataFrame({"met": meets, "done": before}), on="met"
    )
    return np.append(done, both["done"]), np.append(sent, both["sent"])


def _is_late(dag: Dag, work: I64) -> Bools:
    """Whether work was launched too late to begin with what was before it."""
    launched: Bools = gather(dag.edges.kind, dag.binding[2 * work], -1) == EdgeKind.LAUNCH
    return launched


def _waited_for_host(dag: Dag, work: I64, first: I64, last: I64) -> I64:
    """How long the stream had nothing to run inside each action, as it was not launched yet."""
    start = dag.events.ts_ns[work]
    free = np.append(start[:1], np.maximum.accumulate(dag.events.end_ns[work])[:-1])
    waited = np.where(_is_late(dag, work), np.maximum(start - free, 0), 0)
    until = np.append(0, np.cumsum(waited))
    begun, done = (np.searchsorted(start, dag.events.ts_ns[one], "right") for one in (first, last))
    out: I64 = until[done] - until[begun]
    return out


def _messages(dag: Dag, table: pd.DataFrame, others: I64, work: I64, kernels: I64) -> pd.DataFrame:
    """Which kernel needs what a receive brings, and after which one a send begins.

    Columns ``event``, ``peer``, ``sends`` and ``place`` (a position in `kernels`). `others` are the
    other collectives.
    """
    begun = dag.events.ts_ns[kernels]
    event, sends = table["event"].to_numpy(np.int64), (table["operation"] == "send").to_numpy()
    received, needing = _waits_between(dag, event[~sends], work)
    done, sent = _sent_after(dag, work, event[sends], others)
    needing = np.searchsorted(begun, dag.events.ts_ns[needing])
    done = np.searchsorted(begun, dag.events.ts_ns[done], side="right") - 1
    last = pd.Series(done, dtype=np.int64).groupby(sent).max()
    first = pd.Series(needing, dtype=np.int64).groupby(received).min()
    place = pd.concat([first, last]).rename("place")
    found = table[["event", "peer"]].assign(sends=sends).join(place, on="event", how="inner")
    inside = (found["place"] >= 0) & (found["place"] < len(kernels))
    return pd.DataFrame(found[inside])


class _Cut(NamedTuple):
    """Kernels cut into actions by messages: one entry per action, in order.

    First and last kernel, phase, the ranks that it receives from and sends to (-1 for none), and
    when its receives began and ended (0 at the end without any).
    """

    first: I64
    last: I64
    phase: I64
    gets: I64
    gives: I64
    posted: I64
    there: I64


def _cut(dag: Dag, told: pd.DataFrame, kernels: I64, phase: I64) -> _Cut | None:
    """The actions between messages; None if one passes something to several ranks."""
    gotten, given = told[~told["sends"]], told[told["sends"]]
    after = given["place"].to_numpy(np.int64) + 1
    begins = np.append(True, np.diff(phase) != 0)
    begins[gotten["place"]] = True
    begins[after[after < len(begins)]] = True
    first, of = np.flatnonzero(begins), np.cumsum(begins) - 1
    last = np.append(first[1:], len(begins)) - 1
    gets, gives = np.full((2, len(first)), -1, dtype=np.int64)
    for side, one in ((gets, gotten), (gives, given)):
        action, peer = of[one["place"]], one["peer"].to_numpy(np.int64)
        side[action] = peer
        if (side[action] != peer).any():
            return None
    posted = np.full(len(first), np.iinfo(np.int64).max)
    there = np.zeros(len(first), dtype=np.int64)
    np.minimum.at(posted, of[gotten["place"]], dag.events.ts_ns[gotten["event"]])
    np.maximum.at(there, of[gotten["place"]], dag.events.end_ns[gotten["event"]])
    return _Cut(kernels[first], kernels[last], phase[first], gets, gives, posted, there)


def _neighbors(cut: _Cut) -> tuple[int, int] | None:
    """The ranks of the stage before and after, -1 for none; None if there are several."""
    found = [
        np.unique(peers[(cut.phase == FORWARD) & (peers >= 0)]) for peers in (cut.gets, cut.gives)
    ]
    if any(len(one) > 1 for one in found):
        return None
    before, after = (int(one[0]) if len(one) else -1 for one in found)
    return None if before == after else (before, after)


def _waits(dag: Dag, work: I64, cut: _Cut) -> I64:
    """Where the stream waited for receives, until its next kernel began or was to be launched."""
    begin = dag.events.ts_ns[cut.first]
    busy = np.maximum.accumulate(dag.events.end_ns[work])
    free = gather(busy, np.searchsorted(dag.events.ts_ns[work], begin) - 1, 0)
    until = np.where(_is_late(dag, cut.first), np.minimum(cut.there, begin), begin)
    since = np.maximum(free, cut.posted)
    rows = np.flatnonzero((cut.there > free) & (since < until))
    both = union(np.zeros(len(rows), dtype=np.int64), since[rows], until[rows])
    return np.column_stack([both.start, both.end])


def _bounds(step: I64, start: I64, end: I64, n_steps: int) -> tuple[I64, I64]:
    """Begin and end of the work that the host launched in each step; empty without any."""
    begun = np.full(n_steps, np.iinfo(np.int64).max)
    done = np.zeros(n_steps, dtype=np.int64)
    inside = step >= 0
    np.minimum.at(begun, step[inside], start[inside])
    np.maximum.at(done, step[inside], end[inside])
    return np.minimum(begun, done), done


def device_actions(dag: Dag, collectives: pd.DataFrame) -> RankActions | None:
    """The actions of a rank whose sends and receives are kernels; None if they are not clear."""
    events, steps = dag.events, find_steps(dag.events)
    is_paired = collectives["operation"].isin(POINT_TO_POINT)
    table = collectives[is_paired & (collectives["found_by"] != HOST_RANGE)]
    if table.empty or steps.empty or (table["peer"] < 0).any():
        return None
    work, kernels, phase = _computed(dag, int(events.lane[steps["event"].iloc[0]]))
    others = collectives.loc[~is_paired, "event"].to_numpy(np.int64)
    told = _messages(dag, table, others, work, kernels)
    cut = None if told.empty else _cut(dag, told, kernels, phase)
    neighbors = None if cut is None else _neighbors(cut)
    if cut is None or neighbors is None:
        return None
    # The host is steps ahead of its device: an action is of the step in which it was launched.
    step = step_at(steps, gather(events.ts_ns, dag.launch[cut.first], -1))
    before, after = neighbors
    forward = cut.phase == FORWARD
    other = cut.gets != np.where(forward, before, after)
    other |= cut.gives != np.where(forward, after, before)
    dur_ns = events.end_ns[cut.last] - events.ts_ns[cut.first]
    host_ns = np.bincount(step + 1, _waited_for_host(dag, work, cut.first, cut.last))
    by_host = host_ns > _HOST_SHARE * np.bincount(step + 1, dur_ns)
    kept = np.flatnonzero((step >= 0) & ~np.isin(step, step[other]) & ~by_host[step + 1])
    if not len(kept):
        return None
    waits, own = _waits(dag, work, cut), step_at(steps, gather(events.ts_ns, dag.launch[work], -1))
    begun, done = _bounds(own, events.ts_ns[work], events.end_ns[work], len(steps))
    step, begin, end = step[kept], events.ts_ns[cut.first[kept]], events.end_ns[cut.last[kept]]
    free = np.minimum(np.maximum(np.append(0, end[:-1]), begun[step]), begin)
    actions = pd.DataFrame(
        {
            "stage": np.int64(-1),
            "phase": cut.phase[kept],
            "micro_batch": numbered(cut.phase[kept], step),
            "step": step,
            "begin_ns": begin,
            "end_ns": end,
            "waited_ns": Cover(*waits.T).within(free, begin),
            "python_ns": np.int64(0),
        }
    )
    # Sends and receives have their peers: nothing has to be said of them.
    none = pd.DataFrame(
        dict.fromkeys(("event", "stage", "phase", "micro_batch", "step"), np.empty(0, np.int64))
    ).assign(sends=np.empty(0, bool))
    return RankActions(actions, step_table(steps, begun, done), waits, none, neighbors)
