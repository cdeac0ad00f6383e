"""Adds an execution trace to the recording of the same process.

Its nodes are matched with events, and tensors that pass between threads become flows.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from htagraph.arrays.matching import group_starts, last_before, match_keys
from htagraph.model.arrays import I64
from htagraph.model.events import EventTable, FlowTable, SparseColumn
from htagraph.model.kinds import EventKind, among
from htagraph.model.names import TENSOR_DEPENDENCY
from htagraph.model.recording import Attachment, Recording
from htagraph.model.symbols import SymbolTable
from htagraph.model.units import human_count
from htagraph.readers.beside.execution_nodes import TEXTS, ExecutionNodes, read_nodes
from htagraph.readers.byte_stream import first_bytes

_RANGES = (EventKind.OP, EventKind.ANNOTATION)


def correlate(events: EventTable, nodes: ExecutionNodes) -> tuple[I64, I64, int, str]:
    """Pairs of an event and a node of the same name; how many names differ, and what paired them.

    By the record function id, if the profiler recorded it; else by the external id, which older
    versions took from it; else by order: a thread that ran exactly the names of one other, in the
    same order, is that thread. Ids by which more names differ than agree are of another run.
    """
    ranges = np.flatnonzero(among(events.kind, _RANGES))
    name = np.fromiter(map(events.symbols.code, nodes.name), np.int64, len(nodes))
    for found_by, ids in (
        ("record function id", events.column("record_function")[ranges]),
        ("external id", events.external_id[ranges]),
    ):
        rows = ranges[ids > 0]
        node = match_keys(ids[ids > 0], nodes.record_function)
        rows, node = rows[node >= 0], node[node >= 0]
        agrees = events.name[rows] == name[node]
        n_misnamed = int((~agrees).sum())
        if agrees.sum() > n_misnamed:
            return rows[agrees], node[agrees], n_misnamed, found_by
    event, node = _in_order(events, ranges, nodes.thread, name)
    return event, node, 0, "order of names (inferred)" if len(event) else ""


def _in_order(events: EventTable, ranges: I64, thread: I64, name: I64) -> tuple[I64, I64]:
    """Events and nodes of threads that ran the same names in the same order, as no other did."""
    order = ranges[np.lexsort((-events.dur_ns[ranges], events.ts_ns[ranges], events.lane[ranges]))]
    lanes = _by_names(order, events.lane[order], events.name[order])
    threads = _by_names(np.arange(len(thread)), thread, name)
    same = [
        (lanes[names][0], rows[0])
        for names, rows in threads.items()
        if len(rows) == 1 and len(lanes.get(names, ())) == 1
    ]
    none = np.empty(0, dtype=np.int64)
    event = np.concatenate([none, *(event for event, _ in same)])
    node = np.concatenate([none, *(node for _, node in same)])
    by_event = np.argsort(event)
    return event[by_event], node[by_event]


def _by_names(
    rows: I64, owner: npt.NDArray[np.integer], name: npt.NDArray[np.integer]
) -> dict[bytes, list[I64]]:
    """Rows of each owner, by the names they have in order."""
    found: dict[bytes, list[I64]] = {}
    for one in np.unique(owner).tolist():
        mine = np.flatnonzero(owner == one)
        found.setdefault(name[mine].astype(np.int64).tobytes(), []).append(rows[mine])
    return found


def tensor_dependencies(
    events: EventTable, nodes: ExecutionNodes, paired: I64, paired_node: I64
) -> tuple[I64, I64]:
    """Events that wrote a tensor, and events on other threads that read it, in order of time.

    A tensor is written by the operator that makes its storage, or that mutates it by its schema; a
    view writes nothing. A reader depends on the last write of the storage that ended before it
    began. Left out is what program order implies: on one thread, and earlier reads and writes of
    the two threads.
    """
    event_of = np.full(len(nodes), -1, dtype=np.int64)
    event_of[paired_node] = paired
    event = event_of[nodes.access_node]
    known = event >= 0
    event, storage = event[known], nodes.access_storage[known]
    is_write = nodes.access_is_write[known]
    order = np.lexsort((event[is_write], events.end_ns[event[is_write]], storage[is_write]))
    by, of = event[is_write][order], storage[is_write][order]
    reader, read = event[~is_write], storage[~is_write]
    last = last_before(of, events.end_ns[by], read, events.ts_ns[reader] + 1)
    reader, writer = reader[last >= 0], by[last[last >= 0]]
    other = events.lane[writer] != events.lane[reader]
    return _new(events, writer[other], reader[other])


def _new(events: EventTable, writer: I64, reader: I64) -> tuple[I64, I64]:
    """The pairs that program order does not imply: first readers, and last writers."""
    first = np.lexsort((reader, events.ts_ns[reader], events.lane[reader], writer))
    rows = first[group_starts(writer[first], events.lane[reader[first]])]
    latest = rows[
        np.lexsort(
            (-writer[rows], -events.end_ns[writer[rows]], events.lane[writer[rows]], reader[rows])
        )
    ]
    rows = latest[group_starts(reader[latest], events.lane[writer[latest]])]
    rows = rows[np.lexsort((writer[rows], reader[rows], events.ts_ns[reader[rows]]))]
    return writer[rows], reader[rows]


_HEAD_BYTES = 4096
"""Bytes in which the schema must appear (chosen)."""
_HEAD = re.compile(rb'\s*\{\s*"schema"\s*:\s*"')
_START, _FINISH = 0, 2
"""Phases of a flow."""


def is_execution_trace(path: Path) -> bool:
    """Whether a file is an execution trace, by its first bytes."""
    head = first_bytes(path, _HEAD_BYTES)
    return _HEAD.match(head) is not None and b'"traceEvents"' not in head


def with_execution_trace(recording: Recording, path: Path) -> Recording:
    """A recording with the nodes of its process, and the tensors passed between threads.

    Nodes become sparse columns, tensor dependencies two flow points each.
    """
    nodes = read_nodes(path)
    events = recording.events
    event, node, n_misnamed, found_by = correlate(events, nodes)
    writer, reader = tensor_dependencies(events, nodes, event, node)
    n_matched = len(np.unique(node))
    n_without = int((events.column("record_function") > 0).sum()) - len(event)
    left = {
        f"{human_count(len(nodes) - n_matched, 'node')} not in the trace": len(nodes) - n_matched,
        f"{human_count(n_without, 'operator')} not in the execution trace": n_without,
        f"{human_count(n_misnamed, 'pair')} of one id, but different names": n_misnamed,
        f"{human_count(nodes.n_unread, 'node')} unreadable": nodes.n_unread,
    }
    rest = [text for text, n in left.items() if n > 0]
    read = f"{len(reader):,} tensor dependencies between threads"
    detail = "; ".join([f"matched by {found_by}", *rest, read])
    if not found_by:
        detail = "nothing matched: neither ids nor the order of names agree; is it of another run?"
    added = Attachment("execution trace", path, len(nodes), n_matched, detail)
    if len(event):
        events = _with_flows(_with_nodes(events, nodes, event, node), writer, reader)
    return replace(recording, events=events, attached=(*recording.attached, added))


def _with_nodes(events: EventTable, nodes: ExecutionNodes, event: I64, node: I64) -> EventTable:
    """Events with the columns of their nodes."""
    codes = {text: code for code, text in enumerate(events.symbols.texts)}
    columns = dict(events.columns)

    columns["execution_node"] = SparseColumn(event, nodes.id[node])
    columns["tensor_inputs"] = SparseColumn(event, nodes.n_inputs[node])
    columns["tensor_outputs"] = SparseColumn(event, nodes.n_outputs[node])
    for name in TEXTS:
        texts = nodes.texts[name]
        coded = [codes.setdefault(texts[one], len(codes)) for one in node.tolist()]
        columns[name] = SparseColumn(event, np.array(coded, dtype=np.int32))
    return replace(events, columns=columns, symbols=SymbolTable(tuple(codes)))


def _with_flows(events: EventTable, writer: I64, reader: I64) -> EventTable:
    """Events with a flow from each writer to its reader."""
    if not len(reader):
        return events
    texts, flows, n = events.symbols.texts, events.flows, len(reader)
    category = events.symbols.code(TENSOR_DEPENDENCY)
    if category < 0:
        category, texts = len(texts), (*texts, TENSOR_DEPENDENCY)
    more = np.concatenate([writer, reader])
    return replace(
        events,
        symbols=SymbolTable(texts),
        flows=FlowTable(
            np.concatenate([flows.ts_ns, events.end_ns[writer], events.ts_ns[reader]]),
            np.concatenate([flows.id, np.arange(n), np.arange(n)]),
            np.concatenate([flows.lane, events.lane[more]]),
            np.concatenate([flows.phase, np.repeat([_START, _FINISH], n).astype(np.int8)]),
            np.concatenate([flows.category, np.full(2 * n, category, dtype=np.int32)]),
            np.concatenate([flows.event, more]),
        ),
    )
