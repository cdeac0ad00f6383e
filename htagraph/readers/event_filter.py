"""EventFilter: which events of a file to load; and a selection of a table's events."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from htagraph.errors import QueryError
from htagraph.model.arrays import I64
from htagraph.model.events import EVENT_DTYPES, EventTable, FlowTable, SparseColumn
from htagraph.model.kinds import EventKind
from htagraph.model.recording import OUTSIDE, SAMPLED, STACKS
from htagraph.model.window import pair_of


@dataclass(frozen=True)
class EventFilter:
    """The events to load; see `htagraph.load`."""

    stacks: bool = False
    categories: Collection[str] | None = None
    window: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Check the window."""
        if self.window is None:
            return
        hint = "give (start_ns, end_ns) with start_ns <= end_ns."
        start_ns, end_ns = pair_of(self.window, hint=hint)
        if not start_ns <= end_ns:  # NaN compares false
            raise QueryError("the window ends before it starts.", hint=hint)


def taken(events: EventTable, rows: I64) -> EventTable:
    """Events of some rows, each at most once, in that order; no flow points on other events."""
    number = np.full(len(events) + 1, -1, dtype=np.int64)  # the last is for event -1, none
    number[rows] = np.arange(len(rows))
    columns = {}
    for name, column in events.columns.items():
        there = number[column.event]
        stays = np.flatnonzero(there >= 0)
        stays = stays[np.argsort(there[stays], kind="stable")]
        if len(stays):
            columns[name] = SparseColumn(there[stays], column.value[stays])
    flows = events.flows
    keep = (flows.event < 0) | (number[flows.event] >= 0)
    return replace(
        events,
        **{name: getattr(events, name)[rows] for name in EVENT_DTYPES},
        columns=columns,
        flows=FlowTable(
            flows.ts_ns[keep],
            flows.id[keep],
            flows.lane[keep],
            flows.phase[keep],
            flows.category[keep],
            number[flows.event[keep]],
        ),
    )


def filtered(events: EventTable, skipped: dict[str, int], wanted: EventFilter) -> EventTable:
    """The wanted events; the others are counted in `skipped`."""
    categories, window = wanted.categories, wanted.window
    texts = events.symbols.array
    if categories is None:
        leave = (events.kind == EventKind.PYTHON) & (not wanted.stacks)
        leave &= events.category != events.symbols.code(SAMPLED)
    else:
        leave = ~events.symbols.mask(categories.__contains__)[events.category]
    codes, counts = np.unique(events.category[leave], return_counts=True)
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        name = (texts[code] or "no category") if categories is not None else STACKS
        skipped[name] = skipped.get(name, 0) + count
    if window is not None:
        start, end = events.ts_ns, events.end_ns
        outside = (start >= window[1]) | ((end <= window[0]) & (start != window[0]))
        if (outside & ~leave).any():
            skipped[OUTSIDE] = int((outside & ~leave).sum())
        leave = leave | outside
    return taken(events, np.flatnonzero(~leave)) if leave.any() else events
