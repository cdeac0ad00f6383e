"""How full each device is, from "a kernel runs" to its warp slots: estimated, and as measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.errors import QueryError
from htagraph.lookup.operator_roofs import operator_roofs
from htagraph.lookup.queues import devices_of
from htagraph.lookup.samples import SAMPLED, full_value, over, sampled_use, series_of
from htagraph.lookup.sm_activity import SmActivity, sm_activity
from htagraph.lookup.steps import steps_in
from htagraph.lookup.windowed import device_work
from htagraph.model.answers import DEVICE_ACTIVITY, UTILIZATION, UTILIZATION_LOSSES
from htagraph.model.arrays import F64, I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind, SlotUse
from htagraph.model.names import MEMORY_CLOCK, SM_CLOCK, TENSOR_CORE_KERNELS
from htagraph.model.schema import categorical
from htagraph.model.window import Window

_ENOUGH = 0.5
"""Share of kernel time with known grids, or warps, that an estimate needs. Chosen: test_utilization
draws a little more and a little less."""


_Ranges = tuple[Sequence[str], I64, I64]
"""Names, starts and ends of ranges of time."""


def utilization(dag: Dag, window: Window, *, by: str = "device", bins: int = 100) -> pd.DataFrame:
    """How full each device is: whether a kernel runs, on how many SMs, with how many warps.

    "GPU utilization" in ``nvidia-smi`` is the share of time in which any kernel runs: 100% even for
    a kernel of one block. The factors that it leaves out::

        gpu_utilization * sm_share = sm_activity       multiprocessors (SMs) that have a block
        sm_activity * warp_share = sm_occupancy        warp slots that hold a warp

    All but the first are estimates from launch geometry: they assume that blocks of a kernel last
    equally long, and that concurrent kernels add up. ``grid_coverage`` is the share of kernel time
    with recorded grids; the rest is assumed to be the same. Below a half there is no estimate.
    `by`: the whole window, each step that overlaps it (whole), or parts of equal length. `bins`:
    number of parts by time. By device, in order of time. Empty without device work.
    """
    if bins < 1:
        raise QueryError("utilization: bins must be at least 1.", hint="100 is the default.")
    ranges = _, start, end = _ranges(dag, window, by, bins)
    begin_ns, end_ns = start.min(initial=window.start_ns), end.max(initial=window.end_ns)
    whole = Window(int(begin_ns), int(end_ns), window.name)
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
        return steps["name"].tolist(), start, end
    n = bins if by == "time" else 1
    edges = window.start_ns + window.dur_ns * np.arange(n + 1) // n
    return [""] * n, edges[:-1], edges[1:]


def _ratio(part: F64, whole: F64) -> F64:
    """Shares from 0 to 1, NaN for an empty whole."""
    out = np.full(len(whole), np.nan)
    np.divide(part, whole, out=out, where=whole > 0)
    shares: F64 = np.clip(out, 0, 1)
    return shares


def _one_device(dag: Dag, full: SmActivity, ranges: _Ranges) -> dict[str, npt.ArrayLike]:
    (names, start, end), device = ranges, full.device
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
        "name": names,
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


_DIGITS = 10
"""Digits of a share that are sorted by: less is rounding of sums, which depends on their order
(test_utilization: shares that differ by a nanosecond, and none of rounding alone)."""
_ROUNDING = 1 / 10.0**_DIGITS
"""The smallest share that is not rounding: one of the last digit."""


def utilization_losses(dag: Dag, window: Window) -> pd.DataFrame:
    """Use of each device's warp slots by kernel; the shares of a device add up to 1.

    ::

        time       | idle |  a kernel runs                                    |
        SMs        |      | without a block: small     | with a block         |
                   |      | grid, tail, communication  |                      |
        warp slots |      |                            | few blocks, limit | used

    By device, the largest share first. Estimates as in `utilization`, except that kernels of
    unknown geometry are ``not_recorded``.
    """
    devices = [*sm_activity(dag, window)] if window.dur_ns else []
    if not devices:
        none: dict[str, object] = {name: [] for name in UTILIZATION_LOSSES.columns}
        return UTILIZATION_LOSSES.frame(none | {"use": categorical([], SlotUse.labels())})
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


def _joined(parts: Sequence[dict[str, npt.NDArray[Any]]]) -> pd.DataFrame:
    """The same columns of several devices as one frame."""
    return pd.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def _shares(dag: Dag, window: Window, full: SmActivity) -> dict[str, npt.NDArray[Any]]:
    """What warp slots of a device are used for, by kernel; -1 is none."""
    (kernel, use, time_ns), names = full.slots, dag.events.name[full.kernels.event]
    idle = 1.0 - full.whole("busy")["busy"] / window.dur_ns
    use = np.append(use.astype(np.int64), int(SlotUse.IDLE))
    return {
        "device": np.full(len(use), full.device),
        "use": use,
        "name": np.append(gather(names, kernel), -1),
        "share": np.append(time_ns / window.dur_ns, idle),
    }


def _kernels(dag: Dag, full: SmActivity) -> dict[str, npt.NDArray[Any]]:
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


_SHARE, _RATE = "share", "GB/s"
_GIGA = 1e9
_TO_HOST = re.compile(r"DtoH|DeviceToHost|Device -> (Host|Pageable|Pinned)")
_FROM_HOST = re.compile(r"HtoD|HostToDevice|(Host|Pageable|Pinned) -> Device")


class _Metric(NamedTuple):
    """A metric, its names, its series in logs, and what it is estimated from."""

    name: str
    also: str
    unit: str
    series: re.Pattern[str]
    basis: str = ""


_Estimate = tuple[float, float]
"""An estimate, and the share of device time that it rests on."""
_NO_ESTIMATE = (np.nan, np.nan)


def _named(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_METRICS = (
    _Metric(
        "GPU utilization",
        "nvidia-smi utilization.gpu, dcgmi 203 GPUTL",
        _SHARE,
        _named(r"^utilization\.gpu$|_DEV_GPU_UTIL$|^GPUTL$|^sm$|^gfx_activity$"),
        "time with any kernel",
    ),
    _Metric(
        "graphics engine active",
        "dcgmi 1001 GRACT, DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        _SHARE,
        _named(r"^GR Active|_GR_ENGINE_ACTIVE$|^GRACT$"),
        "time with any kernel",
    ),
    _Metric(
        "SM active",
        "dcgmi 1002 SMACT, DCGM_FI_PROF_SM_ACTIVE",
        _SHARE,
        SAMPLED["sm_activity"],
        "blocks of kernels by number of SMs",
    ),
    _Metric(
        "SM occupancy",
        "dcgmi 1003 SMOCC, DCGM_FI_PROF_SM_OCCUPANCY",
        _SHARE,
        SAMPLED["sm_occupancy"],
        "warps of these blocks by warp slots",
    ),
    _Metric(
        "tensor active",
        "dcgmi 1004 TENSO, DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        _SHARE,
        SAMPLED["tensor_activity"],
        "at least: operations at the peak of matrix units",
    ),
    _Metric(
        "DRAM active",
        "dcgmi 1005 DRAMA, DCGM_FI_PROF_DRAM_ACTIVE",
        _SHARE,
        _named(r"_DRAM_ACTIVE$|^DRAMA$"),
        "compulsory bytes at memory bandwidth; a cache may save some",
    ),
    _Metric(
        "PCIe sent",
        "dcgmi 1009 PCITX, DCGM_FI_PROF_PCIE_TX_BYTES",
        _RATE,
        _named(r"_PCIE_TX_BYTES$|^PCITX$"),
        "at least: copies to the host",
    ),
    _Metric(
        "PCIe received",
        "dcgmi 1010 PCIRX, DCGM_FI_PROF_PCIE_RX_BYTES",
        _RATE,
        _named(r"_PCIE_RX_BYTES$|^PCIRX$"),
        "at least: copies from the host",
    ),
    _Metric("SM clock", "nvidia-smi clocks.sm, dcgmi 100 SMCLK", "MHz", SM_CLOCK),
    _Metric("memory clock", "nvidia-smi clocks.mem, dcgmi 101 MMCLK", "MHz", MEMORY_CLOCK),
    _Metric(
        "power",
        "nvidia-smi power.draw, dcgmi 155 POWER",
        "W",
        _named(r"^power\.draw(\.\w+)?$|^pwr$|^POWER$|_DEV_POWER_USAGE$|^socket_power$"),
    ),
)
"""From coarse to fine. Numbers and names of fields: NVIDIA's DCGM API reference, "Field
Identifiers"; what they measure: DCGM User Guide, "Profiling Metrics"."""


