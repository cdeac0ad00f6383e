"""Edges in the order of their heads: a counting sort.

One pass counts the edges into each head, a second one puts every edge in its place. Few heads have
several edges, and few of these are out of order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.arrays.passes import compiled
from htagraph.model.arrays import I8, I32, I64

_DTYPES: tuple[Any, ...] = (np.int32, np.int32, np.int8, np.int64, np.int32, np.int8)

_MANY = 32
"""Edges of one head above which numpy sorts them: insertion takes quadratic time. Changes only the
speed."""


class EdgeColumns(NamedTuple):
    """Edges, column by column, as `htagraph.model.edges.EdgeTable` has them."""

    tail: I32
    head: I32
    kind: I8
    lag_ns: I64
    event: I32
    rule: I8

    @classmethod
    def of(cls, columns: Iterable[npt.NDArray[Any]]) -> EdgeColumns:
        """Columns as machine code takes them: of these types, and without gaps."""
        pairs = zip(columns, _DTYPES, strict=True)
        return cls(*(np.ascontiguousarray(column, dtype=dtype) for column, dtype in pairs))

    @classmethod
    def empty(cls, n: int) -> EdgeColumns:
        """Room for some edges."""
        return cls(*(np.empty(n, dtype=dtype) for dtype in _DTYPES))


class InOrder(NamedTuple):
    """Nodes in chains, each with an edge from the one before it: edges that need no columns yet."""

    node: I32  # Chain by chain
    event: I32  # Event that the time from each node to the next belongs to, -1 for none
    rule: I8  # Rule of the edge from each node to the next
    first: I64  # Of shape (n_chains + 1,). Those of a chain are ``first[chain]:first[chain + 1]``.
    node_ts_ns: I64  # Of shape (n_nodes,)
    kind: int  # Of all these edges
    waits: int  # Rule of edges without a lag; the lag of others is the time between


@compiled
def _count_in_order(chains: InOrder, first: I32) -> None:
    """Count the edges of chains into each head, two places after its own."""
    for chain in range(len(chains.first) - 1):
        for position in range(chains.first[chain] + 1, chains.first[chain + 1]):
            first[chains.node[position] + 2] += 1


@compiled
def _place_in_order(chains: InOrder, following: I32, out: EdgeColumns) -> None:
    """Put each edge of chains at the next place of its head."""
    for chain in range(len(chains.first) - 1):
        for position in range(chains.first[chain], chains.first[chain + 1] - 1):
            tail, head = chains.node[position], chains.node[position + 1]
            place = following[head]
            following[head] = place + 1
            out.tail[place], out.head[place] = tail, head
            out.kind[place], out.rule[place] = chains.kind, chains.rule[position]
            out.event[place] = chains.event[position]
            out.lag_ns[place] = 0
            if chains.rule[position] != chains.waits:
                out.lag_ns[place] = chains.node_ts_ns[head] - chains.node_ts_ns[tail]


@compiled
def _count(head: I32, first: I32) -> None:
    """Count the edges into each head, two places after its own."""
    for edge in range(len(head)):
        first[head[edge] + 2] += 1


@compiled
def _place(edges: EdgeColumns, following: I32, out: EdgeColumns) -> None:
    """Put each edge at the next place of its head."""
    for edge in range(len(edges.head)):
        place = following[edges.head[edge]]
        following[edges.head[edge]] = place + 1
        out.tail[place] = edges.tail[edge]
        out.head[place] = edges.head[edge]
        out.kind[place] = edges.kind[edge]
        out.lag_ns[place] = edges.lag_ns[edge]
        out.event[place] = edges.event[edge]
        out.rule[place] = edges.rule[edge]


@compiled
def _insert(first: I32, edges: EdgeColumns, most: int) -> int:
    """Order the edges of each head by kind, then tail; return how many heads have too many."""
    left = 0
    for node in range(len(first) - 1):
        begin, end = first[node], first[node + 1]
        if end - begin > most:
            left += 1
            continue
        for edge in range(begin + 1, end):
            tail, kind = edges.tail[edge], edges.kind[edge]
            lag, event, rule = edges.lag_ns[edge], edges.event[edge], edges.rule[edge]
            at = edge
            while at > begin and (
                edges.kind[at - 1] > kind
                or (edges.kind[at - 1] == kind and edges.tail[at - 1] > tail)
            ):
                edges.tail[at], edges.kind[at] = edges.tail[at - 1], edges.kind[at - 1]
                edges.lag_ns[at] = edges.lag_ns[at - 1]
                edges.event[at], edges.rule[at] = edges.event[at - 1], edges.rule[at - 1]
                at -= 1
            edges.tail[at], edges.kind[at] = tail, kind
            edges.lag_ns[at], edges.event[at], edges.rule[at] = lag, event, rule
    return left


def by_head(tables: Sequence[EdgeColumns], chains: InOrder | None = None) -> EdgeColumns:
    """Edges of several tables by head, then kind, then tail: the order of a graph; stable.

    Those of chains come after those of tables.
    """
    heads = [table.head for table in tables] + ([] if chains is None else [chains.node])
    n_nodes = 1 + max((int(head.max(initial=-1)) for head in heads), default=-1)
    first = np.zeros(n_nodes + 2, dtype=np.int32)
    for table in tables:
        _count(table.head, first)
    if chains is not None:
        _count_in_order(chains, first)
    np.cumsum(first, dtype=np.int32, out=first)
    out = EdgeColumns.empty(int(first[-1]))
    for table in tables:
        _place(table, first[1:], out)
    if chains is not None:
        _place_in_order(chains, first[1:], out)
    first = first[:-1]  # each head has now been followed by its last edge
    if _insert(first, out, _MANY):
        for node in np.flatnonzero(np.diff(first) > _MANY).tolist():
            rows = slice(first[node], first[node + 1])
            order = np.lexsort((out.tail[rows], out.kind[rows]))
            for column in out:
                column[rows] = column[rows][order]
    return out
