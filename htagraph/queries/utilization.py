"""How full each device is, from "a kernel runs" to the share of warp slots in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.errors import QueryError
from htagraph.lookup.device_states import devices_of
from htagraph.lookup.sampled_use import SAMPLED, sampled_use
from htagraph.lookup.sm_activity import SmActivity, sm_activity
from htagraph.lookup.steps import steps_in
from htagraph.model.answers import UTILIZATION
from htagraph.model.arrays import F64, I64
from htagraph.model.dag import Dag
from htagraph.model.window import Window

_ENOUGH = 0.5
"""Share of kernel time with known grids, or warps, that an estimate needs. Chosen: test_utilization
draws a little more and a little less."""


class _Ranges(NamedTuple):
    """Ranges of time with their names."""

    name: Sequence[str]
    start_ns: I64
    end_ns: I64


def utilization(dag: Dag, window: Window, *, by: str = "device", bins: int = 100) -> pd.DataFrame:
    """How full each device is: whether a kernel runs, on how many SMs, with how many warps.

    "GPU utilization" in ``nvidia-smi`` is the share of time in which any kernel runs: 100% even for
    a kernel of one block. The factors that it leaves out::

        gpu_utilization * sm_share = sm_activity       multiprocessors (SMs) that have a block
        sm_activity * warp_share = sm_occupancy        warp slots that hold a warp

    All but the first are estimates from launch geometry: they assume that blocks of a kernel last
    equally long, and that concurrent kernels add up. ``grid_coverage`` is the share of kernel time
    with recorded grids; the rest is assumed to be the same. Below a half there is no estimate.

    Parameters
    ----------
    by : {"device", "step", "time"}
        The whole window, each step that overlaps it (whole), or parts of equal length.
    bins : int, default=100
        Number of parts by time.

    Returns
    -------
    DataFrame, schema `answers.UTILIZATION`
        By device, in order of time. Empty without device work.

    Raises
    ------
    QueryError
        If ``bins`` is 0.

    Examples
    --------
    >>> import htagraph as hg
    >>> found = hg.load(hg.demo_trace("none")).compile().utilization()
    >>> found[["sm_share", "warp_share"]].round(2)
       sm_share  warp_share
    0      0.98        0.32
    """
    if bins < 1:
        raise QueryError("utilization: bins must be at least 1.", hint="100 is the default.")
    ranges = _ranges(dag, window, by, bins)
    whole = Window(
        int(ranges.start_ns.min(initial=window.start_ns)),
        int(ranges.end_ns.max(initial=window.end_ns)),
        window.name,
    )
    parts = [_one_device(dag, one, ranges) for one in sm_activity(dag, whole)]
    if not parts:
        return UTILIZATION.empty()
    return UTILIZATION.frame(
        {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    )


def _ranges(dag: Dag, window: Window, by: str, bins: int) -> _Ranges:
    """The time ranges of an answer's rows."""
    if by == "step":
        steps = steps_in(dag.events, window)
        start = steps["start_ns"].to_numpy(np.int64)
        end = start + steps["dur_ns"].to_numpy(np.int64)
        return _Ranges(steps["name"].tolist(), start, end)
    n = bins if by == "time" else 1
    edges = window.start_ns + window.dur_ns * np.arange(n + 1) // n
    return _Ranges([""] * n, edges[:-1], edges[1:])


def _ratio(part: F64, whole: F64) -> F64:
    """Shares from 0 to 1, NaN for an empty whole."""
    out = np.full(len(whole), np.nan)
    np.divide(part, whole, out=out, where=whole > 0)
    shares: F64 = np.clip(out, 0, 1)
    return shares


def _one_device(dag: Dag, full: SmActivity, ranges: _Ranges) -> dict[str, npt.ArrayLike]:
    """Rows of one device."""
    start, end, device = ranges.start_ns, ranges.end_ns, full.device
    found = full.within(start, end)
    length = (end - start).astype(np.float64)
    busy = _ratio(found["busy"], length)
    grids = _ratio(found["known"], found["busy"])
    warps = np.nan_to_num(_ratio(found["counted"], found["sms"]))
    has_grids, has_warps = grids >= _ENOUGH, warps * grids >= _ENOUGH
    sm_share = np.where(has_grids, _ratio(found["sms"], found["known"]), np.nan)
    warp_share = np.where(has_warps, _ratio(found["warps"], found["counted"]), np.nan)
    # Kernels of known geometry stand for all kernels.
    per_known = np.where(has_grids, 1 / np.where(has_grids, grids, 1), np.nan)
    idle = busy == 0
    sampled = sampled_use(dag.events.samples, device, devices_of(dag), start, end)
    return {
        "device": np.full(len(start), device),
        "name": ranges.name,
        "start_ns": start,
        "dur_ns": end - start,
        "gpu_utilization": busy,
        "sm_share": sm_share,
        "sm_activity": np.where(idle, 0.0, busy * sm_share),
        "warp_share": warp_share,
        "sm_occupancy": np.where(idle, 0.0, busy * sm_share * warp_share),
        "measured_warp_share": _ratio(found["measured_warps"], found["measured"]),
        "communication_share": _ratio(found["communication"], length),
        "small_grid_share": np.where(idle, 0.0, _ratio(found["small"], length) * per_known),
        "tail_share": np.where(idle, 0.0, _ratio(found["tail"], length) * per_known),
        "copy_share": _ratio(found["copying"], length),
        "tensor_share": _ratio(found["tensor"], found["computing"]),
        "grid_coverage": grids,
        "warp_coverage": warps * grids,
        **{f"sampled_{name}": sampled[name] for name in SAMPLED},
    }
