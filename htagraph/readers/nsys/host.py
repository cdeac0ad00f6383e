"""What an export has of the host: calls of CUDA and the system, waits, and NVTX ranges.

Ranges are operators where PyTorch's ``emit_nvtx`` wrote them; wait records say which call waited,
on which stream, for which event record.
"""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.arrays.matching import group_starts, last_before, match_keys, running_latest
from htagraph.model.api_calls import OS_CALLS, POLLS, CallMeaning, meaning_of_call
from htagraph.model.arrays import I64, Bools
from htagraph.model.events import FlowTable
from htagraph.model.kinds import EventKind
from htagraph.model.names import AUTOGRAD_FUNCTION
from htagraph.readers.nsys.device_work import device_of_context, devices, ids
from htagraph.readers.nsys.export import ABSENT, NUMBERED_TEXTS, TIDS, Export
from htagraph.readers.nsys.table_rows import ReadState, TableRows, enumeration

CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
OS_TABLE = "OSRT_API"
OVERHEAD_TABLES = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")

_API_VERSION = re.compile(r"_v\d{4,}$")
_COLUMNS = ("start", "end", "globalTid", "nameId")


def api_calls(export: Export, process: int, state: ReadState) -> TableRows:
    """Calls of CUDA's runtime and driver API."""
    where = export.of_process(CALLS, process)
    found = export.integers(CALLS, (*_COLUMNS, "correlationId"), where)
    name = state.names.of_ids(found["nameId"], partial(_API_VERSION.sub, ""))
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


def os_calls(export: Export, process: int, state: ReadState) -> TableRows:
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


def overhead(export: Export, process: int, state: ReadState, table: str) -> TableRows:
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


WAITS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
RECORDS = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"

_NAMES = {
    CallMeaning.EVENT_SYNC: "Event Sync",
    CallMeaning.STREAM_WAIT: "Stream Wait Event",
    CallMeaning.STREAM_SYNC: "Stream Sync",
    CallMeaning.DEVICE_SYNC: "Context Sync",
}
"""The PyTorch profiler's names of waits by call."""

_NAME_OF_TYPE = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_OTHER = "Synchronization"


def waits(export: Export, process: int, state: ReadState) -> TableRows:
    """Wait records, named by their call.

    The type in the export is unreliable: versions number types from 0 or from 1, but all list them
    from 1. It counts only if no call is known. A query (``cudaEventQuery``) is recorded like a
    wait, and is none.
    """
    wanted = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "syncType",
              "eventId", "eventSyncId")  # fmt: skip
    found = export.integers(WAITS, wanted, export.of_process(WAITS, process))
    stream, correlation = ids(found["streamId"]), ids(found["correlationId"])
    device = _devices(export, process, found)
    calls, called = state.calls, _called(state.calls, correlation)
    named = [
        _OTHER if POLLS.search(call) else _NAMES.get(meaning_of_call(call), _OTHER)
        for call in state.names.table().texts
    ]
    name_of_call = np.array([state.names.code(text) for text in named] or [0], dtype=np.int32)
    by_type = state.names.of_numbers(
        found["syncType"], lambda number: _NAME_OF_TYPE.get(number, _OTHER)
    )
    name = by_type
    if len(calls):
        call_name = gather(calls.column("name"), called, 0)
        name = np.where(called >= 0, name_of_call[call_name], by_type).astype(np.int32)
    return TableRows(
        found["start"],
        found["end"],
        EventKind.SYNC,
        name,
        state.names.code("cuda_sync"),
        state.lanes.streams(device, stream),
        device,
        stream,
        correlation,
        sparse=_event_records(export, process, found, calls, called),
    )


def _called(calls: TableRows, correlation: I64) -> I64:
    """The call of each record, -1 for none."""
    if not len(calls):
        return np.full(len(correlation), -1, dtype=np.int64)
    found = match_keys(correlation, calls.column("correlation").astype(np.int64))
    return np.where(correlation >= 0, found, -1)


def _devices(export: Export, process: int, found: dict[str, I64]) -> I64:
    """The device of each record: that of its context, by the work that runs in it."""
    of_context = device_of_context(export, process)
    recorded = devices(found["deviceId"])
    contexts, places = np.unique(found["contextId"], return_inverse=True)
    known = np.array([of_context.get(context, -1) for context in contexts.tolist()], dtype=np.int64)
    by_context = known[places] if len(contexts) else recorded
    return np.where(by_context >= 0, by_context, recorded)


