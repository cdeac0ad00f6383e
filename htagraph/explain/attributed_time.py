"""Attributed time: every nanosecond of a critical path is charged to exactly one cause.

A bound names what ran; a cause names what one can change. Most time is charged to what ran. Host
time right after a wait for the device is charged to the wait, for as long as the host was blocked:
without the wait, the host could have run ahead by that much. So a blocking call such as
``aten::item`` is charged with the late launches that it causes.

No nanosecond has two causes, so savings never add up to more than the window.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.explain.attributed import Attributed
from htagraph.explain.long_calls import long_calls
from htagraph.explain.meanwhile import meanwhile
from htagraph.explain.segment_pieces import Pieces
from htagraph.explain.segments import Coded, Segments, coded_texts
from htagraph.explain.topics import TOPICS, find_topics
from htagraph.lookup.attribution import around, host_of, innermost, under, under_pattern
from htagraph.lookup.host_waits import READS, is_matched, long_waits
from htagraph.lookup.naming import gap_places
from htagraph.lookup.phases import runs_in_closure
from htagraph.lookup.plain_traces import is_plain
from htagraph.lookup.python_code import Stretches, code_pieces
from htagraph.lookup.steps import find_steps, step_at
from htagraph.lookup.user_ranges import user_ranges
from htagraph.model.api_calls import ALLOCATION, WAITING_CALLS, CallMeaning, call_meanings
from htagraph.model.dag import Dag
from htagraph.model.frames import ATTRIBUTED_TIME
from htagraph.model.kinds import Bound, Cause, EdgeKind, EventKind
from htagraph.model.rules import Rule

__all__ = ["Charged", "attributed", "attributed_time", "charged"]

I8 = npt.NDArray[np.int8]
I64 = npt.NDArray[np.int64]
Text = npt.NDArray[np.object_]
Mask = npt.NDArray[np.bool_]

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
    Bound.LAUNCH: Cause.HOST,
    Bound.KERNEL_GAP: Cause.DEVICE_GAPS,
    Bound.HOST: Cause.HOST,
    Bound.DATA_LOADING: Cause.DATA_LOADING,
    Bound.PYTHON_GAP: Cause.HOST,
    Bound.SYNC: Cause.DEVICE_GAPS,
    Bound.LAUNCHED_BEFORE_CAPTURE: Cause.LAUNCHED_BEFORE_CAPTURE,
    Bound.UNEXPLAINED: Cause.UNEXPLAINED,
    Bound.DEVICE_FULL: Cause.DEVICE_FULL,
    Bound.WAITING_FOR_WORK: Cause.WAITING_FOR_WORK,
}
_CODE_OF_BOUND = np.array([_CODE[_CAUSE_OF_BOUND[bound]] for bound in Bound], dtype=np.int8)
_HOST_BOUNDS = np.isin(
    [int(bound) for bound in Bound],
    (Bound.HOST, Bound.DATA_LOADING, Bound.PYTHON_GAP, Bound.LAUNCH),
)
_EXEMPT = [
    _CODE[cause]
    for cause in (
        Cause.DATA_LOADING,
        Cause.ALLOCATION,
        Cause.FIRST_USE,
        Cause.UNRECORDED_WAIT,
        *TOPICS,
    )
]
"""Causes that take the same time whether or not the host had waited before."""

_CODE_OF_TOPIC = np.array([_CODE[topic] for topic in TOPICS], dtype=np.int8)
_COMPILING = [
    number
    for number, topic in enumerate(TOPICS)
    if topic in {Cause.AUTOTUNING, Cause.COMPILATION, Cause.RECOMPILATION}
]
_WHILE_COMPILING = [
    _CODE[cause]
    for cause in (
        Cause.COMPUTE,
        Cause.COPIES,
        Cause.BLOCKING_COPY,
        Cause.HOST_WAIT,
        Cause.UNRECORDED_WAIT,
        Cause.FIRST_USE,
    )
]
"""Causes that count as compilation or autotuning while it runs: it runs kernels and loads code."""

_WAITING = [_CODE[cause] for cause in (Cause.HOST_WAIT, Cause.UNRECORDED_WAIT, Cause.BLOCKING_COPY)]
"""Causes whose line of Python code is that of the call that waits."""

_READING = [
    _CODE[cause] for cause in (Cause.HOST, Cause.UNRECORDED_WAIT, Cause.BLOCKING_COPY, Cause.COPIES)
]


@dataclass(frozen=True)
class _Waits:
    """The host wait before each segment, -1 for none, and the time it is charged."""

    call: I64
    attributed_ns: I64


def _named(dag: Dag, event: I64, pattern: re.Pattern[str]) -> Mask:
    """Whether each event is an API call whose name matches; False for -1."""
    matches = dag.events.named(dag.events.symbols.searched(pattern))
    matches = matches & (dag.events.kind == EventKind.RUNTIME)
    return gather(matches, event, False)


def _is_host(dag: Dag, pieces: Pieces) -> Mask:
    """Whether each segment is host time: work, gaps, launches, and returns from waits."""
    on_device = gather(dag.events.is_device, pieces.event, False)
    is_host: Mask = _HOST_BOUNDS[pieces.bound] | ((pieces.bound == Bound.SYNC) & ~on_device)
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


def _attributed_to_waits(dag: Dag, pieces: Pieces, is_host: Mask, exempt: Mask) -> _Waits:
    """Charge host time to the wait right before it."""
    n, start, length = len(is_host), pieces.start_ns, pieces.dur_ns
    continues = np.concatenate([[False], is_host[:-1] & (start[:-1] + length[:-1] == start[1:])])
    begins = is_host & ~continues
    firsts = np.flatnonzero(begins)
    if not len(firsts):
        return _Waits(np.full(n, -1), np.zeros(n, np.int64))
    stretch = np.maximum(np.cumsum(begins) - 1, 0)
    caller = _blocking_calls(dag, pieces.edge[firsts], start[firsts])
    blocked_ns = np.where(caller >= 0, np.maximum(start[firsts] - _waits_since(dag)[caller], 0), 0)
    dur = np.where(is_host & ~exempt, length, 0)
    before = np.cumsum(dur) - dur
    offset = before - before[firsts[stretch]]
    attributed = np.clip(blocked_ns[stretch] - offset, 0, dur)
    return _Waits(caller[stretch], attributed)


def _ends(dag: Dag, kind: EdgeKind) -> Mask:
    """Whether an edge of a kind leads to each event; shape (n_events,)."""
    reached = np.zeros(len(dag.events), dtype=bool)
    reached[dag.edges.head[dag.edges.kind == kind] >> 1] = True
    return reached


def _met_full_queue(dag: Dag, call: I64) -> Mask:
    """Whether each call waited for room in the launch queue only, not for its own work too."""
    met = _ends(dag, EdgeKind.QUEUE) & ~_ends(dag, EdgeKind.SYNC)
    return met[call]


def _own_causes(dag: Dag, pieces: Pieces, is_host: Mask) -> I8:
    """Code of the cause of each segment, by what ran in it."""
    event, events = pieces.event, dag.events
    cause = _CODE_OF_BOUND[pieces.bound]
    cause[is_host & (cause == _CODE[Cause.DEVICE_GAPS])] = _CODE[Cause.HOST]
    runs_call = is_host & (event >= 0) & (events.kind[event] == EventKind.RUNTIME)
    runs_call &= pieces.bound != Bound.LAUNCH
    long = long_calls(dag)
    tail = gather(dag.edges.tail, pieces.edge) >> 1
    call = np.where(pieces.bound == Bound.LAUNCH, tail, event)  # a launch is its call's time
    cause[is_host & gather(long.is_first_use, call, default=False)] = _CODE[Cause.FIRST_USE]
    cause[runs_call & long.is_full_queue[event]] = _CODE[Cause.FULL_QUEUE]
    cause[runs_call & long.is_wait[event]] = _CODE[Cause.HOST_WAIT]
    cause[is_host & _named(dag, event, ALLOCATION)] = _CODE[Cause.ALLOCATION]
    blocking = is_matched(dag)
    unrecorded = (long_waits(dag) & ~blocking)[event]
    cause[runs_call & unrecorded & (pieces.bound == Bound.SYNC)] = _CODE[Cause.UNRECORDED_WAIT]
    copies = np.flatnonzero((cause == _CODE[Cause.COPIES]) & (event >= 0))
    launch = dag.launch[event[copies]]
    cause[copies[(launch >= 0) & blocking[launch]]] = _CODE[Cause.BLOCKING_COPY]
    cause[_reads(dag, event) & np.isin(cause, _READING)] = _CODE[Cause.HOST_WAIT]
    topic = find_topics(dag, event, pieces.start_ns, pieces.topic)
    compiles = np.isin(topic, _COMPILING) & np.isin(cause, _WHILE_COMPILING)
    about = (topic >= 0) & (compiles | (cause == _CODE[Cause.HOST]))
    cause[about] = _CODE_OF_TOPIC[topic[about]]
    return cause if _uses_device(dag) else _without_device(dag, pieces, cause)


def _uses_device(dag: Dag) -> bool:
    """Whether the run used a device, recorded or not. Then host operators only launch work."""
    events = dag.events
    uses = events.is_device | (events.kind == EventKind.RUNTIME)
    uses |= events.is_host & events.named(events.symbols.searched(_ON_DEVICE))
    return bool(uses.any())


def _reads(dag: Dag, event: I64) -> Mask:
    """Whether each event is in an operator that waits for a value from the device (``item``)."""
    events = dag.events
    waits = np.flatnonzero(np.isin(call_meanings(events), WAITING_CALLS))
    reads = events.named(events.symbols.searched(READS)) & around(dag, waits)
    return under(dag, event, reads)


def _without_device(dag: Dag, pieces: Pieces, cause: I8) -> I8:
    """Causes in a run without device: the host does all the work."""
    events, event = dag.events, pieces.event
    rest = cause == _CODE[Cause.HOST]
    computes = events.named(events.symbols.searched(_COMPUTES)) & (events.kind == EventKind.OP)
    kinds = (Cause.SHORT_OPERATORS, Cause.CPU_OPERATORS, Cause.HOST_CODE)
    short, operators, code = (_CODE[member] for member in kinds)
    found = np.where(gather(computes, event, False), operators, code)
    found = np.where(pieces.whole_ns < _SHORT_NS, short, found)
    optimizes = under_pattern(dag, event, _OPTIMIZER)
    optimizes &= ~runs_in_closure(dag, event, pieces.start_ns)
    found[optimizes] = _CODE[Cause.OPTIMIZER]
    if is_plain(events):
        found = np.where(pieces.bound == Bound.PYTHON_GAP, code, operators)
    return np.where(rest, found, cause).astype(np.int8)


def _causes_of_waits(dag: Dag, call: I64) -> I8:
    """Code of the cause that each blocking call is charged with.

    A call that only ends a gap in which its thread waited is a host wait, but of an allocator.
    """
    copies = (call_meanings(dag.events)[call] == CallMeaning.COPY) & ~under_pattern(
        dag, call, READS
    )
    cause = np.where(copies, _CODE[Cause.BLOCKING_COPY], _CODE[Cause.HOST_WAIT]).astype(np.int8)
    cause[_met_full_queue(dag, call)] = _CODE[Cause.FULL_QUEUE]
    says_more = _ends(dag, EdgeKind.SYNC) | _ends(dag, EdgeKind.QUEUE)
    cause[~says_more[call]] = _CODE[Cause.HOST_WAIT]
    cause[_named(dag, call, ALLOCATION)] = _CODE[Cause.ALLOCATION]
    return cause


def _steps(dag: Dag, start_ns: I64) -> Coded:
    """Name of the step at each time, empty for none."""
    steps = find_steps(dag.events)
    names = np.append(steps["name"].to_numpy(object), "")
    return Coded(step_at(steps, start_ns).astype(np.int32), names)  # -1 is the last


def _called_next(dag: Dag, pieces: Pieces, rows: I64) -> I64:
    """Event that starts at the end of each piece, -1 for none."""
    head = gather(dag.edges.head, pieces.edge[rows])
    return np.where((head >= 0) & (head & 1 == 0), head >> 1, -1)


def _places(dag: Dag, pieces: Pieces, cause: I8) -> Coded:
    """Where code ran outside operators, and which kernel waited for room on a full device."""
    full = np.flatnonzero(cause == _CODE[Cause.DEVICE_FULL])
    waiting = _called_next(dag, pieces, full)
    found = np.flatnonzero(waiting >= 0)
    rows = np.flatnonzero(
        (cause == _CODE[Cause.HOST_CODE]) & (pieces.bound == Bound.PYTHON_GAP) & (pieces.line == 0)
    )
    tail, head = (side[pieces.edge[rows]] for side in (dag.edges.tail, dag.edges.head))
    before = "before " + dag.events.names(waiting[found])
    number, texts = pd.factorize(np.concatenate([[""], before, gap_places(dag, tail, head)]))
    places = np.zeros(len(cause), dtype=np.int32)
    places[np.concatenate([full[found], rows])] = number[1:]
    return Coded(places, texts)


def _meanwhile(dag: Dag, pieces: Pieces, cause: I8) -> Coded:
    """What another thread ran while code ran that is not recorded, or that waited."""
    is_code = (cause == _CODE[Cause.HOST_CODE]) | (
        (cause == _CODE[Cause.HOST]) & (pieces.bound == Bound.PYTHON_GAP)
    )
    rows = np.flatnonzero(is_code & (pieces.line == 0) & (pieces.whole_ns >= _SHORT_NS))
    lane = dag.events.lane[gather(dag.edges.head, pieces.edge[rows]) >> 1].astype(np.int64)
    start_ns = pieces.start_ns[rows]
    number, texts = pd.factorize(
        np.append("", meanwhile(dag, lane, start_ns, start_ns + pieces.dur_ns[rows]))
    )
    codes = np.zeros(len(cause), dtype=np.int32)
    codes[rows] = number[1:]
    return Coded(codes, texts)


def _lines(dag: Dag, pieces: Pieces, call: I64) -> Coded:
    """Line of Python code of each piece, then of each further call; that of a call that waits.

    Parameters
    ----------
    call : ndarray of shape (n_pieces + k,), dtype=int64
        Call that waits, -1 for none.
    """
    code = np.zeros(len(call), dtype=np.int32)
    code[: len(pieces.line)] = pieces.line
    waits = np.flatnonzero(call >= 0)
    if not len(waits) or not (dag.events.kind == EventKind.PYTHON).any():
        return Coded(code, pieces.lines)
    calls, which = np.unique(call[waits], return_inverse=True)
    lane, begins = dag.events.lane[calls].astype(np.int64), dag.events.ts_ns[calls]
    outside = np.full(len(calls), -1, dtype=np.int64)  # the line is that of the operator's caller
    line = code_pieces(dag, Stretches(lane, begins, begins + 1, outside), {}).line
    code[waits] = len(pieces.lines) + which
    return Coded(code, np.concatenate([pieces.lines, line]))


def _short_calls(
    dag: Dag, pieces: Pieces, cause: I8, columns: Mapping[str, npt.NDArray[Any]]
) -> dict[str, npt.NDArray[Any]]:
    """Columns that name the code before a short operator after that operator."""
    gaps = np.flatnonzero(
        (cause == _CODE[Cause.SHORT_OPERATORS]) & (pieces.bound == Bound.PYTHON_GAP)
    )
    called = _called_next(dag, pieces, gaps)
    gaps, called = gaps[called >= 0], called[called >= 0]
    named = {name: columns[name].copy() for name in ("name", "op", "event")}
    for name, values in _called(dag, called).items():
        named[name][gaps] = values
    return named


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

    Parameters
    ----------
    segments : DataFrame, schema `frames.SEGMENTS`
        Of one path, or of several parts of paths one after the other.

    Returns
    -------
    DataFrame, schema `frames.ATTRIBUTED_TIME`
        Tiles the segments, in order; a segment charged to a wait in part has two rows.
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
    texts = (Coded(*pd.factorize(segments[name].to_numpy(object))) for name in ("name", "op"))
    return _attributed(dag, coded, *texts).frame()


class Charged(NamedTuple):
    """Parts of segments with their cause, in any order; together as long as the segments.

    Parameters
    ----------
    segment, dur_ns : ndarray of shape (n,), dtype=int64
    cause : ndarray of shape (n,), dtype=int8
        Position in `Cause`.
    """

    segment: I64
    dur_ns: I64
    cause: I8


def charged(dag: Dag, segments: Segments) -> Charged:
    """Attributed time of segments as causes only: names and places take most of the time."""
    if not len(dag.events):
        unknown = np.full(len(segments.edge), _CODE[Cause.UNEXPLAINED], dtype=np.int8)
        return Charged(np.arange(len(segments.edge)), segments.dur_ns, unknown)
    pieces = Pieces.of(segments).cut_at_code(dag)
    cause, waits = _causes(dag, pieces)
    waited = np.flatnonzero(waits.attributed_ns)
    left_ns = pieces.dur_ns - waits.attributed_ns
    left = np.flatnonzero(left_ns)
    return Charged(
        np.concatenate([pieces.segment[left], pieces.segment[waited]]).astype(np.int64),
        np.concatenate([left_ns[left], waits.attributed_ns[waited]]),
        np.concatenate([cause[left], _causes_of_waits(dag, waits.call[waited])]),
    )


def _causes(dag: Dag, pieces: Pieces) -> tuple[I8, _Waits]:
    """Code of the cause of each piece, and the part of it that is charged to a wait instead."""
    is_host = _is_host(dag, pieces)
    cause = _own_causes(dag, pieces, is_host)
    return cause, _attributed_to_waits(dag, pieces, is_host, np.isin(cause, _EXEMPT))


def attributed(dag: Dag, segments: Segments) -> Attributed:
    """Attributed time as codes, from segments as codes."""
    name, op = (coded_texts(dag, segments, column) for column in ("name", "op"))
    return _attributed(dag, segments, name, op)


def _attributed(dag: Dag, segments: Segments, name: Coded, op: Coded) -> Attributed:
    """Attributed time of segments with these names and operators."""
    pieces = Pieces.of(segments)
    if len(dag.events):
        pieces = pieces.cut_at_code(dag)
    symbols = [*dag.events.symbols.array, ""]
    texts = {
        "cause": np.array(_CAUSES, dtype=object),
        # Time charged to a wait is named after a call, which is a symbol: symbols come first.
        "name": np.array([*symbols, *name.texts], dtype=object),
        "op": np.array([*symbols, *op.texts], dtype=object),
        "frame": pieces.lines,
        "ranges": np.array([""], dtype=object),
        "place": np.array([""], dtype=object),
        "meanwhile": np.array([""], dtype=object),
        "step": np.array([""], dtype=object),
    }
    columns: dict[str, npt.NDArray[Any]] = {
        "name": (name.codes + len(symbols))[pieces.segment],
        "op": (op.codes + len(symbols))[pieces.segment],
        "event": pieces.event,
        "start_ns": pieces.start_ns,
        "dur_ns": pieces.dur_ns,
        "segment": pieces.segment,
        "frame": pieces.line,
        "bound": pieces.bound,
    }
    if not len(dag.events):
        n = len(pieces.bound)
        unknown = dict.fromkeys(("place", "meanwhile", "step", "ranges"), 0)
        unknown["cause"] = _CODE[Cause.UNEXPLAINED]
        return Attributed(
            columns | {name: np.full(n, value) for name, value in unknown.items()}, texts
        )
    cause, waits = _causes(dag, pieces)
    places, steps = _places(dag, pieces, cause), _steps(dag, pieces.start_ns)
    others = _meanwhile(dag, pieces, cause)
    waited, left = (
        np.flatnonzero(waits.attributed_ns),
        np.flatnonzero(waits.attributed_ns < pieces.dur_ns),
    )
    call, n = waits.call[waited], len(cause)
    ranges, range_texts = user_ranges(dag, np.concatenate([pieces.event, call]))
    waits_itself = np.where(np.isin(cause, _WAITING), host_of(dag, pieces.event), -1)
    lines = _lines(dag, pieces, np.concatenate([waits_itself, call]))
    texts |= {"place": places.texts, "step": steps.texts, "ranges": range_texts}
    texts |= {"frame": lines.texts, "meanwhile": others.texts}
    columns |= {"cause": cause, "place": places.codes, "step": steps.codes}
    columns |= {"meanwhile": others.codes}
    columns |= {"ranges": ranges[:n], "frame": lines.codes[:n]}
    columns |= _short_calls(dag, pieces, cause, columns)
    by_wait = {
        "cause": _causes_of_waits(dag, call),
        "ranges": ranges[n:],
        "frame": lines.codes[n:],
        "dur_ns": waits.attributed_ns[waited],
        "start_ns": pieces.start_ns[waited],
        **_called(dag, call),
    }
    columns |= {
        "start_ns": pieces.start_ns + waits.attributed_ns,
        "dur_ns": pieces.dur_ns - waits.attributed_ns,
    }
    if not len(waited):
        return Attributed(columns, texts)
    until = np.zeros(len(pieces.dur_ns), dtype=np.int64)
    until[waited] += 1
    until[left] += 1
    np.cumsum(until, out=until)
    is_left = np.zeros(len(waited) + len(left), dtype=bool)
    is_left[until[left] - 1] = True
    joined = {}
    for column in list(columns):
        values = columns.pop(column)  # frees each column early: these are the largest arrays
        joined[column] = np.empty(len(is_left), dtype=values.dtype)
        joined[column][~is_left] = by_wait.get(column, values[waited])
        joined[column][is_left] = values[left]
    return Attributed(joined, texts)