def device_activity(dag: Dag, window: Window) -> pd.DataFrame:
    """How busy each device is, from coarse to fine, estimated and measured.

    ::

        a kernel runs >= SMs have a block >= warp slots are in use, tensor cores or memory busy

    By device, in this order. Metrics that are neither estimated nor measured are left out. What is
    not modelled counts as nothing: estimates of tensor cores and memory are as good as their
    coverage. A measured value averages over the time between samples, kernels or not.
    """
    devices = devices_of(dag)
    use = utilization(dag, window).set_index("device")
    rows = [
        {"device": device, **row}
        for device in devices.tolist()
        for row in _rows(dag, window, device, _estimates(dag, window, device, use.loc[device]))
    ]
    if not rows:
        return DEVICE_ACTIVITY.empty()
    frame = pd.DataFrame(rows)
    return DEVICE_ACTIVITY.frame({name: frame[name] for name in DEVICE_ACTIVITY.columns})


def _rows(
    dag: Dag, window: Window, device: int, estimates: dict[str, _Estimate]
) -> list[dict[str, object]]:
    begin, end = (np.array([at], dtype=np.int64) for at in (window.start_ns, window.end_ns))
    rows: list[dict[str, object]] = []
    devices = devices_of(dag)
    for one in _METRICS:
        (estimate, coverage), measured = estimates.get(one.name, _NO_ESTIMATE), np.nan
        n_samples, name, instrument, off_ns = 0, "", "", 0
        levels = series_of(dag.events.samples, device, devices, one.series)
        if levels is not None:
            found = over(levels, begin, end)
            unit = {_SHARE: full_value(levels), _RATE: _GIGA}.get(one.unit, 1.0)
            measured, n_samples = float(found.mean[0]) / unit, int(found.n_samples[0])
        if levels is not None and np.isfinite(measured):
            name, instrument = levels.series.name, levels.series.instrument
            off_ns = levels.series.uncertainty_ns
        if np.isfinite(estimate) or np.isfinite(measured):
            rows.append(
                {
                    "metric": one.name,
                    "unit": one.unit,
                    "estimate": estimate,
                    "measured": measured,
                    "coverage": coverage,
                    "n_samples": n_samples,
                    "uncertainty_ns": off_ns,
                    "series": name,
                    "instrument": instrument,
                    "estimated_from": one.basis if np.isfinite(estimate) else "",
                    "also_called": one.also,
                }
            )
    return rows