def _event_records(
    export: Export, process: int, found: dict[str, I64], calls: TableRows, called: I64
) -> dict[str, I64]:
    """The event record that each wait is for, if event records were traced.

    Records have the id of their event and, in newer versions, one of their own. Without it, the
    last record before the wait counts.
    """
    waited = np.where(found["eventId"] == (1 << 32) - 1, ABSENT, found["eventId"])
    sparse = {"wait_on_event": waited}
    if not len(calls) or not export.has(RECORDS, "streamId", "correlationId", "eventId"):
        return sparse
    wanted = ("streamId", "correlationId", "eventId", "eventSyncId")
    records = export.integers(RECORDS, wanted, export.of_process(RECORDS, process))
    caller = _called(calls, ids(records["correlationId"]))
    keys, exact = _exact(records, found)
    record = match_keys(exact, keys) if len(keys) else np.full(len(exact), -1)
    record = np.where((found["eventSyncId"] > 0) & (waited != ABSENT), record, -1)
    times = gather(calls.ts_ns, caller, ABSENT)
    order = np.lexsort((times, records["eventId"]))
    since = gather(calls.ts_ns, called, ABSENT)
    last = last_before(records["eventId"][order], times[order], waited, since)
    numbered = (found["eventSyncId"] > 0) & bool((records["eventSyncId"] > 0).any())
    record = np.where(numbered, record, gather(order, last))
    stream = ids(records["streamId"])
    return sparse | {
        "wait_on_stream": gather(stream, record, ABSENT),
        "wait_on_event_record": gather(ids(records["correlationId"]), record, ABSENT),
    }


def _exact(records: dict[str, I64], found: dict[str, I64]) -> tuple[I64, I64]:
    """Keys of records and of waits by both ids."""
    both = [np.concatenate([records[name], found[name]]) for name in ("eventId", "eventSyncId")]
    _, event = np.unique(both[0], return_inverse=True)
    _, number = np.unique(both[1], return_inverse=True)
    keys = event.astype(np.int64) * (len(number) + 1) + number
    n_records = len(records["eventId"])
    return keys[:n_records], keys[n_records:]


RANGES = "NVTX_EVENTS"

_TYPES = {34: "NvtxMark", 59: "NvtxPushPopRange", 60: "NvtxStartEndRange",
          70: "NvtxtPushPopRange", 71: "NvtxtStartEndRange"}  # fmt: skip
_NUMBERS = {"sequence": ", seq = ", "op_id": ", op_id = "}
_SIZES = ", sizes = [["
"""What ``emit_nvtx`` appends to names: ``aten::mm, seq = 7, op_id = 12, sizes = [[2, 3]]``."""

_END = 1 << 30
"""Longer than any text (SQLite's limit is a billion bytes)."""

_ROWS = 1 << 16
"""Rows fetched at once (chosen)."""

_MARK = re.compile(r"^Nvtxt?Mark$")
_RANGE = re.compile(r"^Nvtxt?(PushPop|StartEnd)Range$")

_OPERATOR = re.compile(rf"^[\w.]*::[\w.:]+$|^record_param_comms$|{AUTOGRAD_FUNCTION.pattern}")
"""Operators of a namespace (``aten::mm``), and functions of the autograd engine."""

_NCCL = re.compile(r"^nccl[A-Z]\w*$")
"""NCCL API calls; NCCL writes its own ranges: ``ncclAllReduce``, ``ncclGroupEnd``."""


def ranges(export: Export, process: int, state: ReadState) -> TableRows:
    """NVTX ranges and marks of threads.

    Operators are ranges that PyTorch wrote (``torch.autograd.profiler.emit_nvtx``) with a sequence
    number, or with the name of an operator; NCCL's ranges are its API calls. Ranges that end on
    another thread are kept, outside the program order of either thread.
    """
    where = export.of_process(RANGES, process)
    wanted = ("start", "end", "eventType", "globalTid", "endGlobalTid")
    found = export.integers(RANGES, wanted, where)
    text, texts, sequence, op_id = _texts(export, where)
    type_names = enumeration(export, "ENUM_NSYS_EVENT_TYPE", _TYPES, "name")
    is_mark, is_range = (
        np.isin(found["eventType"], [key for key, name in type_names.items() if kind.search(name)])
        for kind in (_MARK, _RANGE)
    )
    codes = [state.names.code(one) for one in texts]
    name = np.array(codes, dtype=np.int32)[text]
    symbols = state.names.table()
    crosses = (found["endGlobalTid"] != ABSENT) & (found["endGlobalTid"] != found["globalTid"])
    crosses &= is_range & (found["endGlobalTid"] != 0)
    is_op = (sequence >= 0) | ((op_id >= 0) & symbols.searched(_OPERATOR)[name])
    is_call = (op_id < 0) & symbols.searched(_NCCL)[name]
    kind = np.select(
        [is_mark, crosses, is_op, is_call],
        [EventKind.INSTANT, EventKind.OTHER, EventKind.OP, EventKind.RUNTIME],
        EventKind.ANNOTATION,
    )
    categories = {
        EventKind.OP: "cpu_op",
        EventKind.RUNTIME: "nccl_api",
        EventKind.ANNOTATION: "user_annotation",
        EventKind.INSTANT: "nvtx_mark",
        EventKind.OTHER: "nvtx_range_across_threads",
    }
    category_of = np.zeros(len(EventKind), dtype=np.int32)
    for number, category in categories.items():
        category_of[number] = state.names.code(category)
    keep = is_mark | is_range
    state.skip("NVTX_EVENTS: no ranges or marks", np.count_nonzero(~keep))
    part = TableRows(
        found["start"],
        np.where(is_mark & (found["end"] == ABSENT), found["start"], found["end"]),
        kind.astype(np.int8),
        name,
        category_of[kind],
        state.lanes.threads(found["globalTid"]),
        external_id=op_id,
        sparse={"sequence": np.where(sequence >= 0, sequence, ABSENT)},
    )
    return part.take(keep)


