"""Sampled stacks of a file (``stackFrames``, ``samples``) as rows of Python frames.

Consecutive samples of a thread with a common prefix are one frame. Code changed somewhere between
two samples: no operator runs then that belongs to either, and a late sample was due earlier; but if
its function had only begun, or only got control back, then what made it late ran before::

    samples     |      1         2         3      (late)->4    (late)->5
    operators   |    [mm ]           [add]
    frames      |[f            ][g                ][h                 ][has only begun
                               middle of the end of `mm` and sample 2
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from htagraph.arrays.codes import gather
from htagraph.arrays.matching import last_before
from htagraph.arrays.nesting import nest
from htagraph.model.arrays import F64, I32, I64, Bools
from htagraph.model.kinds import EventKind, among
from htagraph.model.names import FRAME
from htagraph.model.recording import SAMPLED, STACKS
from htagraph.model.symbols import SymbolTable
from htagraph.readers.defects import Defect
from htagraph.readers.kineto.event_kinds import event_kinds
from htagraph.readers.kineto.event_table import ABSENT, number_of, text_of
from htagraph.readers.kineto.header import MAX_TIME_NS
from htagraph.readers.kineto.merging import Columns
from htagraph.readers.kineto.worker import Id, canonical_id
from htagraph.readers.repair_log import RepairLog

KEYS = ("stackFrames", "samples")
"""The keys of the header that become events."""

_FAR = 5
"""Usual distances of samples beyond which a thread ran something else between two (chosen), if not
written by htagraph, which records that. Pinned by `test_sampled_stacks.py`."""

_DEEPEST = 10_000
"""Frames of a stack (chosen): what is deeper calls itself, by a broken file or in a loop."""

_LONGEST_MS = 7 * 86_400 * 1_000
"""Intervals and lateness that are believed: as long as the longest event."""

_MOST = 1 << 31
"""Samples that a row may stand for: more than a week has."""

_NEVER = np.iinfo(np.int64).max


class _Tree(NamedTuple):
    """The frames of stacks, by number."""

    number: dict[str, int]  # By id
    name: list[str]
    parent: I64
    depth: I64  # 1 for the outermost; 0 for those that enclose themselves
    line: list[object]  # Of the call, in the parent


class _Samples(NamedTuple):
    """Samples by thread, then time."""

    lane: I64
    ts_ns: I64
    late_ns: I64
    ends: Bools  # What made it late had just ended, and was called by what still runs
    frame: I64  # Innermost, -1 for a thread that runs no Python
    weight: I64
    cpu_ns: F64  # Clock of the thread, NaN if unknown


class _Bounds(NamedTuple):
    """Where what a sample saw begins and ends, and the CPU clock then."""

    start_ns: I64
    end_ns: I64
    start_cpu_ns: F64
    end_cpu_ns: F64
    follows: Bools  # Whether it begins where the one before ends


def with_sampled_stacks(
    columns: Columns,
    metadata: Mapping[str, Any],
    log: RepairLog,
    window: tuple[int, int] | None,
    categories: Collection[str] | None,
    *,
    is_plain: bool,
) -> list[dict[str, Any]]:
    """Add the frames that were sampled to columns; metadata events that name further threads.

    None are added next to recorded stacks, which are exact. `window`: on the clock of the columns.
    """
    stacks, listed = (metadata.get(key) for key in KEYS)
    if stacks is None or listed is None:
        return []
    tree, about = _tree(stacks, log), metadata.get("sampler")
    about = about if isinstance(about, dict) else {}
    rows, symbols = columns.rows, SymbolTable(tuple(columns.symbols))
    columns.n_bytes[SAMPLED] = len(msgspec.json.encode([stacks, listed]))
    if (rows["category"] == symbols.code(STACKS)).any() or (
        categories is not None and SAMPLED not in categories
    ):
        columns.skipped[SAMPLED] = len(listed) if isinstance(listed, list) else 0
        return []
    n_lanes = len(columns.lanes)
    samples = _samples(listed, tree, columns, canonical_id(about.get("pid")), log)
    kind = event_kinds(symbols, rows["category"], rows["name"], rows["phase"], is_plain=is_plain)
    of = np.flatnonzero(among(kind, (EventKind.OP, EventKind.RUNTIME)))
    of = of[np.isin(rows["lane"][of], samples.lane)]
    ops = rows["lane"][of], rows["ts_ns"][of], rows["ts_ns"][of] + rows["dur_ns"][of]
    interval_ms = number_of(about.get("interval_ms"))
    bounds = _bounds(samples, ops, interval_ms * 1e6 if 0 < interval_ms < _LONGEST_MS else np.nan)
    _append(columns, tree, samples, bounds, window)
    names = about.get("threads")
    names = names if isinstance(names, dict) else {}
    return [
        {"name": "thread_name", "pid": pid, "tid": tid, "args": {"name": names[str(tid)]}}
        for pid, tid in columns.lanes[n_lanes:]
        if names.get(str(tid))
    ]


def _tree(stacks: object, log: RepairLog) -> _Tree:
    """The frames listed; those without a known parent are outermost."""
    frames = stacks if isinstance(stacks, dict) else {}
    number = {str(key): place for place, key in enumerate(frames)}
    found = [one if isinstance(one, dict) else {} for one in frames.values()]
    parent = np.array([number.get(str(one.get("parent")), -1) for one in found], dtype=np.int64)
    depth, at, going = np.zeros_like(parent), np.arange(len(found)), np.arange(len(found))
    for _ in range(_DEEPEST):
        depth[going] += 1
        at[going] = parent[at[going]]
        going = going[at[going] >= 0]
        if not len(going):
            break
    depth[going] = 0
    n_lost = sum("parent" in one and parent[row] < 0 for row, one in enumerate(found))
    n_unnamed = sum("name" not in one for one in found)
    log.add(Defect.BAD_SAMPLE, n=len(going) + n_lost + n_unnamed + (not isinstance(stacks, dict)))
    names = [text_of(one.get("name", "?")) for one in found]
    return _Tree(number, names, parent, depth, [one.get("line") for one in found])


def _samples(listed: object, tree: _Tree, columns: Columns, pid: Id, log: RepairLog) -> _Samples:
    """The samples that tell when, where and what; new threads become lanes."""
    every = listed if isinstance(listed, list) else [listed]
    found = [one for one in every if isinstance(one, dict) and one.get("tid") is not None]

    def column(key: str, default: float) -> F64:
        return np.array([number_of(one.get(key, default)) for one in found], dtype=np.float64)

    frame = np.array(
        [tree.number.get(str(one["sf"]), -2) if "sf" in one else -1 for one in found], np.int64
    )
    frame[gather(tree.depth, frame, 1) == 0] = -2
    ts_us, late_us, weight = column("ts", np.nan), column("late", 0), column("weight", 1)
    good = np.flatnonzero((np.abs(ts_us) < MAX_TIME_NS / 1e3) & (frame > -2))
    log.add(Defect.BAD_SAMPLE, n=len(every) - len(good))
    late_us = np.where((late_us > 0) & (late_us < 1e3 * _LONGEST_MS), late_us, 0)
    weight = np.where((weight >= 1) & (weight < _MOST), weight, 1)
    lane = _lanes(
        [
            (canonical_id(one.get("pid", pid)), canonical_id(one["tid"]))
            for one in (found[row] for row in good.tolist())
        ],
        columns,
    )
    ts_ns = np.rint(ts_us[good] * 1e3).astype(np.int64)
    order = np.lexsort((ts_ns, lane))
    good = good[order]
    lane, frame = lane[order], frame[good]
    before, above = np.roll(frame, 1), gather(tree.parent, frame)
    above = np.where(column("enters", 0)[good] > 0, above, frame)
    return _Samples(
        lane,
        ts_ns[order],
        np.rint(late_us[good] * 1e3).astype(np.int64),
        (lane == np.roll(lane, 1)) & (frame != before) & _is_below(before, above, tree),
        frame,
        weight[good].astype(np.int64),
        column("cpu_us", np.nan)[good] * 1e3,
    )


def _is_below(frame: I64, above: I64, tree: _Tree) -> Bools:
    """Whether each frame is another one, or is called by it or by what that calls."""
    depth = gather(tree.depth, above, 0)
    while (deeper := gather(tree.depth, frame, 0) > depth).any():
        frame = np.where(deeper, gather(tree.parent, frame), frame)
    below: Bools = (frame == above) & (above >= 0)
    return below


def _lanes(threads: list[tuple[Id, Id]], columns: Columns) -> I64:
    """The lane of each thread; of a thread without process, the one with most events."""
    n_events = np.bincount(columns.rows["lane"], minlength=len(columns.lanes))
    ordered = [columns.lanes[lane] for lane in np.argsort(n_events, kind="stable").tolist()]
    of_tid = {tid: (pid, tid) for pid, tid in ordered}
    usual_pid = ordered[-1][0] if ordered else ""
    number = {lane: place for place, lane in enumerate(columns.lanes)}
    found: dict[tuple[Id, Id], int] = {}
    for thread in dict.fromkeys(threads):
        pid, tid = thread
        lane = thread if pid != "" else of_tid.get(tid, (usual_pid, tid))
        found[thread] = number.setdefault(lane, len(number))
    columns.lanes[:] = number
    return np.array([found[thread] for thread in threads], dtype=np.int64)


def _bounds(samples: _Samples, ops: tuple[I32, I64, I64], interval_ns: float) -> _Bounds:
    """Where code changed between samples; see the module.

    `ops`: lane, start and end of operators and API calls.
    """
    lane, ts_ns, cpu_ns = samples.lane, samples.ts_ns, samples.cpu_ns
    right = np.flatnonzero(lane[1:] == lane[:-1]) + 1
    left, due_ns = right - 1, ts_ns - np.where(samples.ends, 0, samples.late_ns)
    is_own = np.isfinite(interval_ns)
    usual_ns = interval_ns if is_own else np.median(ts_ns[right] - ts_ns[left]) if len(right) else 0
    half_ns = int(usual_ns) // 2
    of_lane, begin_ns, until_ns = ops
    found = nest(*ops)
    owner = found.boundary >> 1
    ends = np.where(found.boundary & 1, until_ns[owner], begin_ns[owner])

    def innermost(lanes: I64, times: I64) -> I32:
        return gather(found.innermost, last_before(of_lane[owner], ends, lanes, times + 1))

    until = gather(until_ns, innermost(lane[left], ts_ns[left]), _NEVER)
    low = np.where(until <= ts_ns[right], until, ts_ns[left])
    since = gather(begin_ns, innermost(lane[right], ts_ns[right]), -_NEVER)
    high = np.maximum(np.where(since >= ts_ns[left], since, due_ns[right]), low)
    # Any thread may keep the GIL for a while; by what kept it for longer, the left one ran on.
    low = np.where(samples.ends[right] & (samples.late_ns[right] > usual_ns), high, low)
    middle = (low + high) // 2
    op = innermost(lane[left], middle)
    going = np.flatnonzero(op >= 0)
    cut = middle.copy()
    while len(going):  # the nearer edge of the outermost operator between
        since, until = begin_ns[op[going]], until_ns[op[going]]
        fits = (since >= low[going]) & (until <= high[going])
        going, since, until = going[fits], since[fits], until[fits]
        is_near = middle[going] - since <= until - middle[going]
        cut[going] = np.where(is_near, since, until)
        op[going] = found.parent[op[going]]
        going = going[op[going] >= 0]
    far = (high - low > _FAR * usual_ns) & (not is_own)
    start_ns = np.maximum(due_ns - half_ns, due_ns.min(initial=_NEVER))
    end_ns = np.minimum(ts_ns + half_ns, ts_ns.max(initial=-_NEVER))
    start_cpu, end_cpu = cpu_ns.copy(), cpu_ns.copy()
    follows = np.zeros(len(ts_ns), dtype=bool)
    follows[right[~far]] = True
    end_ns[left] = np.where(far, low + half_ns, cut)
    start_ns[right] = np.where(far, high - half_ns, cut)
    share = (cut - ts_ns[left]) / np.maximum(ts_ns[right] - ts_ns[left], 1)
    between = cpu_ns[left] + share * (cpu_ns[right] - cpu_ns[left])
    end_cpu[left] = np.where(far | np.isnan(between), cpu_ns[left], between)
    start_cpu[right] = np.where(far | np.isnan(between), cpu_ns[right], between)
    return _Bounds(start_ns, end_ns, start_cpu, end_cpu, follows)


def _append(
    columns: Columns,
    tree: _Tree,
    samples: _Samples,
    bounds: _Bounds,
    window: tuple[int, int] | None,
) -> None:
    """Add a row for each frame, the outer ones first; those of no length were never alone."""
    at, depth = samples.frame.copy(), gather(tree.depth, samples.frame, 0)
    parts = []
    for level in range(int(depth.max(initial=0)), 0, -1):
        there = depth >= level
        frame = np.where(there, at, -1)
        opens = there.copy()
        opens[1:] &= ~(bounds.follows[1:] & (frame[1:] == frame[:-1]))
        first = np.flatnonzero(opens)
        # A frame ends before the next one of its level begins, or where its level ends.
        ends = there.copy()
        ends[:-1] &= ~there[1:] | opens[1:]
        parts.append((first, np.flatnonzero(ends), frame[first], np.full(len(first), level)))
        at = np.where(there, gather(tree.parent, at), at)
    if not parts:
        return
    each: list[I64] = [np.concatenate(part) for part in zip(*parts, strict=True)]
    first, last, frame, levels = each
    start_ns, end_ns = bounds.start_ns[first], bounds.end_ns[last]
    after, before = window or (-MAX_TIME_NS, MAX_TIME_NS)
    keep = np.flatnonzero((end_ns > start_ns) & (start_ns < before) & (end_ns > after))
    keep = keep[np.lexsort((levels[keep], start_ns[keep], samples.lane[first[keep]]))]
    first, last, frame, start_ns = first[keep], last[keep], frame[keep], start_ns[keep]
    code = {text: number for number, text in enumerate(columns.symbols)}
    names = [code.setdefault(name, len(code)) for name in tree.name]
    calls = [code.setdefault(call, len(code)) if call else -1 for call in _calls(tree)]
    rows: dict[str, npt.NDArray[Any] | int] = {
        **dict.fromkeys(columns.rows, 0),
        **dict.fromkeys(("device", "stream", "correlation", "external_id"), ABSENT),
        "ts_ns": start_ns,
        "dur_ns": end_ns[keep] - start_ns,
        "phase": ord("X"),
        "name": np.array(names, dtype=np.int32)[frame],
        "category": code.setdefault(SAMPLED, len(code)),
        "lane": samples.lane[first],
    }
    columns.symbols[:] = code
    n_before, new = len(columns.rows["ts_ns"]), np.arange(len(first))
    for name, column in columns.rows.items():
        more = np.broadcast_to(rows[name], len(new)).astype(column.dtype)
        columns.rows[name] = np.concatenate([column, more])
    n_samples = np.append(0, np.cumsum(samples.weight))
    cpu_ns = bounds.end_cpu_ns[last] - bounds.start_cpu_ns[first]
    call = np.array(calls, dtype=np.int32)[frame]
    for name, values, known in (
        ("call_from", call, call >= 0),
        ("n_samples", n_samples[last + 1] - n_samples[first], new >= 0),
        ("cpu_ns", np.nan_to_num(cpu_ns).astype(np.int64), ~np.isnan(cpu_ns)),
    ):
        event, value = columns.sparse.get(name, (new[:0], values[:0]))
        columns.sparse[name] = (
            np.concatenate([event, n_before + new[known]]),
            np.concatenate([value, values[known]]),
        )


def _calls(tree: _Tree) -> list[str]:
    """The line that calls each frame, as the profiler writes it; empty if unknown."""
    files = [found["file"] if (found := FRAME.match(name)) else "" for name in tree.name]
    return [
        f"{files[parent]}:{line}" if parent >= 0 and files[parent] and type(line) is int else ""
        for parent, line in zip(tree.parent.tolist(), tree.line, strict=True)
    ]
