"""The edge table: what waits for what, why, and for how long at least.

An edge goes from a tail node to a head node forward in time. Its lag is the time that the head
needs after the tail even if nothing else delays it: ``ts(tail) + lag <= ts(head)``. Of an inferred
dependency, `Support` says what it rests on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.errors import GraphError
from htagraph.model.arrays import I8, I32, I64, Bools, Frozen, Texts, brief, empty
from htagraph.model.kinds import EdgeKind, among
from htagraph.model.rules import Rule

_KIND_OF_RULE = Rule.kinds()


@brief
@dataclass(frozen=True)
class EdgeTable(Frozen):
    """Edges as a struct of read-only columns."""

    # tail, head: of shape (n_edges,). Nodes (``2 * event`` or ``2 * event + 1``).
    tail: I32 = field(default_factory=empty(np.int32))
    head: I32 = field(default_factory=empty(np.int32))
    kind: I8 = field(default_factory=empty(np.int8))  # Of shape (n_edges,). Codes of `EdgeKind`.
    # Of shape (n_edges,). Shortest possible time from tail to head, ``>= 0``.
    lag_ns: I64 = field(default_factory=empty(np.int64))
    # Of shape (n_edges,). Event that the time of the edge belongs to, -1 for none (a host gap).
    event: I32 = field(default_factory=empty(np.int32))
    # Of shape (n_edges,). Codes of the `Rule` that made the edge.
    rule: I8 = field(default_factory=empty(np.int8))

    def __post_init__(self) -> None:
        """Freeze the columns and check that they are of one length."""
        if len({len(column) for column in self.columns}) != 1:
            raise GraphError("edge columns differ in length.")
        super().__post_init__()

    @classmethod
    def of(
        cls,
        rule: npt.ArrayLike,
        tail: npt.ArrayLike,
        head: npt.ArrayLike,
        *,
        lag_ns: npt.ArrayLike = 0,
        event: npt.ArrayLike = -1,
    ) -> EdgeTable:
        """Edges by one rule, or a rule each, which implies their kind; scalars are broadcast.

        Columns of the right type become the table's own.
        """
        n = len(np.asarray(tail))

        def column(values: npt.ArrayLike, dtype: type[np.generic]) -> npt.NDArray[Any]:
            if isinstance(values, np.ndarray) and values.dtype == dtype and values.shape == (n,):
                return values
            out = np.empty(n, dtype=dtype)
            out[:] = values
            return out

        return cls(
            tail=column(tail, np.int32),
            head=column(head, np.int32),
            kind=column(_KIND_OF_RULE[np.asarray(rule)], np.int8),
            lag_ns=column(lag_ns, np.int64),
            event=column(event, np.int32),
            rule=column(rule, np.int8),
        )

    @classmethod
    def concat(cls, tables: Iterable[EdgeTable]) -> EdgeTable:
        """Rows of several tables, in their order."""
        parts = list(tables)
        if not parts:
            return cls()
        return cls(*map(np.concatenate, zip(*(table.columns for table in parts), strict=True)))

    @property
    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """All columns, in their order."""
        return self.tail, self.head, self.kind, self.lag_ns, self.event, self.rule

    def take(self, rows: npt.NDArray[np.integer] | Bools) -> EdgeTable:
        """Some rows (positions or a mask)."""
        return EdgeTable(*(column[rows] for column in self.columns))

    def __len__(self) -> int:
        """Number of edges."""
        return len(self.tail)

    @cached_property
    def ran_until(self) -> Bools:
        """Whether the time of each edge is device work that still ran at its head.

        Its recorded end is later: clocks differ, or the waiting work needed only a part of it.
        """
        waits = among(self.kind, (EdgeKind.SYNC, EdgeKind.HIDDEN_SYNC, EdgeKind.STREAM))
        of_own_start: Bools = self.event == self.tail >> 1
        of_own_start &= self.tail & 1 == 0
        return of_own_start & waits

    @cached_property
    def rule_names(self) -> Texts:
        """The rule of each edge as text."""
        return np.array(Rule.labels(), dtype=object)[self.rule]


@dataclass(frozen=True)
class Support:
    """Evidence for one inferred dependency between two places of a program.

    A place is a kernel's name with its stream and its position, or a host range.
    """

    rule: Rule  # That made the edges
    # source, target: the places: what was waited for, and what waited
    source: str
    target: str
    n_matched: int  # How often the target waited and the source ended where the rule wants it
    n_all: int  # How often the target waited
    # distance_ns, spread_ns: median time from the source's end to the target, and the range of
    # those that matched
    distance_ns: int
    spread_ns: int
    chance: float  # Share of random instants that would have matched as well
    # Tells what was learned in the graph of another part of the trace; empty where each part learns
    # by itself
    key: str = ""


class Inferred(NamedTuple):
    """What a pass of inference found."""

    edges: EdgeTable = EdgeTable()
    # One for each pair of places that was learnt; empty where a rule judges every event by itself
    support: tuple[Support, ...] = ()
