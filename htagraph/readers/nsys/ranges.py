"""NVTX ranges of an export: operators of PyTorch where its own profiler's hooks wrote them."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import last_before
from htagraph.model.autograd import AUTOGRAD_FUNCTION
from htagraph.model.events import FlowTable
from htagraph.model.kinds import EventKind
from htagraph.readers.nsys.export import ABSENT, Export, Process
from htagraph.readers.nsys.names import enumeration
from htagraph.readers.nsys.parts import Part, Reading

__all__ = ["RANGES", "backward_flows", "ranges"]

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

RANGES = "NVTX_EVENTS"

_TYPES = {34: "NvtxMark", 59: "NvtxPushPopRange", 60: "NvtxStartEndRange",
          70: "NvtxtPushPopRange", 71: "NvtxtStartEndRange"}  # fmt: skip
_MARK = re.compile(r"^Nvtxt?Mark$")
_RANGE = re.compile(r"^Nvtxt?(PushPop|StartEnd)Range$")

_OPERATOR = re.compile(r"^(autograd::engine::evaluate_function: )?[\w.]*::[\w.:]+$")
"""Operators of a namespace (``aten::mm``), and what the autograd engine evaluates."""

_BATCH = 1 << 14

_PARTS_OF_TEXT = """
WITH marks AS (
    SELECT t.rowid AS row, {text} AS text FROM NVTX_EVENTS AS t WHERE {where}
), places AS (
    SELECT row, text,
        CASE WHEN text GLOB '*, seq = [0-9]*' THEN instr(text, ', seq = ') ELSE 0 END AS seq,
        CASE WHEN text GLOB '*, op_id = [0-9]*' THEN instr(text, ', op_id = ') ELSE 0 END AS op,
        CASE WHEN text GLOB '*, sizes = [[]*' THEN instr(text, ', sizes = ') ELSE 0 END AS sizes
    FROM marks
)
SELECT
    CASE WHEN seq THEN substr(text, 1, seq - 1) WHEN op THEN substr(text, 1, op - 1)
         WHEN sizes THEN substr(text, 1, sizes - 1) ELSE text END,
    CASE WHEN seq THEN CAST(substr(text, seq + 8) AS INTEGER) ELSE -1 END,
    CASE WHEN op THEN CAST(substr(text, op + 10) AS INTEGER) ELSE -1 END
FROM places ORDER BY row
"""
"""PyTorch writes ``aten::mm, seq = 7, op_id = 12, sizes = [[2, 3]]``; each part may be missing."""


def ranges(export: Export, process: Process | None, reading: Reading) -> Part:
    """NVTX ranges and marks of threads.

    Operators are ranges that PyTorch wrote (``torch.autograd.profiler.emit_nvtx``) with a sequence
    number, or with the name of an operator. Ranges that end on another thread are kept, but are no
    part of what either thread does in order.
    """
    where = export.of_process(RANGES, process)
    wanted = ("start", "end", "eventType", "globalTid", "endGlobalTid")
    found = export.integers(RANGES, wanted, where)
    texts, sequence, op_id = _texts(export, where)
    type_names = enumeration(export, "ENUM_NSYS_EVENT_TYPE", _TYPES, "name")
    is_mark, is_range = (
        np.isin(found["eventType"], [key for key, name in type_names.items() if kind.search(name)])
        for kind in (_MARK, _RANGE)
    )
    name = reading.names.of_texts(texts)
    symbols = reading.names.table()
    crosses = (found["endGlobalTid"] != ABSENT) & (found["endGlobalTid"] != found["globalTid"])
    crosses &= is_range & (found["endGlobalTid"] != 0)
    is_op = (sequence >= 0) | ((op_id >= 0) & symbols.searched(_OPERATOR)[name])
    kind = np.where(is_op, EventKind.OP, EventKind.ANNOTATION)
    kind = np.select([is_mark, crosses], [EventKind.INSTANT, EventKind.OTHER], kind)
    categories = {
        EventKind.OP: "cpu_op",
        EventKind.ANNOTATION: "user_annotation",
        EventKind.INSTANT: "nvtx_mark",
        EventKind.OTHER: "nvtx_range_across_threads",
    }
    category_of = np.zeros(len(EventKind), dtype=np.int32)
    for number, text in categories.items():
        category_of[number] = reading.names.code(text)
    keep = is_mark | is_range
    reading.skip("NVTX_EVENTS: no ranges or marks", np.count_nonzero(~keep))
    part = Part(
        found["start"],
        np.where(is_mark & (found["end"] == ABSENT), found["start"], found["end"]),
        kind.astype(np.int8),
        name,
        category_of[kind],
        reading.lanes.threads(found["globalTid"]),
        external_id=op_id,
        sparse={"sequence": np.where(sequence >= 0, sequence, ABSENT)},
    )
    return part.take(keep)


def _texts(export: Export, where: str) -> tuple[list[str], I64, I64]:
    """Names, sequence numbers and operator ids of all rows, in the order of the table."""
    columns = export.columns[RANGES]
    numbered = "(SELECT value FROM StringIds WHERE id = t.textId)"
    text = {
        (True, True): f"ifnull(t.text, {numbered})",
        (True, False): "t.text",
        (False, True): numbered,
        (False, False): "NULL",
    }["text" in columns, "textId" in columns]
    text = f"CAST(ifnull({text}, '(no name)') AS TEXT)"
    cursor = export.connection.execute(_PARTS_OF_TEXT.format(text=text, where=where))
    names: list[str] = []
    numbers = [np.empty((0, 2), dtype=np.int64)]
    while rows := cursor.fetchmany(_BATCH):
        some, sequence, op_id = zip(*rows, strict=True)
        names += some
        numbers.append(np.array([sequence, op_id], dtype=np.int64).T)
    sequence, op_id = np.concatenate(numbers).T
    return names, sequence, op_id


def backward_flows(part: Part, first: int, base_time_ns: int, reading: Reading) -> FlowTable:
    """Flows from forward operators to the autograd functions with their sequence numbers.

    Sequence numbers count per thread, and the export does not say of which thread a function's is.
    A flow is made only where all operators with the number are on one thread. As in the PyTorch
    profiler, it starts at the last of them: the one that made the function.

    Parameters
    ----------
    part : Part
        Ranges, with sound times.
    first : int
        Event of the first of them.
    base_time_ns : int, unit=ns
        Added to every time.
    reading : Reading
    """
    lane, sequence = part.column("lane").astype(np.int64), part.sparse["sequence"]
    rows = np.flatnonzero(sequence != ABSENT)
    rows = rows[np.lexsort((part.ts_ns[rows], sequence[rows]))]
    is_autograd = reading.names.table().searched(AUTOGRAD_FUNCTION)[part.column("name")[rows]]
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
        category=np.full(len(pairs), reading.names.code("fwdbwd"), dtype=np.int32),
        event=pairs + first,
    )
