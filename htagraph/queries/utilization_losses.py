"""Warp slots of each device: used, or why empty, and by which kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.lookup.sm_activity import SmActivity, sm_activity
from htagraph.model.answers import UTILIZATION_LOSSES
from htagraph.model.dag import Dag
from htagraph.model.kinds import SlotUse
from htagraph.model.schema import categorical
from htagraph.model.window import Window

_DIGITS = 10
"""Digits of a share that are sorted by: less is rounding of sums, which depends on their order
(test_utilization_losses: shares that differ by a nanosecond, and none of rounding alone)."""
_ROUNDING = 1 / 10.0**_DIGITS
"""The smallest share that is not rounding: one of the last digit."""


def utilization_losses(dag: Dag, window: Window) -> pd.DataFrame:
    """Use of each device's warp slots by kernel; the shares of a device add up to 1.

    ::

        time       | idle |  a kernel runs                                    |
        SMs        |      | without a block: small     | with a block         |
                   |      | grid, tail, communication  |                      |
        warp slots |      |                            | few blocks, limit | used

    Returns
    -------
    DataFrame, schema `answers.UTILIZATION_LOSSES`
        By device, the largest share first. Estimates as in `utilization`, except that kernels of
        unknown geometry are ``not_recorded``.

    Examples
    --------
    >>> import htagraph as hg
    >>> losses = hg.load(hg.demo_trace("none")).compile().utilization_losses()
    >>> losses[["use", "name", "share"]].head(3).round(2)
              use                    name  share
    0  few_blocks  ampere_sgemm_128x64_nn   0.55
    1        used  ampere_sgemm_128x64_nn   0.19
    2        idle                           0.13
    """
    devices = [*sm_activity(dag, window)] if window.dur_ns else []
    if not devices:
        return UTILIZATION_LOSSES.frame(_nothing())
    shares = _joined([_shares(dag, window, one) for one in devices])
    kernels = _joined([_kernels(dag, one) for one in devices])
    keys = ["device", "use", "name"]
    sums = shares.groupby(keys, sort=True, as_index=False)["share"].sum()
    of_name = kernels.groupby(["device", "name"], sort=True)
    about = of_name[["n_blocks", "n_waves", "n_fit"]].median().astype(np.int64)
    about["n_kernels"], about["kernel_ns"] = of_name.size(), of_name["kernel_ns"].sum()
    frame = sums[sums["share"] > _ROUNDING].join(about, on=["device", "name"])
    frame[about.columns] = frame[about.columns].fillna(0).astype(np.int64)  # of no kernel
    frame["name"] = np.append(dag.events.symbols.array, "")[frame["name"].to_numpy(np.int64)]
    frame = frame.assign(least=-frame["share"].round(_DIGITS))
    order = ["device", "least", "use", "name"]
    frame = frame.sort_values(order, ignore_index=True).drop(columns="least")
    uses = categorical(frame["use"], SlotUse.labels())
    return UTILIZATION_LOSSES.frame({name: frame[name] for name in frame.columns} | {"use": uses})


def _nothing() -> dict[str, object]:
    """Columns without rows."""
    columns: dict[str, object] = {name: [] for name in UTILIZATION_LOSSES.columns}
    return columns | {"use": categorical([], SlotUse.labels())}


def _joined(parts: Sequence[dict[str, npt.NDArray[Any]]]) -> pd.DataFrame:
    """The same columns of several devices as one frame."""
    return pd.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def _shares(dag: Dag, window: Window, full: SmActivity) -> dict[str, npt.NDArray[Any]]:
    """What warp slots of a device are used for, by kernel; -1 is none."""
    slots, names = full.slots, dag.events.name[full.kernels.event]
    idle = 1.0 - full.whole("busy")["busy"] / window.dur_ns
    use = np.append(slots.use.astype(np.int64), int(SlotUse.IDLE))
    return {
        "device": np.full(len(use), full.device),
        "use": use,
        "name": np.append(gather(names, slots.kernel), -1),
        "share": np.append(slots.time_ns / window.dur_ns, idle),
    }


def _kernels(dag: Dag, full: SmActivity) -> dict[str, npt.NDArray[Any]]:
    """Kernels of a device and their geometry."""
    kernels, geometry = full.kernels, full.geometry
    n_waves = geometry.n_full_waves(max(full.n_sms, 1)) + 1
    return {
        "device": np.full(len(kernels.event), full.device),
        "name": dag.events.name[kernels.event],
        "kernel_ns": kernels.dur_ns,
        "n_blocks": geometry.n_blocks,
        "n_waves": np.where(geometry.is_known, n_waves, 0),
        "n_fit": np.where(geometry.is_known, geometry.resident, 0),
    }
