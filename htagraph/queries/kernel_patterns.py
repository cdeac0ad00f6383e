"""Repeated sequences of kernels, along a stream or under an operator."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.ancestors import highest
from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import sum_by_code
from htagraph.arrays.matching import group_starts, running_latest
from htagraph.arrays.sequences import repeats
from htagraph.errors import QueryError
from htagraph.lookup.attribution import names_or_empty
from htagraph.lookup.queues import queues
from htagraph.lookup.windowed import device_work
from htagraph.model.answers import KERNEL_PATTERNS
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window


class _Occurrences(NamedTuple):
    """Runs of device work: occurrence ``i`` is ``work[first[i] : first[i] + length[i]]``."""

    work: I64  # Device events in order
    gap_ns: I64  # Idle time of the stream between each event and the one before it in the run
    # pattern, first, length, host: of shape (m,). Occurrences by pattern; `host` is the operator
    # call, -1 for none.
    pattern: I64
    first: I64
    length: I64
    host: I64


def _along_streams(dag: Dag, window: Window, min_length: int, max_length: int) -> _Occurrences:
    """Sequences that repeat on a stream."""
    events, by = dag.events, queues(dag, "stream")
    work = device_work(dag, window).event
    work = work[np.lexsort((events.end_ns[work], events.ts_ns[work], by.of_event[work]))]
    lane = by.of_event[work]
    latest = events.end_ns[work[running_latest(events.end_ns[work], group_starts(lane))]]
    gap = np.zeros(len(work), dtype=np.int64)
    gap[1:] = np.maximum(events.ts_ns[work[1:]] - latest[:-1], 0)
    _, code = np.unique(events.name[work], return_inverse=True)
    found = repeats(code.astype(np.int64), lane, min_length=min_length, max_length=max_length)
    return _Occurrences(
        work, gap, found.sequence, found.start, found.length, np.full(len(found.start), -1)
    )


def _under_operators(
    dag: Dag, window: Window, under: str | re.Pattern[str], lengths: tuple[int, int]
) -> _Occurrences:
    """Sequences of whole calls of an operator; a call inside a call belongs to the outer one.

    Operators of a capture are called when a replay is launched.
    """
    launch, n_recorded = dag.launch, len(dag.events)
    dag = dag.unrolled
    events = dag.events
    wanted = events.named(events.symbols.named(under))
    wanted &= np.isin(events.kind, (EventKind.OP, EventKind.ANNOTATION))
    inside = (events.ts_ns >= window.start_ns) & (events.ts_ns < window.end_ns)
    captured = np.arange(len(events)) >= n_recorded
    work = np.flatnonzero(launch >= 0)
    call = highest(dag.parent, dag.launch[work].astype(np.int64), wanted & (inside | captured))
    work, call = work[call >= 0], call[call >= 0]
    replay = np.where(captured[call], launch[work], -1)
    kept = (replay < 0) | inside[replay]
    work, call, replay = work[kept], call[kept], replay[kept]
    begin = events.ts_ns[np.where(replay >= 0, replay, call)]
    order = np.lexsort((events.end_ns[work], events.ts_ns[work], begin, call, replay))
    work, call, replay, begin = work[order], call[order], replay[order], begin[order]
    starts = group_starts(replay, call)
    first = np.flatnonzero(starts)
    length = np.diff(np.append(first, len(call)))
    fits = (length >= lengths[0]) & (length <= lengths[1])
    latest = events.end_ns[work[running_latest(events.end_ns[work], starts)]] if len(work) else work
    gap = np.zeros(len(work), dtype=np.int64)
    gap[1:] = np.where(starts[1:], 0, np.maximum(events.ts_ns[work[1:]] - latest[:-1], 0))
    first, length = first[fits], length[fits]
    host = call[first]
    # One iteration per call of the operator, not per event.
    seen: dict[tuple[int, bytes], int] = {}
    names = events.name[work]
    number = [
        seen.setdefault((int(events.name[h]), names[a : a + n].tobytes()), len(seen))
        for h, a, n in zip(host.tolist(), first.tolist(), length.tolist(), strict=True)
    ]
    pattern = np.array(number, dtype=np.int64)
    order = np.lexsort((begin[first], pattern))
    return _Occurrences(work, gap, pattern[order], first[order], length[order], host[order])


def kernel_patterns(
    dag: Dag,
    window: Window,
    *,
    under: str | re.Pattern[str] | None = None,
    min_length: int = 2,
    max_length: int = 16,
    rank_by: str = "device_ns",
    top: int = 100,
    by: str = "pattern",
) -> pd.DataFrame:
    """Repeated sequences of kernels, and the gaps that fusing them would save.

    Along a stream, a sequence must occur at least twice without overlapping itself, and not always
    as part of the same longer one. Under an operator, a sequence is all device work of one call.

    ::

        stream 7 | [copy][gemm] [relu]    [copy][gemm] [relu]     (copy, gemm, relu) twice
                               ^                      ^           gap_ns

    `window`: along a stream, work that overlaps it; under an operator, calls that begin in it.
    Times are not clipped. `under`: name, glob or regex of operators and annotations; default is
    along the streams. `min_length`, `max_length`: kernels of a sequence. `by`: ``occurrence`` is a
    row for each time that one of the `top` patterns ran, in order of time. Largest first.
    """
    if not 1 <= min_length <= max_length:
        hint = "1 <= min_length <= max_length."
        raise QueryError(f"no length is from {min_length} to {max_length}.", hint=hint)
    if under is None:
        found = _along_streams(dag, window, min_length, max_length)
    else:
        found = _under_operators(dag, window, under, (min_length, max_length))
    return _frame(dag, window, found, (rank_by, top), each=by == "occurrence")


def _frame(
    dag: Dag, window: Window, found: _Occurrences, ranked: tuple[str, int], *, each: bool
) -> pd.DataFrame:
    """Answer for the patterns of occurrences, or for each of their occurrences."""
    events, (rank_by, top) = dag.events, ranked
    # The first occurrence is the earliest one, not that of the stream with the lowest number.
    order = np.lexsort((events.ts_ns[found.work[found.first]], found.pattern))
    places = (column[order] for column in (found.pattern, found.first, found.length, found.host))
    found = _Occurrences(found.work, found.gap_ns, *places)
    n = int(found.pattern.max(initial=-1)) + 1
    dur = np.concatenate([[0], np.cumsum(events.dur_ns[found.work])])
    gap = np.concatenate([[0], np.cumsum(found.gap_ns)])
    last = found.first + found.length
    device_ns = dur[last] - dur[found.first]
    # The gap before the first kernel of a run is not inside it.
    gap_ns = gap[last] - gap[np.minimum(found.first + 1, last)]
    recorded = np.where(found.host < len(events), found.host, -1)
    host_ns = gather(events.dur_ns, recorded, 0)
    span_ns = events.end_ns[found.work[last - 1]] - events.ts_ns[found.work[found.first]]
    count = np.bincount(found.pattern, minlength=n)
    begins = np.flatnonzero(group_starts(found.pattern))
    event, length = found.work[found.first], found.length[begins]
    times: tuple[I64, ...] = (device_ns, host_ns, gap_ns, span_ns)
    sums = tuple(sum_by_code(found.pattern, one, n) for one in times)
    ranks = {"device_ns": sums[0], "n_occurrences": count, "gap_ns": sums[2]}
    keys = (
        events.stream[event[begins]],
        events.device[event[begins]],
        events.ts_ns[event[begins]],
        -length,
        -sums[0],
        -ranks[rank_by],
    )
    rows = np.lexsort(keys)[:top]
    names = events.names(found.work)
    pattern = np.empty(n, dtype=object)
    for row in rows.tolist():  # one iteration per pattern of the answer
        first = found.first[begins[row]]
        pattern[row] = tuple(names[first : first + length[row]].tolist())
    if each:
        shown = np.flatnonzero(np.isin(found.pattern, rows))
        shown = shown[np.argsort(events.ts_ns[event[shown]], kind="stable")]
        rows = found.pattern[shown]
    else:
        shown, times = begins[rows], tuple(one[found.pattern] for one in sums)
    total = int(device_work(dag, window).dur_ns.sum())
    return KERNEL_PATTERNS.frame(
        {
            "pattern": pattern[rows],
            "op": names_or_empty(dag.unrolled, found.host[shown]),
            "length": found.length[shown],
            "n_occurrences": count[rows],
            "device_ns": times[0][shown],
            "host_ns": times[1][shown],
            "gap_ns": times[2][shown],
            "share": times[0][shown] / max(total, 1),
            "event": event[shown],
            "ts_ns": events.ts_ns[event[shown]],
            "dur_ns": times[3][shown],
        }
    )
