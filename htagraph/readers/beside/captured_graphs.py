"""Captures of graphs in a trace, and the capture that each replay of a graph is of.

::

    cpu 1 |[BeginCapture] [aten::mm [launch]] [aten::relu [launch]] [EndCapture]

A captured launch runs nothing, so it has no device work of its own; a replay is known by the names
of all its kernels, in order. One program run captures several graphs (a piece for each layer), and
a step replays them in that order. Most pieces have the same kernels, so only the order tells layers
apart: a program is found where as many replays follow each other as it has graphs, and each fits
its own. At the begin and the end of a trace, a step may be recorded in part; it fits if the graph
at its outer end is like no other of the program, so that a shift by one would show.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from htagraph.arrays.codes import gather
from htagraph.arrays.matching import last_before
from htagraph.arrays.nesting import nest
from htagraph.errors import TraceError, TraceFormatError
from htagraph.model.api_calls import CAPTURE_BEGINS, CAPTURE_ENDS, GRAPH_LAUNCH, KERNEL_LAUNCH
from htagraph.model.arrays import I32, I64, Texts
from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind, among
from htagraph.readers.byte_stream import content_of
from htagraph.readers.kineto.reader import read_kineto

COPY, FILL = "Memcpy", "Memset"
"""What copies and fills are called here: their calls name no kernel."""

_COPIES = re.compile(r"^(cuda|hip|cu)Memcpy")
_FILLS = re.compile(r"^(cuda|hip|cu)Memset")
_CAPTURED_BATCH = re.compile(r"^capture_(?P<batch>\d{1,9})(_|$)")
"""Range of vLLM and SGLang around the captures of one batch size: ``capture_8192_PIECEWISE``."""
_DETAILS = "execution_details.json"
"""File in the folder of captures that lists the batch size of each, as TraceLens writes it."""


class CapturedGraphs(NamedTuple):
    """The captures in a file."""

    path: Path
    events: EventTable  # Of the file
    # Of shape (n_events,). Innermost operator around each operator and launch, -1 for none.
    parent: I32
    launch: I64  # Events that launched captured work, by graph, then by time
    graph: I64  # Number of the capture that each belongs to
    name: Texts  # Kernel of each launch, `COPY` or `FILL`
    # Of shape (n_graphs,). The range of one batch size around each capture, -1 for none.
    program: I64
    batch: I64  # Of shape (n_graphs,). The batch size, -1 if unknown.


def captured_graphs(path: Path) -> CapturedGraphs:
    """The captures in a trace."""
    recording = read_kineto(path, stacks=True)
    events = recording.events
    begin, end = _captures(events)
    if not len(begin):
        raise TraceFormatError(
            "this trace has no capture of a graph (cudaStreamBeginCapture … EndCapture).",
            path=path,
            hint="start the profiler before the graph is captured; diff compares two traces.",
        )
    ranges = among(events.kind, (EventKind.OP, EventKind.RUNTIME))
    nested = nest(
        events.lane,
        events.ts_ns,
        events.end_ns,
        is_call=events.kind == EventKind.RUNTIME,
        rows=np.flatnonzero(ranges),
    )
    launch, graph = _launches(events, nested.parent, begin, end)
    args = recording.origin.args if recording.origin else None
    listed = args.decode(launch) if args and len(launch) else [{} for _ in launch]
    named = (one.get("kernel") for one in listed)
    name = np.array([one if isinstance(one, str) else "" for one in named], dtype=object)
    for known, pattern in ((COPY, _COPIES), (FILL, _FILLS)):
        name[events.named(events.symbols.searched(pattern))[launch]] = known
    if not (name != "").all():
        raise TraceFormatError(
            f"{int((name == '').sum()):,} of {len(name):,} captured launches have no kernel name.",
            path=path,
            hint="ROCm's profiler records the names of captured kernels; CUDA's does not, and "
            "without names nothing shows that a capture is the right one.",
        )
    program, batch = batches_at(events, begin, _CAPTURED_BATCH)
    given = _listed_batch(path)
    if given >= 0 and (batch < 0).all():
        batch = np.full(len(begin), given)
    return CapturedGraphs(path, events, nested.parent, launch, graph, name, program, batch)


def _captures(events: EventTable) -> tuple[I64, I64]:
    """Calls that begin and end each capture, in order of time."""
    is_call = events.kind == EventKind.RUNTIME
    begins, ends = (
        is_call & events.named(events.symbols.searched(pattern))
        for pattern in (CAPTURE_BEGINS, CAPTURE_ENDS)
    )
    calls = np.flatnonzero(begins | ends)
    calls = calls[np.lexsort((events.ts_ns[calls], events.lane[calls]))]
    pair = begins[calls[:-1]] & ends[calls[1:]]
    pair &= events.lane[calls[:-1]] == events.lane[calls[1:]]
    begin, end = calls[:-1][pair], calls[1:][pair]
    in_order = np.argsort(events.ts_ns[begin], kind="stable")
    return begin[in_order], end[in_order]


def _launches(events: EventTable, parent: I32, begin: I64, end: I64) -> tuple[I64, I64]:
    """Captured launches and the number of their capture.

    A thread captures what it launches itself, and what threads without a capture launch meanwhile:
    autograd's. A launch within another, as of two libraries, is the same launch.
    """
    symbols, is_call = events.symbols, events.kind == EventKind.RUNTIME
    launches = events.named(symbols.searched(KERNEL_LAUNCH))
    launches &= ~events.named(symbols.searched(GRAPH_LAUNCH))
    for pattern in (_COPIES, _FILLS):
        launches = launches | events.named(symbols.searched(pattern))
    launches &= is_call & ~gather(launches & is_call, parent, default=False)
    ran = np.isin(events.correlation, events.correlation[events.is_device])
    rows = np.flatnonzero(launches & ~(ran & (events.correlation >= 0)))
    by_lane = np.lexsort((events.ts_ns[begin], events.lane[begin]))
    at = last_before(
        events.lane[begin][by_lane],
        events.ts_ns[begin][by_lane],
        events.lane[rows],
        events.ts_ns[rows],
    )
    own = gather(by_lane, at)
    others = np.searchsorted(events.ts_ns[begin], events.ts_ns[rows]) - 1
    captures = np.isin(events.lane[rows], events.lane[begin])
    graph = np.where(captures, own, others).astype(np.int64)
    inside = (graph >= 0) & (events.ts_ns[rows] < gather(events.ts_ns[end], graph, 0))
    rows, graph = rows[inside], graph[inside]
    order = np.lexsort((events.ts_ns[rows], graph))
    return rows[order], graph[order]


def batches_at(events: EventTable, calls: I64, pattern: re.Pattern[str]) -> tuple[I64, I64]:
    """The last range of a name that holds each call on its thread, and its batch size; else -1."""
    named = events.named(events.symbols.searched(pattern))
    ranges = np.flatnonzero(named & (events.kind == EventKind.ANNOTATION))
    ranges = ranges[np.lexsort((events.ts_ns[ranges], events.lane[ranges]))]
    at = last_before(
        events.lane[ranges], events.ts_ns[ranges], events.lane[calls], events.ts_ns[calls] + 1
    )
    found = gather(ranges, at)
    found = np.where(gather(events.end_ns, found, 0) > events.ts_ns[calls], found, -1)
    sizes = [pattern.search(text) for text in events.symbols.texts]
    size = np.array([int(one["batch"]) if one else -1 for one in sizes], dtype=np.int64)
    return found, gather(size, gather(events.name.astype(np.int64), found))


def _listed_batch(path: Path) -> int:
    """The batch size that a list in the folder of a file gives it; -1 for none."""
    details = path.parent / _DETAILS
    try:
        listed = msgspec.json.decode(content_of(details)) if details.is_file() else []
    except (msgspec.DecodeError, OSError, TraceError):
        return -1
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and one.get("file") == path.name:
            size = one.get("batch_size")
            return size if isinstance(size, int) and 0 <= size < 1 << 31 else -1
    return -1


_LEAST_PART = 0.5
"""Share of a captured graph that a replay without its end must have, and share of a program that a
step recorded in part must have: a few kernels begin many graphs. Chosen; `test_graph_captures.py`
has replays and steps of a little more and a little less."""
CODE_BYTES = 8
"""Bytes of the code of a kernel."""


class Program(NamedTuple):
    """Graphs that were captured one after the other."""

    graphs: tuple[bytes, ...]  # Codes of the kernels of each graph
    file: int  # Number of the file
    # Numbers of its graphs in the file: empty ones replay nothing, and are left out
    numbers: tuple[int, ...]
    batch: int  # Batch size, -1 if unknown

    def alone(self) -> list[Program]:
        """Each graph as a program of its own."""
        return [
            Program((graph,), self.file, (number,), self.batch)
            for graph, number in zip(self.graphs, self.numbers, strict=True)
        ]


class Replays(NamedTuple):
    """Replays of graphs in order of time: codes of their kernels, and batch sizes or -1."""

    graphs: tuple[bytes, ...]
    batch: I64


class Joined(NamedTuple):
    """The capture of each replay."""

    # file, graph: of shape (n_replays,). Numbers of the file and of the graph in it; -1 for none.
    file: I64
    graph: I64
    n_ambiguous: int  # Replays that fit several captures, of which none is the right one for sure
    n_of_other_batch: int  # Replays whose kernels fit captures of a smaller batch only


def joined(programs: list[Program], replays: Replays) -> Joined:
    """The capture of each replay.

    Graphs of a program, such as one for each batch size, are also tried alone; then all replays
    must fit, as single short graphs fit by chance.
    """
    whole = _in_order(programs, replays, programs)
    if (whole.file >= 0).all():
        return whole
    alone = _in_order([each for one in programs for each in one.alone()], replays, ())
    if (alone.file >= 0).all() or (whole.file >= 0).any():
        return alone if (alone.file >= 0).all() else whole
    n_fit = (alone.file >= 0).sum() + alone.n_ambiguous + alone.n_of_other_batch
    return alone._replace(file=whole.file, graph=whole.graph) if n_fit == len(whole.file) else whole


def _in_order(programs: Sequence[Program], replays: Replays, in_part: Sequence[Program]) -> Joined:
    """Programs one after the other; some of them also in part."""
    n = len(replays.graphs)
    file, graph = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    n_ambiguous = n_of_other_batch = at = 0
    while at < n:  # one iteration per replay at most
        options = [one for one in programs if _runs_at(one, replays, at)]
        found = [(one, 0) for one in options]
        found = found or _in_part(in_part, replays, at)
        if not found:
            at += 1
            continue
        batch = int(replays.batch[at])
        large = [one for one in found if batch < 0 or one[0].batch < 0 or batch <= one[0].batch]
        # An engine pads to the next size that it captured.
        order = {one: (one[0].batch, _n_missing(*one, replays, at)) for one in large}
        chosen = [one for one in large if order[one] == min(order.values())]
        program, skipped = (chosen or found)[0]
        until = min(at + len(program.graphs) - skipped, n)
        if len(chosen) == 1:
            file[at:until] = program.file
            graph[at:until] = program.numbers[skipped : skipped + until - at]
        elif chosen:
            n_ambiguous += until - at
        else:
            n_of_other_batch += until - at
        at = until
    return Joined(file, graph, n_ambiguous, n_of_other_batch)


def _n_missing(program: Program, skipped: int, replays: Replays, at: int) -> int:
    """Kernels of a program's graphs that its replays lack."""
    pairs = zip(program.graphs[skipped:], replays.graphs[at:], strict=False)
    return sum(len(graph) - len(replay) for graph, replay in pairs) // CODE_BYTES


