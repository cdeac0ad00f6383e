"""Stacks of a critical path: what each part of it belongs to, from the thread's first frame down.

Host time has the Python frames, ranges and operators of its thread then. Device work has those
around the call that launched it, and is innermost itself. A thread on which no frame runs works for
the main one, as those of autograd do: its stack is within the frames of the main thread then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from htagraph.arrays.ancestors import depths, highest, nearest, parents_first, sums_under
from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import sum_by_code
from htagraph.arrays.matching import cut_at, last_before
from htagraph.arrays.nesting import nest
from htagraph.explain.critical_path import path_segments
from htagraph.explain.segments import NO_EVENT_NAMES, Segments
from htagraph.lookup.attribution import host_of
from htagraph.lookup.python_code import functions_of
from htagraph.model.arrays import I8, I64, Texts
from htagraph.model.dag import Dag
from htagraph.model.frames import FLAME
from htagraph.model.kinds import Bound, EdgeKind, EventKind
from htagraph.model.labels import printable
from htagraph.model.names import without_step_number
from htagraph.model.schema import categorical
from htagraph.model.window import Window
from htagraph.writers.flame import BELOW

_VARIES = re.compile(r" object at 0x[0-9a-f]+|(?P<module>^nn\.Module: .*)_\d+$")
"""Parts of the names of frames that tell objects apart, such as layers of one class."""


@dataclass(frozen=True)
class Stacks:
    """Parts of segments, and the stack of each: an item of a forest, with all above it."""

    dag: Dag
    bound: I8  # Bound of each part
    dur_ns: I64
    leaf: I64  # Innermost item of each part, -1 for none
    forward: I64  # Item of the forward operator that a part of the backward pass belongs to, or -1
    event: I64  # Event of each item
    parent: I64  # Item above each item, -1 for none

    @cached_property
    def function(self) -> I64:
        """Symbol of the user's function that each item is or is in, -1 for none."""
        return functions_of(self.dag, self.event, self.parent)

    def inclusive_ns(self, *, with_backward: bool = False) -> I64:
        """Time of each function with all that it calls, by symbol; of a stack it counts once.

        `with_backward`: as if forward operators called what computes their gradients.
        """
        item, parent, leaf = np.arange(len(self.event)), self.parent, self.leaf
        if with_backward:
            item, parent, leaf, _ = chained(parent, self.forward, leaf)
        known = leaf >= 0
        own_ns = sum_by_code(leaf[known], self.dur_ns[known], len(item))
        return sums_under(parent, self.function[item], own_ns, len(self.dag.events.symbols))

    def flame(self) -> pd.DataFrame:
        """Time by stack and bound, most first, schema `FLAME`."""
        texts, node = self._named
        columns = {"node": gather(node, self.leaf), "bound": self.bound, "dur_ns": self.dur_ns}
        rows = pd.DataFrame(columns)
        rows = rows.groupby(["node", "bound"], as_index=False).sum()
        rows = rows.sort_values("dur_ns", ascending=False, kind="stable", ignore_index=True)
        nameless = np.array([NO_EVENT_NAMES.get(one, "(host gap)") for one in Bound], dtype=object)
        stack = np.where(rows["node"] < 0, nameless[rows["bound"]], texts[rows["node"]])
        bounds = categorical(rows["bound"], Bound.labels())
        return FLAME.frame({"stack": stack, "bound": bounds, "dur_ns": rows["dur_ns"]})

    @property
    def _named(self) -> tuple[Texts, I64]:
        """Distinct stacks as text, and which of them the stack of each item is."""
        symbols, code = np.unique(self.dag.events.name[self.event], return_inverse=True)
        short = [
            without_step_number(_VARIES.sub(r"\g<module>", printable(text))).replace(BELOW, ",")
            for text in self.dag.events.symbols.array[symbols].tolist()
        ]
        number, words = pd.factorize(np.array(short, dtype=object))
        code, node, texts = number[code], np.full(len(code), -1), [""]
        depth = depths(self.parent, np.arange(len(code)))
        for level in range(1, int(depth.max(initial=0)) + 1):
            rows = np.flatnonzero(depth == level)
            key = (gather(node, self.parent[rows]) + 1) * max(len(words), 1) + code[rows]
            found, at = np.unique(key, return_inverse=True)
            node[rows] = len(texts) - 1 + at
            above, name = np.divmod(found, max(len(words), 1))
            texts += [
                f"{texts[one]}{BELOW}{words[own]}" if one else words[own]
                for one, own in zip(above.tolist(), name.tolist(), strict=True)
            ]
        return np.array([*texts[1:], ""], dtype=object), node


def window_stacks(dag: Dag, window: Window) -> Stacks:
    """The stacks of the critical path of a window."""
    return path_stacks(dag, path_segments(dag, [window]))


