"""Chains of typed patterns: which events follow each other along which edges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from htagraph.algorithms.ancestors import depths
from htagraph.algorithms.gather import ranges
from htagraph.errors import QueryError, TraceLimitError
from htagraph.lookup.selecting import kind_mask, name_mask, tree_parent, where_rows
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind

CHILD = "CHILD"
"""The hop from a host event to what it directly encloses, or to what it launched itself."""

_MOST_HOPS = 64
"""Edges that one hop may follow; a typing error would run for hours. A limit of time."""
_MOST_PAIRS = 1 << 27
"""Pairs of host events and device work under them: 2 GB. A limit of memory."""


@dataclass(frozen=True)
class Pattern:
    """Conditions on an event of a chain, as for `TraceGraph.select`."""

    kind: str
    name: str | re.Pattern[str] | None = None
    where: str | None = None

    def mask(self, dag: Dag, rows: I64) -> Bools:
        """Whether each event matches and is in `rows`."""
        wanted = kind_mask(dag, self.kind)
        if self.name is not None:
            wanted = wanted & name_mask(dag, self.name)
        kept = rows[wanted[rows]]
        if self.where is not None:
            kept = where_rows(dag, kept, self.where)
        mask = np.zeros(len(dag.events), dtype=bool)
        mask[kept] = True
        return mask


@dataclass(frozen=True)
class Hop:
    """An `EdgeKind`, or ``CHILD``, followed at least and at most so many times."""

    kind: str
    at_least: int = 1
    at_most: int = 1

    def __post_init__(self) -> None:
        """Check the range."""
        if not 0 <= self.at_least <= self.at_most <= _MOST_HOPS:
            raise QueryError(
                f"a hop cannot follow {self.at_least} to {self.at_most} edges.",
                hint=f"0 <= at_least <= at_most <= {_MOST_HOPS}.",
            )


def _launched_under(dag: Dag) -> tuple[I64, I64]:
    """Pairs of a device event and each host event above its launch: host, device."""
    device = np.flatnonzero(dag.launch >= 0)
    above = dag.launch[device].astype(np.int64)
    if depths(dag.parent, above).sum() > _MOST_PAIRS:
        raise TraceLimitError(
            f"device work lies under more than {_MOST_PAIRS:,} host events, counted once for each.",
            hint="graph.edges has each launch once.",
        )
    tails, heads = [], []
    while len(device):
        tails.append(above)
        heads.append(device)
        above = dag.parent[above].astype(np.int64)
        device, above = device[above >= 0], above[above >= 0]
    none = np.empty(0, dtype=np.int64)
    return np.concatenate([none, *tails]), np.concatenate([none, *heads])


def linked_events(dag: Dag, kind: str) -> tuple[I64, I64]:
    """Pairs of different events that edges of a kind join, or `CHILD`.

    LAUNCH joins a host event with the device work launched anywhere under it, so that an operator
    leads to its kernels.
    """
    if kind.upper() == CHILD:
        parent = tree_parent(dag)
        head = np.flatnonzero(parent >= 0)
        return parent[head], head
    wanted = EdgeKind.parse(kind)
    if wanted == EdgeKind.LAUNCH:
        return _launched_under(dag)
    rows = dag.edges.kind == wanted
    tail, head = (
        dag.edges.tail[rows].astype(np.int64) >> 1,
        dag.edges.head[rows].astype(np.int64) >> 1,
    )
    return tail[tail != head], head[tail != head]


def _join(at: I64, tail: I64, head: I64) -> tuple[I64, I64]:
    """Position in `at` and head of every pair whose tail is there."""
    order = np.argsort(tail, kind="stable")
    tail, head = tail[order], head[order]
    first, last = np.searchsorted(tail, at, side="left"), np.searchsorted(tail, at, side="right")
    counts = last - first
    source = np.repeat(np.arange(len(at)), counts)
    return source, head[ranges(first, counts)]


def _follow(dag: Dag, at: I64, hop: Hop) -> tuple[I64, I64]:
    """Position in `at` and event for every event that the hop leads to; each pair once."""
    tail, head = linked_events(dag, hop.kind)
    source, event = np.arange(len(at)), at
    found = [(source, event)] if hop.at_least == 0 else []
    for taken in range(1, hop.at_most + 1):
        position, event = _join(event, tail, head)
        source = source[position]
        if taken >= hop.at_least:
            found.append((source, event))
    sources, events = (np.concatenate(part) for part in zip(*found, strict=True))
    pairs = np.unique(np.stack([sources, events]), axis=1)
    return pairs[0], pairs[1]


def find_matches(dag: Dag, rows: I64, chain: Sequence[Pattern | Hop | str]) -> pd.DataFrame:
    """Ways in which events match a chain.

    Parameters
    ----------
    rows : ndarray of shape (n,), dtype=int64
        Events that may take part.
    chain : sequence
        Patterns and hops in turn; begins and ends with a pattern. A text is a hop of one edge.

    Returns
    -------
    DataFrame
        A row per match, a column per pattern with the event. Columns are named by the pattern's
        kind, numbered from the second of a kind (``op``, ``kernel``, ``kernel_2``).
    """
    patterns, hops = list(chain[0::2]), list(chain[1::2])
    well_formed = len(chain) % 2 == 1 and all(isinstance(item, Pattern) for item in patterns)
    if not well_formed or any(isinstance(item, Pattern) for item in hops):
        raise QueryError(
            "patterns and edges do not alternate.",
            hint='for example op("aten::linear"), "LAUNCH", kernel().',
        )
    columns = [np.flatnonzero(patterns[0].mask(dag, rows))]  # type: ignore[union-attr]
    for hop, pattern in zip(hops, patterns[1:], strict=True):
        source, event = _follow(dag, columns[-1], hop if isinstance(hop, Hop) else Hop(str(hop)))
        kept = pattern.mask(dag, rows)[event]  # type: ignore[union-attr]
        columns = [column[source[kept]] for column in columns]
        columns.append(event[kept])
    names: list[str] = []
    for pattern in patterns:
        kind = pattern.kind  # type: ignore[union-attr]
        seen = sum(name.rsplit("_", 1)[0] == kind or name == kind for name in names)
        names.append(kind if not seen else f"{kind}_{seen + 1}")
    frame = pd.DataFrame(dict(zip(names, columns, strict=True)))
    return frame.sort_values(names, kind="stable", ignore_index=True)
