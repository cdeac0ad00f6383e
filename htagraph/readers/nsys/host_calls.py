"""Host calls of an export: CUDA's API, the operating system's, and the profiler's own work."""

from __future__ import annotations

import re

import numpy as np

from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import group_starts, last_before, running_latest
from htagraph.model.api_calls import OS_CALLS
from htagraph.model.arrays import I64, Bools
from htagraph.model.kinds import EventKind
from htagraph.readers.nsys.device_work import ids
from htagraph.readers.nsys.export import ABSENT, TIDS, Export, Process
from htagraph.readers.nsys.table_rows import ReadState, TableRows

CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
OS_TABLE = "OSRT_API"
OVERHEAD_TABLES = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")

_API_VERSION = re.compile(r"_v\d{4,}$")
_COLUMNS = ("start", "end", "globalTid", "nameId")


def plain_name(name: str) -> str:
    """A call without the API version in its name.

    Examples
    --------
    >>> plain_name("cudaLaunchKernel_v7000"), plain_name("cuGetProcAddress_v2")
    ('cudaLaunchKernel', 'cuGetProcAddress_v2')
    """
    return _API_VERSION.sub("", name)


def api_calls(export: Export, process: Process, state: ReadState) -> TableRows:
    """Calls of CUDA's runtime and driver API."""
    where = export.of_process(CALLS, process)
    found = export.integers(CALLS, (*_COLUMNS, "correlationId"), where)
    name = state.names.of_ids(found["nameId"], plain_name)
    is_runtime = state.names.table().mask(lambda text: text.startswith("cuda"))
    codes = [state.names.code(category) for category in ("cuda_driver", "cuda_runtime")]
    category = np.array(codes, dtype=np.int32)[is_runtime[name].astype(np.int8)]
    state.calls = TableRows(
        found["start"],
        found["end"],
        EventKind.RUNTIME,
        name,
        category,
        state.lanes.threads(found["globalTid"]),
        correlation=ids(found["correlationId"]),
    )
    return state.calls


def os_calls(export: Export, process: Process, state: ReadState) -> TableRows:
    """Calls of operating system libraries, except inside CUDA calls.

    What a CUDA call waits for is known from the device; how its driver waits tells less.
    """
    where = export.of_process(OS_TABLE, process)
    found = export.integers(OS_TABLE, _COLUMNS, where)
    part = TableRows(
        found["start"],
        found["end"],
        EventKind.RUNTIME,
        state.names.of_ids(found["nameId"]),
        state.names.code(OS_CALLS),
        state.lanes.threads(found["globalTid"]),
    )
    is_mark = (found["globalTid"] % TIDS == 0) & (found["start"] == found["end"])
    inside = _inside(part, state.calls) if len(state.calls) else np.zeros(len(part), dtype=bool)
    state.skip("OSRT_API: marks of the profiler", np.count_nonzero(is_mark))
    state.skip("OSRT_API: inside of CUDA calls", np.count_nonzero(inside & ~is_mark))
    return part.take(~inside & ~is_mark)


def _inside(part: TableRows, outer: TableRows) -> Bools:
    """Whether each row lies inside a row of `outer` on its lane."""
    order = np.lexsort((outer.end_ns, outer.ts_ns, outer.column("lane")))
    lane, begin, end = (
        outer.column(name)[order].astype(np.int64) for name in ("lane", "ts_ns", "end_ns")
    )
    lanes = part.column("lane").astype(np.int64)
    latest = running_latest(end, group_starts(lane))
    row = gather(latest, last_before(lane, begin, lanes, part.ts_ns + 1))
    ends: I64 = gather(end, row, ABSENT)
    inside: Bools = (row >= 0) & (ends >= part.end_ns) & (part.end_ns != ABSENT)
    return inside


def overhead(export: Export, process: Process, state: ReadState, table: str) -> TableRows:
    """The profiler's own work."""
    found = export.integers(table, _COLUMNS, export.of_process(table, process))
    return TableRows(
        found["start"],
        found["end"],
        EventKind.OVERHEAD,
        state.names.of_ids(found["nameId"]),
        state.names.code("overhead"),
        state.lanes.threads(found["globalTid"]),
    )
