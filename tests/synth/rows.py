"""Events of a simulated rank, one object each, before they become an event table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from htagraph.model.events import EventTable, Lane
from htagraph.model.kinds import EventKind


@dataclass(slots=True)
class Row:
    """An event."""

    name: str
    kind: EventKind
    category: str
    lane: Lane
    ts_ns: int
    dur_ns: int
    # device, stream, correlation, external_id: as in `EventTable`; -1 for none
    device: int = -1
    stream: int = -1
    correlation: int = -1
    external_id: int = -1
    # For the sparse columns of `EventTable`
    values: dict[str, int | float | str] = field(default_factory=dict)

    @property
    def end_ns(self) -> int:
        """End of the event."""
        return self.ts_ns + self.dur_ns


class FlowPoint(NamedTuple):
    """One end of an arrow between events; `phase` is 0 at its start and 2 at its finish."""

    category: str
    phase: int
    id: int
    lane: Lane
    ts_ns: int


def event_table(
    rows: Sequence[Row],
    flows: Sequence[FlowPoint] = (),
    lanes: Mapping[Lane, Mapping[str, str | int]] | None = None,
) -> EventTable:
    """The event table of some rows, in their order."""
    dense = [one.name for one in fields(Row) if one.name != "values"]
    sparse = dict.fromkeys(column for row in rows for column in row.values)
    return EventTable.of(
        **{column: [getattr(row, column) for row in rows] for column in dense},
        columns={column: [row.values.get(column) for row in rows] for column in sparse},
        flows=flows,
        lanes=lanes,
    )
