"""Adds the operators of captured graphs to the recording that replays them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from htagraph.algorithms.gather import gather
from htagraph.algorithms.matching import group_starts, match_keys
from htagraph.model.api_calls import GRAPH_LAUNCH
from htagraph.model.arrays import I64
from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind
from htagraph.model.recording import Attachment, Recording
from htagraph.readers.content import first_bytes
from htagraph.readers.graph_capture.calls import Piece, with_calls
from htagraph.readers.graph_capture.captured_graphs import (
    COPY,
    FILL,
    CapturedGraphs,
    batches_at,
    captured_graphs,
)
from htagraph.readers.graph_capture.joining import CODE_BYTES, Joined, Program, Replays, joined
from htagraph.readers.graph_capture.outcome import Outcome

_HEAD_BYTES = 1 << 16
"""Bytes in which the event list or a header of the profiler must begin (chosen)."""
_HEAD = re.compile(rb'\s*\{.*"(traceEvents|schemaVersion|deviceProperties)"', re.DOTALL)
_RUN_BATCH = re.compile(r"^execute_(?P<batch>\d{1,9})_")
"""Range of vLLM and SGLang around a step: ``execute_32_context_0(…)_generation_32(…)``."""
_BLIT_COPY = re.compile(r"^__amd_rocclr_copy")
_BLIT_FILL = re.compile(r"^__amd_rocclr_fill")
"""Kernels by which HIP copies and fills within a graph."""


class _Replayed(NamedTuple):
    """Device work of graph launches, by launch, then by start.

    Parameters
    ----------
    work : ndarray of shape (n,), dtype=int64
    first, length : ndarray of shape (n_replays,), dtype=int64
        Where the work of each launch is; launches in order of time.
    call : ndarray of shape (n_replays,), dtype=int64
    """

    work: I64
    first: I64
    length: I64
    call: I64


def is_chrome_trace(path: Path) -> bool:
    """Whether a file is a trace of the PyTorch profiler, by its first bytes."""
    return _HEAD.match(first_bytes(path, _HEAD_BYTES)) is not None


def with_graph_captures(recording: Recording, paths: Sequence[Path]) -> Recording:
    """A recording whose replayed work belongs to the operators that were captured.

    Parameters
    ----------
    paths : sequence of Path
        Traces in which the graphs were captured; all at once, as only one may fit each replay.

    Returns
    -------
    Recording
        With `EventTable.captured` and the sparse column ``captured_launch``. The `Attachment` of
        each file says what was joined, or why nothing was.
    """
    events, files = recording.events, [captured_graphs(path) for path in paths]
    replayed = _replayed(events)
    codes: dict[str, int] = {}
    programs = [each for at, one in enumerate(files) for each in _programs(at, one, codes)]
    replays = Replays(
        tuple(_sequences(_kernels(events, replayed.work, codes), replayed.first, replayed.length)),
        batches_at(events, replayed.call, _RUN_BATCH)[1],
    )
    found = joined(programs, replays)
    outcome = Outcome(programs, replays, found)
    pieces = [_piece(one, at, found, replayed) for at, one in enumerate(files)]
    attached = [
        Attachment(
            "graph capture",
            one.path,
            len(one.launch),
            len(np.unique(pieces[at].launch)),
            outcome.in_words(one, at),
        )
        for at, one in enumerate(files)
    ]
    if (found.file >= 0).any():
        events = with_calls(events, pieces)
    return replace(recording, events=events, attached=(*recording.attached, *attached))


def _replayed(events: EventTable) -> _Replayed:
    is_launch = events.named(events.symbols.searched(GRAPH_LAUNCH))
    calls = np.flatnonzero(is_launch & (events.kind == EventKind.RUNTIME))
    calls = calls[events.correlation[calls] >= 0]
    calls = calls[np.argsort(events.ts_ns[calls], kind="stable")]
    work = np.flatnonzero(events.is_device)
    call = match_keys(events.correlation[work], events.correlation[calls])
    work, call = work[call >= 0], call[call >= 0]
    order = np.lexsort((events.ts_ns[work], call))
    work, call = work[order], call[order]
    first = np.flatnonzero(group_starts(call))
    return _Replayed(work, first, np.diff(np.append(first, len(work))), calls[call[first]])


def _kernels(events: EventTable, work: I64, codes: dict[str, int]) -> I64:
    """Code of the kernel of each piece of device work."""
    kernel = np.full(len(events.symbols), -1, dtype=np.int64)
    for name in np.unique(events.name[work]).tolist():
        text = events.symbols.texts[name]
        text = COPY if _BLIT_COPY.match(text) else FILL if _BLIT_FILL.match(text) else text
        kernel[name] = codes.setdefault(text, len(codes))
    found = kernel[events.name[work]]
    for kind, text in ((EventKind.MEMCPY, COPY), (EventKind.MEMSET, FILL)):
        found[events.kind[work] == kind] = codes.setdefault(text, len(codes))
    return found


def _sequences(code: I64, first: I64, length: I64) -> Iterable[bytes]:
    """The codes of each graph as bytes."""
    data = np.ascontiguousarray(code, dtype=np.int64).tobytes()
    for begin, n in zip(first.tolist(), length.tolist(), strict=True):
        yield data[CODE_BYTES * begin : CODE_BYTES * (begin + n)]


def _programs(number: int, file: CapturedGraphs, codes: dict[str, int]) -> list[Program]:
    """The programs that a file captured: one for each range of a batch size."""
    code = np.array([codes.setdefault(name, len(codes)) for name in file.name], dtype=np.int64)
    n_graphs = len(file.batch)
    bounds = np.searchsorted(file.graph, np.arange(n_graphs + 1))
    graphs = list(_sequences(code, bounds[:-1], np.diff(bounds)))
    first = np.flatnonzero(group_starts(file.program))
    until = np.append(first[1:], n_graphs)
    ranges = [
        [at for at in range(a, b) if graphs[at]]
        for a, b in zip(first.tolist(), until.tolist(), strict=True)
    ]
    return [
        Program(tuple(graphs[at] for at in one), number, tuple(one), int(file.batch[one[0]]))
        for one in ranges
        if one
    ]


def _piece(file: CapturedGraphs, at: int, found: Joined, replayed: _Replayed) -> Piece:
    """Replayed work that a file explains."""
    mine = found.file == at
    bounds = np.searchsorted(file.graph, np.arange(len(file.batch) + 1))
    replay = np.repeat(np.arange(len(replayed.first)), replayed.length)
    place = np.arange(len(replayed.work)) - replayed.first[replay]
    launch = gather(bounds, found.graph[replay], 0) + place
    chosen = mine[replay]
    return Piece(file, replayed.work[chosen], launch[chosen])
