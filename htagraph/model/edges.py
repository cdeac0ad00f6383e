"""The edge table: what cannot happen before what, why, and how long it takes at least.

An edge goes from a tail node to a head node forward in time. Its lag is the time that the head
needs after the tail even if nothing else delays it: ``ts(tail) + lag <= ts(head)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from htagraph.errors import GraphError

__all__ = ["RULES", "EdgeTable", "rule_code"]

I8 = npt.NDArray[np.int8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

RULES = (
    "duration",  # SPAN: the event ran
    "program order",  # THREAD: time inside a call or between two
    "blocking call",  # THREAD: the call waits for what its SYNC edge names, so it needs no time of its own
    "handed over",  # THREAD: the thread waits for another, named by FLOW edges
    "correlation",  # LAUNCH: API call and device event carry one correlation id
    "stream order",  # STREAM: the previous work of the stream had ended
    "stream overlap",  # STREAM: the previous work was still running (programmatic dependent launch)
    "fwdbwd flow",  # FLOW: the file says which backward operator belongs to which forward operator
    "hand-over",  # FLOW: a thread does nothing while the autograd thread works for it (inferred)
    "sync record",  # SYNC: a cuda_sync record names what is waited for
    "call semantics",  # SYNC: the API call waits by definition
    "blocking copy",  # SYNC: a copy from or to pageable memory returned after the device had finished it
    "record and wait order",  # SYNC: event record and stream wait paired by their order (inferred)
    "ended right before",  # SYNC: all earlier work of another stream ended right before (inferred)
    "queue full",  # QUEUE
    "window start",  # SOURCE: first known activity of a thread
    "launched before the capture",  # SOURCE: device work whose launch was not captured
    "window end",  # SINK
    "host waits for kernel",  # HIDDEN_SYNC (inferred)
    "rendezvous",  # COLLECTIVE
    "graph replay",  # LAUNCH: one graph launch, many device events
)
"""The rules that make edges; an edge stores the position of its rule."""


def rule_code(rule: str) -> int:
    """Return the code of a rule.

    Examples
    --------
    >>> RULES[rule_code("correlation")]
    'correlation'
    """
    return RULES.index(rule)


def _empty(dtype: type) -> npt.NDArray[np.generic]:
    return np.empty(0, dtype=dtype)


@dataclass(frozen=True)
class EdgeTable:
    """Edges as a struct of read-only columns.

    Parameters
    ----------
    tail, head : ndarray of shape (n_edges,), dtype=int32
        Nodes (``2 * event`` or ``2 * event + 1``).
    kind : ndarray of shape (n_edges,), dtype=int8
        Codes of `EdgeKind`.
    lag_ns : ndarray of shape (n_edges,), dtype=int64, unit=ns
        Least time from tail to head, ``>= 0``.
    event : ndarray of shape (n_edges,), dtype=int32
        Event that the time of the edge belongs to, -1 for none (a host gap).
    rule : ndarray of shape (n_edges,), dtype=int8
        Position in `RULES` of the rule that made the edge.
    """

    tail: I32 = field(default_factory=lambda: _empty(np.int32))  # type: ignore[arg-type, return-value]
    head: I32 = field(default_factory=lambda: _empty(np.int32))  # type: ignore[arg-type, return-value]
    kind: I8 = field(default_factory=lambda: _empty(np.int8))  # type: ignore[arg-type, return-value]
    lag_ns: I64 = field(default_factory=lambda: _empty(np.int64))  # type: ignore[arg-type, return-value]
    event: I32 = field(default_factory=lambda: _empty(np.int32))  # type: ignore[arg-type, return-value]
    rule: I8 = field(default_factory=lambda: _empty(np.int8))  # type: ignore[arg-type, return-value]

    def __post_init__(self) -> None:
        """Freeze the columns and check that they are of one length."""
        columns = (self.tail, self.head, self.kind, self.lag_ns, self.event, self.rule)
        if len({len(column) for column in columns}) != 1:
            raise GraphError("edge columns differ in length.")
        for column in columns:
            column.setflags(write=False)

    @classmethod
    def of(
        cls,
        kind: int,
        tail: npt.ArrayLike,
        head: npt.ArrayLike,
        *,
        lag_ns: npt.ArrayLike = 0,
        event: npt.ArrayLike = -1,
        rule: str | npt.ArrayLike,
    ) -> EdgeTable:
        """Return edges of one kind; scalars are broadcast."""
        tails = np.asarray(tail, dtype=np.int32)
        n = len(tails)
        rules = rule_code(rule) if isinstance(rule, str) else rule
        return cls(
            tail=tails.copy(),
            head=np.asarray(head, dtype=np.int32).copy(),
            kind=np.full(n, kind, dtype=np.int8),
            lag_ns=np.broadcast_to(np.asarray(lag_ns, dtype=np.int64), n).copy(),
            event=np.broadcast_to(np.asarray(event, dtype=np.int32), n).copy(),
            rule=np.broadcast_to(np.asarray(rules, dtype=np.int8), n).copy(),
        )

    @classmethod
    def concat(cls, tables: Iterable[EdgeTable]) -> EdgeTable:
        """Return the rows of several tables, in their order."""
        parts = list(tables)
        if not parts:
            return cls()
        return cls(
            *(
                np.concatenate([getattr(t, name) for t in parts])
                for name in cls.__dataclass_fields__
            )
        )

    def take(self, rows: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> EdgeTable:
        """Return some rows (positions or a mask)."""
        return EdgeTable(*(getattr(self, name)[rows] for name in EdgeTable.__dataclass_fields__))

    def __len__(self) -> int:
        """Return the number of edges."""
        return len(self.tail)

    @cached_property
    def rule_names(self) -> npt.NDArray[np.object_]:
        """The rule of each edge as text."""
        return np.array(RULES, dtype=object)[self.rule]
