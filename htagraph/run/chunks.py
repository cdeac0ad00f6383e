"""Chunks: the events of a file as columns in a cache folder, of which a window is read by itself.

A file is read once, forward; each 64 MB of its text become an entry. Events are not in order of
time: the profiler writes operators, then device work. So the first and last time of every piece
are kept, and a window is read from the chunks with pieces that it overlaps. A pass that was killed
continues behind the last chunk.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.errors import OutputError
from htagraph.model.archive import Arrays
from htagraph.model.arrays import I64, Bools
from htagraph.model.events import EventTable
from htagraph.model.kinds import DEVICE_CLOCK_KINDS, DEVICE_KINDS, EventKind
from htagraph.model.recording import OUTSIDE, STACKS, Recording
from htagraph.readers.byte_stream import ByteStream
from htagraph.readers.defects import Defect
from htagraph.readers.event_filter import EventFilter
from htagraph.readers.kineto.cleaning import kept
from htagraph.readers.kineto.compiled.scanner import CLOSED
from htagraph.readers.kineto.event_fields import COLUMNS
from htagraph.readers.kineto.event_kinds import KIND_OF_CATEGORY
from htagraph.readers.kineto.merging import Assembly, Columns
from htagraph.readers.kineto.reader import (
    EVERYTHING,
    KNOWN_STACKS,
    KNOWN_USER_RANGES,
    USER_RANGES,
    Found,
    recording_of,
    scanned,
    times_in_file,
)
from htagraph.readers.kineto.worker import ROW_FIELDS, Part
from htagraph.readers.repair_log import RepairLog
from htagraph.run.cache import Entry, entry_of

CHUNK_BYTES = 64 << 20
"""Text of a chunk (chosen): half a second of reading is lost with a run that is killed, and a step
is read from a few chunks. Changes only the speed."""

_DEVICES_AND_CALLS = frozenset(
    name
    for name, kind in KIND_OF_CATEGORY.items()
    if kind in (*DEVICE_CLOCK_KINDS, EventKind.RUNTIME)
)
"""Categories that show how a device follows its host."""

_HALVES = np.zeros(256, dtype=bool)
_HALVES[list(b"BEbneSTpF")] = True
"""Phases of events that begin or end elsewhere in the file."""

_KNOWN = ("symbols", "lanes", "lists", "skipped", "n_bytes")
"""What columns have that are no numbers."""

_NO_ZONES = np.zeros((0, 7), dtype=np.int64)


class Zones(NamedTuple):
    """Pieces of the event list, in file order; all arrays by piece."""

    start: I64  #: where it is in the text
    stop: I64
    first_ns: I64  #: when its events ran, on the clock of the file; always, for halves of events
    last_ns: I64
    n_events: I64  #: whole ones, and flow points
    n_stacks: I64  #: how many of them are Python frames
    chunk: I64


@dataclass(frozen=True)
class _Chunk:
    """Columns of a stretch of a file, the rows of its `Zones`, and what else was met there.

    `goes_on` is whether the event list that is the first of the file continues behind it.
    """

    columns: Columns
    zones: I64
    repairs: I64
    metas: Sequence[bytes]
    metadata: Mapping[str, Any]
    goes_on: bool = False

    def arrays(self) -> Arrays:
        """What is stored."""
        columns = self.columns
        arrays = {f"rows.{name}": column for name, column in columns.rows.items()}
        for name, (events, values) in columns.sparse.items():
            arrays |= {f"events.{name}": events.astype(np.int32), f"values.{name}": values}
        arrays |= {"flows": columns.flows, "zones": self.zones, "repairs": self.repairs}
        facts = {
            "stored": {name: (one.dtype.str, one.shape) for name, one in arrays.items()},
            "known": {name: getattr(columns, name) for name in _KNOWN},
            "metas": [text.decode("latin-1") for text in self.metas],
            "metadata": dict(self.metadata),
            "goes_on": self.goes_on,
        }
        packed = {name: _packed(one) for name, one in arrays.items()}
        return {**packed, "facts": np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)}

    @classmethod
    def of(cls, arrays: Arrays) -> _Chunk:
        """From what `arrays` returned; one of `graph_file.BROKEN` if it is none."""
        facts = json.loads(arrays["facts"].tobytes())
        stored = {name: _unpacked(arrays[name], *form) for name, form in facts["stored"].items()}
        rows = {name: stored[f"rows.{name}"] for name in ROW_FIELDS}
        sparse = {
            name: (stored[f"events.{name}"], stored[f"values.{name}"])
            for name in (column.name for column in COLUMNS)
            if f"events.{name}" in stored
        }
        columns = Columns(rows, stored["flows"], sparse, **facts["known"])
        columns.lanes = [(pid, tid) for pid, tid in columns.lanes]
        metas = [text.encode("latin-1") for text in facts["metas"]]
        met = stored["zones"], stored["repairs"], metas, facts["metadata"], facts["goes_on"]
        return cls(columns, *met)


def _packed(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Numbers, compressed: first the lowest bytes of all, then the next; a third of the size."""
    from isal import isal_zlib  # noqa: PLC0415  deferred: only where kept

    planes = values.reshape(-1).view(np.uint8).reshape(-1, values.itemsize).T
    return np.frombuffer(isal_zlib.compress(planes.tobytes(), 1), dtype=np.uint8)


