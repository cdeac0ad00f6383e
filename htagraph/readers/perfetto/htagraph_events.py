"""Traces that htagraph wrote, restored as recorded: slices plus the supplement stored with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import I64
from htagraph.model.devices import DeviceProperties
from htagraph.model.events import (
    EVENT_DTYPES,
    LIST_COLUMNS,
    EventTable,
    FlowTable,
    LaneTable,
    SparseColumn,
)
from htagraph.model.kinds import EventKind
from htagraph.model.perfetto_fields import COMPUTED, FIELD, Supplement
from htagraph.model.samples import SampleTable, Series
from htagraph.model.symbols import SymbolTable
from htagraph.readers.event_filter import taken
from htagraph.readers.kineto.event_kinds import event_kinds
from htagraph.readers.perfetto.defects import Defect
from htagraph.readers.perfetto.trace_content import TraceContent, dense

_DENSE = {name: EVENT_DTYPES[name] for name in ("device", "stream", "correlation", "external_id")}

_FLAG = "critical"
_HOLES = (Defect.DAMAGED, Defect.BAD_PACKET, Defect.BAD_PACKED, Defect.NO_TIME, Defect.FAR_TIME)
"""Defects after which slices may be missing in the middle."""

_SAMPLE_COLUMNS = ("ts_ns", "value", "series")
_FLOW_COLUMNS = ("ts_ns", "id", "lane", "phase", "category", "event")


@dataclass(frozen=True)
class WrittenRank:
    """The checked supplement of one rank."""

    sequence: int  # Of its packets
    facts: Mapping[str, Any]
    columns: Mapping[str, I64]
    lanes: LaneTable
    # tracks, lane: bits of uuids, ascending, and the lane of each
    tracks: I64
    lane: I64
    devices: tuple[DeviceProperties, ...]
    samples: SampleTable

    @classmethod
    def of(cls, sequence: int, packed: bytes) -> WrittenRank:
        """The supplement of a sequence."""
        found = Supplement.unpacked(packed)
        facts, columns = found.facts, found.columns
        try:
            lanes = LaneTable(**{name: tuple(of) for name, of in facts["lanes"].items()})
            tracks = np.array(facts["tracks"], dtype=np.int64).reshape(-1, 2)
            devices = tuple(DeviceProperties(**device) for device in facts["devices"])
            series = tuple(Series(**one) for one in facts["series"])
            n, n_flows = int(facts["n_events"]), len(columns["flow_ts_ns"])
            zero_ns, n_categories = int(facts["zero_ns"]), len(facts["flow_categories"])
            is_right = (
                len({len(getattr(lanes, name)) for name in LaneTable.__dataclass_fields__}) == 1
                and _within(tracks[:, 1], len(lanes))
                and np.array_equal(np.sort(columns["order"]), np.arange(n))
                and all(len(columns[name]) == n for name in ("kind", "later_ns", "longer_ns"))
                and _within(columns["kind"], len(EventKind))
                and all(len(columns[f"flow_{name}"]) == n_flows for name in _FLOW_COLUMNS)
                and _within(columns["flow_lane"], len(lanes))
                and _within(columns["flow_phase"], 8)
                and _within(columns["flow_category"], n_categories)
                and _within(columns["flow_event"] + 1, n + 1)
                and len({len(columns[f"sample_{name}"]) for name in _SAMPLE_COLUMNS}) == 1
                and _within(columns["sample_series"], len(series))
                and bool((np.diff(columns["sample_series"]) >= 0).all())
                and abs(zero_ns) < 1 << 62
                and isinstance(facts.get("metadata", {}), dict)
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
            raise ValueError(f"a part of it is missing or wrong: {exc}") from exc
        if not is_right:
            raise ValueError("its parts do not fit each other")
        order = np.argsort(tracks[:, 0])
        samples = SampleTable(
            columns["sample_ts_ns"],
            columns["sample_value"].view(np.float64),
            columns["sample_series"].astype(np.int32),
            series,
        )
        return cls(
            sequence, facts, columns, lanes, tracks[order, 0], tracks[order, 1], devices, samples
        )

    @property
    def rank(self) -> int:
        """Its rank, -1 for none."""
        rank = self.facts.get("rank")
        return rank if isinstance(rank, int) and 0 <= rank < 1 << 31 else -1


def _within(values: I64, end: int) -> bool:
    """Whether values are positions below an end."""
    return not len(values) or (int(values.min()) >= 0 and int(values.max()) < end)


def supplements(found: TraceContent) -> list[WrittenRank]:
    """The supplements of all ranks in a file, in file order."""
    from google.protobuf.unknown_fields import UnknownFieldSet  # noqa: PLC0415

    out = []
    for row, packet in found.sequences.specials:
        for entry in UnknownFieldSet(packet):
            if entry.field_number == FIELD:
                try:
                    out.append(WrittenRank.of(int(found.scan.sequence[row]), entry.data))
                except ValueError:
                    found.log.add(Defect.SUPPLEMENT, offset=int(found.scan.at[row]))
    return out


def htagraph_events(found: TraceContent, own: WrittenRank, others: list[WrittenRank]) -> EventTable:
    """The events of one rank as they were recorded; those of others are counted as skipped."""
    chosen = _chosen(found, own, others)
    order, fits = _order(found, own, len(chosen))
    supplement = {name: values[: len(chosen)] for name, values in own.columns.items() if fits}
    zero_ns = int(own.facts["zero_ns"])
    columns = _columns(found, chosen)
    name, category = found.names(chosen), found.categories(chosen)
    flow_category = [found.symbols.code(str(text)) for text in own.facts["flow_categories"]]
    symbols = SymbolTable(tuple(found.symbols.texts))
    lists = _with_lists(columns, symbols)
    slices, n = found.slices, len(chosen)
    later_ns, longer_ns = (supplement.get(part, np.int64(0)) for part in ("later_ns", "longer_ns"))
    point = np.where(slices.is_point[chosen], ord("i"), ord("X")).astype(np.uint8)
    by_category = event_kinds(symbols, category.astype(np.int32), name.astype(np.int32), point)
    lane = own.lane[np.searchsorted(own.tracks, slices.track[chosen])]
    events = EventTable(
        ts_ns=slices.ts_ns[chosen] + zero_ns - later_ns,
        dur_ns=np.maximum(slices.dur_ns[chosen] - longer_ns, 0),
        kind=supplement.get("kind", by_category).astype(np.int8),
        name=name.astype(np.int32),
        category=category.astype(np.int32),
        lane=lane.astype(np.int32),
        **{key: _of_every(columns.pop(key, None), n, dtype) for key, dtype in _DENSE.items()},  # type: ignore[arg-type]
        symbols=symbols,
        lists=lists,
        lanes=own.lanes,
        columns=columns,
        devices=own.devices,
        samples=own.samples,
    )
    events = taken(events, np.argsort(order, kind="stable"))
    if not fits:
        found.skip("flow", len(own.columns["flow_id"]))
        return events
    return replace(events, flows=_flows(own, np.array(flow_category, dtype=np.int64), order))


def _with_lists(columns: dict[str, SparseColumn], symbols: SymbolTable) -> SymbolTable:
    """The lists that columns name, which become codes of them."""
    there = [name for name in LIST_COLUMNS if name in columns]
    codes = [columns[name].value for name in there]
    used = np.unique(np.concatenate(codes)) if codes else np.empty(0, dtype=np.int64)
    for name in there:
        place = np.searchsorted(used, columns[name].value).astype(np.int32)
        columns[name] = SparseColumn(columns[name].event, place)
    return SymbolTable(tuple(symbols.array[used]))


def _chosen(found: TraceContent, own: WrittenRank, others: list[WrittenRank]) -> I64:
    """The slices that are events of a rank; counts the others."""
    slices = found.slices
    sequence = found.scan.sequence[slices.packet]
    is_mine = sequence == own.sequence
    is_event = is_mine & np.isin(slices.track, own.tracks)
    left = ~is_event
    for other in others:
        of_other = (sequence == other.sequence) & np.isin(slices.track, other.tracks)
        called = str(other.facts.get("run") or f"rank {other.facts.get('rank')}")
        found.skip(called, int(of_other.sum()))
        left &= ~of_other
    of_htagraph = np.isin(sequence, [own.sequence, *(other.sequence for other in others)])
    found.skip("critical path", int((left & of_htagraph).sum()))
    found.skip("slice of another writer", int((left & ~of_htagraph).sum()))
    found.skip("drawn counter", len(slices.sample_packet))
    return np.flatnonzero(is_event)


def _order(found: TraceContent, own: WrittenRank, n: int) -> tuple[I64, bool]:
    """The row of each slice, and whether the columns of the supplement are of these slices.

    They are if no slice is missing, or only the last ones.
    """
    order = own.columns["order"]
    is_cut = found.log.count([Defect.TRUNCATED]) > 0
    is_holed = found.log.count(_HOLES) > 0
    if n == len(order) or (n < len(order) and is_cut and not is_holed):
        return order[:n], True
    found.log.add(Defect.SUPPLEMENT)
    return np.arange(n), False


def _columns(found: TraceContent, chosen: I64) -> dict[str, SparseColumn]:
    out = {}
    for symbol, form, event, value in found.annotations(chosen):
        name = found.symbols.texts[symbol]
        if name and name != _FLAG and not name.startswith(COMPUTED):
            typed = value.astype(np.int32) if form == "text" else value
            out[name] = SparseColumn(event, typed)
    return out


def _of_every(
    column: SparseColumn | None, n: int, dtype: type[np.generic]
) -> npt.NDArray[np.generic]:
    """A column of integers with a value for every event."""
    values = dense(column, n)
    narrow = values.astype(dtype) if values.dtype == np.int64 else np.empty(0, dtype)
    if not np.array_equal(narrow, values):
        raise ValueError("a device, stream or id is no such number")
    return narrow


def _flows(own: WrittenRank, category: I64, order: I64) -> FlowTable:
    """The flow points, except those of missing events."""
    of = {name: own.columns[f"flow_{name}"] for name in _FLOW_COLUMNS}
    rows = np.sort(order)
    place = np.minimum(np.searchsorted(rows, of["event"]), max(len(rows) - 1, 0))
    is_there = (of["event"] < 0) | ((rows[place] == of["event"]) if len(rows) else False)
    event = np.where(of["event"] < 0, -1, place)
    return FlowTable(
        ts_ns=of["ts_ns"][is_there],
        id=of["id"][is_there],
        lane=of["lane"][is_there].astype(np.int32),
        phase=of["phase"][is_there].astype(np.int8),
        category=category[of["category"][is_there]].astype(np.int32),
        event=event[is_there],
    )
