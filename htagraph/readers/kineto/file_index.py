"""FileIndex: where in a file the events of each time are, so that a part is read by itself.

Events are not in order of time: the profiler writes operators, then device work. So the index has
the first and last time of each piece of the file, and a window is read from the pieces that it
overlaps.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import I64
from htagraph.model.events import EventTable
from htagraph.model.kinds import DEVICE_CLOCK_KINDS, DEVICE_KINDS, EventKind
from htagraph.model.progress import BYTES, report_progress
from htagraph.model.recording import OUTSIDE, STACKS, Recording
from htagraph.readers.defects import Defect
from htagraph.readers.event_filter import EventFilter
from htagraph.readers.kineto.compiled.lexer import PADDING
from htagraph.readers.kineto.event_kinds import KIND_OF_CATEGORY
from htagraph.readers.kineto.merging import Assembly, Columns
from htagraph.readers.kineto.pieces import Piece
from htagraph.readers.kineto.reader import (
    EVERYTHING,
    KNOWN_STACKS,
    KNOWN_USER_RANGES,
    Found,
    new_workers,
    recording_of,
    scanned,
    times_in_file,
)
from htagraph.readers.kineto.seek_points import PointedStream, SeekPoints, TextReader
from htagraph.readers.kineto.worker import Part, Worker
from htagraph.readers.repair_log import RepairLog

_DEVICES_AND_CALLS = frozenset(
    name
    for name, kind in KIND_OF_CATEGORY.items()
    if kind in (*DEVICE_CLOCK_KINDS, EventKind.RUNTIME)
)
"""Categories that show how a device follows its host."""

_HALVES = np.zeros(256, dtype=bool)
_HALVES[list(b"BEbneSTpF")] = True
"""Phases of events that begin or end elsewhere in the file."""


@dataclass(frozen=True)
class Zones:
    """Pieces of the event list, in file order; all arrays by piece."""

    # start, stop: in byte. In the text of the file.
    start: I64
    stop: I64
    # first_ns, last_ns: times of its events, on the clock of the file; all times for halves of
    # events
    first_ns: I64
    last_ns: I64
    # n_events, n_stacks: whole events and flow points in it, and how many of them are Python frames
    n_events: I64
    n_stacks: I64

    def overlapping(self, *windows: tuple[int, int]) -> I64:
        """Pieces with events of some windows."""
        found = np.zeros(len(self.start), dtype=bool)
        for start_ns, end_ns in windows:
            found |= (self.first_ns < end_ns) & (self.last_ns >= start_ns)
        return np.flatnonzero(found)


@dataclass(frozen=True)
class FileIndex:
    """What is known of a file after one pass over it."""

    path: Path
    metadata: Mapping[str, Any]  # The header
    metas: tuple[bytes, ...]  # Metadata events, as in the file
    repairs: I64  # Counts of defects, as in a `RepairLog`
    # skipped, n_bytes: as of `Columns`, if everything is read that ever is
    skipped: Mapping[str, int]
    n_bytes: Mapping[str, int]
    zones: Zones
    ranges: Columns  # The ranges that the program named, with the steps
    points: SeekPoints

    @classmethod
    def made(cls, path: Path) -> FileIndex:
        """The index of a file, from one pass over it."""
        log, assembly, zones = RepairLog(Defect), Assembly(), [np.zeros((0, 6), dtype=np.int64)]
        stream = PointedStream(path, log)

        def keep(part: Part) -> None:
            zones.append(_zone(part))
            assembly.add(_ranges_in(part))

        found = scanned(stream, EventFilter(stacks=True), EVERYTHING, log, keep)
        log.merge(assembly.repairs)
        columns = assembly.columns(found.workers)
        return cls(
            path,
            found.metadata,
            tuple(assembly.metas),
            log.counts,
            columns.skipped,
            columns.n_bytes,
            Zones(*np.concatenate(zones).T.copy()),
            _compact(columns),
            stream.points,
        )

    def named_ranges(self) -> Recording:
        """The ranges that the program named, alone."""
        rows = {name: column.copy() for name, column in self.ranges.rows.items()}
        columns = replace(self.ranges, rows=rows, n_bytes=dict(self.n_bytes))
        return self._recording(columns)

    def read(self, wanted: EventFilter) -> Recording:
        """The events of a window, as `load_file` finds them in the whole file."""
        assert wanted.window is not None
        assert wanted.categories is None
        window = times_in_file(wanted.window, self.metadata)
        chosen = self.zones.overlapping(window)
        assembly, workers = Assembly(), new_workers(wanted, window, self.path)
        n_out = int(self.zones.n_events.sum())
        for part in self._parts(chosen, workers):
            n_out -= int(_zone(part)[0, 4])
            assembly.add(part)
        columns = assembly.columns(workers)
        columns.n_bytes, columns.skipped = dict(self.n_bytes), dict(self.skipped)
        if not wanted.stacks and (n_stacks := int(self.zones.n_stacks.sum())):
            columns.skipped[STACKS] = columns.skipped.get(STACKS, 0) + n_stacks
            n_out -= n_stacks
        columns.skipped |= {OUTSIDE: n_out} if n_out else {}
        return self._recording(columns, window)

    def devices(self, windows: Iterable[tuple[int, int]]) -> EventTable:
        """Device work and API calls alone, in all pieces with events of some windows."""
        wanted = EventFilter(categories=_DEVICES_AND_CALLS)
        chosen = self.zones.overlapping(*(times_in_file(one, self.metadata) for one in windows))
        assembly, workers = Assembly(), new_workers(wanted, EVERYTHING, self.path)
        for part in self._parts(chosen, workers):
            assembly.add(part)
        return self._recording(assembly.columns(workers), None, _DEVICES_AND_CALLS).events

    @property
    def device_share(self) -> float:
        """Share of the text that is device work and API calls; 0 if no device did anything."""
        if set(DEVICE_KINDS).isdisjoint(map(KIND_OF_CATEGORY.get, self.n_bytes)):
            return 0.0
        chosen = _DEVICES_AND_CALLS.intersection(self.n_bytes)
        return sum(self.n_bytes[name] for name in chosen) / max(sum(self.n_bytes.values()), 1)

    def _recording(
        self,
        columns: Columns,
        window: tuple[int, int] | None = None,
        categories: Collection[str] | None = None,
    ) -> Recording:
        log = RepairLog(Defect)
        log.merge(self.repairs)
        metas = list(self.metas)
        found = Found(self.path, self.path, columns, metas, self.metadata, self.points)
        return recording_of(found, window, categories, log)

    def _parts(self, chosen: I64, workers: list[Worker]) -> Iterator[Part]:
        """Some pieces, scanned in threads, in order."""
        pools = [ThreadPoolExecutor(1, "htagraph-scan") for _ in workers]
        ahead: deque[Future[Part]] = deque()
        reader = TextReader(self.path, self.points)
        total = int((self.zones.stop - self.zones.start)[chosen].sum())
        done = 0
        try:
            for turn, zone in enumerate(chosen.tolist()):
                piece = self._piece(reader, zone)
                done += piece.n_bytes
                report_progress(BYTES, done, total)
                one = turn % len(workers)
                ahead.append(pools[one].submit(workers[one].scan, piece))
                if len(ahead) > len(workers):
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            reader.close()
            for pool in pools:
                pool.shutdown()

    def _piece(self, reader: TextReader, zone: int) -> Piece:
        start, stop = int(self.zones.start[zone]), int(self.zones.stop[zone])
        text = reader.read(start, stop)
        buf = np.zeros(len(text) + PADDING, dtype=np.uint8)
        buf[: len(text)] = np.frombuffer(text, dtype=np.uint8)
        return Piece(buf, len(text), start, is_last=True)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What is stored."""
        facts = {
            "metadata": dict(self.metadata),
            "metas": [text.decode("latin-1") for text in self.metas],
            "skipped": dict(self.skipped),
            "n_bytes": dict(self.n_bytes),
            "symbols": self.ranges.symbols,
            "lanes": self.ranges.lanes,
        }
        return {
            "facts": np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8),
            "repairs": self.repairs,
            **{f"zones.{name}": column for name, column in vars(self.zones).items()},
            **{f"ranges.{name}": column for name, column in self.ranges.rows.items()},
            **self.points.arrays(),
        }

    @classmethod
    def of(cls, path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> FileIndex:
        """From what `arrays` returned."""
        facts = json.loads(arrays["facts"].tobytes())

        def columns(kind: str) -> dict[str, npt.NDArray[Any]]:
            named = (name.partition(".")[2] for name in arrays if name.startswith(f"{kind}."))
            return {name: arrays[f"{kind}.{name}"] for name in named}

        ranges = Columns(
            columns("ranges"),
            np.zeros((5, 0), dtype=np.int64),
            {},
            facts["symbols"],
            [(pid, tid) for pid, tid in facts["lanes"]],
        )
        return cls(
            path,
            facts["metadata"],
            tuple(text.encode("latin-1") for text in facts["metas"]),
            arrays["repairs"],
            facts["skipped"],
            facts["n_bytes"],
            Zones(**columns("zones")),
            ranges,
            SeekPoints.of(arrays),
        )


def _zone(part: Part) -> I64:
    """The row of a part in `Zones`."""
    n_events = n_stacks = 0
    first_ns, last_ns = EVERYTHING[1], EVERYTHING[0]
    columns = (part.rows[name] for name in ("ts_ns", "dur_ns", "phase", "category"))
    for ts_ns, dur_ns, phase, category in zip(*columns, strict=True):
        is_half = _HALVES[phase]
        if is_half.any():
            first_ns, last_ns = EVERYTHING
        n_events += len(phase) - int(is_half.sum())
        n_stacks += int(((category == KNOWN_STACKS) & ~is_half).sum())
        first_ns = min(first_ns, int(ts_ns.min()))
        last_ns = max(last_ns, int((ts_ns + dur_ns).max()))
    for flows in part.flows:
        n_events += flows.shape[1]
        n_stacks += int((flows[4] == KNOWN_STACKS).sum())
        first_ns, last_ns = min(first_ns, int(flows[0].min())), max(last_ns, int(flows[0].max()))
    stop = part.origin + part.stop
    return np.array([[part.origin, stop, first_ns, last_ns, n_events, n_stacks]], dtype=np.int64)


def _ranges_in(part: Part) -> Part:
    """A part with its named ranges alone; what it counts stays."""
    kept = [np.flatnonzero(codes == KNOWN_USER_RANGES) for codes in part.rows["category"]]
    rows = {
        name: [column[some] for column, some in zip(columns, kept, strict=True)]
        for name, columns in part.rows.items()
    }
    nothing = Part(part.worker)
    return replace(
        part, rows=rows, flows=[], sparse=nothing.sparse, n_rows=sum(len(some) for some in kept)
    )


def _compact(columns: Columns) -> Columns:
    """Columns without the symbols that no row has."""
    rows = columns.rows
    used = np.unique(np.concatenate([[0], rows["name"], rows["category"]])).astype(np.int64)
    number = np.zeros(len(columns.symbols), dtype=np.int32)
    number[used] = np.arange(len(used))
    rows = {**rows, "name": number[rows["name"]], "category": number[rows["category"]]}
    symbols = [columns.symbols[code] for code in used.tolist()]
    return replace(columns, rows=rows, symbols=symbols, sparse={}, flows=columns.flows[:, :0])
