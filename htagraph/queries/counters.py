"""Launches; counters over time: queues, copies, memory, samples of tools; and hardware counters.

Hardware counters of kernels are from CUPTI ranges or from Nsight Compute, with the rates achieved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.ancestors import highest
from htagraph.arrays.intervals import sum_by_code
from htagraph.arrays.matching import group_starts
from htagraph.errors import QueryError
from htagraph.lookup.attribution import innermost, innermost_at, names_or_empty
from htagraph.lookup.queues import NEVER, queues
from htagraph.lookup.samples import (
    CounterChanges,
    Levels,
    bandwidth_changes,
    counter_levels,
    over,
    queue_changes,
    sample_levels,
)
from htagraph.lookup.steps import find_steps, steps_in
from htagraph.lookup.windowed import Clipped, clipped
from htagraph.model.answers import (
    COUNTERS,
    CUPTI_COUNTERS,
    CUPTI_RATES,
    LAUNCH_STATS,
    MEMORY_TIMELINE,
    QUEUE_BLOCKED,
    SAMPLED_COUNTERS,
)
from htagraph.model.arrays import F64, I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.names import ncu_columns
from htagraph.model.window import Window

_COUNTERS: dict[str, Callable[[Dag], CounterChanges]] = {
    "queue_length": queue_changes,
    "memory_bandwidth": bandwidth_changes,
}


def _by_track(track: I64, ts_ns: I64, dur_ns: I64, value: F64) -> tuple[I64, dict[str, Any]]:
    """Tracks, and the columns of one row for the levels of each; every moment counts once."""
    order = np.lexsort((value, track))
    track, value, dur_ns = track[order], value[order], dur_ns[order]
    first = np.flatnonzero(group_starts(track))
    last, n = np.append(first[1:], len(track)) - 1, np.diff(np.append(first, len(track)))
    elapsed = np.cumsum(dur_ns)
    before, length = elapsed[first] - dur_ns[first], np.add.reduceat(dur_ns, first)
    p50, p90 = (
        value[np.maximum(np.searchsorted(10 * elapsed, 10 * before + tenths * length), first)]
        for tenths in (5, 9)
    )
    return track[first], {
        "ts_ns": np.minimum.reduceat(ts_ns[order], first),
        "dur_ns": length,
        "value": np.add.reduceat(value * dur_ns, first) / np.maximum(length, 1),
        "n_levels": n,
        "min": value[first],
        "p50": p50,
        "p90": p90,
        "max": value[last],
    }


def counters(
    dag: Dag, window: Window, *, name: str = "queue_length", by: str = "change"
) -> pd.DataFrame:
    """Values of a counter over time: launches outstanding per stream, or bandwidth per device.

    ::

        cpu 1    | [launch][launch]
        stream 7 |     [a     ]    [b   ]
        queue    |0[1 ][0 ][1  ][0

    `name`: a launch counts from the start of its call to the start of its first work, a graph of
    many kernels as one. Bandwidth is summed over the copies of one direction that run at once, in
    1e9 bytes per second. `by`: ``track`` is a row for each stream or device and name: its mean and
    extremes over time. By device, stream and time, from the level at the start of the window if
    there is one.
    """
    changes = _COUNTERS[name](dag)
    track, ts_ns, end_ns, counted = counter_levels(changes, window)
    dur_ns, value = end_ns - ts_ns, counted / changes.unit
    if by == "change" or not len(track):
        each = dict.fromkeys(("value", "min", "p50", "p90", "max"), value)
        levels = {"ts_ns": ts_ns, "dur_ns": dur_ns, "n_levels": np.ones_like(ts_ns), **each}
    else:
        track, levels = _by_track(track, ts_ns, dur_ns, value)
    of_track = {key: getattr(changes, key)[track] for key in ("device", "stream", "name")}
    return COUNTERS.frame(levels | of_track)


_MAX_STRETCHES = 300
"""Points of a curve, which is more than a plot can show. Chosen."""


def sampled_counters(dag: Dag, window: Window, *, by: str = "window") -> pd.DataFrame:
    """Mean, minimum and maximum of each sampled counter.

    Each instant takes the value of the nearest sample, so means are weighted by time.

    ::

        samples   |   1       3       2
        values    |[ 1   ][ 3    ][ 2    ]
        window    |     [          ]           mean 2.6 or so, two samples, from 1 to 3

    `by`: one row for the window, for each step that overlaps it (whole), or for each point of a
    curve: one per sample, or if these are many, per part of equal length. By device, instrument,
    name and time, without ranges that have no sample.
    """
    if by == "step":
        stretches = _steps(dag, window)
    else:  # the window, which is no step
        times = np.array([window.start_ns, window.end_ns, -1], dtype=np.int64)
        stretches = times[:1], times[1:2], times[2:]
    parts = [
        _of_series(levels, *(_curve(levels, window) if by == "time" else stretches))
        for levels in sample_levels(dag.events.samples)
    ]
    if not parts:
        return SAMPLED_COUNTERS.empty()
    frame = pd.concat(parts, ignore_index=True)
    order = ["device", "instrument", "name", "start_ns", "step"]
    frame = frame.sort_values(order, kind="stable", ignore_index=True)
    return SAMPLED_COUNTERS.frame({name: frame[name] for name in SAMPLED_COUNTERS.columns})


def _steps(dag: Dag, window: Window) -> tuple[I64, I64, I64]:
    steps = steps_in(dag.events, window)
    start = steps["start_ns"].to_numpy(np.int64)
    end = start + steps["dur_ns"].to_numpy(np.int64)
    return start, end, steps["step"].to_numpy(np.int64)


def _curve(levels: Levels, window: Window) -> tuple[I64, I64, I64]:
    """Ranges of a curve: those of the levels, or fewer."""
    start_ns, end_ns = window.start_ns, window.end_ns
    inside = levels.bound_ns[(levels.bound_ns > start_ns) & (levels.bound_ns < end_ns)]
    bound = np.concatenate([[start_ns], inside, [end_ns]])
    if len(bound) > _MAX_STRETCHES + 1:
        # The product of two long times might overflow int64.
        place, (whole, rest) = np.arange(_MAX_STRETCHES + 1), divmod(window.dur_ns, _MAX_STRETCHES)
        bound = start_ns + place * whole + place * rest // _MAX_STRETCHES
    return bound[:-1], bound[1:], np.full(len(bound) - 1, -1, dtype=np.int64)


def _of_series(levels: Levels, start_ns: I64, end_ns: I64, step: I64) -> pd.DataFrame:
    found, series = over(levels, start_ns, end_ns), levels.series
    frame = pd.DataFrame(
        {
            "device": series.device,
            "instrument": series.instrument,
            "name": series.name,
            "unit": series.unit,
            "step": step,
            "start_ns": start_ns,
            "dur_ns": end_ns - start_ns,
            "n_samples": found.n_samples,
            "mean": found.mean,
            "min": found.low,
            "max": found.high,
            "uncertainty_ns": series.uncertainty_ns,
        }
    )
    return frame[found.covered_ns > 0]


_MEMORY = "[memory]"


def memory_timeline(dag: Dag, window: Window) -> pd.DataFrame:
    """Allocations and releases in the window, each with the operator that made it.

    By device and time. Empty if memory was not recorded. ``attrs["steps_ns"]`` has the starts of
    steps.
    """
    events = dag.events
    rows = np.flatnonzero(
        (events.kind == EventKind.INSTANT) & (events.name == events.symbols.code(_MEMORY))
    )
    rows = clipped(dag, rows, window).event
    kind, device = events.column("device_type")[rows], events.column("device_id")[rows]
    change = events.column("bytes", 0)[rows]
    order = np.lexsort((change, events.ts_ns[rows], device, kind))
    rows = rows[order]
    inner, _ = innermost_at(
        dag, np.flatnonzero(events.is_host), events.lane[rows].astype(np.int64), events.ts_ns[rows]
    )
    op = innermost(dag, inner, (EventKind.OP, EventKind.ANNOTATION))
    frame = MEMORY_TIMELINE.frame(
        {
            "event": rows,
            "ts_ns": events.ts_ns[rows],
            "device_type": kind[order],
            "device": device[order],
            "bytes": change[order],
            "allocated": events.column("total_allocated")[rows],
            "reserved": events.column("total_reserved")[rows],
            "op": names_or_empty(dag, op),
        }
    )
    steps_ns = find_steps(events)["start_ns"]
    frame.attrs["steps_ns"] = steps_ns[steps_ns.between(window.start_ns, window.end_ns)].tolist()
    return frame


def _busy_until(dag: Dag) -> I64:
    """End of all earlier work on the stream, for each piece of work; very early for the first."""
    events, rows = dag.events, np.flatnonzero(dag.events.is_device)
    every = Clipped(rows, events.ts_ns[rows], events.end_ns[rows])
    work, _, before_ns = queues(dag, "stream").in_order(every)
    out = np.full(len(events), NEVER, dtype=np.int64)
    out[work.event] = before_ns
    return out


def launch_stats(
    dag: Dag, window: Window, *, launch_cutoff_ns: int = 50_000, delay_cutoff_ns: int = 100_000
) -> pd.DataFrame:
    """API calls in the window that launched device work, one row each.

    A call launched work if they share a correlation id, whatever its name: graph launches,
    cooperative launches, copies, driver and HIP calls.

    ::

        cpu 1    | [cudaLaunchKernel]
        stream 7 |          [ earlier work   ]   [kernel      ]
                   |-launch_ns------||-queued-|  |-kernel_ns--|
                                     |--delay---|

    `window`: calls that begin in it; times are not clipped. `launch_cutoff_ns`: longer calls are
    outliers. `delay_cutoff_ns`: longer delays are outliers. By time. Device work without a recorded
    launch has no row; `quality` counts it.
    """
    events = dag.events
    work = np.flatnonzero(dag.launch >= 0)
    called = events.ts_ns[dag.launch[work]]
    work = work[(called >= window.start_ns) & (called < window.end_ns)]
    call = dag.launch[work].astype(np.int64)
    order = np.lexsort(
        (events.stream[work], events.device[work], events.end_ns[work], events.ts_ns[work], call)
    )
    work, call = work[order], call[order]
    begins = np.flatnonzero(group_starts(call)) if len(call) else order
    number = np.cumsum(group_starts(call)) - 1
    kernel_ns = sum_by_code(number, events.dur_ns[work], len(begins))
    n_kernels = np.bincount(number, minlength=len(begins))
    first, call = work[begins], call[begins]
    in_time = np.lexsort((events.correlation[call], events.end_ns[call], events.ts_ns[call]))
    first, call, kernel_ns, n_kernels = (
        column[in_time] for column in (first, call, kernel_ns, n_kernels)
    )
    launch_ns, call_end = events.dur_ns[call], events.end_ns[call]
    delay_end = np.maximum(events.ts_ns[first], call_end)
    queued_until = np.clip(_busy_until(dag)[first], call_end, delay_end)
    op = innermost(dag, call, (EventKind.OP, EventKind.ANNOTATION))
    return LAUNCH_STATS.frame(
        {
            "event": call,
            "correlation": events.correlation[call],
            "call": events.names(call),
            "op": names_or_empty(dag, op),
            "name": events.names(first),
            "device": events.device[first],
            "stream": events.stream[first],
            "ts_ns": events.ts_ns[call],
            "op_delay_ns": np.where(op >= 0, events.ts_ns[call] - events.ts_ns[op], 0),
            "launch_ns": launch_ns,
            "kernel_ns": kernel_ns,
            "launch_delay_ns": delay_end - call_end,
            "queued_ns": queued_until - call_end,
            "n_kernels": n_kernels,
            "is_short_kernel": (kernel_ns < launch_ns) & (launch_ns <= launch_cutoff_ns),
            "is_launch_outlier": launch_ns > launch_cutoff_ns,
            "is_delay_outlier": delay_end - call_end > delay_cutoff_ns,
        }
    )


def queue_blocked(dag: Dag, window: Window, *, max_queue_length: int = 1_024) -> pd.DataFrame:
    """Time in which each stream's launch queue was full, and time of blocked launch calls.

    `max_queue_length`: outstanding launches from which on a queue counts as full. One row per
    stream with work. A blocked call returned only when work started and made room.
    """
    by, events, edges = queues(dag, "stream"), dag.events, dag.edges
    track, start_ns, end_ns, value = counter_levels(queue_changes(dag), window)
    full = value >= max_queue_length
    full_ns = sum_by_code(track[full], (end_ns - start_ns)[full], len(by))
    blocked = edges.head[edges.kind == EdgeKind.QUEUE] >> 1
    work = np.flatnonzero(np.isin(dag.launch, blocked) & (dag.launch >= 0))
    call, first = np.unique(dag.launch[work], return_index=True)
    begin = np.clip(events.ts_ns[call], window.start_ns, window.end_ns)
    end = np.clip(events.end_ns[call], window.start_ns, window.end_ns)
    queue = by.of_event[work[first]]
    inside = end > begin
    return QUEUE_BLOCKED.frame(
        {
            "device": by.device,
            "stream": by.stream,
            "full_ns": full_ns,
            "full_share": full_ns / max(window.dur_ns, 1),
            "n_blocked": np.bincount(queue[inside], minlength=len(by)),
            "blocked_ns": sum_by_code(queue[inside], (end - begin)[inside], len(by)),
        }
    )


Args = Callable[[I64], Sequence[Mapping[str, Any]]]
"""Reads the ``args`` of some events, as `Trace.args` does."""

_KERNEL_LAUNCH = re.compile(r"^(cuda|hip|cu)(Ext)?(Module)?Launch(Cooperative)?Kernel")
_NO_COUNTER = frozenset(
    {"device", "stream", "correlation", "External id", "external id", "graph id"}
)


def _ranges_and_launches(dag: Dag, window: Window) -> tuple[I64, I64]:
    """CUPTI ranges of a window by time, and the call that launched each, -1 if unknown.

    While CUPTI counts, kernels run one by one and ranges are recorded instead of kernels: the i-th
    range belongs to the i-th launch of the trace, if there are as many of both.
    """
    events = dag.events
    ranges = np.flatnonzero(events.kind == EventKind.COUNTER_RANGE)
    ranges = ranges[np.lexsort((events.end_ns[ranges], events.ts_ns[ranges]))]
    is_launch = events.named(events.symbols.searched(_KERNEL_LAUNCH))
    calls = np.flatnonzero((events.kind == EventKind.RUNTIME) & is_launch)
    calls = calls[np.lexsort((events.end_ns[calls], events.ts_ns[calls]))]
    launch = calls if len(calls) == len(ranges) else np.full(len(ranges), -1, dtype=np.int64)
    inside = np.isin(ranges, clipped(dag, ranges, window).event)
    return ranges[inside], launch[inside]


def cupti_counters(dag: Dag, window: Window, *, args: Args) -> pd.DataFrame:
    """Hardware counters of each counted kernel, one row per counter.

    `window`: ranges and kernels that overlap it. `args`: gives the ``args`` of events, in which the
    counters of CUPTI are: `Trace.args`. By time. ``launch`` is -1 for all ranges if launches and
    ranges differ in number.
    """
    events = dag.events
    found = pd.concat([_of_ranges(dag, window, args), _of_kernels(dag, window)], ignore_index=True)
    event, launch = found["event"].to_numpy(np.int64), found["launch"].to_numpy(np.int64)
    is_op = events.kind == EventKind.OP
    frame = CUPTI_COUNTERS.frame(
        {
            "event": event,
            "name": events.names(event),
            "ts_ns": events.ts_ns[event],
            "dur_ns": events.dur_ns[event],
            "launch": launch,
            "op": names_or_empty(dag, innermost(dag, launch, (EventKind.OP,))),
            "top_op": names_or_empty(dag, highest(dag.parent, launch, is_op)),
            "counter": found["counter"].to_numpy(object),
            "value": found["value"].to_numpy(np.float64),
            "instrument": found["instrument"].to_numpy(object),
        }
    )
    order = np.lexsort((frame["dur_ns"], frame["ts_ns"]))
    return frame.iloc[order].reset_index(drop=True)


def _of_ranges(dag: Dag, window: Window, args: Args) -> pd.DataFrame:
    """Counters of CUPTI ranges."""
    ranges, launch = _ranges_and_launches(dag, window)
    decoded = args(ranges) if len(ranges) else []
    if len(decoded) != len(ranges):
        raise QueryError(
            f"args gave {len(decoded):,} of {len(ranges):,} events.", hint="pass Trace.args."
        )
    # A Python loop: counters are few, and text in the file.
    values = [
        (row, name, float(value))
        for row, arguments in enumerate(decoded)
        for name, value in arguments.items()
        if name not in _NO_COUNTER and isinstance(value, int | float)
    ]
    row = np.array([row for row, _, _ in values], dtype=np.int64)
    names, counts = [name for _, name, _ in values], [count for *_, count in values]
    return _counted(ranges[row], launch[row], names, counts, "CUPTI")


def _of_kernels(dag: Dag, window: Window) -> pd.DataFrame:
    """Metrics of the kernels that Nsight Compute measured."""
    parts = []
    for name, column in sorted(ncu_columns(dag.events).items()):
        inside = np.isin(column.event, clipped(dag, column.event, window).event)
        event, value = column.event[inside], column.value[inside].astype(np.float64)
        parts.append(_counted(event, dag.launch[event], name, value, "Nsight Compute"))
    none = np.empty(0, dtype=np.int64)
    return pd.concat(parts or [_counted(none, none, "", none, "")], ignore_index=True)


def _counted(
    event: I64, launch: npt.NDArray[np.integer], counter: object, value: object, instrument: str
) -> pd.DataFrame:
    """Counters as rows; a scalar applies to all."""
    columns = {"event": event, "launch": launch, "counter": counter, "value": value}
    return pd.DataFrame({**columns, "instrument": instrument}, index=np.arange(len(event))).astype(
        {"counter": object, "instrument": object, "value": np.float64}
    )


_NS_PER_S = 1e9
"""A unit: nanoseconds of a second."""
_OPERATIONS = {"add": 1, "mul": 1, "fma": 2}
"""Floating-point operations of an instruction: a fused multiply-add is two."""
_UNITS = ("smsp", "sm")
"""Units that count instructions: parts of an SM, or the SM; never both."""
_INSTRUCTIONS = {
    f"op_{kind}{operation}_pred_on": n
    for kind, (operation, n) in product("fhd", _OPERATIONS.items())
}
_TIME, _CYCLES = "gpu__time_duration.sum", "smsp__cycles_elapsed.avg.per_second"


def cupti_rates(dag: Dag, window: Window, *, args: Args, by: str = "name") -> pd.DataFrame:
    """Floating-point operations and memory traffic by kernel or operator, and the rates achieved.

    Operations are counted from executed SASS instructions (a fused multiply-add is two), which
    leaves out tensor cores; traffic from device memory bytes. Nsight Compute often reports rates
    instead, which are multiplied by its measured time. `args`: see `cupti_counters`. Longest first;
    NaN without the counter. Rates are over the time in the trace. A CUPTI range takes longer than
    its kernel, so its rates are lower bounds. Counts of Nsight Compute are from another run, where
    kernels ran alone with cold caches and a fixed clock.
    """
    counted = cupti_counters(dag, window, args=args)
    kernels = counted.drop_duplicates("event").set_index("event")
    values = {
        str(counter): rows.set_index("event")["value"].reindex(kernels.index).to_numpy(np.float64)
        for counter, rows in counted.groupby("counter", sort=False)
    }
    done = pd.DataFrame(
        {
            by: kernels[by],
            "n_ranges": 1,
            "dur_ns": kernels["dur_ns"],
            "flop": _flop(values, len(kernels)),
            "bytes": _bytes(values, len(kernels)),
        }
    )
    total = done.groupby(by, sort=True).sum(min_count=1)
    flop, n_bytes = total["flop"].to_numpy(np.float64), total["bytes"].to_numpy(np.float64)
    dur_ns = total["dur_ns"].to_numpy(np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        frame = CUPTI_RATES.frame(
            {
                "name": total.index.to_numpy(object),
                "n_ranges": total["n_ranges"].to_numpy(np.int64),
                "dur_ns": dur_ns,
                "flop": flop,
                "bytes": n_bytes,
                "flop_per_s": flop * _NS_PER_S / dur_ns,
                "bytes_per_s": n_bytes * _NS_PER_S / dur_ns,
                "flop_per_byte": flop / n_bytes,
            }
        )
    return frame.sort_values(["dur_ns", "name"], ascending=[False, True], ignore_index=True)


def _first_known(*choices: F64) -> F64:
    """The first choice that is not NaN, for each."""
    out = choices[0]
    for other in choices[1:]:
        out = np.where(np.isnan(out), other, out)
    return out


def _total(values: dict[str, F64], metric: str, n: int) -> F64:
    """Count of a metric in each kernel, directly or as its rate times the time."""
    unknown = np.full(n, np.nan)
    seconds = values.get(_TIME, unknown) / _NS_PER_S
    per_cycle = values.get(f"{metric}.sum.per_cycle_elapsed", unknown)
    return _first_known(
        values.get(f"{metric}.sum", unknown),
        values.get(f"{metric}.sum.per_second", unknown) * seconds,
        per_cycle * values.get(_CYCLES, unknown) * seconds,
    )


def _flop(values: dict[str, F64], n: int) -> F64:
    """Floating-point operations of each kernel."""
    sums = []
    for unit in _UNITS:
        counted = [
            weight * _total(values, f"{unit}__sass_thread_inst_executed_{name}", n)
            for name, weight in _INSTRUCTIONS.items()
        ]
        known = ~np.isnan(counted).all(axis=0)
        sums.append(np.where(known, np.nansum(counted, axis=0), np.nan))
    return _first_known(*sums)


def _bytes(values: dict[str, F64], n: int) -> F64:
    """Bytes that each kernel moved from and to device memory."""
    read, written = (_total(values, f"dram__bytes_{way}", n) for way in ("read", "write"))
    known = ~(np.isnan(read) & np.isnan(written))
    both = np.where(known, np.nan_to_num(read) + np.nan_to_num(written), np.nan)
    return _first_known(_total(values, "dram__bytes", n), both)
