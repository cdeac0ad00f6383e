"""Perfetto's protobuf schema by name, and what the slices of a trace cannot hold, as a packet.

Protobuf's classes take 9 us per packet. Compiled code needs plain integers; a test compares each of
them with the schema. Places of events in their file, ids of lanes that no process can have, and
properties of devices are in one field of one packet, so that a trace can be read back::

    zlib( length of the facts | facts as JSON | columns, one after the other )

A column is written as differences of its values, by planes of bytes: nearly constant columns
compress to almost nothing.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.recording import Origin

TRACE_PACKET = 1

PACKET_PROCESS_TREE = 2
PACKET_CLOCK_SNAPSHOT = 6
PACKET_TIMESTAMP = 8
PACKET_TRUSTED_PACKET_SEQUENCE_ID = 10
PACKET_TRACK_EVENT = 11
PACKET_INTERNED_DATA = 12
PACKET_SEQUENCE_FLAGS = 13
PACKET_SYNCHRONIZATION_MARKER = 36
PACKET_INCREMENTAL_STATE_CLEARED = 41
PACKET_PREVIOUS_PACKET_DROPPED = 42
PACKET_PROCESS_DESCRIPTOR = 43
PACKET_THREAD_DESCRIPTOR = 44
PACKET_COMPRESSED_PACKETS = 50
PACKET_TIMESTAMP_CLOCK_ID = 58
PACKET_TRACE_PACKET_DEFAULTS = 59
PACKET_TRACK_DESCRIPTOR = 60
PACKET_ZSTD_COMPRESSED_PACKETS = 133

EVENT_TIMESTAMP_DELTA_US = 1
EVENT_CATEGORY_IIDS = 3
EVENT_DEBUG_ANNOTATIONS = 4
EVENT_LEGACY_EVENT = 6
EVENT_TYPE = 9
EVENT_NAME_IID = 10
EVENT_TRACK_UUID = 11
EVENT_EXTRA_COUNTER_VALUES = 12
EVENT_TIMESTAMP_ABSOLUTE_US = 16
EVENT_CATEGORIES = 22
EVENT_NAME = 23
EVENT_COUNTER_VALUE = 30
EVENT_EXTRA_COUNTER_TRACK_UUIDS = 31
EVENT_FLOW_IDS_OLD = 36
EVENT_TERMINATING_FLOW_IDS_OLD = 42
EVENT_DOUBLE_COUNTER_VALUE = 44
EVENT_EXTRA_DOUBLE_COUNTER_TRACK_UUIDS = 45
EVENT_EXTRA_DOUBLE_COUNTER_VALUES = 46
EVENT_FLOW_IDS = 47
EVENT_TERMINATING_FLOW_IDS = 48
EVENT_CORRELATION_ID_STR_IID = 54

ANNOTATION_NAME_IID = 1
ANNOTATION_BOOL_VALUE = 2
ANNOTATION_UINT_VALUE = 3
ANNOTATION_INT_VALUE = 4
ANNOTATION_DOUBLE_VALUE = 5
ANNOTATION_STRING_VALUE = 6
ANNOTATION_POINTER_VALUE = 7
ANNOTATION_NAME = 10
ANNOTATION_STRING_VALUE_IID = 17

DESCRIPTOR_PROCESS_ORDERING = 19

TYPE_SLICE_BEGIN, TYPE_SLICE_END, TYPE_INSTANT, TYPE_COUNTER = 1, 2, 3, 4
SEQ_INCREMENTAL_STATE_CLEARED, SEQ_NEEDS_INCREMENTAL_STATE = 1, 2
BUILTIN_CLOCK_REALTIME, BUILTIN_CLOCK_BOOTTIME = 1, 6
EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering
PROCESS_ORDERING_EXPLICIT = 1

FIELD = 77_710
"""Field of a packet; far from those that Perfetto numbers, and from its ranges of extensions."""

COMPUTED = "roof_"
"""How the names of arguments begin that htagraph computes: they are no part of the recording.
test_perfetto_own.
"""

_VERSION = 1
"""Of the packet's layout."""
_LENGTH = struct.Struct("<q")
_MOST_BYTES = 1 << 32
_MOST_PER_BYTE = 1_000  # zlib's own limit


@dataclass(frozen=True)
class Supplement:
    """Facts of a trace, and columns of numbers about its slices."""

    facts: Mapping[str, Any] = field(default_factory=dict)  # What JSON can hold
    columns: Mapping[str, I64] = field(default_factory=dict)

    def packed(self) -> bytes:
        """The facts and the columns in the layout of the packet."""
        lengths = {name: len(column) for name, column in self.columns.items()}
        facts = {"version": _VERSION, "columns": lengths, **self.facts}
        text = json.dumps(facts, separators=(",", ":"), default=str).encode()
        parts = [_LENGTH.pack(len(text)), text]
        for column in self.columns.values():
            steps = np.diff(np.concatenate([[0], column]).astype(np.int64))
            zigzag = np.bitwise_xor(np.left_shift(steps, 1), np.right_shift(steps, 63))
            parts.append(zigzag.astype("<i8").view(np.uint8).reshape(-1, 8).T.tobytes())
        return zlib.compress(b"".join(parts))

    @classmethod
    def unpacked(cls, packed: bytes) -> Supplement:
        """What `packed` returned."""
        decoder = zlib.decompressobj()
        try:
            data = decoder.decompress(packed, min(_MOST_BYTES, _MOST_PER_BYTE * len(packed) + 64))
            (n_text,) = _LENGTH.unpack_from(data)
            at = _LENGTH.size + max(n_text, 0)
            facts = json.loads(data[_LENGTH.size : at])
            if facts.pop("version") != _VERSION:
                raise ValueError("it is of another version")
            columns = {}
            for name, n in facts.pop("columns").items():
                columns[str(name)] = _values(data[at : at + 8 * n], n)
                at += 8 * n
        except (
            zlib.error,
            struct.error,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as exc:
            raise ValueError(str(exc)) from exc
        return cls(facts, columns)


def recorded_facts(dag: Dag, rank: int, origin: Origin | None, run: str = "") -> dict[str, object]:
    """What is known of a recording besides its events; `run` is one of several."""
    return {
        "rank": rank,
        "run": run,
        "file": origin.path.name if origin and origin.path else "",
        "metadata": dict(origin.metadata) if origin else {},
        "base_time_ns": origin.base_time_ns if origin else 0,
        "n_unread_stacks": dag.notes.get("n_unread_stacks", 0),
    }


def _values(planes: bytes, n: int) -> I64:
    """Values by their differences: all lowest bytes, then all second ones, and so on."""
    if n < 0 or len(planes) != 8 * n:
        raise ValueError("it is cut off")
    rows = np.ascontiguousarray(np.frombuffer(planes, dtype=np.uint8).reshape(8, n).T)
    zigzag = rows.reshape(-1).view("<u8")
    steps = (zigzag >> np.uint64(1)).astype(np.int64) ^ -(zigzag & np.uint64(1)).astype(np.int64)
    return np.cumsum(steps, dtype=np.int64)
