"""Attributed time: every nanosecond of a critical path is charged to exactly one cause.

A bound names what ran; a cause names what one can change. Most time is charged to what ran. Host
time right after a wait for the device is charged to the wait, for as long as the host was blocked:
without the wait, the host could have run ahead by that much. So a blocking call such as
``aten::item`` is charged with the late launches that it causes.

No nanosecond has two causes, so savings never add up to more than the window.

API calls may take milliseconds. One-time setup creates a context or loads code: it is the first
call of its sort, and the device may be idle meanwhile. A launch that takes as long while the device
runs earlier work waits for it: for room in the launch queue, or for an unrecorded reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import gather, marked
from htagraph.arrays.intervals import Cover, union
from htagraph.arrays.matching import group_starts
from htagraph.arrays.passes import compiled
from htagraph.compiler.launches import FULL_QUEUE
from htagraph.explain.segment_pieces import Attributed, Pieces, meanwhile
from htagraph.explain.segments import Coded, Segments, coded_texts
from htagraph.explain.topics import TOPICS, find_topics
from htagraph.lookup.attribution import around, gap_places, host_of, innermost, under, under_pattern
from htagraph.lookup.programs import is_plain, user_ranges
from htagraph.lookup.python_code import FIRST_WAIT, WAITS, awaited, code_pieces, user_code
from htagraph.lookup.queues import READS, is_matched, long_waits
from htagraph.lookup.steps import find_steps, step_at
from htagraph.lookup.work_groups import runs_in_closure
from htagraph.model.api_calls import ALLOCATION, OS_CALLS, WAITING_CALLS, CallMeaning, call_meanings
from htagraph.model.arrays import I8, I64, Bools, Rows
from htagraph.model.dag import Dag
from htagraph.model.frames import ATTRIBUTED_TIME
from htagraph.model.kinds import Bound, Cause, EdgeKind, EventKind
from htagraph.model.rules import Rule

_OPTIMIZER = re.compile(
    r"(?i)^Optimizer\.(step|zero_grad)#|^\W*optim(izer)?([. _-](step|zero_grad))?\W*$"
)
_COMPUTES = re.compile(
    r"^(?!autograd::|torch::(autograd|jit)::|c10d::)\w+::|^Torch-Compiled Region|CompiledFxGraph"
    r"|^CompiledFunction(Backward)?$|^(graph_\d+_)?(cpp|triton)_"
)
"""Operators whose self time is computation; in other operators it is Python or C++ code."""

_ON_DEVICE = re.compile(r"^nccl:|cudnn|cublas|miopen")
"""Names of host events that show that a device is in use."""

_SHORT_NS = 20_000
"""Shorter time in or before an operator is call overhead. Chosen: a PyTorch CPU operator takes 1 to
10 us to dispatch. Pinned by tests/explain/test_attributed_time.py."""

_HOST_BLOCKS = (EdgeKind.SYNC, EdgeKind.QUEUE, EdgeKind.HIDDEN_SYNC)
_CAUSES = tuple(Cause)
_CODE = {cause: code for code, cause in enumerate(_CAUSES)}
_CAUSE_OF_BOUND = {
    Bound.COMPUTE: Cause.COMPUTE,
    Bound.COMMUNICATION: Cause.COMMUNICATION,
    Bound.MEMORY: Cause.COPIES,
    Bound.LAUNCH: Cause.CPU_WORK,
    Bound.KERNEL_GAP: Cause.GAPS_BETWEEN_KERNELS,
    Bound.HOST: Cause.CPU_WORK,
    Bound.DATA_LOADING: Cause.DATA_LOADING,
    Bound.UNTRACED_CODE: Cause.CPU_WORK,
    Bound.SYNC: Cause.GAPS_BETWEEN_KERNELS,
    Bound.WORK_FROM_BEFORE_THE_PROFILE: Cause.WORK_FROM_BEFORE_THE_PROFILE,
    Bound.UNKNOWN_WAITS: Cause.UNKNOWN_WAITS,
    Bound.WAITING_FOR_SMS: Cause.WAITING_FOR_SMS,
    Bound.WAITING_FOR_WORK: Cause.WAITING_FOR_WORK,
}
_CODE_OF_BOUND = np.array([_CODE[_CAUSE_OF_BOUND[bound]] for bound in Bound], dtype=np.int8)
_HOST_BOUNDS = np.isin(
    [int(bound) for bound in Bound],
    (Bound.HOST, Bound.DATA_LOADING, Bound.UNTRACED_CODE, Bound.LAUNCH),
)
_EXEMPT = [
    _CODE[cause]
    for cause in (
        Cause.DATA_LOADING,
        Cause.ALLOCATION,
        Cause.ONE_TIME_SETUP,
        Cause.UNRECORDED_WAIT,
        *TOPICS,
    )
]
"""Causes that take the same time whether or not the host had waited before."""

_CODE_OF_TOPIC = np.array([_CODE[topic] for topic in TOPICS], dtype=np.int8)
_TAKE_ALL = [
    TOPICS.index(topic)
    for topic in (
        Cause.AUTOTUNING,
        Cause.COMPILATION,
        Cause.RECOMPILATION,
        Cause.ANOMALY_DETECTION,
    )
]
_WHILE_COMPILING = [
    _CODE[cause]
    for cause in (
        Cause.COMPUTE,
        Cause.COPIES,
        Cause.SYNCHRONOUS_COPIES,
        Cause.GPU_SYNCHRONIZATION,
        Cause.UNRECORDED_WAIT,
        Cause.ONE_TIME_SETUP,
    )
]
"""Causes that count as such a topic while it runs: it runs kernels, loads code, or reads values."""
_COMPUTED_AGAIN = [_CODE[Cause.COMPUTE], _CODE[Cause.COPIES]]

_WAITING = [
    _CODE[cause]
    for cause in (Cause.GPU_SYNCHRONIZATION, Cause.UNRECORDED_WAIT, Cause.SYNCHRONOUS_COPIES)
]
"""Causes whose line of Python code is that of the call that waits."""

_READING = [
    _CODE[cause]
    for cause in (Cause.CPU_WORK, Cause.UNRECORDED_WAIT, Cause.SYNCHRONOUS_COPIES, Cause.COPIES)
]


class _Waits(NamedTuple):
    """Pieces charged to the synchronization before them: their rows, its call, and how long."""

    row: I64
    call: I64
    dur_ns: I64


def _named(dag: Dag, event: Rows, pattern: re.Pattern[str]) -> Bools:
    """Whether each event is an API call whose name matches; False for -1."""
    matches = dag.events.searched(pattern)
    matches = matches & (dag.events.kind == EventKind.RUNTIME)
    return gather(matches, event, False)


def _is_host(dag: Dag, pieces: Pieces) -> Bools:
    """Whether each segment is host time: work, gaps, launches, and returns from waits."""
    on_device = gather(dag.events.is_device, pieces.event, False)
    is_host: Bools = _HOST_BOUNDS[pieces.bound] | ((pieces.bound == Bound.SYNC) & ~on_device)
    return is_host


def _blocking_calls(dag: Dag, edge: I64, since_ns: I64) -> I64:
    """Host call that waited for the device until each edge begins, -1 for none.

    Edges of zero duration may lie between: the call returns, and the operator around it ends.
    """
    edges, times = dag.edges, dag.events.node_ts_ns
    call = np.full(len(edge), -1, dtype=np.int64)
    current = edge.copy()
    going = np.arange(len(edge))
    while True:
        going = going[current[going] >= 0]
        at = current[going]
        cut = edges.ran_until[at]
        begins = np.where(cut, times[edges.head[at]], times[edges.tail[at]])
        going = going[begins == since_ns[going]]
        if not len(going):
            return call
        head = edges.head[current[going]] >> 1
        blocks = np.isin(edges.kind[current[going]], _HOST_BLOCKS) & dag.events.is_host[head]
        call[going[blocks]] = head[blocks]
        going = going[~blocks]
        current[going] = dag.binding[edges.tail[current[going]]]


def _waits_since(dag: Dag) -> I64:
    """When each event started to wait, if it did: its start, or that of the gap before it."""
    edges = dag.edges
    hidden = edges.head[edges.kind == EdgeKind.HIDDEN_SYNC]
    gaps = np.flatnonzero((edges.rule == Rule.BLOCKING_CALL) & np.isin(edges.head, hidden))
    since_ns = dag.events.ts_ns.copy()
    since_ns[edges.head[gaps] >> 1] = dag.events.node_ts_ns[edges.tail[gaps]]
    return since_ns


def _attributed_to_waits(dag: Dag, pieces: Pieces, is_host: Bools, exempt: Bools) -> _Waits:
    """Charge host time to the wait right before it."""
    starts, lengths = pieces.start_ns, pieces.dur_ns
    begins = is_host.copy()
    begins[1:] &= ~is_host[:-1] | (starts[:-1] + lengths[:-1] != starts[1:])
    first = np.flatnonzero(begins)
    caller = _blocking_calls(dag, pieces.edge[first].astype(np.int64), starts[first])
    first, caller = first[caller >= 0], caller[caller >= 0]
    blocked_ns = starts[first] - _waits_since(dag)[caller]
    columns = begins, is_host & ~exempt, lengths
    nothing = np.empty((3, 0), dtype=np.int64)
    n_charged = _charge(first, blocked_ns, columns, nothing)
    found = np.empty((3, n_charged), dtype=np.int64)
    _charge(first, blocked_ns, columns, found)
    row, stretch, dur_ns = found
    return _Waits(row, caller[stretch], dur_ns)


@compiled
def _charge(first: I64, blocked_ns: I64, pieces: tuple[Bools, Bools, I64], out: I64) -> int:
    """Fill in pieces that are charged, with the stretch and the time of each; return their number.

    A stretch of host time begins at `first`. Of the pieces: whether a stretch begins, whether they
    can be charged, and how long they are. Without room in `out`, they are only counted.
    """
    begins, is_charged, dur_ns = pieces
    n = 0
    for stretch in range(len(first)):
        left_ns = blocked_ns[stretch]
        piece = first[stretch]
        while left_ns > 0 and piece < len(begins):
            if begins[piece] and piece > first[stretch]:
                left_ns = 0
            elif is_charged[piece]:
                if n < out.shape[1]:
                    out[0, n] = piece
                    out[1, n] = stretch
                    out[2, n] = min(left_ns, dur_ns[piece])
                left_ns -= dur_ns[piece]
                n += 1
            piece += 1
    return n


def _ends(dag: Dag, kind: EdgeKind) -> Bools:
    """Whether an edge of a kind leads to each event; shape (n_events,)."""
    return marked(dag.edges.head[dag.edges.kind == kind] >> 1, len(dag.events))


def _own_causes(dag: Dag, pieces: Pieces, is_host: Bools) -> I8:
    """Code of the cause of each segment, by what ran in it."""
    event, events = pieces.event, dag.events
    cause = _CODE_OF_BOUND[pieces.bound]
    cause[is_host & (cause == _CODE[Cause.GAPS_BETWEEN_KERNELS])] = _CODE[Cause.CPU_WORK]
    runs_call = is_host & (gather(events.kind, event) == EventKind.RUNTIME)
    runs_call &= pieces.bound != Bound.LAUNCH
    is_setup, is_full_queue, is_wait = long_calls(dag)
    tail = gather(dag.edges.tail, pieces.edge) >> 1
    call = np.where(pieces.bound == Bound.LAUNCH, tail, event)  # a launch is its call's time
    cause[is_host & gather(is_setup, call, default=False)] = _CODE[Cause.ONE_TIME_SETUP]
    cause[runs_call & gather(is_full_queue, event, default=False)] = _CODE[Cause.FULL_QUEUE]
    cause[runs_call & gather(is_wait, event, default=False)] = _CODE[Cause.GPU_SYNCHRONIZATION]
    cause[is_host & _named(dag, event, ALLOCATION)] = _CODE[Cause.ALLOCATION]
    blocking = is_matched(dag)
    unrecorded = gather(long_waits(dag) & ~blocking, event, default=False)
    cause[runs_call & unrecorded & (pieces.bound == Bound.SYNC)] = _CODE[Cause.UNRECORDED_WAIT]
    copies = np.flatnonzero((cause == _CODE[Cause.COPIES]) & (event >= 0))
    launch = dag.launch[event[copies]]
    cause[copies[(launch >= 0) & blocking[launch]]] = _CODE[Cause.SYNCHRONOUS_COPIES]
    cause[_reads(dag, event) & np.isin(cause, _READING)] = _CODE[Cause.GPU_SYNCHRONIZATION]
    topic = find_topics(dag, event, pieces.start_ns, pieces.topic)
    takes = np.isin(topic, _TAKE_ALL) & np.isin(cause, _WHILE_COMPILING)
    takes |= (topic == TOPICS.index(Cause.RECOMPUTATION)) & np.isin(cause, _COMPUTED_AGAIN)
    about = (topic >= 0) & (takes | (cause == _CODE[Cause.CPU_WORK]))
    cause[about] = _CODE_OF_TOPIC[topic[about]]
    return cause if _uses_device(dag) else _without_device(dag, pieces, cause)


def _uses_device(dag: Dag) -> bool:
    """Whether the run used a device, recorded or not. Then host operators only launch work."""
    events = dag.events
    uses = events.is_device | (events.kind == EventKind.RUNTIME)
    uses |= events.is_host & events.searched(_ON_DEVICE)
    return bool(uses.any())


def _reads(dag: Dag, event: Rows) -> Bools:
    """Whether each event is in an operator that waits for a value from the device (``item``)."""
    events = dag.events
    waits = np.flatnonzero(np.isin(call_meanings(events), WAITING_CALLS))
    reads = events.searched(READS) & around(dag, waits)
    return under(dag, event, reads)


def _without_device(dag: Dag, pieces: Pieces, cause: I8) -> I8:
    """Causes in a run without device: the host does all the work."""
    events, event = dag.events, pieces.event
    rest = cause == _CODE[Cause.CPU_WORK]
    computes = events.searched(_COMPUTES) & (events.kind == EventKind.OP)
    kinds = (Cause.SMALL_OPERATORS, Cause.CPU_OPERATORS, Cause.HOST_CODE)
    short, operators, code = (_CODE[member] for member in kinds)
    computing = gather(computes, event, False) & (pieces.line == 0)  # a frame inside is code
    found = np.where(computing, operators, code)
    found = np.where(pieces.whole_ns < _SHORT_NS, short, found)
    optimizes = under_pattern(dag, event, _OPTIMIZER)
    optimizes &= ~runs_in_closure(dag, event, pieces.start_ns)
    found[optimizes] = _CODE[Cause.OPTIMIZER]
    if is_plain(events):
        found = np.where(pieces.bound == Bound.UNTRACED_CODE, code, operators)
    return np.where(rest, found, cause).astype(np.int8)


def _causes_of_waits(dag: Dag, call: I64) -> I8:
    """Code of the cause that each blocking call is charged with.

    A call that only ends a gap in which its thread waited synchronizes, but for an allocator's.
    """
    copies = (call_meanings(dag.events)[call] == CallMeaning.COPY) & ~under_pattern(
        dag, call, READS
    )
    cause = np.where(
        copies, _CODE[Cause.SYNCHRONOUS_COPIES], _CODE[Cause.GPU_SYNCHRONIZATION]
    ).astype(np.int8)
    is_queued, is_synced = _ends(dag, EdgeKind.QUEUE)[call], _ends(dag, EdgeKind.SYNC)[call]
    cause[is_queued & ~is_synced] = _CODE[Cause.FULL_QUEUE]
    cause[~(is_queued | is_synced)] = _CODE[Cause.GPU_SYNCHRONIZATION]
    cause[_named(dag, call, ALLOCATION)] = _CODE[Cause.ALLOCATION]
    return cause


def _steps(dag: Dag, start_ns: I64) -> Coded:
    """Name of the step at each time, empty for none."""
    steps = find_steps(dag.events)
    row = step_at(steps, start_ns).astype(np.int32)
    row[row < 0] = len(steps)
    return Coded(row, np.append(steps["name"].to_numpy(object), ""))


def _called_next(dag: Dag, pieces: Pieces, rows: I64) -> I64:
    """Event that starts at the end of each piece, -1 for none."""
    head = gather(dag.edges.head, pieces.edge[rows])
    return np.where((head >= 0) & (head & 1 == 0), head >> 1, -1)


def _places(dag: Dag, pieces: Pieces, cause: I8) -> Coded:
    """Where code ran outside operators, what it waits for, which kernel waited for free SMs."""
    full = np.flatnonzero(cause == _CODE[Cause.WAITING_FOR_SMS])
    waiting = _called_next(dag, pieces, full)
    found = np.flatnonzero(waiting >= 0)
    rows = np.flatnonzero(
        (cause == _CODE[Cause.HOST_CODE])
        & (pieces.bound == Bound.UNTRACED_CODE)
        & (pieces.line == 0)
    )
    tail, head = (side[pieces.edge[rows]] for side in (dag.edges.tail, dag.edges.head))
    before = "before " + dag.events.names(waiting[found])
    waits = np.flatnonzero(cause == _CODE[Cause.PYTHON_WAITS])
    does = np.array([*WAITS], dtype=object)[pieces.topic[waits] - FIRST_WAIT]
    said = np.concatenate([[""], before, gap_places(dag, tail, head), does])
    number, texts = pd.factorize(said)
    places = np.zeros(len(cause), dtype=np.int32)
    places[np.concatenate([full[found], rows, waits])] = number[1:]
    return Coded(places, texts)


def _meanwhile(dag: Dag, pieces: Pieces, cause: I8) -> Coded:
    """What another thread ran while code ran that is not recorded, or that waited: a function."""
    is_code = (cause == _CODE[Cause.HOST_CODE]) | (
        (cause == _CODE[Cause.CPU_WORK]) & (pieces.bound == Bound.UNTRACED_CODE)
    )
    rows = np.flatnonzero(is_code & (pieces.line == 0) & (pieces.whole_ns >= _SHORT_NS))
    lane = dag.events.lane[gather(dag.edges.head, pieces.edge[rows]) >> 1].astype(np.int64)
    start_ns = pieces.start_ns[rows]
    ran = meanwhile(dag, lane, start_ns, start_ns + pieces.dur_ns[rows])
    waits = np.flatnonzero(cause == _CODE[Cause.PYTHON_WAITS])
    lane = dag.events.lane[gather(dag.edges.head, pieces.edge[waits]) >> 1].astype(np.int64)
    start_ns = pieces.start_ns[waits]
    each = lane, start_ns, start_ns + pieces.dur_ns[waits]
    kind = pieces.line[waits].astype(np.int64) * len(WAITS) + pieces.topic[waits] - FIRST_WAIT
    _, group = np.unique(kind, return_inverse=True)
    number, texts = pd.factorize(
        np.concatenate([[""], ran, awaited(dag, user_code(dag)[0], each, group)[group]])
    )
    codes = np.zeros(len(cause), dtype=np.int32)
    codes[np.concatenate([rows, waits])] = number[1:]
    return Coded(codes, texts)


def _lines(dag: Dag, pieces: Pieces, cause: I8, call: I64) -> tuple[Coded, I64]:
    """Line of Python code of each piece, that of the call for a wait; code of that of each call."""
    if not (dag.events.kind == EventKind.PYTHON).any():
        return Coded(pieces.line, pieces.lines), np.zeros(len(call), dtype=np.int64)
    waits = np.flatnonzero(np.isin(cause, _WAITING))
    itself = host_of(dag, pieces.event[waits])
    waits, itself = waits[itself >= 0], itself[itself >= 0]
    if not len(waits) + len(call):
        return Coded(pieces.line, pieces.lines), call
    calls, which = np.unique(np.concatenate([itself, call]), return_inverse=True)
    lane, begins = dag.events.lane[calls].astype(np.int64), dag.events.ts_ns[calls]
    outside = np.full(len(calls), -1, dtype=np.int64)  # the line is that of the operator's caller
    line = code_pieces(dag, (lane, begins, begins + 1, outside), {}).line
    code, which = pieces.line.copy(), which + len(pieces.lines)
    code[waits] = which[: len(waits)]
    return Coded(code, np.concatenate([pieces.lines, line])), which[len(waits) :]


def _called(dag: Dag, event: I64) -> dict[str, npt.NDArray[Any]]:
    """Name and operator of events as symbol codes, and the events."""
    op = innermost(dag, event, (EventKind.OP, EventKind.ANNOTATION))
    return {
        "name": dag.events.name[event],
        "op": gather(dag.events.name, op, len(dag.events.symbols)),
        "event": event,
    }


def attributed_time(dag: Dag, segments: pd.DataFrame) -> pd.DataFrame:
    """Segments of a critical path, each part charged to exactly one cause.

    `segments`: of one path, or of several parts of paths one after the other. Tiles the segments,
    in order; a segment charged to a wait in part has two rows.
    """
    if not len(segments):
        return ATTRIBUTED_TIME.empty()
    coded = Segments(
        segments["start_ns"].to_numpy(np.int64),
        segments["dur_ns"].to_numpy(np.int64),
        segments["bound"].cat.codes.to_numpy().astype(np.int8),
        segments["event"].to_numpy(np.int32),
        segments["edge"].to_numpy(np.int32),
    )
    symbols = [*dag.events.symbols.array, ""]

    def texts_of(column: str) -> Coded:
        codes, texts = pd.factorize(segments[column].to_numpy(object))
        return Coded(codes + len(symbols), np.array([*symbols, *texts], dtype=object))

    return _attributed(dag, coded, texts_of).frame()


def charged(dag: Dag, segments: Segments) -> tuple[I64, I64, I8]:
    """Attributed time of segments as causes only: names and places take most of the time.

    Parts of segments, in any order, together as long as they: the segment, the time, and the
    position in `Cause`.
    """
    if not len(dag.events):
        unknown = np.full(len(segments.edge), _CODE[Cause.UNKNOWN_WAITS], dtype=np.int8)
        return np.arange(len(segments.edge)), segments.dur_ns, unknown
    pieces = Pieces.of(segments).cut_at_code(dag)
    cause, waits = _causes(dag, pieces)
    left_ns = pieces.dur_ns.copy()
    left_ns[waits.row] -= waits.dur_ns
    left = np.flatnonzero(left_ns)
    return (
        np.concatenate([pieces.segment[left], pieces.segment[waits.row]]).astype(np.int64),
        np.concatenate([left_ns[left], waits.dur_ns]),
        np.concatenate([cause[left], _causes_of_waits(dag, waits.call)]),
    )


def _causes(dag: Dag, pieces: Pieces) -> tuple[I8, _Waits]:
    """Code of the cause of each piece, and the part of it that is charged to a wait instead."""
    is_host = _is_host(dag, pieces)
    cause = _own_causes(dag, pieces, is_host)
    return cause, _attributed_to_waits(dag, pieces, is_host, np.isin(cause, _EXEMPT))


def attributed(dag: Dag, segments: Segments) -> Attributed:
    """Attributed time as codes, from segments as codes."""
    return _attributed(dag, segments, partial(coded_texts, dag, segments))


def _attributed(dag: Dag, segments: Segments, texts_of: Callable[[str], Coded]) -> Attributed:
    """Attributed time of segments, given their names and operators.

    Texts begin with the symbols of the trace, and "": time charged to a wait is named after a call.
    Columns are finished one by one, as they are the largest arrays.
    """
    pieces = Pieces.of(segments)
    if not len(dag.events):
        return _unexplained(pieces, texts_of)
    pieces = pieces.cut_at_code(dag)
    cause, waits = _causes(dag, pieces)
    # A piece that is charged in part has two rows: the first is charged.
    parted = np.flatnonzero(waits.dur_ns < pieces.dur_ns[waits.row])
    rows = waits.row[parted]
    first = waits.row + np.searchsorted(rows, waits.row)
    rest, charged_ns = first[parted] + 1, waits.dur_ns[parted]

    def joined(
        values: npt.NDArray[Any], of_waits: npt.NDArray[Any] | None = None
    ) -> npt.NDArray[Any]:
        if not len(first):
            return values
        out = np.insert(values, rows, 0)
        out[first] = values[waits.row] if of_waits is None else of_waits
        return out

    gaps = np.flatnonzero(
        (cause == _CODE[Cause.SMALL_OPERATORS]) & (pieces.bound == Bound.UNTRACED_CODE)
    )
    after = _called_next(dag, pieces, gaps)
    # Code before a short operator is named after it.
    short, called = gaps[after >= 0], _called(dag, after[after >= 0])
    by_wait = _called(dag, waits.call)

    def renamed(name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if len(short):
            values = values.copy()
            values[short] = called[name]
        return joined(values, by_wait[name])

    codes: dict[str, Coded] = {}
    for name in ("name", "op"):
        found = texts_of(name)
        values = renamed(name, pieces.of_segments(found.codes))
        codes[name] = Coded(values, found.texts).narrow
    for name, of_pieces in (("place", _places), ("meanwhile", _meanwhile)):
        found = of_pieces(dag, pieces, cause)
        codes[name] = Coded(joined(found.codes), found.texts).narrow
    found = _steps(dag, pieces.start_ns)
    codes["step"] = Coded(joined(found.codes), found.texts).narrow
    ranges, texts = user_ranges(dag, np.concatenate([pieces.event, waits.call.astype(np.int32)]))
    codes["ranges"] = Coded(joined(ranges[: len(cause)], ranges[len(cause) :]), texts).narrow
    lines, of_calls = _lines(dag, pieces, cause, waits.call)
    codes["frame"] = Coded(joined(lines.codes, of_calls), lines.texts).narrow
    is_from = _causes_of_waits(dag, waits.call)
    codes["cause"] = Coded(joined(cause, is_from), np.array(_CAUSES, dtype=object))
    columns = {
        "event": renamed("event", pieces.event),
        "segment": joined(pieces.segment),
        "bound": joined(pieces.bound),
        "start_ns": joined(pieces.start_ns),
        "dur_ns": joined(pieces.dur_ns, waits.dur_ns),
    }
    if len(rest):
        columns["start_ns"][rest] += charged_ns
        columns["dur_ns"][rest] -= charged_ns
    return Attributed(columns, codes)


def _unexplained(pieces: Pieces, texts_of: Callable[[str], Coded]) -> Attributed:
    """Attributed time in a trace without events."""
    none = Coded(np.zeros(len(pieces.bound), dtype=np.int8), np.array([""], dtype=object))
    codes = dict.fromkeys(("place", "meanwhile", "step", "ranges", "frame"), none)
    codes["cause"] = Coded(none.codes, np.array([Cause.UNKNOWN_WAITS], dtype=object))
    codes |= {name: texts_of(name).narrow for name in ("name", "op")}
    columns = ("event", "segment", "bound", "start_ns", "dur_ns")
    return Attributed({name: getattr(pieces, name) for name in columns}, codes)


_LONG_NS = 5_000_000
"""Shorter calls are not examined. Chosen: loading a CUDA module takes tens of ms, a launch 5 us.
Pinned by tests/explain/test_attributed_time.py."""

_BUSY_SHARE = 0.9
"""Least share of a call in which the device runs if the device blocks the call. Chosen below 1, as
gaps between kernels remain. Pinned by tests/explain/test_attributed_time.py."""

_SETUP_FACTOR = 2
"""A first call is one-time setup if it takes longer than this many times the median of later ones.
Pinned by tests/explain/test_attributed_time.py."""

_LOADS = re.compile(r"^(cuda|hip|cu)(Module|Library|Kernel|Func|GetFunc)(Load|Get|Set|By)")
"""Calls that may load different code each time."""

_NEVER = np.iinfo(np.int64).max


def long_calls(dag: Dag) -> tuple[Bools, Bools, Bools]:
    """Long API calls: one-time setup, launches into a full queue, and launches that waited.

    At most one is true for a call; none if the reason is unknown. Each of shape (n_events,).
    """
    events = dag.events
    is_long = (events.kind == EventKind.RUNTIME) & (events.dur_ns > _LONG_NS)
    is_long &= events.category != events.symbols.code(OS_CALLS)
    calls = np.flatnonzero(is_long & ~np.isin(call_meanings(events), WAITING_CALLS))
    if not len(calls):
        none = np.zeros(len(events), dtype=bool)
        return none, none, none
    first_work = _first_work(dag)
    begins = events.ts_ns[calls]
    # Once its own work has started, a call no longer waits to enqueue it.
    own = gather(events.ts_ns, first_work[calls], _NEVER)
    until = np.maximum(np.minimum(events.end_ns[calls], own), begins)
    device = np.flatnonzero(events.is_device)
    busy = union(np.zeros(len(device), dtype=np.int64), events.ts_ns[device], events.end_ns[device])
    busy_ns = Cover(busy.start, busy.end).within(begins, until)
    is_held_up = (until > begins) & (busy_ns >= _BUSY_SHARE * (until - begins))
    is_launch = first_work[calls] >= 0
    is_full = _outstanding(dag, begins) >= FULL_QUEUE

    def of_events(found: Bools) -> Bools:
        return marked(calls[found], len(events))

    return (
        of_events(~is_held_up & _is_first(dag, calls, first_work)),
        of_events(is_held_up & is_launch & is_full),
        of_events(is_held_up & is_launch & ~is_full),
    )


def _first_work(dag: Dag) -> I64:
    """First device work of each launch, -1 elsewhere; shape (n_events,)."""
    out = np.full(len(dag.events), -1, dtype=np.int64)
    work = np.flatnonzero(dag.launch >= 0)
    latest_first = work[np.argsort(dag.events.ts_ns[work], kind="stable")][::-1]
    out[dag.launch[latest_first]] = latest_first
    return out


def _outstanding(dag: Dag, time_ns: I64) -> I64:
    """Number of kernels enqueued before each time, or before the profile, and not yet started."""
    events = dag.events
    work = np.flatnonzero(events.is_device)
    enqueued = np.sort(gather(events.ts_ns, dag.launch[work], np.iinfo(np.int64).min))
    begun = np.sort(events.ts_ns[work])
    return np.searchsorted(enqueued, time_ns) - np.searchsorted(begun, time_ns, side="right")


def _is_first(dag: Dag, calls: I64, first_work: I64) -> Bools:
    """Whether each call is the first of its sort, or may load different code each time.

    Launches are of one sort if their first kernels have the same name; other calls, if they and the
    operators around them have the same names. A first call about as long as later ones is no
    one-time setup: whatever made it long happens again.
    """
    events = dag.events
    alike = np.flatnonzero(
        (events.kind == EventKind.RUNTIME) & np.isin(events.name, np.unique(events.name[calls]))
    )
    work = gather(events.name, first_work[alike])
    other = np.where(work >= 0, -1, alike)
    op = gather(events.name, innermost(dag, other, (EventKind.OP, EventKind.ANNOTATION)))
    sort = (op, gather(events.name, other), work)
    in_time = np.lexsort((events.ts_ns[alike], *sort))
    begins = np.flatnonzero(group_starts(*(key[in_time] for key in sort)))
    first = alike[in_time[begins]]
    later_ns = events.dur_ns[alike].copy()
    later_ns[in_time[begins]] = -1
    by_length = np.lexsort((later_ns, *sort))
    n = np.diff(np.append(begins, len(alike)))
    usual_ns = later_ns[by_length[begins + n // 2]]
    is_first = np.zeros(len(events), dtype=bool)
    is_first[first] = events.dur_ns[first] > _SETUP_FACTOR * usual_ns
    loads = events.searched(_LOADS)
    return is_first[calls] | loads[calls]
