"""Cleaning rules: which rows stay, and with which duration.

- A begin (``ph: B``) and the matching end on its thread are one event; so are async begins and ends
  (``ph: b``, ``e``) of one process, category and id. A begin without an end lasts until the last
  event of its thread; an end without a begin is dropped.
- Complete events with time 0 and no duration are dropped if they are at least a tenth of all and
  nothing of any length begins at 0: the profiler lost their times.
- Events and flow points beyond `MAX_TIME_NS`, base time included, are dropped: all remaining times
  and ends can be added and compared in int64.
- A few events far from all others are dropped, and a few ends far after all others are unknown: a
  single wrong time would turn a trace of seconds into one of hours.
- Events that are there twice, equal in every column, are read once if they are at least a tenth of
  all, with the flow points: the file holds a trace twice, or two captures that overlap.
- Events outside the requested window or categories are dropped here if the scanner did not know
  their duration yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import I32, I64, Bools
from htagraph.readers.defects import Defect
from htagraph.readers.kineto.compiled.pairing import paired
from htagraph.readers.kineto.compiled.scanner import MAX_DURATION_NS
from htagraph.readers.kineto.header import MAX_TIME_NS
from htagraph.readers.kineto.merging import Columns
from htagraph.readers.repair_log import RepairLog

_ZERO_SHARE = 0.1
"""Share of complete events at time 0 from which their times count as lost (chosen)."""

_DOUBLE_SHARE = 0.1
"""Share of events that are there twice from which on they are read once. Chosen: real traces have
none; code that calls itself may look like one. Pinned by
`test_other_formats.py::test_a_few_equal_events_are_kept`."""

_FEWEST_DOUBLES = 10
"""Fewer are too few to tell (chosen). Pinned with `_DOUBLE_SHARE`."""

_FIRST = 1_000
"""About so many events are compared first, and all only if a tenth of these are equal to others.
Times choose them, so that two equal events are both compared or both not. Changes only the speed,
but for files with a tenth of equal events more or less."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""An odd number whose multiples are spread evenly over 64 bits: 2^64 by the golden ratio."""

_COMPLETE = ord("X")
_BEGIN, _END = ord("B"), ord("E")
_FAR_NS = 3_600 * 10**9
_TIMES_AS_LONG = 100
"""A stray is at least an hour, and so many times the length of the others, away (chosen)."""

_FEW, _MANY = 100, 10
"""At most one event in 100 is a stray, and 10 events are needed to tell (chosen)."""

_ASYNC_BEGINS, _ASYNC_ENDS = tuple(b"bS"), tuple(b"eF")


def cleaned(
    columns: Columns,
    log: RepairLog,
    window: tuple[int, int] | None,
    categories: Collection[str] | None,
    base_time_ns: int,
) -> Columns:
    """The columns with complete events, instants and counters only; `window` is on their clock."""
    phase = columns.rows["phase"]
    keep = np.ones(len(phase), dtype=bool)
    halves = np.flatnonzero((phase == _BEGIN) | (phase == _END))
    on_no_thread = np.flatnonzero(np.isin(phase, _ASYNC_BEGINS + _ASYNC_ENDS))
    keep[halves] = keep[on_no_thread] = False
    if len(halves):
        begins = _joined(columns, halves, columns.rows["lane"][halves], log)
        keep[begins] = _wanted(columns, begins, window, categories)
        phase[begins] = _COMPLETE
    if len(on_no_thread):
        begins = _joined(columns, on_no_thread, _async_owners(columns, on_no_thread), log)
        keep[begins] = _wanted(columns, begins, window, categories)
    keep &= ~_zeros(columns, log)
    keep &= ~_far(columns, keep, base_time_ns, log)
    keep &= ~_strays(columns, keep, log)
    keep &= ~_doubles(columns, keep, log)
    return columns if keep.all() else kept(columns, keep)


def _async_owners(columns: Columns, rows: I64) -> I32:
    """What the begin and end of an async event share, as a number: process, category, id."""
    processes = np.unique([str(pid) for pid, _ in columns.lanes], return_inverse=True)[1]
    events, ids = columns.sparse["async_id"]
    keys = np.stack(
        [
            processes[columns.rows["lane"][rows]],
            columns.rows["category"][rows],
            ids[np.searchsorted(events, rows)],
        ]
    )
    return np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int32)