def _estimates(
    dag: Dag, window: Window, device: int, use: pd.Series[float]
) -> dict[str, _Estimate]:
    """What the trace tells of each metric of a device."""
    work = device_work(dag, window)
    work = work.take(dag.events.device[work.event] == device)
    busy = float(use["gpu_utilization"]), 1.0
    found = {
        "GPU utilization": busy,
        "graphics engine active": busy,
        "SM active": (float(use["sm_activity"]), float(use["grid_coverage"])),
        "SM occupancy": (float(use["sm_occupancy"]), float(use["warp_coverage"])),
        "PCIe sent": _copied(dag, work.event, work.dur_ns, _TO_HOST, window),
        "PCIe received": _copied(dag, work.event, work.dur_ns, _FROM_HOST, window),
    }
    roofs = operator_roofs(dag, work.event, work.dur_ns)
    if not roofs.has_peaks or not window.dur_ns:
        return found
    call, n = roofs.work.call, len(roofs.work.event)
    on_tensor_cores = dag.events.named(dag.events.symbols.searched(TENSOR_CORE_KERNELS))
    named = np.bincount(call[(call >= 0) & on_tensor_cores[work.event]], minlength=n) > 0
    is_full = np.array([one.dtype == "fp32" for one in roofs.work.works])[roofs.work.kind]
    tensor_ns = np.where(named | ~is_full, np.minimum(roofs.compute_ns, roofs.device_ns), 0.0)
    memory_ns = np.minimum(roofs.memory_ns, roofs.device_ns)
    coverage = float(work.dur_ns[call >= 0].sum() / max(int(work.dur_ns.sum()), 1))
    for name, time_ns in (("tensor active", tensor_ns), ("DRAM active", memory_ns)):
        found[name] = min(float(time_ns.sum()) / window.dur_ns, 1.0), coverage
    return found


def _copied(
    dag: Dag, work: I64, dur_ns: I64, direction: re.Pattern[str], window: Window
) -> _Estimate:
    """Bytes per second of copies of one direction, over all of the window."""
    events = dag.events
    copies = (events.kind[work] == EventKind.MEMCPY) & events.named(
        events.symbols.searched(direction)
    )[work]
    n_bytes = events.column("bytes")[work[copies]].astype(np.float64)
    if not copies.any() or not window.dur_ns or (n_bytes < 0).any():
        return _NO_ESTIMATE
    inside = dur_ns[copies] / np.maximum(events.dur_ns[work[copies]], 1)
    return float((n_bytes * inside).sum()) / window.dur_ns, 1.0
