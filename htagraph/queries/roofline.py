"""How far operators are from what the device can do: FLOP/s and bytes/s against their roof."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import sum_by_code
from htagraph.errors import GraphError
from htagraph.lookup.clipping import device_work
from htagraph.lookup.operator_roofs import Limit, OperatorRoofs, operator_roofs
from htagraph.lookup.operator_work import OperatorWork
from htagraph.lookup.work_groups import BY_LAUNCH, Groups, by_shape, named, operators_of
from htagraph.model.answers import ROOFLINE
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.schema import categorical
from htagraph.model.window import Window
from htagraph.operators.work import Family

By = Literal["op", "shape", "kernel", "module", "annotation", "step", "phase", "family"]

_NS = 1e9


def roofline(dag: Dag, window: Window, *, by: By = "op") -> pd.DataFrame:
    """Calls, time, operations and bytes of operators, and the time that they need at their roof.

    Parameters
    ----------
    by : {"op", "shape", "kernel", "module", "annotation", "step", "phase", "family"}
        Operator, operator with the shapes of its inputs, kernel; innermost module or annotation,
        step or phase of training of its launch; or family of models.

    Returns
    -------
    DataFrame, schema `answers.ROOFLINE`
        Largest excess over the roof first. ``device_ns`` adds up to all device time in the window.
        Work without a model has a row of its own in each group, without rates; if it has no
        operator, its launches count as calls. ``attrs["peaks"]``
        has the device, its memory bandwidth and its dense peaks, if they are all the same: at the
        clocks that a log sampled, if any.

    Notes
    -----
    The roof of a call is the longest of its operations at the dense peak of their type, its
    compulsory bytes at memory bandwidth, and the shortest kernel of the trace (Williams, Waterman
    and Patterson 2009). Operations count a multiply-add as 2; only matrix units are counted.
    Products of fp32 may be rounded to TF32, unless the name of their kernel says that they run on
    CUDA cores.
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
        for values in (*of_calls, roofs.roof_ns, roofs.excess_ns)
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
    """The group of each piece of device work."""
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
    return BY_LAUNCH[by](dag, work)