def _texts(export: Export, where: str) -> tuple[I64, list[str], I64, I64]:
    """Name of each row, its place in a list of names; its sequence number and operator id, or -1.

    PyTorch's texts hold tensor sizes, so nearly every row has a text of its own. SQLite splits
    them, and Python only sees the names, which repeat.
    """
    columns = export.columns[RANGES]
    join = f"{NUMBERED_TEXTS} textId" if "textId" in columns else ""
    texts = ["NULL"] + ["text"] * ("text" in columns) + ["numbered_text"] * bool(join)
    text = f"CAST(coalesce({', '.join(texts)}, '(no name)') AS TEXT)"
    whole = f"SELECT {RANGES}.rowid AS row, {text} AS whole FROM {RANGES} {join}"  # noqa: S608
    marks = ", ".join(
        f"CASE WHEN whole GLOB '*{mark}[0-9]*' THEN instr(whole, '{mark}') END AS {name}"
        for name, mark in _NUMBERS.items()
    )
    numbers = ", ".join(
        f"ifnull(CAST(substr(whole, {name} + {len(mark)}) AS INTEGER), -1)"
        for name, mark in _NUMBERS.items()
    )
    ends = ", ".join(f"ifnull({name}, {_END})" for name in (*_NUMBERS, "sizes"))
    sql = (
        f"SELECT substr(whole, 1, min({ends}) - 1), {numbers} FROM "  # noqa: S608
        f"(SELECT row, whole, {marks}, nullif(instr(whole, '{_SIZES}'), 0) AS sizes "
        f"FROM ({whole} WHERE {where})) ORDER BY row"
    )
    codes: dict[str, int] = {}
    parts = [np.empty((0, 3), dtype=np.int64)]
    rows = export.connection.execute(sql)
    while some := rows.fetchmany(_ROWS):
        table = np.array(some, dtype=object)
        places, distinct = pd.factorize(table[:, 0])
        table[:, 0] = np.array([codes.setdefault(name, len(codes)) for name in distinct])[places]
        parts.append(table.astype(np.int64))
    name, sequence, op_id = np.concatenate(parts).T
    return name, list(codes), sequence, op_id


def backward_flows(part: TableRows, first: int, base_time_ns: int, state: ReadState) -> FlowTable:
    """Flows from forward operators to the autograd functions with their sequence numbers.

    Sequence numbers count per thread, and the export does not record the thread of a function's. So
    a flow is made only if all operators with the number are on one thread. As in the PyTorch
    profiler, it starts at the last of them: the one that made the function. `first`: event number
    of the first range.
    """
    lane, sequence = part.column("lane").astype(np.int64), part.sparse["sequence"]
    rows = np.flatnonzero(sequence != ABSENT)
    rows = rows[np.lexsort((part.ts_ns[rows], sequence[rows]))]
    is_autograd = state.names.table().searched(AUTOGRAD_FUNCTION)[part.column("name")[rows]]
    forward, backward = rows[~is_autograd], rows[is_autograd]
    if not len(forward) or not len(backward):
        return FlowTable()
    backward = backward[np.unique(sequence[backward], return_index=True)[1]]
    numbers, starts = np.unique(sequence[forward], return_index=True)
    lanes = lane[forward]
    is_one = np.minimum.reduceat(lanes, starts) == np.maximum.reduceat(lanes, starts)
    backward = backward[np.isin(sequence[backward], numbers[is_one])]
    source = gather(
        forward,
        last_before(
            sequence[forward], part.ts_ns[forward], sequence[backward], part.ts_ns[backward]
        ),
    )
    pairs = np.stack([source, backward])[:, source >= 0].T.ravel()
    return FlowTable(
        ts_ns=part.ts_ns[pairs] + base_time_ns,
        id=sequence[pairs],
        lane=lane[pairs].astype(np.int32),
        phase=np.tile(np.array([0, 2], dtype=np.int8), len(pairs) // 2),
        category=np.full(len(pairs), state.names.code("fwdbwd"), dtype=np.int32),
        event=pairs + first,
    )
