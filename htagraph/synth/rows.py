"""Synthetic events, one object each, before they become an event table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from htagraph.model.events import EventTable, FlowTable, LaneTable, SparseColumn
from htagraph.model.kinds import EventKind
from htagraph.model.symbols import SymbolTable

Lane = tuple[int | str, int | str]
"""Process id and thread id, as a file names them."""


@dataclass(frozen=True, slots=True)
class LaneName:
    """Names of a lane, as metadata events give them."""

    process: str = ""
    thread: str = ""
    labels: str = ""
    process_sort: int = 0
    thread_sort: int = 0


@dataclass(slots=True)
class Row:
    """A synthetic event."""

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


@dataclass(frozen=True, slots=True)
class FlowPoint:
    """One end of an arrow between events; `phase` is 0 at its start and 2 at its finish."""

    phase: int
    id: int
    lane: Lane
    ts_ns: int
    category: str = "fwdbwd"


def event_table(
    rows: Sequence[Row],
    flows: Sequence[FlowPoint] = (),
    lane_names: Mapping[Lane, LaneName] | None = None,
) -> EventTable:
    """The event table of some rows, in their order.

    `lane_names`: other lanes have no name.
    """
    codes: dict[str, int] = {}

    def code(text: str) -> int:
        return codes.setdefault(text, len(codes))

    names = dict(lane_names or {})
    number = {
        lane: i for i, lane in enumerate(dict.fromkeys([*names, *(row.lane for row in rows)]))
    }

    def ints(attribute: str, dtype: type[np.integer]) -> npt.NDArray[np.integer]:
        return np.array([getattr(row, attribute) for row in rows], dtype=dtype)

    return EventTable(
        ts_ns=ints("ts_ns", np.int64),  # type: ignore[arg-type]
        dur_ns=ints("dur_ns", np.int64),  # type: ignore[arg-type]
        kind=ints("kind", np.int8),  # type: ignore[arg-type]
        name=np.array([code(row.name) for row in rows], dtype=np.int32),
        category=np.array([code(row.category) for row in rows], dtype=np.int32),
        lane=np.array([number[row.lane] for row in rows], dtype=np.int32),
        device=ints("device", np.int32),  # type: ignore[arg-type]
        stream=ints("stream", np.int64),  # type: ignore[arg-type]
        correlation=ints("correlation", np.int64),  # type: ignore[arg-type]
        external_id=ints("external_id", np.int64),  # type: ignore[arg-type]
        columns=_sparse_columns(rows, code),
        flows=_flow_table(flows, number, code),
        lanes=_lane_table([(lane, names.get(lane, LaneName())) for lane in number]),
        symbols=SymbolTable(tuple(codes)),
    )


def _sparse_columns(rows: Sequence[Row], code: Callable[[str], int]) -> dict[str, SparseColumn]:
    """The sparse columns of some rows; texts become int32 codes."""
    found: dict[str, tuple[list[int], list[int | float | str]]] = {}
    for event, row in enumerate(rows):
        for column, value in row.values.items():
            where, what = found.setdefault(column, ([], []))
            where.append(event)
            what.append(value)
    return {
        column: SparseColumn(np.array(where, dtype=np.int64), _value_array(what, code))
        for column, (where, what) in found.items()
    }


def _value_array(
    values: list[int | float | str], code: Callable[[str], int]
) -> npt.NDArray[np.generic]:
    """Values as int32 codes of texts, as float64, or as int64."""
    if isinstance(values[0], str):
        return np.array([code(str(value)) for value in values], dtype=np.int32)
    if any(isinstance(value, float) for value in values):
        return np.array(values, dtype=np.float64)
    return np.array(values, dtype=np.int64)


def _flow_table(
    flows: Sequence[FlowPoint], number: Mapping[Lane, int], code: Callable[[str], int]
) -> FlowTable:
    """Flow points as a table."""
    return FlowTable(
        ts_ns=np.array([point.ts_ns for point in flows], dtype=np.int64),
        id=np.array([point.id for point in flows], dtype=np.int64),
        lane=np.array([number[point.lane] for point in flows], dtype=np.int32),
        phase=np.array([point.phase for point in flows], dtype=np.int8),
        category=np.array([code(point.category) for point in flows], dtype=np.int32),
        event=np.full(len(flows), -1, dtype=np.int64),
    )


def _lane_table(named: list[tuple[Lane, LaneName]]) -> LaneTable:
    """Lanes and their names as a table."""
    return LaneTable(
        pid=tuple(lane[0] for lane, _ in named),
        tid=tuple(lane[1] for lane, _ in named),
        process=tuple(name.process for _, name in named),
        thread=tuple(name.thread for _, name in named),
        process_sort=tuple(name.process_sort for _, name in named),
        thread_sort=tuple(name.thread_sort for _, name in named),
        process_labels=tuple(name.labels for _, name in named),
    )
