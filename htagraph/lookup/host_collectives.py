"""Collectives that the host runs: their ranges, and the calls that passed them to a worker."""

from __future__ import annotations

import numpy as np

from htagraph.model.arrays import I64
from htagraph.model.collective_names import HOST_CALL, HOST_COLLECTIVE
from htagraph.model.dag import Dag
from htagraph.model.kinds import HOST_KINDS, among
from htagraph.model.rules import Rule


def host_ranges(dag: Dag) -> I64:
    """Host ranges that last as long as a collective, ascending."""
    named = dag.events.named(dag.events.symbols.searched(HOST_COLLECTIVE))
    return np.flatnonzero(named & among(dag.events.kind, HOST_KINDS))


def host_collectives(dag: Dag) -> I64:
    """Host events of collectives, ascending: a call replaces the range in it."""
    ranges, calls = host_ranges(dag), dag.events.named(dag.events.symbols.searched(HOST_CALL))
    around = dag.parent[ranges]
    by_call = (around >= 0) & calls[around]
    return np.union1d(ranges[~by_call], around[by_call]).astype(np.int64)


def given_ranges(dag: Dag, ranges: I64) -> tuple[I64, I64]:
    """The ranges that a worker thread runs for a caller, and the call of each."""
    edges = dag.edges
    begins = (edges.rule == Rule.HANDOFF) & (edges.tail % 2 == 0)
    rows = np.flatnonzero(begins)
    rows = rows[np.isin(edges.head[rows], 2 * ranges)]
    return (edges.head[rows] >> 1).astype(np.int64), (edges.tail[rows] >> 1).astype(np.int64)
