"""Slices: begin and end events of a track as ranges, instants, and counter samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from htagraph.model.arrays import I64, Bools
from htagraph.model.perfetto_fields import (
    TYPE_COUNTER,
    TYPE_INSTANT,
    TYPE_SLICE_BEGIN,
    TYPE_SLICE_END,
)
from htagraph.readers.kineto.compiled.pairing import paired
from htagraph.readers.perfetto.clock_snapshots import Clocks
from htagraph.readers.perfetto.defects import Defect
from htagraph.readers.perfetto.packet_sequences import Sequences
from htagraph.readers.perfetto.scan import BAD, EVENT, HAS_TIME, HAS_TRACK, LEGACY, Scan
from htagraph.readers.repair_log import RepairLog


@dataclass(frozen=True)
class Slices:
    """Slices and instants in file order, and samples.

    Parameters
    ----------
    packet : ndarray of shape (n,), dtype=int64
        Rows of the packets where they begin.
    end_packet : ndarray of shape (n,), dtype=int64
        Rows of the packets where they end; -1 for instants, and slices without an end.
    ts_ns, dur_ns : ndarray of shape (n,), dtype=int64, unit=ns
    track : ndarray of shape (n,), dtype=int64
        Bits of the uuid.
    is_point : ndarray of shape (n,), dtype=bool
    sample_packet, sample_ts_ns, sample_track : ndarray of shape (k,), dtype=int64
        Counter samples in file order.
    """

    packet: I64
    end_packet: I64
    ts_ns: I64
    dur_ns: I64
    track: I64
    is_point: Bools
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
