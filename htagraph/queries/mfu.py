"""Model FLOPs utilization: the share of the dense peak that the operators of a step reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.lookup.attribution import host_of
from htagraph.lookup.clipping import device_work
from htagraph.lookup.operator_roofs import operator_roofs
from htagraph.lookup.phases import Phase, phases
from htagraph.lookup.steps import step_at, steps_in
from htagraph.model.answers import MFU
from htagraph.model.arrays import F64, I64
from htagraph.model.dag import Dag
from htagraph.model.window import Window


def mfu(dag: Dag, window: Window) -> pd.DataFrame:
    """Operations of matrix units at their peak, as a share of the time of the run and its steps.

    Returns
    -------
    DataFrame, schema `answers.MFU`
        A row for the window, and one for each step in it. Empty if no operator has a model or the
        device's peaks are not known.

    Notes
    -----
    Time at peak over time (Chowdhery et al. 2022), with the operations that ran instead of those of
    a formula. Recomputed ones (activation checkpointing) count for hardware FLOPs utilization only.
    What has no model counts as nothing, so the true values are higher. A call belongs to the step
    that launched it. A step lasts until its work is done, from its start or from when the step
    before was done: a host that runs ahead has short steps.
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
