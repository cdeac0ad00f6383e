"""Adds an execution trace to the recording of the same process."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from htagraph.model.arrays import I64
from htagraph.model.categories import TENSOR_DEPENDENCY
from htagraph.model.events import EventTable, FlowTable, SparseColumn
from htagraph.model.recording import Attachment, Recording
from htagraph.model.symbols import SymbolTable
from htagraph.model.units import human_count
from htagraph.readers.content import first_bytes
from htagraph.readers.execution_trace.correlation import Correlation, correlate, tensor_dependencies
from htagraph.readers.execution_trace.nodes import TEXTS, ExecutionNodes, read_nodes

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
    """A recording with the nodes of its operators, and the tensors passed between threads.

    Parameters
    ----------
    recording : Recording
        Of the same process.

    Returns
    -------
    Recording
        With the sparse columns ``execution_node``, ``tensor_inputs``, ``tensor_outputs`` and those
        of `TEXTS`, and two flow points for each tensor dependency.
    """
    nodes = read_nodes(path)
    events = recording.events
    pairs = correlate(events, nodes)
    writer, reader = tensor_dependencies(events, nodes, pairs)
    n_matched = len(np.unique(pairs.node))
    added = Attachment(
        "execution trace",
        path,
        len(nodes),
        n_matched,
        _detail(events, nodes, pairs, n_matched, len(reader)),
    )
    if len(pairs.event):
        events = _with_flows(_with_nodes(events, nodes, pairs), writer, reader)
    return replace(recording, events=events, attached=(*recording.attached, added))


def _detail(
    events: EventTable, nodes: ExecutionNodes, pairs: Correlation, n_matched: int, n_read: int
) -> str:
    """How nodes were matched, and what was not, in a line."""
    if not pairs.found_by:
        return "nothing matched: neither ids nor the order of names agree; is it of another run?"
    n_without = int((events.column("record_function") > 0).sum()) - len(pairs.event)
    left = {
        f"{human_count(len(nodes) - n_matched, 'node')} not in the trace": len(nodes) - n_matched,
        f"{human_count(n_without, 'operator')} not in the execution trace": n_without,
        f"{human_count(pairs.n_misnamed, 'pair')} of one id, but different names": pairs.n_misnamed,
        f"{human_count(nodes.n_unread, 'node')} unreadable": nodes.n_unread,
    }
    rest = [text for text, n in left.items() if n > 0]
    read = f"{n_read:,} tensor dependencies between threads"
    return "; ".join([f"matched by {pairs.found_by}", *rest, read])


def _with_nodes(events: EventTable, nodes: ExecutionNodes, pairs: Correlation) -> EventTable:
    """Events with the columns of their nodes."""
    codes = {text: code for code, text in enumerate(events.symbols.texts)}
    columns = dict(events.columns)

    def add(name: str, values: npt.NDArray[np.generic]) -> None:
        columns[name] = SparseColumn(pairs.event, values)

    add("execution_node", nodes.id[pairs.node])
    add("tensor_inputs", nodes.n_inputs[pairs.node])
    add("tensor_outputs", nodes.n_outputs[pairs.node])
    for name in TEXTS:
        texts = nodes.texts[name]
        coded = [codes.setdefault(texts[node], len(codes)) for node in pairs.node.tolist()]
        add(name, np.array(coded, dtype=np.int32))
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
