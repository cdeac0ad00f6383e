"""NVTX ranges of an export: operators where PyTorch's ``emit_nvtx`` wrote them."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import last_before
from htagraph.model.arrays import I64
from htagraph.model.autograd import AUTOGRAD_FUNCTION
from htagraph.model.events import FlowTable
from htagraph.model.kinds import EventKind
from htagraph.readers.nsys.export import ABSENT, NUMBERED_TEXTS, Export, Process
from htagraph.readers.nsys.numbered_names import enumeration
from htagraph.readers.nsys.table_rows import ReadState, TableRows

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


class _RangeTexts(NamedTuple):
    """What the texts of ranges hold; numbers are -1 where absent.

    Parameters
    ----------
    name : ndarray of shape (n,), dtype=int64
        Positions in `names`.
    """

    name: I64
    names: list[str]
    sequence: I64
    op_id: I64


def ranges(export: Export, process: Process, state: ReadState) -> TableRows:
    """NVTX ranges and marks of threads.

    Operators are ranges that PyTorch wrote (``torch.autograd.profiler.emit_nvtx``) with a sequence
    number, or with the name of an operator; NCCL's ranges are its API calls. Ranges that end on
    another thread are kept, outside the program order of either thread.
    """
    where = export.of_process(RANGES, process)
    wanted = ("start", "end", "eventType", "globalTid", "endGlobalTid")
    found = export.integers(RANGES, wanted, where)
    texts = _texts(export, where)
    sequence, op_id = texts.sequence, texts.op_id
    type_names = enumeration(export, "ENUM_NSYS_EVENT_TYPE", _TYPES, "name")
    is_mark, is_range = (
        np.isin(found["eventType"], [key for key, name in type_names.items() if kind.search(name)])
        for kind in (_MARK, _RANGE)
    )
    codes = [state.names.code(text) for text in texts.names]
    name = np.array(codes, dtype=np.int32)[texts.name]
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
    for number, text in categories.items():
        category_of[number] = state.names.code(text)
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


def _texts(export: Export, where: str) -> _RangeTexts:
    """The texts of all rows, in table order.

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
    return _RangeTexts(name, list(codes), sequence, op_id)


def backward_flows(part: TableRows, first: int, base_time_ns: int, state: ReadState) -> FlowTable:
    """Flows from forward operators to the autograd functions with their sequence numbers.

    Sequence numbers count per thread, and the export does not record the thread of a function's. So
    a flow is made only if all operators with the number are on one thread. As in the PyTorch
    profiler, it starts at the last of them: the one that made the function.

    Parameters
    ----------
    part : TableRows
        Ranges, with sound times.
    first : int
        Event number of the first of them.
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