def _joined(columns: Columns, halves: I64, owner: I32, log: RepairLog) -> I64:
    """Set the durations of begins; return their rows. Events of one owner nest."""
    rows = columns.rows
    by_time = np.argsort(rows["ts_ns"][halves], kind="stable")
    order = halves[by_time]
    is_begin = np.isin(rows["phase"][order], (_BEGIN, *_ASYNC_BEGINS))
    partner = paired(is_begin, owner[by_time])
    begins, ends = order[is_begin], partner[is_begin]
    has_end = ends >= 0
    last = np.full(len(columns.lanes), np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(last, rows["lane"], rows["ts_ns"] + rows["dur_ns"])
    last = last[rows["lane"][begins]]
    end_ns = np.where(has_end, rows["ts_ns"][order[ends]], np.maximum(last, rows["ts_ns"][begins]))
    dur_ns = end_ns - rows["ts_ns"][begins]
    impossible = dur_ns > MAX_DURATION_NS
    rows["dur_ns"][begins] = np.where(impossible, 0, dur_ns)
    alone = order[~is_begin & (partner < 0)]
    _note(log, Defect.IMPOSSIBLE_DURATION, columns, begins[impossible])
    _note(log, Defect.BEGIN_ONLY, columns, begins[~has_end])
    _note(log, Defect.END_ONLY, columns, alone)
    return np.sort(begins)


def _note(log: RepairLog, defect: Defect, columns: Columns, events: I64) -> None:
    offset = columns.rows["offset"][events].min(initial=np.iinfo(np.int64).max)
    log.add(defect, int(offset), len(events))


def _wanted(
    columns: Columns,
    events: I64,
    window: tuple[int, int] | None,
    categories: Collection[str] | None,
) -> Bools:
    wanted = np.ones(len(events), dtype=bool)
    if categories is not None:
        of_symbol = np.array([symbol in categories for symbol in columns.symbols])
        wanted &= of_symbol[columns.rows["category"][events]]
    if window is not None:
        start = columns.rows["ts_ns"][events]
        end = start + columns.rows["dur_ns"][events]
        wanted &= (start < window[1]) & ((end > window[0]) | (start == window[0]))
    return wanted


def _zeros(columns: Columns, log: RepairLog) -> Bools:
    """A mask of all events: those that lost their times."""
    rows = columns.rows
    is_complete = rows["phase"] == _COMPLETE
    at_zero = is_complete & (rows["ts_ns"] == 0)
    zeros: Bools = at_zero & (rows["dur_ns"] == 0)
    n = int(zeros.sum())
    if n < _ZERO_SHARE * is_complete.sum() or n == is_complete.sum() or (at_zero & ~zeros).any():
        return np.zeros(len(zeros), dtype=bool)
    _note(log, Defect.ZERO_TIMESTAMP, columns, np.flatnonzero(zeros))
    columns.skipped[Defect.ZERO_TIMESTAMP.label] = n
    return zeros


def _reach(columns: Columns) -> tuple[int, int]:
    """Times before and after which nothing is."""
    start_ns, dur_ns = columns.rows["ts_ns"], columns.rows["dur_ns"]
    if not len(start_ns):
        return 0, 0
    return int(start_ns.min()), int(start_ns.max()) + int(dur_ns.max())


def _far(columns: Columns, keep: Bools, base_time_ns: int, log: RepairLog) -> Bools:
    """A mask of all events: those kept so far that are too far from 1970. Drops such flow points.

    File times and base time lie within `MAX_TIME_NS` each, so their sum fits in int64.
    """
    first, last = (time + base_time_ns for time in _reach(columns))
    far: Bools = np.zeros(len(keep), dtype=bool)
    if first < -MAX_TIME_NS or last > MAX_TIME_NS:
        start_ns = columns.rows["ts_ns"] + base_time_ns
        far = (start_ns < -MAX_TIME_NS) | (start_ns > MAX_TIME_NS - columns.rows["dur_ns"])
        far &= keep
        _note(log, Defect.FAR_TIME, columns, np.flatnonzero(far))
    if len(columns.flows[0]):
        near = np.abs(columns.flows[0] + base_time_ns) <= MAX_TIME_NS
        log.add(Defect.FAR_TIME, n=int((~near).sum()))
        columns.flows = columns.flows if near.all() else columns.flows[:, near]
    return far


def _strays(columns: Columns, keep: Bools, log: RepairLog) -> Bools:
    """A mask of all events: those kept so far that begin far from the others.

    Durations that end far after the others are set to 0; no mistake is what many events do.
    """
    strays = np.zeros(len(keep), dtype=bool)
    first, last = _reach(columns)
    if last - first <= _FAR_NS:
        return strays
    start_ns, dur_ns = columns.rows["ts_ns"], columns.rows["dur_ns"]
    end_ns = start_ns + dur_ns
    kept = np.flatnonzero(keep)
    if len(kept) < _MANY or end_ns[kept].max() - start_ns[kept].min() <= _FAR_NS:
        return strays
    most = max(len(kept) // _FEW, 1)
    ordered = np.sort(start_ns[kept])
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(ordered) > _FAR_NS) + 1, [len(ordered)]])
    largest = int(np.diff(bounds).argmax())
    first, last = ordered[bounds[largest]], ordered[bounds[largest + 1] - 1]
    far_ns = max(_FAR_NS, _TIMES_AS_LONG * int(last - first))
    strays |= keep & ((start_ns < first - far_ns) | (start_ns > last + far_ns))
    if np.count_nonzero(strays) > most:
        return np.zeros(len(keep), dtype=bool)
    _note(log, Defect.STRAY_TIME, columns, np.flatnonzero(strays))
    endless = keep & ~strays & (end_ns > last + far_ns)
    if np.count_nonzero(endless) <= most:
        dur_ns[endless] = 0
        _note(log, Defect.STRAY_DURATION, columns, np.flatnonzero(endless))
    return strays


