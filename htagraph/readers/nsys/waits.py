"""Wait records of an export: which call waited, on which stream, for which event record."""

from __future__ import annotations

import numpy as np

from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import last_before, match_keys
from htagraph.model.api_calls import POLLS, CallMeaning, meaning_of_call
from htagraph.model.arrays import I64
from htagraph.model.kinds import EventKind
from htagraph.readers.nsys.device_work import device_of_context, devices, ids
from htagraph.readers.nsys.export import ABSENT, Export, Process
from htagraph.readers.nsys.table_rows import ReadState, TableRows

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


def waits(export: Export, process: Process, state: ReadState) -> TableRows:
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
    texts = state.names.table()
    name_of_call = np.array(
        [state.names.code(_name_of_call(text)) for text in texts.texts] or [0], dtype=np.int32
    )
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


def _name_of_call(call: str) -> str:
    return _OTHER if POLLS.search(call) else _NAMES.get(meaning_of_call(call), _OTHER)


def _called(calls: TableRows, correlation: I64) -> I64:
    """The call of each record, -1 for none."""
    if not len(calls):
        return np.full(len(correlation), -1, dtype=np.int64)
    found = match_keys(correlation, calls.column("correlation").astype(np.int64))
    return np.where(correlation >= 0, found, -1)


def _devices(export: Export, process: Process, found: dict[str, I64]) -> I64:
    """The device of each record: that of its context, by the work that runs in it."""
    of_context = device_of_context(export, process)
    recorded = devices(found["deviceId"])
    contexts, places = np.unique(found["contextId"], return_inverse=True)
    known = np.array([of_context.get(context, -1) for context in contexts.tolist()], dtype=np.int64)
    by_context = known[places] if len(contexts) else recorded
    return np.where(by_context >= 0, by_context, recorded)


def _event_records(
    export: Export, process: Process, found: dict[str, I64], calls: TableRows, called: I64
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
