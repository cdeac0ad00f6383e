"""The packets of a trace in memory; gzip and compressed packets are unpacked."""

from __future__ import annotations

import zlib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from htagraph.errors import TraceLimitError
from htagraph.model.arrays import I64
from htagraph.model.perfetto_fields import PACKET_COMPRESSED_PACKETS, PACKET_ZSTD_COMPRESSED_PACKETS
from htagraph.readers import defects as kineto_defects
from htagraph.readers.byte_stream import MAX_RATIO, RATIO_FROM, ByteStream
from htagraph.readers.perfetto.defects import Defect
from htagraph.readers.perfetto.scan import BAD, Room, Scan
from htagraph.readers.repair_log import RepairLog

_PIECE = 1 << 22
"""Bytes read at once (chosen)."""

_COMPRESSED = (PACKET_COMPRESSED_PACKETS, PACKET_ZSTD_COMPRESSED_PACKETS)
"""The latter are counted as bad: zstd is not in the standard library."""


@dataclass(frozen=True)
class Scanned:
    """A scanned trace."""

    data: bytes | bytearray
    scan: Scan
    container: RepairLog  # Defects of the gzip file

    def offset(self, row: int) -> int:
        """Where a packet begins."""
        return int(self.scan.at[row])

    def packet(self, row: int) -> Any:  # noqa: ANN401  a message of a package without types
        """A packet as a message; None if it cannot be parsed."""
        from google.protobuf.message import DecodeError  # noqa: PLC0415
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2  # noqa: PLC0415

        at = int(self.scan.at[row])
        part = bytes(self.data[at : at + int(self.scan.n_bytes[row])])
        try:
            return perfetto_trace_pb2.TracePacket.FromString(part)
        except DecodeError:
            return None

    def text(self, number: int) -> bytes:
        """A text that is not interned."""
        row = -1 - number
        at = int(self.scan.text_at[row])
        return bytes(self.data[at : at + int(self.scan.text_bytes[row])])


def scanned(source: str | Path | bytes, log: RepairLog) -> Scanned:
    """The packets of a file, or of its content."""
    container = RepairLog(kineto_defects.Defect)
    data = bytearray()
    with closing(ByteStream(source, container, reports=True)) as stream:
        while piece := stream.read(_PIECE):
            data += piece
        path = stream.path
    counts = _counted(data)
    log.add(Defect.TRUNCATED, n=int(counts.cut > 0), offset=len(data) - counts.cut)
    log.add(Defect.DAMAGED, n=counts.lost, offset=counts.lost_at)
    found = _columns(data, counts)
    packed = np.flatnonzero(np.isin(found.other, _COMPRESSED))
    if len(packed):
        data = _unpacked(data, found, packed, log, path)
        found = _columns(data, _counted(data))
    bad = np.flatnonzero(found.what & BAD)
    log.add(Defect.BAD_PACKET, n=len(bad), offset=int(found.at[bad].min(initial=len(data))))
    return Scanned(data, found, container)


class _Counts(NamedTuple):
    """Rows to make room for, and damage, as the scanner counts them."""

    packets: int
    annotations: int
    flows: int
    texts: int
    cut: int
    lost: int
    lost_at: int
    may_see: int


def _counted(data: bytes | bytearray) -> _Counts:
    from htagraph.readers.perfetto.compiled.scanner import fill  # noqa: PLC0415  deferred

    counts = np.zeros(len(_Counts._fields), dtype=np.int64)
    fill(np.frombuffer(data, dtype=np.uint8), Room.of(0, 0, 0, 0), counts, False)
    return _Counts(*counts.tolist())


def _columns(data: bytes | bytearray, counts: _Counts) -> Scan:
    from htagraph.readers.perfetto.compiled.scanner import fill  # noqa: PLC0415  deferred

    room = Room.of(*counts[:4])
    fill(np.frombuffer(data, dtype=np.uint8), room, np.zeros(len(counts), dtype=np.int64), True)
    return Scan(*(column for table in room for column in table))


def _unpacked(
    data: bytearray, found: Scan, packed: I64, log: RepairLog, path: Path | None
) -> bytearray:
    """A trace with compressed packets replaced by their content."""
    end = found.at + found.n_bytes
    start = np.concatenate([[0], end[:-1]])
    most = max(RATIO_FROM, MAX_RATIO * len(data))
    out, kept_to = bytearray(), 0
    for row in packed.tolist():
        out += data[kept_to : start[row]]
        kept_to = int(end[row])
        inner = _inflated(bytes(data[found.at[row] : end[row]]), most - len(out))
        counts = _counted(inner)
        is_bad = counts.cut + counts.lost > 0 or not inner
        log.add(Defect.BAD_PACKED, n=int(is_bad), offset=int(found.at[row]))
        out += inner[: len(inner) - counts.cut]
        if len(out) >= most:
            raise TraceLimitError(
                f"its packets decompress to more than {MAX_RATIO} times their size; this looks "
                "like a decompression bomb",
                path=path,
                hint="record it without compression if you trust it.",
            )
    out += data[kept_to:]
    return out


def _inflated(packet: bytes, most: int) -> bytes:
    """The content of a compressed packet; empty if it cannot be decompressed."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2  # noqa: PLC0415

    try:
        message = perfetto_trace_pb2.TracePacket.FromString(packet)
        return zlib.decompressobj().decompress(message.compressed_packets, max(most, 1))
    except (DecodeError, zlib.error):
        return b""
