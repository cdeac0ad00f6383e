"""Captured calls as columns of the recording that replays them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.ancestors import parents_first
from htagraph.model.arrays import I64
from htagraph.model.captured import CAPTURED_DTYPES, CAPTURED_LAUNCH, CapturedCalls
from htagraph.model.events import LIST_COLUMNS, EventTable, SparseColumn
from htagraph.model.kinds import EventKind
from htagraph.model.symbols import SymbolTable
from htagraph.readers.graph_capture.captured_graphs import CapturedGraphs

_MODULE = re.compile(r"^nn\.Module: ")


class Piece(NamedTuple):
    """What a file explains.

    Parameters
    ----------
    work : ndarray of shape (n,), dtype=int64
        Replayed device work, of the recording.
    launch : ndarray of shape (n,), dtype=int64
        Position of its launch among those of the file.
    """

    file: CapturedGraphs
    work: I64
    launch: I64


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
    work = np.concatenate([piece.work for piece in pieces])
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
