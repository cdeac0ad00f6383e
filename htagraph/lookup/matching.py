"""Chains of events that match a pattern: which events follow each other along which edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from htagraph.arrays.ancestors import depths
from htagraph.arrays.codes import ranges
from htagraph.errors import QueryError, TraceLimitError
from htagraph.lookup.patterns import ANY, CHILD, Hop, Pattern
from htagraph.lookup.selecting import tree_parent
from htagraph.model.arrays import I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, among

_MOST_PAIRS = 1 << 27
"""Pairs of host events and device work under them: 2 GB. A limit of memory."""
_MOST_JOINED = 1 << 24
"""Pairs of events that a hop follows, over all its edges: 130 MB a column. A limit of memory and of
time: 20 s for a trace of a million events."""
_MOST_CELLS = 1 << 28
"""Numbers in the table of matches: 2 GB. A limit of memory."""
_CELLS = 8
"""Numbers in it for each event: four of its own, and four of the edge before it."""


class Links(NamedTuple):
    """Pairs of different events that edges join, with the row of the edge, -1 for none."""

    tail: I64
    head: I64
    edge: I64

    def take(self, rows: I64 | Bools) -> Links:
        """Some of the pairs."""
        return Links(self.tail[rows], self.head[rows], self.edge[rows])

    @classmethod
    def concat(cls, parts: Iterable[Links]) -> Links:
        """The pairs of several."""
        none = np.empty(0, dtype=np.int64)
        return cls(*map(np.concatenate, zip((none,) * 3, *parts, strict=True)))

    @property
    def reversed(self) -> Links:
        """The same pairs, from head to tail."""
        return Links(self.head, self.tail, self.edge)


class Found(NamedTuple):
    """The matches of a chain: of each pattern the events, of each hop the edges, -1 for none.

    A hop has edges unless it is `CHILD`, which is nesting.
    """

    pattern: str
    names: tuple[str, ...]
    events: tuple[I64, ...]
    edges: tuple[I64, ...]
    has_edges: tuple[bool, ...]


def _launched_under(dag: Dag, tails: Bools, heads: Bools) -> Links:
    """Each device event with each host event above its launch, and the edge of the launch."""
    device = np.flatnonzero((dag.launch >= 0) & heads)
    above = dag.launch[device].astype(np.int64)
    if depths(dag.parent, above).sum() > _MOST_PAIRS:
        raise TraceLimitError(
            f"device work lies under more than {_MOST_PAIRS:,} host events, counted once for each.",
            hint="graph.edges has each launch once.",
        )
    edge_of = np.full(len(dag.events), -1)
    launches = np.flatnonzero(dag.edges.kind == EdgeKind.LAUNCH)
    edge_of[dag.edges.head[launches] >> 1] = launches
    parts = []
    while len(device):
        kept = tails[above]
        parts.append(Links(above[kept], device[kept], edge_of[device[kept]]))
        above = dag.parent[above].astype(np.int64)
        device, above = device[above >= 0], above[above >= 0]
    return Links.concat(parts)


def linked_events(
    dag: Dag, kinds: Sequence[str], tails: Bools | None = None, heads: Bools | None = None
) -> Links:
    """Pairs of different events that edges of some kinds join, or `CHILD`; tails to heads only.

    LAUNCH joins a host event with the device work launched anywhere under it, so that an operator
    leads to its kernels.
    """
    every = np.ones(len(dag.events), dtype=bool)
    tails, heads = every if tails is None else tails, every if heads is None else heads
    wanted = [EdgeKind.parse(kind) for kind in kinds if kind.upper() != CHILD]
    parts = [_launched_under(dag, tails, heads)] if EdgeKind.LAUNCH in wanted else []
    rows = np.flatnonzero(among(dag.edges.kind, {*wanted} - {EdgeKind.LAUNCH}))
    tail, head = dag.edges.tail[rows] >> 1, dag.edges.head[rows] >> 1
    kept = np.flatnonzero((tail != head) & tails[tail] & heads[head])
    parts.append(Links(tail[kept].astype(np.int64), head[kept].astype(np.int64), rows[kept]))
    if len(wanted) < len(kinds):
        parent = tree_parent(dag)
        child = np.flatnonzero((parent >= 0) & heads)
        child = child[tails[parent[child]]]
        parts.append(Links(parent[child], child, np.full(len(child), -1)))
    return Links.concat(parts)


def _limited(n: float, most: int, what: str) -> None:
    """Check a number of rows before memory is used for them."""
    if n > most:
        raise TraceLimitError(
            f"the pattern has {n:,.0f} {what}; {most:,} are the most.",
            hint="narrow it with names, conditions ([dur>1ms]) or a window.",
        )


class _ByTail:
    """Links of each tail in order of the start of their heads."""

    def __init__(self, dag: Dag, links: Links) -> None:
        order = np.argsort(dag.events.ts_ns[links.head], kind="stable")
        self.links = links.take(order[np.argsort(links.tail[order], kind="stable")])
        self.counts = np.bincount(links.tail, minlength=len(dag.events))
        self.first = np.cumsum(self.counts) - self.counts

    def following(self, at: I64, n_before: int = 0) -> tuple[I64, Links]:
        """Position in `at` and link of every pair whose tail is there; so many were before."""
        counts = self.counts[at]
        _limited(n_before + counts.sum(), _MOST_JOINED, "pairs of events")
        return np.repeat(np.arange(len(at)), counts), self.links.take(
            ranges(self.first[at], counts)
        )


def _repeated(dag: Dag, hop: Hop, tails: Bools, heads: Bools) -> Links:
    """Pairs of events joined by so many edges, each with the last edge of its shortest chain."""
    links = linked_events(dag, hop.kinds)
    step = _ByTail(dag, links.reversed if hop.backward else links)
    n = len(dag.events)
    at = np.flatnonzero(tails)
    front = Links(at, at, np.full(len(at), -1))
    n_followed = len(at)  # bounds the time as well: there may be as many pairs after each edge
    known = np.empty(0, dtype=np.int64)
    found = []
    for taken in range(hop.at_most + 1):
        if taken:
            position, links = step.following(front.head, n_followed)
            front = Links(front.tail[position], links.head, links.edge)
            n_followed += len(position)
        # From a pair that was already found with fewer edges, all that is ahead was followed.
        key, first = np.unique(front.tail * n + front.head, return_index=True)
        new = ~np.isin(key, known, assume_unique=True)
        front = front.take(first[new])
        if taken >= hop.at_least:
            known = np.concatenate([known, key[new]])
            found.append(front.take(heads[front.head]))
        if not len(front.head):
            break
    return Links.concat(found)


def _hop_links(dag: Dag, hop: Hop, tails: Bools, heads: Bools) -> Links:
    """Pairs of events that a hop leads from and to."""
    if (hop.at_least, hop.at_most) != (1, 1):
        return _repeated(dag, hop, tails, heads)
    if hop.backward:
        return linked_events(dag, hop.kinds, heads, tails).reversed
    return linked_events(dag, hop.kinds, tails, heads)


def find_matches(
    dag: Dag, rows: I64, chain: Sequence[Pattern | Hop | str], path: Callable[[], I64]
) -> Found:
    """Ways in which events match a chain, in order of the starts of their events.

    Pairs are narrowed from both ends and the matches counted, before any is built. `rows`: events
    that may take part. `chain`: patterns and hops in turn; begins and ends with a pattern. A text
    is a hop of one edge. `path`: gives the events of the critical path.
    """
    patterns = [item for item in chain[0::2] if isinstance(item, Pattern)]
    hops = [
        item if isinstance(item, Hop) else Hop(str(item))
        for item in chain[1::2]
        if not isinstance(item, Pattern)
    ]
    if len(chain) % 2 == 0 or len(patterns) + len(hops) < len(chain):
        raise QueryError(
            "patterns and edges do not alternate.",
            hint='for example op("aten::linear"), "LAUNCH", kernel().',
        )
    n = len(dag.events)
    masks = [pattern.mask(dag, rows, path) for pattern in patterns]
    links: list[Links] = []
    for place, hop in enumerate(hops):
        links.append(_hop_links(dag, hop, *masks[place : place + 2]))
        masks[place + 1] = np.bincount(links[-1].head, minlength=n) > 0
    ways = masks[-1].astype(float)
    for place in reversed(range(len(links))):
        links[place] = links[place].take(ways[links[place].head] > 0)
        ways = np.bincount(links[place].tail, ways[links[place].head], minlength=n).astype(float)
    _limited(ways.sum(), min(_MOST_CELLS // (_CELLS * len(patterns)), _MOST_JOINED), "matches")
    first = np.flatnonzero(ways)
    events = [first[np.argsort(dag.events.ts_ns[first], kind="stable")]]
    edges: list[I64] = []
    for pairs in links:
        source, following = _ByTail(dag, pairs).following(events[-1])
        events = [column[source] for column in events]
        edges = [column[source] for column in edges]
        events.append(following.head)
        edges.append(following.edge)
    has_edges = tuple(hop.kinds != [CHILD] for hop in hops)
    text = " ".join(f"{hop} {pattern}" for hop, pattern in zip(("", *hops), patterns, strict=True))
    return Found(text.strip(), _names(patterns), tuple(events), tuple(edges), has_edges)


def _names(patterns: Sequence[Pattern]) -> tuple[str, ...]:
    """Names of the events of a match by their kind, numbered from the second of a kind."""
    seen: Counter[str] = Counter()
    names = []
    for pattern in patterns:
        kind = ANY if len(pattern.kinds) > 1 else pattern.kinds[0]
        seen[kind] += 1
        names.append(kind if seen[kind] == 1 else f"{kind}_{seen[kind]}")
    return tuple(names)