def _unpacked(
    packed: npt.NDArray[Any], dtype: npt.DTypeLike, shape: Sequence[int]
) -> npt.NDArray[Any]:
    """From what `_packed` returned; ValueError for another number of values."""
    from isal import isal_zlib  # noqa: PLC0415  deferred: only where kept

    size, n = np.dtype(dtype).itemsize, prod(shape)
    planes = isal_zlib.decompressobj().decompress(packed.tobytes(), size * n) if n else b""
    return np.frombuffer(planes, np.uint8).reshape(size, n).T.copy().view(dtype).reshape(shape)


class _Pass:
    """One pass over a file, from behind the chunks that are there and follow each other.

    Keeps its chunks, and in the end what is known of the whole.
    """

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._new, self._since = Assembly(), [_NO_ZONES]  # the chunk that is read now
        self._whole, self._zones = Assembly(), [_NO_ZONES]
        self._skipped, self._n_bytes = Counter[str](), Counter[str]()
        self._n, self._stop, self._goes_on = 0, 0, True

    def over(self, path: Path) -> _Chunk:
        """Read the file to its end; the named ranges, and the sums of all chunks."""
        while chunk := _entry_of(self._entry, self._n).read(_Chunk.of):
            if not chunk.goes_on or (self._n and chunk.zones[0, 0] != self._stop):
                break
            self._take(chunk)
        log = RepairLog(Defect)
        stream = ByteStream(path, log, reports=True)
        wanted, since = EventFilter(stacks=True), (self._stop, self._whole.repairs)
        metadata = scanned(stream, wanted, EVERYTHING, log, self._add, since=since)
        if len(self._since) > 1:
            self._write()
        log.merge(self._whole.repairs)
        columns = self._whole.columns()
        columns.skipped, columns.n_bytes = dict(self._skipped), dict(self._n_bytes)
        zones, metas = np.concatenate(self._zones), self._whole.metas
        whole = _Chunk(columns, zones, log.counts, metas, metadata)
        self._entry.write(whole.arrays())
        return whole

    def _add(self, part: Part) -> bool:
        """Add a piece; whether its chunk is full, so that the next ones need no texts of it."""
        self._new.add(part)
        self._since.append(_zone(part, self._n))
        self._goes_on &= part.reason != CLOSED
        is_full = int(self._since[-1][0, 1] - self._since[1][0, 0]) >= CHUNK_BYTES
        if is_full:
            self._write()
        return is_full

    def _write(self) -> None:
        new, zones = self._new, np.concatenate(self._since)
        chunk = _Chunk(new.columns(), zones, new.repairs, new.metas, {}, self._goes_on)
        _entry_of(self._entry, self._n).write(chunk.arrays())
        self._take(chunk)
        self._new, self._since = Assembly(), [_NO_ZONES]

    def _take(self, chunk: _Chunk) -> None:
        """Add what of a chunk is needed to know the whole."""
        ranges = _part_of(_ranges_in(chunk.columns))
        self._whole.add(replace(ranges, repairs=chunk.repairs, metas=list(chunk.metas)))
        self._zones.append(chunk.zones)
        self._skipped.update(chunk.columns.skipped)
        self._n_bytes.update(chunk.columns.n_bytes)
        self._n, self._stop = self._n + 1, int(chunk.zones[-1, 1])


