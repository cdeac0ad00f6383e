"""Fields of an event: its JSON keys, the columns they fill, and how values are read.

A new column is one line in `COLUMNS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from htagraph.model.events import LIST_COLUMNS


class Read(IntEnum):
    """A way to read a value."""

    SKIP = 0
    TEXT = 1  #: a text, or any other value as written; interned
    TIME = 2  #: decimal microseconds, to integer nanoseconds
    INT = 3  #: an integer, also as decimal or hexadecimal text
    REAL = 4  #: a float64
    TRIPLE = 5  #: a list of three integers, to three columns
    ARGS = 6  #: the object of arguments
    LIST = 7  #: a list as written; interned apart from texts


class Field(IntEnum):
    """Where the value of a key goes; codes from `FIRST_SPARSE` on are positions in `COLUMNS`."""

    PHASE = 0
    CATEGORY = 1
    NAME = 2
    PID = 3
    TID = 4
    ID = 5
    TS = 6
    DUR = 7
    BIND = 8
    ARGS = 9
    DEVICE = 10
    STREAM = 11
    CORRELATION = 12
    EXTERNAL_ID = 13
    FIRST_SPARSE = 14


@dataclass(frozen=True)
class SparseField:
    """A column of few events: its name, the keys of ``args`` that fill it, how they are read."""

    name: str
    keys: tuple[str, ...]
    read: Read = Read.INT

    @property
    def dtype(self) -> type[np.generic]:
        """Type of the values: integers, floats, or codes."""
        types: dict[Read, type[np.generic]] = {
            Read.REAL: np.float64,
            Read.TEXT: np.int32,
            Read.LIST: np.int32,
        }
        return types.get(self.read, np.int64)


COLUMNS = (
    SparseField("bytes", ("bytes", "Bytes")),
    SparseField("memory_bandwidth", ("memory bandwidth (GB/s)",), Read.REAL),
    SparseField("wait_on_stream", ("wait_on_stream",)),
    SparseField("wait_on_event_record", ("wait_on_cuda_event_record_corr_id",)),
    SparseField("wait_on_event", ("wait_on_cuda_event_id",)),
    SparseField("sequence", ("Sequence number",)),
    SparseField("fwd_thread", ("Fwd thread id",)),
    SparseField("graph_id", ("graph id",)),
    SparseField("graph_node", ("graph node id",)),
    SparseField("grid_x", ("grid",), Read.TRIPLE),
    SparseField("grid_y", ()),
    SparseField("grid_z", ()),
    SparseField("block_x", ("block",), Read.TRIPLE),
    SparseField("block_y", ()),
    SparseField("block_z", ()),
    SparseField("registers", ("registers per thread",)),
    SparseField("shared_memory", ("shared memory",)),
    SparseField("occupancy", ("est. achieved occupancy %",), Read.REAL),
    SparseField("blocks_per_sm", ("blocks per SM",), Read.REAL),
    SparseField("warps_per_sm", ("warps per SM",), Read.REAL),
    SparseField("python_id", ("Python id",)),
    SparseField("python_parent", ("Python parent id",)),
    SparseField("collective", ("Collective name",), Read.TEXT),
    SparseField("msg_in", ("In msg nelems",)),
    SparseField("msg_out", ("Out msg nelems",)),
    SparseField("dtype", ("dtype",), Read.TEXT),
    SparseField("group_size", ("Group size",)),
    SparseField("group_name", ("Process Group Name",), Read.TEXT),
    SparseField("group_ranks", ("Process Group Ranks",), Read.TEXT),
    SparseField("group_description", ("Process Group Description",), Read.TEXT),
    SparseField("seq", ("Seq",)),
    SparseField("comms_id", ("Comms Id",)),
    SparseField("src_rank", ("Src Rank",)),
    SparseField("dst_rank", ("Dst Rank",)),
    SparseField("is_async", ("Is asynchronized op",)),
    SparseField("addr", ("Addr",)),
    SparseField("total_allocated", ("Total Allocated",)),
    SparseField("total_reserved", ("Total Reserved",)),
    SparseField("device_type", ("Device Type",)),
    SparseField("device_id", ("Device Id",)),
    SparseField("comms_rank", ("Rank",)),
    SparseField("call_from", ("CallFrom",), Read.TEXT),
    SparseField("record_function", ("Record function id",)),
    SparseField("step_num", ("step_num",)),  # of JAX's StepTraceAnnotation
    *(
        SparseField(name, (key,), Read.LIST)
        for name, key in zip(
            LIST_COLUMNS,
            ("Input Dims", "Input type", "Input Strides", "Concrete Inputs"),
            strict=True,
        )
    ),
    SparseField("async_id", ()),  # the ``id`` of an async event
)
"""Columns that few events have, by code. A `TRIPLE` fills its own column and the next two."""

EVENT_KEYS: dict[str, tuple[int, Read]] = {
    "ph": (Field.PHASE, Read.TEXT),
    "cat": (Field.CATEGORY, Read.TEXT),
    "name": (Field.NAME, Read.TEXT),
    "pid": (Field.PID, Read.TEXT),
    "tid": (Field.TID, Read.TEXT),
    "id": (Field.ID, Read.TEXT),
    "id2": (Field.ID, Read.TEXT),
    "bp": (Field.BIND, Read.TEXT),
    "ts": (Field.TS, Read.TIME),
    "dur": (Field.DUR, Read.TIME),
    "args": (Field.ARGS, Read.ARGS),
}
"""Keys of an event: where the value goes, and how it is read."""

ARG_KEYS: dict[str, tuple[int, Read]] = {
    "device": (Field.DEVICE, Read.INT),
    "stream": (Field.STREAM, Read.INT),
    "correlation": (Field.CORRELATION, Read.INT),
    "External id": (Field.EXTERNAL_ID, Read.INT),
    "external id": (Field.EXTERNAL_ID, Read.INT),
} | {
    key: (Field.FIRST_SPARSE + position, column.read)
    for position, column in enumerate(COLUMNS)
    for key in column.keys
}
"""Keys of an event's ``args``, likewise."""
