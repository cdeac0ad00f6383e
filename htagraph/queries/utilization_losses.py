"""Warp slots of each device: used, or why empty, and by which kernel."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.lookup.device_states import devices_of
from htagraph.lookup.sm_activity import SmActivity, sm_activity
from htagraph.model.answers import UTILIZATION_LOSSES
from htagraph.model.dag import Dag
from htagraph.model.kinds import SlotUse
from htagraph.model.schema import categorical
from htagraph.model.window import Window

__all__ = ["utilization_losses"]

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
    0  few_blocks  ampere_sgemm_128x64_nn   0.54
    1        used  ampere_sgemm_128x64_nn   0.19
    2        idle                           0.13
    """
    devices = devices_of(dag).tolist() if window.dur_ns else []
    found = [_one_device(dag, window, sm_activity(dag, window, device)) for device in devices]
    if not found:
        return UTILIZATION_LOSSES.frame(_nothing())
    frame = pd.concat(found)
    frame = frame.assign(least=-frame["share"].round(_DIGITS))
    order = ["device", "least", "use", "name"]
    frame = frame.sort_values(order, ignore_index=True).drop(columns="least")
    uses = categorical(frame["use"], SlotUse.labels())
    return UTILIZATION_LOSSES.frame({name: frame[name] for name in frame.columns} | {"use": uses})


def _nothing() -> dict[str, object]:
    """Columns without rows."""
    columns: dict[str, object] = {name: [] for name in UTILIZATION_LOSSES.columns}
    return columns | {"use": categorical([], SlotUse.labels())}


def _one_device(dag: Dag, window: Window, full: SmActivity) -> pd.DataFrame:
    """Rows of one device."""
    kernels, geometry, slots = full.kernels, full.geometry, full.slots
    names = dag.events.name[kernels.event]
    n_waves = geometry.n_full_waves(max(full.n_sms, 1)) + 1
    n_names = len(dag.events.symbols)
    code = slots.use.astype(np.int64) * n_names + gather(names, slots.kernel)
    share = pd.Series(slots.time_ns / window.dur_ns, copy=False).groupby(code, sort=True).sum()
    use, name = np.divmod(share.index.to_numpy(np.int64), n_names)
    sums = pd.DataFrame({"use": use, "name": name, "share": share.to_numpy()})
    sums = sums[sums["share"] > _ROUNDING].reset_index(drop=True)
    of_name = pd.DataFrame(
        {
            "name": names,
            "kernel_ns": kernels.dur_ns,
            "n_blocks": geometry.n_blocks,
            "n_waves": np.where(geometry.is_known, n_waves, 0),
            "n_fit": np.where(geometry.is_known, geometry.resident, 0),
        }
    ).groupby("name", sort=True)
    about = of_name[["n_blocks", "n_waves", "n_fit"]].median().astype(np.int64)
    about["n_kernels"], about["kernel_ns"] = of_name.size(), of_name["kernel_ns"].sum()
    rows = sums.join(about, on="name")
    rows["name"] = dag.events.symbols.array[rows["name"].to_numpy(np.int64)]
    idle = 1.0 - full.whole("busy")["busy"] / window.dur_ns
    if idle > _ROUNDING:
        zeros = dict.fromkeys(("n_blocks", "n_waves", "n_fit", "n_kernels", "kernel_ns"), 0)
        last = {"use": int(SlotUse.IDLE), "name": "", "share": idle, **zeros}
        rows = pd.concat([rows, pd.DataFrame([last])])
    return rows.assign(device=full.device)
