"""How full devices are, in sentences: why 100% utilization may be a tenth of the machine."""

from __future__ import annotations

import pandas as pd

from htagraph.model.kinds import SlotUse

_N_LOSSES = 3
"""Causes of empty warp slots in one sentence: chosen."""
_WORTH_SAYING = 0.01
"""Share of warp slots below which a cause is left out: chosen."""
_NEARLY_ALL = 0.995
"""Known share of kernel time that reads 100% when rounded."""
_SMALL = 0.1
"""Share below which percent needs a decimal to show two digits."""
_BUSY = 0.5
"""Utilization, and share of it on SMs, that counts as busy: chosen."""
_WHY = {
    SlotUse.IDLE: "with no kernel running",
    SlotUse.COMMUNICATION: "in communication kernels, which use few SMs",
    SlotUse.SMALL_GRID: "because grids have fewer blocks than the device has SMs",
    SlotUse.TAIL_WAVE: "in the last waves of kernels",
    SlotUse.FEW_BLOCKS: "because grids have fewer blocks than fit",
    SlotUse.REGISTERS: "limited by registers",
    SlotUse.SHARED_MEMORY: "limited by shared memory",
    SlotUse.BLOCK_SIZE: "limited by block size",
}


def share_of_all(devices: pd.DataFrame, part: str) -> float:
    """The share of a part in the time of all devices, as profiles have it.

    Parameters
    ----------
    devices : DataFrame, schema `answers.TEMPORAL_BREAKDOWN`
        Of one rank, or of a job, whose ranks have windows of their own.

    Examples
    --------
    >>> share_of_all(pd.DataFrame({"window_ns": [10, 30], "idle_ns": [5, 3]}), "idle")
    0.2
    """
    return float(devices[f"{part}_ns"].sum() / max(int(devices["window_ns"].sum()), 1))


def use_in_words(used: pd.DataFrame) -> str:
    """The factors from GPU utilization to used warp slots; empty without device work.

    Parameters
    ----------
    used : DataFrame, schema `answers.UTILIZATION`
        By device; of a job with a column ``rank``.

    Examples
    --------
    >>> shares = {"gpu_utilization": [1.0], "sm_activity": [0.61], "sm_occupancy": [float("nan")]}
    >>> use_in_words(pd.DataFrame(shares | {"grid_coverage": [1.0]}))
    'A kernel runs 100% of the time, on 61% of the SMs (estimated).'
    """
    if used.empty:
        return ""
    means = used[["gpu_utilization", "sm_activity", "sm_occupancy"]].mean(skipna=False)
    busy, active, filled = means.tolist()
    first = "A kernel runs" if len(used) == 1 else "On average of devices, a kernel runs"
    said = f"{first} {_percent(busy)} of the time"
    if not busy or pd.isna(active):
        why = "; too few launch geometries are recorded to tell how full the device is then."
        return f"{said}{why if busy else '.'}"
    said = f"{said}, on {_percent(active / busy)} of the SMs"
    coverage = float(used["grid_coverage"].mean())
    of = "" if coverage > _NEARLY_ALL else f" from {coverage:.0%} of the time of kernels"
    if pd.isna(filled):
        return f"{said} (estimated{of})."
    warps = filled / active if active else 0.0
    filled_slots = f"fills {_percent(warps)} of their warp slots: {_percent(filled)} of all"
    return f"{said}, and {filled_slots} (estimated{of})."


def seems_busier(used: pd.DataFrame) -> bool:
    """Whether GPU utilization is high although less than half of the SMs are busy.

    Examples
    --------
    >>> used = pd.DataFrame({"gpu_utilization": [0.98], "sm_activity": [0.24]})
    >>> seems_busier(used), seems_busier(used.assign(sm_activity=0.8))
    (True, False)
    """
    if used.empty:
        return False
    busy, active = used["gpu_utilization"].mean(), used["sm_activity"].mean(skipna=False)
    return bool(busy > _BUSY and active < busy * _BUSY)


def _percent(share: float) -> str:
    """A share in percent, of two digits at least where it is small."""
    return f"{share:.0%}" if share >= _SMALL or not share else f"{share:.1%}"


def lost_slots(losses: pd.DataFrame) -> pd.DataFrame:
    """Rows of warp slots that are empty while kernels run."""
    kept = ~losses["use"].isin([SlotUse.IDLE.label, SlotUse.USED.label])
    return losses[kept].reset_index(drop=True)


def losses_in_words(losses: pd.DataFrame) -> str:
    """The largest losses of warp slots, over all kernels and devices; empty without any.

    Examples
    --------
    >>> losses_in_words(pd.DataFrame({"device": 0, "use": ["idle", "used"], "share": [0.4, 0.6]}))
    'Empty warp slots: 40% with no kernel running.'
    """
    use = losses["use"].astype(str)
    known = ~use.isin([SlotUse.USED.label, SlotUse.NOT_RECORDED.label])
    n_devices = max(losses["device"].nunique(), 1)
    shares = losses[known].groupby(use[known])["share"].sum() / n_devices
    shares = shares[shares >= _WORTH_SAYING].sort_values(ascending=False, kind="stable")
    named = [f"{share:.0%} {_WHY[SlotUse[str(use).upper()]]}" for use, share in shares.items()]
    return f"Empty warp slots: {', '.join(named[:_N_LOSSES])}." if named else ""