def path_stacks(dag: Dag, segments: Segments) -> Stacks:
    """The stacks of segments of a path, which are cut where a frame or host event begins or ends.

    A launch, and a gap before device work, has the stack of the launch.
    """
    events, edges = dag.events, dag.edges
    is_frame = events.kind == EventKind.PYTHON
    outer_first = np.full(len(EventKind), 1, dtype=np.int8)
    outer_first[[EventKind.PYTHON, EventKind.OP, EventKind.RUNTIME]] = 0, 2, 3
    rows = events.is_host | is_frame
    # Sampled frames begin and end within a millisecond: ranges would cut those they cross.
    sampled = np.unique(events.lane[is_frame & (events.column("n_samples", 0) > 0)])
    rows &= ~((events.kind == EventKind.ANNOTATION) & np.isin(events.lane, sampled))
    nested = nest(
        events.lane,
        events.ts_ns,
        events.end_ns,
        (gather(outer_first, events.kind), events.external_id),
        is_call=is_frame | (events.kind == EventKind.RUNTIME),  # a range outlasts what entered it
        rows=np.flatnonzero(rows),
    )
    above, innermost = nested.parent.astype(np.int64), nested.innermost.astype(np.int64)
    work = np.flatnonzero(events.is_device)
    above[work] = gather(nested.parent, dag.launch[work])
    bounds = events.lane[nested.boundary >> 1].astype(np.int64), events.node_ts_ns[nested.boundary]

    launches = gather(edges.kind, segments.edge) == EdgeKind.LAUNCH
    event = np.where(launches, gather(edges.tail, segments.edge) >> 1, segments.event)
    event = event.astype(np.int64)
    what = np.where(event >= 0, event, gather(edges.head, segments.edge) >> 1)
    runs = gather(events.is_host, what, default=False) & ~launches
    call = host_of(dag, what)
    lane = gather(events.lane, call).astype(np.int64)
    end_ns = segments.start_ns + segments.dur_ns
    part, row, since, until = cut_at(bounds, np.where(runs, lane, -1), segments.start_ns, end_ns)
    stands = np.where(event >= 0, event, gather(above, what))
    leaf = np.where(runs[part], gather(innermost, row), stands[part])

    # What no frame begins is within the frames of the main thread: then, or at the launch.
    main = _main_thread(dag)
    top = highest(above, leaf, np.ones(len(above), dtype=bool)) if len(above) else leaf
    lent = (lane[part] >= 0) & (lane[part] != main) & ~gather(is_frame, top, default=False)
    moment = np.where(lent & ~runs[part], main, -1)
    at_launch = last_before(*bounds, moment, gather(events.ts_ns, call)[part] + 1)
    again, row, since, until = cut_at(bounds, np.where(lent & runs[part], main, -1), since, until)
    row, leaf = np.maximum(row, np.where(moment >= 0, at_launch, -1)[again]), leaf[again]
    base = nearest(above, gather(innermost, row), is_frame)

    forward = _forward_operators(dag)
    forward = gather(forward, nearest(above, leaf, forward >= 0))
    item, parent, found, place = chained(above, base, leaf, forward)
    bound = segments.bound[part[again]]
    return Stacks(dag, bound, until - since, found, gather(place, forward), item, parent)


def chained(
    parent: I64, base: I64, leaf: I64, more: I64 | None = None
) -> tuple[I64, I64, I64, I64]:
    """The forest in which each leaf, with all above it, is within a base, with all above that.

    Of a forest and pairs of its nodes, -1 for none: the node and the parent of each item of the new
    one, the item of each pair, and of each node that is within no base, as are `more`.
    """
    n, both = len(parent), (base >= 0) & (leaf >= 0)
    alone = [base, leaf[~both], *([] if more is None else [more])]
    own = parents_first(parent, np.concatenate(alone)).astype(np.int64)
    place = np.full(n, -1)
    place[own] = np.arange(len(own))
    pairs = base[both] * n + leaf[both]
    known = fresh = np.unique(pairs)
    while len(fresh):
        up = parent[fresh % n]
        fresh = np.setdiff1d((fresh // n * n + up)[up >= 0], known)
        known = np.union1d(known, fresh)
    within, node = np.divmod(known, max(n, 1))
    up = parent[node]
    of_pair = len(own) + np.searchsorted(known, within * n + up)
    parents = [gather(place, parent[own]), np.where(up >= 0, of_pair, place[within])]
    items = gather(place, np.maximum(base, leaf))
    items[both] = len(own) + np.searchsorted(known, pairs)
    return np.concatenate([own, node]), np.concatenate(parents), items, place


def _main_thread(dag: Dag) -> int:
    """Lane of the main thread, which has the number of its process; -1 if no frame was recorded."""
    events = dag.events
    n_frames = np.bincount(events.lane[events.kind == EventKind.PYTHON], minlength=1)
    if not n_frames.any():
        return -1
    ids = zip(events.lanes.pid, events.lanes.tid, strict=True)
    is_main = np.array([str(pid) == str(tid) for pid, tid in ids])[: len(n_frames)]
    return int(np.lexsort((n_frames, is_main & (n_frames > 0)))[-1])


def _forward_operators(dag: Dag) -> I64:
    """Operator whose gradient each event computes, -1 for none: the last one with its number.

    An operator that makes no gradient shows the number that the next one to do so takes.
    """
    events, found = dag.events, np.full(len(dag.events), -1)
    number, thread = events.column("sequence"), events.column("fwd_thread")
    is_numbered = (events.kind == EventKind.OP) & (number >= 0)
    nodes, ops = (np.flatnonzero(is_numbered & of) for of in (thread > 0, thread <= 0))
    ops = ops[np.lexsort((events.ts_ns[ops], number[ops]))]
    at = last_before(number[ops], events.ts_ns[ops], number[nodes], events.ts_ns[nodes])
    found[nodes] = gather(ops, at)
    return found