def _doubles(columns: Columns, keep: Bools, log: RepairLog) -> Bools:
    """A mask of all events: the second one of each two that are equal. Drops such flow points.

    Events that take time decide: what is drawn at one time may be equal and still be two.
    """
    doubles, rows = np.zeros(len(keep), dtype=bool), columns.rows
    most = np.uint64(np.iinfo(np.uint64).max // max(len(keep) // _FIRST, 1))
    first = np.flatnonzero((rows["ts_ns"].view(np.uint64) * _SPREAD <= most) & keep)
    if not _are_many(columns, first, _repeated(_hashes(columns, first, {}))):
        return doubles
    kept = np.flatnonzero(keep)
    repeated = _repeated(_hashes(columns, kept, columns.sparse))
    if not _are_many(columns, kept, repeated):
        return doubles
    doubles[kept[repeated]] = True
    _note(log, Defect.DOUBLE, columns, kept[repeated])
    flows = np.zeros(columns.flows.shape[1], dtype=np.uint64)
    for column in columns.flows:
        flows = _mixed(flows ^ column.view(np.uint64))
    columns.flows = columns.flows[:, ~_repeated(flows)]
    return doubles


def _are_many(columns: Columns, events: I64, repeated: Bools) -> bool:
    """Whether many of the events that take time are repeated."""
    takes_time = (columns.rows["phase"][events] == _COMPLETE) & (columns.rows["dur_ns"][events] > 0)
    n = int((repeated & takes_time).sum())
    return n >= max(_FEWEST_DOUBLES, _DOUBLE_SHARE * int(takes_time.sum()))


def _mixed(values: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Integers whose bits all depend on all bits of the values (a step of splitmix64)."""
    mixed = values.astype(np.uint64)
    mixed ^= mixed >> np.uint64(32)
    mixed *= _SPREAD
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _hashes(
    columns: Columns, events: I64, sparse: Mapping[str, tuple[I64, npt.NDArray[Any]]]
) -> npt.NDArray[np.uint64]:
    """A number of each of some events: equal if all that was read, and the length, are equal."""
    hashes = np.zeros(len(events), dtype=np.uint64)
    for name, column in columns.rows.items():
        if name != "offset":
            hashes = _mixed(hashes ^ column[events].astype(np.int64).view(np.uint64))
    for number, (of, values) in enumerate(sparse.values(), start=1):
        place = np.minimum(np.searchsorted(of, events), len(of) - 1)
        has = of[place] == events
        value = values[place[has]].astype(values.dtype if values.itemsize == 8 else np.int64)
        hashes[has] = _mixed(hashes[has] ^ value.view(np.uint64) ^ np.uint64(number))
    return hashes


def _repeated(hashes: npt.NDArray[np.uint64]) -> Bools:
    """Whether an earlier one is equal to each."""
    order = np.argsort(hashes, kind="stable")
    repeated = np.zeros(len(hashes), dtype=bool)
    repeated[order[1:]] = hashes[order[1:]] == hashes[order[:-1]]
    return repeated


def kept(columns: Columns, keep: Bools) -> Columns:
    """Some rows of columns, and all flow points."""
    number = np.cumsum(keep) - 1
    sparse = {}
    for name, (events, values) in columns.sparse.items():
        stays = keep[events]
        if stays.any():
            sparse[name] = number[events[stays]], values[stays]
    rows = {name: column[keep] for name, column in columns.rows.items()}
    return replace(columns, rows=rows, sparse=sparse)