def _runs_at(program: Program, replays: Replays, at: int) -> bool:
    """Whether a whole program is replayed from some replay on."""
    until = at + len(program.graphs)
    return until <= len(replays.graphs) and _fit(replays.graphs[at:until], program.graphs)


def _fit(replays: tuple[bytes, ...], graphs: tuple[bytes, ...]) -> bool:
    """Whether each replay ran the kernels of its graph, or all but its end."""
    return all(
        graph.startswith(replay) and len(replay) >= _LEAST_PART * len(graph)
        for replay, graph in zip(replays, graphs, strict=True)
    )


def _in_part(programs: Sequence[Program], replays: Replays, at: int) -> list[tuple[Program, int]]:
    """Programs of which the trace begins with the end, or ends with the begin; graphs skipped."""
    found, left = [], len(replays.graphs) - at
    for one in programs:
        n, times = len(one.graphs), Counter(one.graphs)
        if _LEAST_PART * n <= left < n and times[one.graphs[0]] == 1:
            found += [(one, 0)] * (replays.graphs[at:] == one.graphs[:left])
        if at == 0 and times[one.graphs[-1]] == 1:
            found += [
                (one, n - kept)
                for kept in range(math.ceil(_LEAST_PART * n), min(n, left + 1))
                if replays.graphs[:kept] == one.graphs[n - kept :]
            ]
    return found


def share_alike(replay: bytes, graph: bytes) -> tuple[int, int]:
    """Positions at which a replay and a graph have the same kernel, and positions of the longer."""
    a, b = (np.frombuffer(one, dtype=np.int64) for one in (replay, graph))
    n = min(len(a), len(b))
    return int((a[:n] == b[:n]).sum()), max(len(a), len(b))