class Chunks:
    """The chunks of a file in a cache folder; they are made if they are not there.

    Raises
    ------
    OutputError
        If they cannot be written.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self._entry = path, entry_of((path,), folder, "columns")
        self._whole = self._entry.read(_Chunk.of) or _Pass(self._entry).over(path)

    @property
    def zones(self) -> Zones:
        """When each piece ran."""
        return Zones(*self._whole.zones.T)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The header."""
        return self._whole.metadata

    def named_ranges(self) -> Recording:
        """The ranges that the program named, alone."""
        return self._recording(deepcopy(self._whole.columns), None, (USER_RANGES,))

    def read(self, wanted: EventFilter) -> Recording:
        """The events of a window, as `load_file` finds them in the whole file."""
        assert wanted.window is not None
        window, zones = times_in_file(wanted.window, self.metadata), self.zones
        left_out = () if wanted.stacks else (STACKS,)
        columns = self._columns([window], lambda chunk, _: _within(window, chunk, left_out))
        n_left = int(zones.n_stacks.sum()) if left_out else 0
        columns.skipped |= {STACKS: columns.skipped.get(STACKS, 0) + n_left} if n_left else {}
        n_read = int((~_HALVES[columns.rows["phase"]]).sum()) + columns.flows.shape[1]
        n_out = int(zones.n_events.sum()) - n_left - n_read
        columns.skipped |= {OUTSIDE: n_out} if n_out else {}
        return self._recording(columns, window)

    def devices(self, windows: Iterable[tuple[int, int]]) -> EventTable:
        """Device work and API calls alone, in all pieces with events of some windows."""
        times = [times_in_file(window, self.metadata) for window in windows]
        columns = self._columns(times, _devices_in)
        return self._recording(columns, None, _DEVICES_AND_CALLS).events

    @property
    def device_share(self) -> float:
        """Share of the text that is device work and API calls; 0 if no device did anything."""
        n_bytes = self._whole.columns.n_bytes
        if set(DEVICE_KINDS).isdisjoint(map(KIND_OF_CATEGORY.get, n_bytes)):
            return 0.0
        chosen = _DEVICES_AND_CALLS.intersection(n_bytes)
        return sum(n_bytes[name] for name in chosen) / max(sum(n_bytes.values()), 1)

    def _recording(
        self,
        columns: Columns,
        window: tuple[int, int] | None = None,
        categories: Collection[str] | None = None,
    ) -> Recording:
        log = RepairLog(Defect)
        log.merge(self._whole.repairs)
        found = Found(self.path, self.path, columns, list(self._whole.metas), self.metadata)
        return recording_of(found, window, categories, log)

    def _columns(
        self, windows: Sequence[tuple[int, int]], choose: Callable[[Columns, I64], Columns]
    ) -> Columns:
        """What is chosen of all pieces with events of some windows; lost chunks are made anew."""
        try:
            found = self._merged(windows, choose)
        except OutputError:
            self._whole = _Pass(self._entry).over(self.path)
            found = self._merged(windows, choose)
        known = self._whole.columns
        found.n_bytes, found.skipped = dict(known.n_bytes), dict(known.skipped)
        return found

    def _merged(
        self, windows: Sequence[tuple[int, int]], choose: Callable[[Columns, I64], Columns]
    ) -> Columns:
        assembly, zones = Assembly(), self.zones
        overlaps = [(zones.first_ns < until) & (zones.last_ns >= since) for since, until in windows]
        pieces = self._whole.zones[np.any(overlaps, axis=0)]
        for number in np.unique(pieces[:, -1]).tolist():
            entry = _entry_of(self._entry, number)
            chunk = entry.read(_Chunk.of)
            known = self._whole.zones[zones.chunk == number]
            if chunk is None or not np.array_equal(chunk.zones, known):
                message = "what was kept of the trace cannot be read."
                raise OutputError(message, path=entry.path, hint="choose another cache.")
            assembly.add(_part_of(choose(chunk.columns, pieces[pieces[:, -1] == number])))
        return assembly.columns()


