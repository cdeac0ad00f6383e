"""Adds the operators of captured graphs to the recording that replays them.

What a capture added, or why nothing, is told in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from htagraph.arrays.ancestors import parents_first
from htagraph.arrays.codes import gather
from htagraph.arrays.matching import group_starts, match_keys
from htagraph.model.api_calls import GRAPH_LAUNCH
from htagraph.model.arrays import I64
from htagraph.model.events import (
    CAPTURED_DTYPES,
    CAPTURED_LAUNCH,
    LIST_COLUMNS,
    CapturedCalls,
    EventTable,
    SparseColumn,
)
from htagraph.model.kinds import EventKind
from htagraph.model.recording import Attachment, Recording
from htagraph.model.symbols import SymbolTable
from htagraph.model.units import human_count
from htagraph.readers.beside.captured_graphs import (
    CODE_BYTES,
    COPY,
    FILL,
    CapturedGraphs,
    Joined,
    Program,
    Replays,
    batches_at,
    captured_graphs,
    joined,
    share_alike,
)
from htagraph.readers.byte_stream import first_bytes

_MODULE = re.compile(r"^nn\.Module: ")


Piece = tuple[CapturedGraphs, I64, I64]
"""A file, the replayed device work that it explains, and the place of its launch in the file."""


def with_calls(events: EventTable, pieces: Sequence[Piece]) -> EventTable:
    """Events with the captured calls of some files, and the launch of each piece of work."""
    symbols = {text: code for code, text in enumerate(events.symbols.texts)}
    lists = {text: code for code, text in enumerate(events.lists.texts)}
    parts: list[dict[str, npt.NDArray[np.integer]]] = []
    launches = []
    n_calls = n_lanes = 0
    for file, _, launch in pieces:
        launched = file.launch[np.unique(launch)]
        rows = np.union1d(parents_first(file.parent, launched), _modules(file, launched))
        place = np.full(len(file.events) + 1, -1, dtype=np.int64)  # the last is for -1
        place[rows] = n_calls + np.arange(len(rows))
        columns = _columns(file.events, rows, symbols, lists)
        columns["lane"] = columns["lane"] + n_lanes
        columns["parent"] = place[file.parent[rows]]
        parts.append(columns)
        launches.append(place[file.launch[launch]])
        n_calls, n_lanes = n_calls + len(rows), n_lanes + len(file.events.lanes)
    work = np.concatenate([of_piece for _, of_piece, _ in pieces])
    order = np.argsort(work)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    joined["lane"] = np.unique(joined["lane"], return_inverse=True)[1]
    return replace(
        events,
        captured=CapturedCalls(
            **{name: joined[name].astype(dtype) for name, dtype in CAPTURED_DTYPES.items()}
        ),
        columns={
            **events.columns,
            CAPTURED_LAUNCH: SparseColumn(work[order], np.concatenate(launches)[order]),
        },
        symbols=SymbolTable(tuple(symbols)),
        lists=SymbolTable(tuple(lists)),
    )


def _modules(file: CapturedGraphs, launched: I64) -> I64:
    """Frames of modules around some launches."""
    events = file.events
    named = events.named(events.symbols.searched(_MODULE))
    frames = np.flatnonzero(named & (events.kind == EventKind.PYTHON))
    holds = np.zeros(len(frames), dtype=bool)
    for lane in np.unique(events.lane[launched]).tolist():
        times = np.sort(events.ts_ns[launched[events.lane[launched] == lane]])
        before, until = (np.searchsorted(times, at[frames]) for at in (events.ts_ns, events.end_ns))
        holds |= (events.lane[frames] == lane) & (until > before)
    return frames[holds]


def _columns(
    events: EventTable, rows: I64, symbols: dict[str, int], lists: dict[str, int]
) -> dict[str, npt.NDArray[np.integer]]:
    """Columns of `CapturedCalls` for some events of a file; new texts get a code."""
    return {
        **{name: getattr(events, name)[rows] for name in ("ts_ns", "dur_ns", "kind", "lane")},
        **{name: np.maximum(events.column(name)[rows], -1) for name in ("sequence", "fwd_thread")},
        "name": _recoded(events.name[rows], events.symbols.texts, symbols),
        **{
            name: _recoded(events.column(name)[rows], events.lists.texts, lists)
            for name in LIST_COLUMNS
        },
    }


def _recoded(
    codes: npt.NDArray[np.integer], texts: Sequence[str], known: dict[str, int]
) -> npt.NDArray[np.integer]:
    """Codes of texts in another table, which gets those that it lacks; -1 stays."""
    table = np.full(len(texts) + 1, -1, dtype=np.int64)  # the last is for -1
    for code in np.unique(codes[codes >= 0]).tolist():
        table[code] = known.setdefault(texts[code], len(known))
    return np.asarray(table[codes])


def _outcome(
    programs: list[Program], replays: Replays, found: Joined, file: CapturedGraphs, at: int
) -> str:
    """A line on a file, by its number: how much was joined, and with what reservations."""
    mine = np.flatnonzero(found.file == at)
    if not len(mine):
        return _refused(programs, replays, found, at)
    graph = found.graph[mine]
    n_run = np.array([len(replays.graphs[one]) // CODE_BYTES for one in mine.tolist()])
    lacks = np.bincount(file.graph, minlength=len(file.batch))[graph] - n_run
    run, captured = replays.batch[mine], file.batch[graph]
    is_unknown, is_padded = (run < 0) | (captured < 0), (run >= 0) & (run < captured)
    run_of = f"{human_count(len(mine), 'replay')} of "
    run_of += human_count(len(np.unique(graph)), "captured graph")
    notes = [f"{run_of}: all {human_count(int(n_run.sum()), 'kernel')} have the same names"]
    if lacks.any():
        notes.append(
            f"{human_count(int((lacks > 0).sum()), 'replay')} without the end of the capture "
            f"(at most {human_count(int(lacks.max()), 'kernel')}), which was not recorded"
        )
    if is_padded.any():
        notes.append(f"{human_count(int(is_padded.sum()), 'replay')} of a smaller batch, padded")
    if is_unknown.any():
        notes.append("a batch size is unknown, and another may have kernels of the same names")
    if n_others := int((found.file < 0).sum()):
        notes.append(f"{human_count(n_others, 'replay')} left that fit no capture")
    return "; ".join(notes)


def _refused(programs: list[Program], replays: Replays, found: Joined, at: int) -> str:
    """Why no replay was joined: what fits best, and what to do."""
    if not replays.graphs:
        return "nothing to join: the trace replays no captured graph"
    if (found.file >= 0).any():
        return "the trace does not replay its graphs"
    own = [one for one in programs if one.file == at]
    n_graphs = human_count(sum(len(one.graphs) for one in own), "captured graph")
    counts = f"{human_count(len(replays.graphs), 'replay')}, {n_graphs}"
    if found.n_ambiguous:
        return (
            f"refused: {human_count(found.n_ambiguous, 'replay')} fit several captures by the "
            f"names of their kernels, and number and order do not tell which ({counts}); add "
            "only the capture of the batch size that was run, and record whole steps"
        )
    if found.n_of_other_batch:
        sizes = max(one.batch for one in own)
        return (
            f"refused: it is of batch size {sizes:,}, and the trace runs "
            f"{int(replays.batch.max()):,}; add the capture of that size"
        )
    longest = max(replays.graphs, key=len)
    alike = [share_alike(longest, graph) for one in own for graph in one.graphs]
    same, of = max(alike, key=lambda one: one[0] / max(one[1], 1), default=(0, 1))
    n_kernels = len(longest) // CODE_BYTES
    return (
        f"refused: {same / max(of, 1):.0%} of the {n_kernels:,} kernels of the longest replay "
        "have the name of the launch at their place in the capture "
        f"({counts}); add the capture of the same model, version and batch size"
    )


_HEAD_BYTES = 1 << 16
"""Bytes in which the event list or a header of the profiler must begin (chosen)."""
_HEAD = re.compile(rb'\s*\{.*"(traceEvents|schemaVersion|deviceProperties)"', re.DOTALL)
_RUN_BATCH = re.compile(r"^execute_(?P<batch>\d{1,9})_")
"""Range of vLLM and SGLang around a step: ``execute_32_context_0(…)_generation_32(…)``."""
_BLIT_COPY = re.compile(r"^__amd_rocclr_copy")
_BLIT_FILL = re.compile(r"^__amd_rocclr_fill")
"""Kernels by which HIP copies and fills within a graph."""


def is_chrome_trace(path: Path) -> bool:
    """Whether a file is a trace of the PyTorch profiler, by its first bytes."""
    return _HEAD.match(first_bytes(path, _HEAD_BYTES)) is not None


def with_graph_captures(recording: Recording, paths: Sequence[Path]) -> Recording:
    """A recording whose replayed work belongs to the operators that were captured.

    All captures at once, as only one may fit each replay.
    """
    events, files = recording.events, [captured_graphs(path) for path in paths]
    replayed = _replayed(events)
    work, first, length, call = replayed
    codes: dict[str, int] = {}
    programs = [each for at, one in enumerate(files) for each in _programs(at, one, codes)]
    replays = Replays(
        tuple(_sequences(_kernels(events, work, codes), first, length)),
        batches_at(events, call, _RUN_BATCH)[1],
    )
    found = joined(programs, replays)
    pieces = [_piece(one, at, found, replayed) for at, one in enumerate(files)]
    attached = [
        Attachment(
            "graph capture",
            one.path,
            len(one.launch),
            len(np.unique(pieces[at][2])),
            _outcome(programs, replays, found, one, at),
        )
        for at, one in enumerate(files)
    ]
    if (found.file >= 0).any():
        events = with_calls(events, pieces)
    return replace(recording, events=events, attached=(*recording.attached, *attached))


def _replayed(events: EventTable) -> tuple[I64, I64, I64, I64]:
    """Device work of graph launches, by launch, then by start.

    With its place, its length and the call of each launch, in order of time.
    """
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
    return work, first, np.diff(np.append(first, len(work))), calls[call[first]]


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


def _piece(
    file: CapturedGraphs, at: int, found: Joined, replayed: tuple[I64, I64, I64, I64]
) -> Piece:
    """Replayed work that a file explains."""
    work, first, length, _ = replayed
    mine = found.file == at
    bounds = np.searchsorted(file.graph, np.arange(len(file.batch) + 1))
    replay = np.repeat(np.arange(len(first)), length)
    place = np.arange(len(work)) - first[replay]
    launch = gather(bounds, found.graph[replay], 0) + place
    chosen = mine[replay]
    return file, work[chosen], launch[chosen]
