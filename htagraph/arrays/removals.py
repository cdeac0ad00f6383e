"""Removals: the last time of some nodes if the edges of one group after the other weigh less.

Each group is a column of one pass over the graph, a few at once. A graph of many groups is halved
first: for half of the groups, the edges of the others are fixed, and most of the graph shrinks to a
few edges that say how long it takes from one change to the next. Two rules shrink it, and neither
changes an answer:

- With all groups removed at once, every node happens at its earliest. A path that is no longer than
  the longest one then is never the longest.
- A node with a single edge into it, or out of it, joins its neighbor, unless a group has the edge.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from htagraph.arrays.codes import gather
from htagraph.arrays.passes import compiled
from htagraph.arrays.retime import latest_times, retime
from htagraph.model.arrays import I32, I64, Bools

_BLOCK = 16
"""Groups per pass: two cache lines of times a node."""
_NEVER = -(2**61)
"""Earlier than any time from the first release on."""


@compiled
def _retime_without(
    offsets: I64, tail: I32, weight: I64, without: I64, group: I32, out: I64
) -> None:
    """As `retime`, in columns: in column ``c``, edges of group ``c`` weigh ``without``."""
    n_columns = out.shape[1]
    for node in range(len(out)):
        for edge in range(offsets[node], offsets[node + 1]):
            before, by = tail[edge], weight[edge]
            one, two = group[edge, 0], group[edge, 1]
            kept_one = out[node, one] if one >= 0 else 0
            kept_two = out[node, two] if two >= 0 else 0
            for column in range(n_columns):
                out[node, column] = max(out[node, column], out[before, column] + by)
            if one >= 0:
                out[node, one] = max(kept_one, out[before, one] + without[edge, 0])
            if two >= 0:
                out[node, two] = max(kept_two, out[before, two] + without[edge, 1])


@compiled
def _join_forward(
    offsets: I64,
    tail: I32,
    weight: I64,
    group: I32,
    kept: Bools,
    joined: I32,
    later: I64,
    seen: I64,
    edges: I64,
    tails: I32,
    weights: I64,
) -> int:
    """Join each node that a single fixed edge leads to with the tail; return how many edges remain.

    ``edges`` are the old numbers of those that remain. Of parallel fixed edges, the longest does.
    """
    count, n = 0, len(joined)
    for node in range(n):
        begin = count
        for edge in range(offsets[node], offsets[node + 1]):
            if not kept[edge]:
                continue
            before = joined[tail[edge]]
            by = weight[edge] + later[tail[edge]]
            is_fixed = group[edge, 0] < 0 and group[edge, 1] < 0
            if is_fixed and seen[before] >= begin:
                same = seen[before]
                weights[same] = max(weights[same], by)
                continue
            if is_fixed:
                seen[before] = count
            edges[count], tails[count], weights[count] = edge, before, by
            count += 1
        joined[node], later[node] = node, 0
        first = edges[begin] if count > begin else -1
        if count == begin + 1 and node < n - 1 and group[first, 0] < 0 and group[first, 1] < 0:
            joined[node], later[node] = tails[begin], weights[begin]
            seen[tails[begin]] = -1
            count = begin
    return count


@compiled
def _join_backward(
    tail: I32, head: I32, weight: I64, group: I32, n_out: I64, joined: I32, earlier: I64
) -> None:
    """Join each node from which a single fixed edge leads with the head; drop that edge, as -1."""
    for edge in range(len(tail)):
        n_out[tail[edge]] += 1
    for edge in range(len(tail) - 1, -1, -1):
        node, after = tail[edge], joined[head[edge]]
        is_fixed = group[edge, 0] < 0 and group[edge, 1] < 0
        by = weight[edge] + earlier[head[edge]]
        if is_fixed and node > 0 and n_out[node] == 1:
            joined[node], earlier[node] = after, by
            head[edge] = -1
        else:
            head[edge], weight[edge] = after, by


def _without_all(weight: I64, group: I32, without: I64) -> I64:
    """Weight of each edge if all groups are removed."""
    least: I64 = np.where(group >= 0, without, weight[:, None]).min(axis=1)
    return least


class _Graph(NamedTuple):
    """Edges sorted by head; node 0 is the source, where time begins, the last one the end."""

    offsets: I64
    tail: I32
    weight: I64
    group: I32  # Of shape (m, 2). Numbered from 0; -1 for none.
    without: I64  # Of shape (m, 2). In ns.

    @property
    def head(self) -> I32:
        """Head of each edge."""
        n = len(self.offsets) - 1
        return np.repeat(np.arange(n, dtype=np.int32), np.diff(self.offsets))

    @classmethod
    def of(cls, ends: tuple[I32, I32], weight: I64, group: I32, without: I64) -> Self:
        """Graph of edges in any order, whose nodes are numbered anew in theirs."""
        is_there = np.zeros(max(int(end.max()) for end in ends) + 1, dtype=bool)
        for end in ends:
            is_there[end] = True
        number = np.cumsum(is_there, dtype=np.int32) - np.int32(1)
        tail, head = (number[end] for end in ends)
        order = np.argsort(head, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(head, minlength=int(number[-1]) + 1))])
        return cls(offsets, tail[order], weight[order], group[order], without[order])

    def times(self, weight: I64) -> I64:
        """Longest path from the source to each node."""
        release = np.full(len(self.offsets) - 1, _NEVER)
        release[0] = 0
        return retime(self.offsets, self.tail, weight, release)

    @property
    def without_all(self) -> I64:
        """Weight of each edge if all groups are removed."""
        return _without_all(self.weight, self.group, self.without)

    def longer_than(self, least: int) -> Bools | None:
        """Whether a path through each edge is longer, as long as no group is removed.

        None if no path is.
        """
        times = self.times(self.weight)
        last = int(times[-1])
        if last <= least:
            return None
        deadline = np.full(len(times), np.iinfo(np.int64).max)
        deadline[-1] = last
        latest = latest_times(self.offsets, self.tail, self.weight, deadline)
        slack = latest[self.head] - (times[self.tail] + self.weight)
        return np.asarray(slack < last - least)

    def joined(self, kept: Bools) -> _Graph:
        """The same without some edges, and without nodes that need not be told apart."""
        n, m = len(self.offsets) - 1, len(self.tail)
        edges, weights = (np.empty(m, dtype=np.int64) for _ in range(2))
        tails, joined = np.empty(m, dtype=np.int32), np.empty(n, dtype=np.int32)
        later, seen = np.empty(n, dtype=np.int64), np.full(n, -1, dtype=np.int64)
        count = _join_forward(
            self.offsets,
            self.tail,
            self.weight,
            self.group,
            kept,
            joined,
            later,
            seen,
            edges,
            tails,
            weights,
        )
        edges, tail, weight = edges[:count], tails[:count], weights[:count]
        head, group = self.head[edges], self.group[edges]
        # What a group leaves of an edge moves with it.
        joined, earlier = np.arange(n, dtype=np.int32), np.zeros(n, dtype=np.int64)
        _join_backward(tail, head, weight, group, np.zeros(n, dtype=np.int64), joined, earlier)
        left = np.flatnonzero(head >= 0)
        moved = weight[left] - self.weight[edges[left]]
        without = self.without[edges[left]] + moved[:, None]
        return _Graph.of((tail[left], head[left]), weight[left], group[left], without)

    def of_groups(self, first: int, last: int) -> _Graph:
        """The same if only some groups may be removed, numbered anew."""
        mine = (self.group >= first) & (self.group < last)
        group = np.where(mine, self.group - first, -1).astype(np.int32)
        return self._replace(group=group)

    def last(self, n_groups: int, least: int = _NEVER) -> I64:
        """When the end happens without each group, at least at some time."""
        found = np.empty(n_groups, dtype=np.int64)
        least = max(least, int(self.times(self.without_all)[-1]))
        kept = self.longer_than(least)
        if kept is None or n_groups == 1:
            found[:] = least
            return found
        rest = self.joined(kept)
        if n_groups > _BLOCK:
            half = n_groups // 2
            found[:half] = rest.of_groups(0, half).last(half, least)
            found[half:] = rest.of_groups(half, n_groups).last(n_groups - half, least)
            return found
        times = np.full((len(rest.offsets) - 1, n_groups), _NEVER)
        times[0] = 0
        _retime_without(*rest[:3], rest.without, rest.group, times)
        return np.asarray(np.maximum(times[-1], least))


def _to_the_end(graph: tuple[I64, I32, I64, I64], without_ns: I64, group: I32, end: I64) -> _Graph:
    """Graph of what happens until the last of some nodes, from the first release on."""
    offsets, tail, weight, release = graph
    n = int(end.max()) + 1
    m = int(offsets[n])
    tail, weight, group, without = tail[:m], weight[:m], group[:m], without_ns[:m]
    head = np.repeat(np.arange(n, dtype=np.int32), np.diff(offsets[: n + 1]))
    release = release[:n] - release.min()
    least = _without_all(weight, group, without)
    earliest = retime(offsets[: n + 1], tail, least, release)
    arrival = np.full(n, _NEVER)
    np.maximum.at(arrival, head, earliest[tail] + least)
    released = np.flatnonzero(release > arrival)
    n_more = len(released) + len(end)
    ends = (
        np.concatenate([tail + 1, np.zeros(len(released), np.int32), end + 1]).astype(np.int32),
        np.concatenate([head + 1, released + 1, np.full(len(end), n + 1)]).astype(np.int32),
    )
    return _Graph.of(
        ends,
        np.concatenate([weight, release[released], np.zeros(len(end), dtype=np.int64)]),
        np.concatenate([group, np.full((n_more, 2), -1, dtype=np.int32)]),
        np.concatenate([without, np.zeros((n_more, 2), dtype=np.int64)]),
    )


def retime_without(
    graph: tuple[I64, I32, I64, I64], without_ns: I64, group: I32, n_groups: int, ends: list[I64]
) -> I64:
    """Last time of some sets of nodes, if the edges of one group after the other weighed less.

    `graph`: ``offsets, tail, weight_ns, release_ns``, as for `retime`. `without_ns` of shape (m,
    2): weight of each edge where the one or the other of its groups is left out: no more than its
    weight. `group` of shape (m, 2): groups of each edge, which differ; -1 for none. `ends`:
    positions of each set; an empty one is at the first release.
    """
    release = graph[3]
    found = np.full((n_groups, len(ends)), release.min() if len(release) else 0, dtype=np.int64)
    # Groups that begin next to each other share a half: the rest of the graph shrinks most.
    ends_first = np.flatnonzero(group.reshape(-1) >= 0)[::-1]
    begins = np.full(n_groups, group.size)
    begins[group.reshape(-1)[ends_first]] = ends_first
    order = np.empty(n_groups, dtype=np.int32)
    order[np.argsort(begins, kind="stable")] = np.arange(n_groups)
    numbered = gather(order, group)
    for place, end in enumerate(ends):
        if len(end) and n_groups:
            found[:, place] += _to_the_end(graph, without_ns, numbered, end).last(n_groups)[order]
    return found
