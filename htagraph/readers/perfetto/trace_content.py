"""What a scanned trace holds: tracks, slices with names and annotations, samples with values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.model.arrays import I64, Bools
from htagraph.model.events import SparseColumn
from htagraph.model.perfetto_fields import (
    TYPE_COUNTER,
    TYPE_INSTANT,
    TYPE_SLICE_BEGIN,
    TYPE_SLICE_END,
)
from htagraph.readers.kineto.compiled.pairing import paired
from htagraph.readers.perfetto.clock_snapshots import Clocks
from htagraph.readers.perfetto.defects import Defect
from htagraph.readers.perfetto.packet_sequences import Sequences, Symbols
from htagraph.readers.perfetto.scan import (
    BAD,
    BOOL,
    DOUBLE,
    EVENT,
    HAS_TIME,
    HAS_TRACK,
    INT,
    INTERNED,
    LEGACY,
    TEXT,
    UINT,
    Scan,
)
from htagraph.readers.repair_log import RepairLog


@dataclass(frozen=True)
class Slices:
    """Slices and instants in file order, and samples."""

    packet: I64  # Rows of the packets where they begin
    # Rows of the packets where they end; -1 for instants, and slices without an end
    end_packet: I64
    ts_ns: I64
    dur_ns: I64
    track: I64  # Bits of the uuid
    is_point: Bools
    # Of counter samples, in file order
    sample_packet: I64
    sample_ts_ns: I64
    sample_track: I64

    def __len__(self) -> int:
        """Number of slices and points."""
        return len(self.packet)

    def of_packets(self, n_packets: int, chosen: I64) -> I64:
        """For each packet, the position among `chosen` of the slice it begins or ends; or -1."""
        position = np.full(n_packets, -1, dtype=np.int64)
        ended = self.end_packet[chosen]
        position[ended[ended >= 0]] = np.flatnonzero(ended >= 0)
        position[self.packet[chosen]] = np.arange(len(chosen))
        return position


def find_slices(
    scan: Scan, sequences: Sequences, clocks: Clocks, log: RepairLog, skipped: dict[str, int]
) -> Slices:
    """The slices of a trace."""
    clock = np.where(scan.clock == 0, sequences.clocks(), scan.clock)
    kinds = (TYPE_SLICE_BEGIN, TYPE_SLICE_END, TYPE_INSTANT, TYPE_COUNTER)
    is_event = (scan.what & (EVENT | BAD)) == EVENT
    is_known = is_event & np.isin(scan.type, kinds)
    no_time = is_known & (scan.what & HAS_TIME == 0)
    log.add(Defect.NO_TIME, n=int(no_time.sum()))
    rows = np.flatnonzero(is_known & ~no_time)
    ts_ns = clocks.times(scan, clock, log)
    far = rows[ts_ns[rows] < 0]
    log.add(Defect.FAR_TIME, n=len(far))
    rows = rows[ts_ns[rows] >= 0]
    _count(skipped, "event of Chrome's old format", is_event & ~is_known & (scan.what & LEGACY > 0))
    _count(skipped, "event without type", is_event & ~is_known & (scan.what & LEGACY == 0))

    default, has_default = sequences.tracks()
    track = np.where(scan.what & HAS_TRACK != 0, scan.track, np.where(has_default, default, 0))
    starts = rows[np.isin(scan.type[rows], (TYPE_SLICE_BEGIN, TYPE_INSTANT))]
    ends = _ends(scan, rows, ts_ns, track, log)
    end_packet = ends[starts]
    is_point = scan.type[starts] == TYPE_INSTANT
    open_ = ~is_point & (end_packet < 0)
    log.add(Defect.BEGIN_ONLY, n=int(open_.sum()))
    last = int(ts_ns[rows].max(initial=0))
    end_ns = np.where(end_packet >= 0, ts_ns[end_packet], np.where(open_, last, ts_ns[starts]))
    samples = rows[scan.type[rows] == TYPE_COUNTER]
    return Slices(
        packet=starts,
        end_packet=end_packet,
        ts_ns=ts_ns[starts],
        dur_ns=end_ns - ts_ns[starts],
        track=track[starts],
        is_point=is_point,
        sample_packet=samples,
        sample_ts_ns=ts_ns[samples],
        sample_track=track[samples],
    )


def _count(skipped: dict[str, int], reason: str, left_out: Bools) -> None:
    if left_out.any():
        skipped[reason] = int(left_out.sum())


def _ends(scan: Scan, rows: I64, ts_ns: I64, track: I64, log: RepairLog) -> I64:
    """The packet that ends the slice that each packet begins; -1 for none."""
    out = np.full(len(scan.at), -1, dtype=np.int64)
    halves = rows[np.isin(scan.type[rows], (TYPE_SLICE_BEGIN, TYPE_SLICE_END))]
    halves = halves[np.argsort(ts_ns[halves], kind="stable")]
    lane, _ = pd.factorize(track[halves])
    is_begin = scan.type[halves] == TYPE_SLICE_BEGIN
    partner = paired(is_begin, lane.astype(np.int32))
    both = is_begin & (partner >= 0)
    out[halves[both]] = halves[partner[both]]
    log.add(Defect.END_ONLY, n=int((~is_begin & (partner < 0)).sum()))
    return out


_DEEPEST = 64
"""Most ancestors of a track (chosen): damaged files may have circles."""

_UNITS = ("", "ns", "", "bytes")
"""By CounterDescriptor.Unit."""


@dataclass(frozen=True)
class Track:
    """A track as described."""

    name: str = ""
    parent: int = 0  # Its uuid; 0 for none
    # process, thread: the process, or the process and thread, that the track is
    process: int | None = None
    thread: tuple[int, int] | None = None
    is_incremental: bool = False
    unit: str = ""
    multiplier: int = 1  # Factor of its values


class Tracks:
    """All tracks of a trace, and the names of its processes and threads."""

    def __init__(self, specials: list[tuple[int, Any]]) -> None:
        self.by_uuid: dict[int, Track] = {}
        self.processes: dict[int, str] = {}
        self.threads: dict[tuple[int, int], str] = {}
        for _, packet in specials:
            for name, enter in (
                ("track_descriptor", self._track),
                ("process_descriptor", self._process),
                ("thread_descriptor", self._thread),
                ("process_tree", self._tree),
            ):
                if packet.HasField(name):
                    enter(getattr(packet, name))

    def _track(self, descriptor: Any) -> None:  # noqa: ANN401
        known = self.by_uuid.get(descriptor.uuid, Track())
        name = (
            _text(descriptor, "name")
            or _text(descriptor, "static_name")
            or _text(descriptor, "atrace_name")
        )
        known = replace(
            known, name=name or known.name, parent=descriptor.parent_uuid or known.parent
        )
        if descriptor.HasField("process"):
            self._process(descriptor.process)
            known = replace(known, process=descriptor.process.pid)
        if descriptor.HasField("thread"):
            self._thread(descriptor.thread)
            known = replace(known, thread=(descriptor.thread.pid, descriptor.thread.tid))
        if descriptor.HasField("counter"):
            counter = descriptor.counter
            known = replace(
                known,
                is_incremental=counter.is_incremental,
                unit=_text(counter, "unit_name") or dict(enumerate(_UNITS)).get(counter.unit, ""),
                multiplier=counter.unit_multiplier or 1,
            )
        self.by_uuid[descriptor.uuid] = known

    def _process(self, descriptor: Any) -> None:  # noqa: ANN401
        name = _text(descriptor, "process_name") or "".join(descriptor.cmdline[:1])
        self.processes[descriptor.pid] = name or self.processes.get(descriptor.pid, "")

    def _thread(self, descriptor: Any) -> None:  # noqa: ANN401
        key = (descriptor.pid, descriptor.tid)
        self.threads[key] = _text(descriptor, "thread_name") or self.threads.get(key, "")

    def _tree(self, descriptor: Any) -> None:  # noqa: ANN401
        for process in descriptor.processes:
            self.processes.setdefault(process.pid, "".join(process.cmdline[:1]))
        for thread in descriptor.threads:
            self.threads.setdefault((thread.tgid, thread.tid), _text(thread, "name"))

    def ancestors(self, uuid: int) -> list[Track]:
        """A track, its parent, and so on; empty if it is not described."""
        found: list[Track] = []
        while uuid in self.by_uuid and len(found) < _DEEPEST:
            found.append(self.by_uuid[uuid])
            uuid = found[-1].parent
            if not uuid:
                break
        return found

    def process_of(self, uuid: int) -> int | None:
        """The process that a track belongs to."""
        for track in self.ancestors(uuid):
            if track.thread is not None:
                return track.thread[0]
            if track.process is not None:
                return track.process
        return None


def _text(message: Any, field: str) -> str:  # noqa: ANN401
    """A text; protobuf checks UTF-8 on access."""
    try:
        return str(getattr(message, field))
    except UnicodeDecodeError as exc:
        return bytes(exc.object).decode("utf-8", "replace")


_NARROW = 1 << 15
"""Names that fit in int16, which numpy sorts by radix."""

_INTEGERS, _TEXTS = (INT, UINT, BOOL), (TEXT, INTERNED)


def dense(column: SparseColumn | None, n: int) -> I64:
    """A column with a value for every event, -1 if absent."""
    return np.full(n, -1, dtype=np.int64) if column is None else column.dense(n, -1)


@dataclass(frozen=True)
class TraceContent:
    """Everything found in a trace."""

    scan: Scan
    sequences: Sequences
    symbols: Symbols
    tracks: Tracks
    slices: Slices
    day_ns: int  # What to add to times to get those since 1970
    log: RepairLog
    skipped: dict[str, int]

    def skip(self, reason: str, n: int) -> None:
        """Count what is left out."""
        if n:
            self.skipped[reason] = self.skipped.get(reason, 0) + n

    def names(self, chosen: I64) -> I64:
        """Symbols of the names of slices."""
        packet = self.slices.packet[chosen]
        return self.sequences.texts("event_names", packet, self.scan.name[packet])

    def categories(self, chosen: I64) -> I64:
        """Symbols of the first category of slices."""
        packet = self.slices.packet[chosen]
        return self.sequences.texts("event_categories", packet, self.scan.category[packet])

    def annotations(self, chosen: I64) -> Iterator[tuple[int, str, I64, npt.NDArray[np.generic]]]:
        """Yield annotations of slices, and of their end packets, by name and kind of value.

        With the symbol of the name, the kind (``int``, ``float`` or ``text``), the slices by their
        position among the chosen, ascending, and the values; texts are symbols. The last of several
        values of a slice counts.
        """
        scan = self.scan
        position = self.slices.of_packets(len(scan.at), chosen)
        known = np.flatnonzero((position[scan.annotation_packet] >= 0) & (scan.annotation_form > 0))
        packet = scan.annotation_packet[known]
        form, value = scan.annotation_form[known], scan.annotation_value[known].copy()
        texts = np.isin(form, _TEXTS)
        value[texts] = self.sequences.texts(
            "debug_annotation_string_values", packet[texts], value[texts]
        )
        name = self.sequences.texts("debug_annotation_names", packet, scan.annotation_name[known])
        number, names = pd.factorize(name)
        narrow = np.int16 if len(names) < _NARROW else np.int64
        order = np.argsort(number.astype(narrow), kind="stable")
        for rows in np.split(order, np.cumsum(np.bincount(number))[:-1]) if len(order) else ():
            for kind, forms in (("int", _INTEGERS), ("float", (DOUBLE,)), ("text", _TEXTS)):
                of_kind = rows[np.isin(form[rows], forms)][::-1]
                if not len(of_kind):
                    continue
                slices, last = np.unique(position[packet[of_kind]], return_index=True)
                found = value[of_kind][last]
                yield (
                    int(name[rows[0]]),
                    kind,
                    slices,
                    found.view(np.float64) if kind == "float" else found,
                )
