"""How far operators are from the roof of their device, what that costs, and FLOPs utilization."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.arrays.intervals import sum_by_code
from htagraph.errors import GraphError
from htagraph.lookup.attribution import host_of
from htagraph.lookup.operator_roofs import Limit, OperatorRoofs, OperatorWork, operator_roofs
from htagraph.lookup.steps import step_at, steps_in
from htagraph.lookup.windowed import device_work
from htagraph.lookup.work_groups import (
    BY_LAUNCH,
    Groups,
    Phase,
    by_shape,
    named,
    operators_of,
    phases,
)
from htagraph.model.answers import MFU, ROOFLINE, SPEED_OF_LIGHT
from htagraph.model.arrays import F64, I64
from htagraph.model.dag import Dag
from htagraph.model.schema import categorical
from htagraph.model.window import Window
from htagraph.operators.work import Family
from htagraph.replay.rehearsal import Rehearsal
from htagraph.replay.replay import Removal, Replay

By = Literal["op", "shape", "kernel", "module", "annotation", "step", "phase", "family"]

_NS = 1e9


def roofline(dag: Dag, window: Window, *, by: By = "op") -> pd.DataFrame:
    """Calls, time, operations and bytes of operators, and the time that they need at their roof.

    The roof of a call is the longest of its operations at the dense peak of their type, its
    compulsory bytes at memory bandwidth, and the shortest kernel of the trace (Williams, Waterman
    and Patterson 2009). Operations count a multiply-add as 2; only matrix units are counted.
    Products of fp32 may be rounded to TF32, unless the name of their kernel says that they run on
    CUDA cores. `by`: operator, operator with the shapes of its inputs, kernel; innermost module or
    annotation, step or phase of training of its launch, of which a recomputed forward pass is told
    by module; or family of models. Largest excess over
    the roof first. ``device_ns`` adds up to all device time in the window. Work without a model has
    a row of its own in each group, without rates; if it has no operator, its launches count as
    calls. ``attrs["peaks"]`` has the device, its memory bandwidth and its dense peaks, if they are
    all the same: at the clocks that a log sampled, if any.
    """
    work = device_work(dag, window)
    roofs = operator_roofs(dag, work.event, work.dur_ns)
    joined = roofs.work
    groups = _grouped(dag, work.event, roofs, by)
    n_groups, is_modelled = len(groups.names), joined.call >= 0
    code = groups.code * 2 + is_modelled
    # A call counts in the group of its longest kernel, so that its work counts once.
    of_call = np.full(len(joined.event), -1, dtype=np.int64)
    order = np.argsort(work.dur_ns, kind="stable")
    order = order[is_modelled[order]]
    of_call[joined.call[order]] = code[order]
    size = 2 * n_groups
    device_ns = sum_by_code(code, work.dur_ns, size)
    of_calls = [joined.of_calls(name) for name in ("flops", "bytes_low", "bytes_high")]
    flops, low, high, roof_ns, excess = (
        np.bincount(of_call, weights=values.astype(np.float64), minlength=size)
        for values in (*of_calls, roofs.roof_ns, roofs.device_ns - roofs.roof_ns)
    )
    kept = np.flatnonzero(np.bincount(code, minlength=size))
    others = _n_callers(dag, work.event, joined, code, size)[kept]
    if int(device_ns.sum()) != int(work.dur_ns.sum()):
        raise GraphError("the device time of the roofline does not add up.")
    seconds = np.maximum(device_ns[kept], 1) / _NS
    known = (kept % 2 == 1) & roofs.has_peaks
    limit = main_limit(of_call, roofs, size)[kept]
    known &= limit != Limit.UNKNOWN
    frame = ROOFLINE.frame(
        {
            "group": groups.names[kept // 2],
            "n_calls": np.where(kept % 2 == 1, np.bincount(of_call, minlength=size)[kept], others),
            "n_kernels": np.bincount(code, minlength=size)[kept],
            "device_ns": device_ns[kept],
            "device_share": device_ns[kept] / max(int(work.dur_ns.sum()), 1),
            "gflop": flops[kept] / 1e9,
            "bytes_low": low[kept].astype(np.int64),
            "bytes_high": high[kept].astype(np.int64),
            "tflops_per_s": np.where(kept % 2 == 1, flops[kept] / seconds / 1e12, np.nan),
            "gb_per_s": np.where(kept % 2 == 1, low[kept] / seconds / 1e9, np.nan),
            "flop_per_byte": np.divide(
                flops[kept], low[kept], out=np.full(len(kept), np.nan), where=low[kept] > 0
            ),
            "roof_ns": np.where(known, roof_ns[kept], np.nan),
            "roof_share": np.where(known, roof_ns[kept] / np.maximum(device_ns[kept], 1), np.nan),
            "excess_ns": np.where(known, excess[kept], 0).astype(np.int64),
            "limit": categorical(np.where(known, limit, Limit.UNKNOWN), Limit.labels()),
        }
    )
    frame = frame.sort_values(
        ["excess_ns", "device_ns", "group"], ascending=[False, False, True], ignore_index=True
    )
    if len(roofs.peaks) == 1:
        (peaks,) = roofs.peaks
        types = {work.dtype for work in joined.works if work.flops}
        if "fp32" in types and (roofs.limit != Limit.FP32).any():
            types.add("tf32")
        tflops = {one: peaks.flops_per_s(one) / 1e12 for one in sorted(types)}
        frame.attrs["peaks"] = {
            "device": peaks.name,
            "source": peaks.source,
            "memory_tbps": peaks.memory_tbps,
            "tflops": {one: peak for one, peak in tflops.items() if peak},
        }
    return frame


def _n_callers(dag: Dag, work: I64, joined: OperatorWork, code: I64, size: int) -> I64:
    """How many operators launched the work of each group, or calls if none did.

    Operators of a capture count in each replay.
    """
    launch = dag.launch[work].astype(np.int64)
    operator = operators_of(dag, work, joined)
    caller = np.where(operator >= 0, operator, np.where(launch >= 0, launch, work))
    replay = np.where(operator >= len(dag.events), launch, -1)
    group, *_ = np.unique(np.stack([code, caller, replay]), axis=1)
    return np.bincount(group, minlength=size).astype(np.int64)


def main_limit(of_call: I64, roofs: OperatorRoofs, n_groups: int) -> I64:
    """The limit of most time at the roof, of each group."""
    n = len(Limit)
    time = np.bincount(
        of_call * n + roofs.limit, weights=roofs.roof_ns + 1.0, minlength=n_groups * n
    )
    return np.asarray(time.reshape(n_groups, n).argmax(axis=1), dtype=np.int64)


def _grouped(dag: Dag, work: I64, roofs: OperatorRoofs, by: str) -> Groups:
    if by == "op":
        return named(dag, operators_of(dag, work, roofs.work))
    if by == "shape":
        return by_shape(dag, work, roofs.work)
    if by == "kernel":
        return named(dag, work)
    if by == "family":
        family = gather(roofs.work.of_calls("family"), roofs.work.call, len(Family))
        names = np.array([*(one.label for one in Family), ""], dtype=object)
        return Groups(family.astype(np.int64), names)
    groups = BY_LAUNCH[by](dag, work)
    if by == "phase":
        again, modules = groups.names[Phase.RECOMPUTED], BY_LAUNCH["module"](dag, work)
        is_in = (groups.code == Phase.RECOMPUTED) & (modules.names[modules.code] != "")
        code = np.where(is_in, len(groups.names) + modules.code, groups.code)
        return Groups(code, np.append(groups.names, f"{again} of " + modules.names))
    return groups


EVERYTHING = "all operators"
"""The group of all operators with a model."""


def speed_of_light(dag: Dag, window: Window) -> pd.DataFrame:
    """How much shorter the window would be with each operator at its roof, and with all of them.

    The window is replayed with the device work of each operator at its roof (`roofline`), as by
    `at_roof`; at the share of the roof that the best operator of its family reaches in this trace,
    which is attainable; and with products of fp32 in TF32, as by `allow_tf32`. Kernels alone get
    faster: launches and CPU code stay. Operators by shape, largest cost first, after a row for all.
    Empty if no operator has a model or the device's peaks are not known.
    """
    work = device_work(dag, window)
    roofs = operator_roofs(dag, work.event, work.dur_ns)
    if not roofs.has_peaks:
        return SPEED_OF_LIGHT.empty()
    joined, groups = roofs.work, by_shape(dag, work.event, roofs.work)
    is_modelled = joined.call >= 0
    of_call = np.full(len(joined.event), -1, dtype=np.int64)
    of_call[joined.call[is_modelled]] = groups.code[is_modelled]
    present, of_call = np.unique(of_call, return_inverse=True)
    n = len(present)
    device_ns = sum_by_code(of_call, roofs.device_ns, n)
    roof_ns = np.bincount(of_call, weights=roofs.roof_ns, minlength=n)
    family = np.zeros(n, dtype=np.int64)
    family[of_call] = joined.of_calls("family")
    share = roof_ns / np.maximum(device_ns, 1)
    limit = main_limit(of_call, roofs, n)
    attainable_ns = np.minimum(roof_ns / _best(share, family, limit), device_ns)
    replay = Rehearsal(dag, window).expected.replay
    group = np.full(len(dag.events), -1, dtype=np.int64)
    group[work.event] = gather(of_call, joined.call)
    tf32_ns = np.bincount(of_call, weights=roofs.tf32_ns, minlength=n)
    costs_ns = [
        _costs_ns(window, replay, group, 1 - least / np.maximum(device_ns, 1))
        for least in (roof_ns, attainable_ns, tf32_ns)
    ]
    frame = SPEED_OF_LIGHT.frame(
        {
            "group": [EVERYTHING, *groups.names[present]],
            "family": categorical([-1, *family], [one.label for one in Family]),
            "n_calls": [len(of_call), *np.bincount(of_call, minlength=n)],
            "device_ns": [int(device_ns.sum()), *device_ns],
            "roof_ns": [roof_ns.sum(), *roof_ns],
            "roof_share": [
                roof_ns.sum() / max(int(device_ns.sum()), 1),
                *np.where(limit == Limit.UNKNOWN, np.nan, share),
            ],
            "limit": categorical(
                [*main_limit(np.zeros_like(of_call), roofs, 1), *limit], Limit.labels()
            ),
            "cost_ns": costs_ns[0],
            "cost_share": costs_ns[0] / max(window.dur_ns, 1),
            "attainable_ns": costs_ns[1],
            "tf32_ns": costs_ns[2],
        }
    )
    rest = frame.iloc[1:].sort_values(
        ["cost_ns", "device_ns", "group"], ascending=[False, False, True]
    )
    return pd.concat([frame.iloc[:1], rest], ignore_index=True)


def _best(share: F64, family: I64, limit: I64) -> F64:
    """The largest share of the roof in the family of each operator; 1 where none is comparable.

    Work in the cache is faster than its roof, and launch-sized work says nothing of larger work.
    """
    best = np.zeros(len(Family))
    comparable = np.isin(limit, (Limit.COMPUTE, Limit.FP32, Limit.MEMORY, Limit.HOST_LINK))
    np.maximum.at(best, family[comparable], share[comparable])
    return np.where(best > 0, best, 1.0)[family]


def _costs_ns(window: Window, replay: Replay, group: I64, spared: F64) -> I64:
    """What the window loses without the spared share of all groups, and of each."""
    owner = gather(group, replay.owner)
    cut = np.rint(replay.lag_ns * gather(spared, owner, 0.0)).astype(np.int64)
    without = np.where(owner >= 0, replay.weight_ns - np.maximum(cut, 0), replay.weight_ns)
    everything = np.where(owner >= 0, np.int64(0), np.int64(-1))
    both = np.stack([everything, np.where(owner >= 0, owner + 1, -1)], axis=1)
    removal = Removal.of_edges(replay, both, np.stack([without, without], axis=1), len(spared) + 1)
    return removal.costs_ns(window)


def mfu(dag: Dag, window: Window) -> pd.DataFrame:
    """Operations of matrix units at their peak, as a share of the time of the run and its steps.

    Time at peak over time (Chowdhery et al. 2022), with the operations that ran instead of those of
    a formula. Recomputed ones (activation checkpointing) count for hardware FLOPs utilization only.
    What has no model counts as nothing, so the true values are higher. A call belongs to the step
    that launched it. A step lasts until its work is done, from its start or from when the step
    before was done: a host that runs ahead has short steps. A row for the window, and one for each
    step in it. Empty if no operator has a model or the device's peaks are not known.
    """
    work = device_work(dag, window)
    roofs = operator_roofs(dag, work.event, work.dur_ns, at_clock=False)
    if not roofs.has_peaks:
        return MFU.empty()
    steps = steps_in(dag.events, window)
    names = np.array([window.name, *steps["name"]], dtype=object)
    calls, n = roofs.work, len(names)
    of_work = 1 + step_at(steps, gather(dag.events.ts_ns, host_of(dag, work.event), -1))
    flops, peak_ns = calls.of_calls("flops").astype(np.float64), roofs.compute_ns
    longest = np.zeros(len(calls.event), dtype=np.int64)
    longest[calls.call[calls.call >= 0]] = work.event[calls.call >= 0]
    caller = np.where(calls.event < len(dag.events), calls.event, host_of(dag, longest))
    of_call = 1 + step_at(steps, gather(dag.events.ts_ns, caller, -1))
    is_again = phases(dag, longest) == Phase.RECOMPUTED
    is_modelled = calls.call >= 0
    modelled_ns, kernel_ns, all_flops, all_peak_ns, again_ns = (
        _by_step(code, values, n)
        for code, values in (
            (of_work, np.where(is_modelled, work.dur_ns, 0)),
            (of_work, work.dur_ns),
            (of_call, flops),
            (of_call, peak_ns),
            (of_call, np.where(is_again, peak_ns, 0.0)),
        )
    )
    lengths = np.append(window.dur_ns, _lengths_ns(steps, of_work - 1, work.end_ns))
    return MFU.frame(
        {
            "part": names,
            "window_ns": lengths,
            "kernel_ns": kernel_ns.astype(np.int64),
            "modelled_share": modelled_ns / np.maximum(kernel_ns, 1),
            "tflop": all_flops / 1e12,
            "peak_ns": all_peak_ns,
            "mfu_share": (all_peak_ns - again_ns) / np.maximum(lengths, 1),
            "hfu_share": all_peak_ns / np.maximum(lengths, 1),
        }
    )


def _lengths_ns(steps: pd.DataFrame, step: I64, end_ns: I64) -> I64:
    """How long each step lasts, by when its device work ends; -1 for work of no step."""
    begin_ns, dur_ns = (steps[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns"))
    done_ns = begin_ns + dur_ns
    np.maximum.at(done_ns, step[step >= 0], end_ns[step >= 0])
    before_ns = np.append(begin_ns[:1], np.maximum.accumulate(done_ns)[:-1])
    # A step of other streams may be done before the one before it is.
    late_ns = np.where(before_ns < done_ns, np.maximum(begin_ns, before_ns), begin_ns)
    return np.asarray(done_ns - late_ns, dtype=np.int64)


def _by_step(code: I64, values: npt.NDArray[Any], n: int) -> F64:
    """Sums by step; the first is that of all."""
    found = np.bincount(code, weights=values, minlength=n).astype(np.float64)
    found[0] = values.sum()
    return found