def _entry_of(whole: Entry, number: int) -> Entry:
    """The entry of a chunk."""
    return whole._replace(key=f"{whole.key} {number}")


def _zone(part: Part, chunk: int) -> I64:
    """The row of a part in `Zones`."""
    ts_ns, dur_ns, phase, category = (
        np.concatenate([*part.rows[name], np.zeros(0, dtype=np.int64)])
        for name in ("ts_ns", "dur_ns", "phase", "category")
    )
    flows = np.concatenate([*part.flows, np.zeros((5, 0), dtype=np.int64)], axis=1)
    is_half = _HALVES[phase]
    first_ns = np.append(ts_ns, flows[0]).min(initial=EVERYTHING[1])
    last_ns = np.append(ts_ns + dur_ns, flows[0]).max(initial=EVERYTHING[0])
    times = EVERYTHING if is_half.any() else (first_ns, last_ns)
    is_stack = np.append(category[~is_half], flows[4]) == KNOWN_STACKS
    place = part.origin, part.origin + part.stop
    return np.array([[*place, *times, len(is_stack), is_stack.sum(), chunk]], dtype=np.int64)


def _part_of(columns: Columns) -> Part:
    """Columns as a part, to be merged with others."""
    rows = {name: [column] for name, column in columns.rows.items()}
    part = Part(columns, rows, [columns.flows], n_rows=len(columns.rows["ts_ns"]))
    for known, column in zip(part.sparse, COLUMNS, strict=True):
        if column.name in columns.sparse:
            events, values = columns.sparse[column.name]
            known.append((events.astype(np.int32), values))
    return part


def _ranges_in(columns: Columns) -> Columns:
    """The named ranges alone, without the texts of what is left out."""
    rows = kept(columns, columns.rows["category"] == KNOWN_USER_RANGES).rows
    used = np.unique(np.concatenate([[0], rows["name"], rows["category"]])).astype(np.int64)
    number = np.zeros(len(columns.symbols), dtype=np.int32)
    number[used] = np.arange(len(used))
    rows |= {"name": number[rows["name"]], "category": number[rows["category"]]}
    symbols = [columns.symbols[code] for code in used.tolist()]
    return Columns(rows, columns.flows[:, :0], {}, symbols, columns.lanes)


def _within(window: tuple[int, int], columns: Columns, left_out: Collection[str]) -> Columns:
    """The events of a window, as the scanner leaves them; halves are joined later."""
    rows, flows = columns.rows, columns.flows
    stays = np.array([symbol not in left_out for symbol in columns.symbols])
    keep = _touches(rows["ts_ns"], rows["dur_ns"], window) & stays[rows["category"]]
    near = _touches(flows[0], np.zeros_like(flows[0]), window) & stays[flows[4]]
    return replace(kept(columns, keep | _HALVES[rows["phase"]]), flows=flows[:, near])


def _touches(start_ns: I64, dur_ns: I64, window: tuple[int, int]) -> Bools:
    ends: Bools = (start_ns + dur_ns > window[0]) | (start_ns == window[0])
    return (start_ns < window[1]) & ends


def _devices_in(columns: Columns, pieces: I64) -> Columns:
    """Device work and API calls of some pieces."""
    rows, (starts, stops) = columns.rows, pieces[:, :2].T
    wanted = np.array([symbol in _DEVICES_AND_CALLS for symbol in columns.symbols])
    piece = np.searchsorted(starts, rows["offset"], side="right") - 1
    inside = rows["offset"] < stops[piece]
    keep = wanted[rows["category"]] & inside & (piece >= 0)
    return replace(kept(columns, keep | _HALVES[rows["phase"]]), flows=columns.flows[:, :0])
