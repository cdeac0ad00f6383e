"""How busy each device is, from coarse to fine: as htagraph estimates it, and as tools measured."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.lookup.clipping import device_work
from htagraph.lookup.device_states import devices_of
from htagraph.lookup.operator_roofs import operator_roofs
from htagraph.lookup.sample_levels import over
from htagraph.lookup.sampled_use import full_value, series_of
from htagraph.model.answers import DEVICE_ACTIVITY
from htagraph.model.arrays import I64
from htagraph.model.clock_names import MEMORY_CLOCK, SM_CLOCK
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.pipe_names import TENSOR_CORE_KERNELS
from htagraph.model.window import Window
from htagraph.queries.utilization import utilization

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


class _Estimate(NamedTuple):
    """An estimate, and the share of device time that it rests on."""

    value: float = np.nan
    coverage: float = np.nan


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
        _named(r"^SMs? Active|_SM_ACTIVE$|^SMACT$"),
        "blocks of kernels by number of SMs",
    ),
    _Metric(
        "SM occupancy",
        "dcgmi 1003 SMOCC, DCGM_FI_PROF_SM_OCCUPANCY",
        _SHARE,
        _named(r"_SM_OCCUPANCY$|^SMOCC$|^Compute Warps in Flight"),
        "warps of these blocks by warp slots",
    ),
    _Metric(
        "tensor active",
        "dcgmi 1004 TENSO, DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        _SHARE,
        _named(r"^Tensor Active|_PIPE_TENSOR_ACTIVE$|^TENSO$"),
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

    Returns
    -------
    DataFrame, schema `answers.DEVICE_ACTIVITY`
        By device, in this order. Metrics that are neither estimated nor measured are left out. What
        is not modelled counts as nothing: estimates of tensor cores and memory are as good as their
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
    """The metrics of a device."""
    begin, end = (np.array([at], dtype=np.int64) for at in (window.start_ns, window.end_ns))
    rows: list[dict[str, object]] = []
    devices = devices_of(dag)
    for one in _METRICS:
        estimate, measured = estimates.get(one.name, _Estimate()), np.nan
        n_samples, name, instrument, off_ns = 0, "", "", 0
        levels = series_of(dag.events.samples, device, devices, one.series)
        if levels is not None:
            found = over(levels, begin, end)
            unit = {_SHARE: full_value(levels), _RATE: _GIGA}.get(one.unit, 1.0)
            measured, n_samples = float(found.mean[0]) / unit, int(found.n_samples[0])
        if levels is not None and np.isfinite(measured):
            name, instrument = levels.series.name, levels.series.instrument
            off_ns = levels.series.uncertainty_ns
        if np.isfinite(estimate.value) or np.isfinite(measured):
            rows.append(
                {
                    "metric": one.name,
                    "unit": one.unit,
                    "estimate": estimate.value,
                    "measured": measured,
                    "coverage": estimate.coverage,
                    "n_samples": n_samples,
                    "uncertainty_ns": off_ns,
                    "series": name,
                    "instrument": instrument,
                    "estimated_from": one.basis if np.isfinite(estimate.value) else "",
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
    busy = _Estimate(float(use["gpu_utilization"]), 1.0)
    found = {
        "GPU utilization": busy,
        "graphics engine active": busy,
        "SM active": _Estimate(float(use["sm_activity"]), float(use["grid_coverage"])),
        "SM occupancy": _Estimate(float(use["sm_occupancy"]), float(use["warp_coverage"])),
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
        found[name] = _Estimate(min(float(time_ns.sum()) / window.dur_ns, 1.0), coverage)
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
        return _Estimate()
    inside = dur_ns[copies] / np.maximum(events.dur_ns[work[copies]], 1)
    return _Estimate(float((n_bytes * inside).sum()) / window.dur_ns, 1.0)
