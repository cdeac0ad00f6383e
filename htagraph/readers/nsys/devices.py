"""Devices of an export: names and limits, their numbers in a process, and sampled counters.

Counters are those of ``nsys profile --gpu-metrics-devices``.
"""

from __future__ import annotations

import numpy as np

from htagraph.model.devices import DeviceProperties
from htagraph.model.samples import SampleTable, Series
from htagraph.model.units import apart_from_unit
from htagraph.readers.nsys.export import Export, Process
from htagraph.readers.nsys.table_rows import ReadState

_GPUS = "TARGET_INFO_GPU"
_OF_PROCESS = "TARGET_INFO_CUDA_DEVICE"

METRICS = "GPU_METRICS"
_NAMES = "TARGET_INFO_GPU_METRICS"
_INSTRUMENT = "nsys GPU metrics"
_GPU_BITS = 0xFF
"""Bits of `typeId` that are the GPU."""

_LIMITS = {
    "n_sms": "smCount",
    "warp_size": "threadsPerWarp",
    "blocks_per_sm": "maxBlocksPerSm",
    "registers_per_sm": "maxRegistersPerSm",
    "shared_memory_per_sm": "maxShmemPerSm",
    "memory_bytes": "totalMemory",
    "compute_major": "computeMajor",
    "compute_minor": "computeMinor",
    "warps": "maxWarpsPerSm",
}
"""Columns by field of `DeviceProperties`; warps become its threads."""


def _device_of_gpu(export: Export, process: Process) -> dict[int, int]:
    """CUDA's number of each device in a process, by its number in the export."""
    if export.has(_OF_PROCESS, "gpuId", "cudaId", "pid"):
        sql = f"SELECT gpuId, cudaId FROM {_OF_PROCESS} WHERE pid = ?"  # noqa: S608 - own name
        if rows := export.rows(sql, (process.pid,)):
            return dict(rows)
    if export.has(_GPUS, "id", "cuDevice"):
        return dict(export.rows(f"SELECT id, cuDevice FROM {_GPUS}"))  # noqa: S608
    return {}


def devices_of(export: Export, process: Process) -> tuple[DeviceProperties, ...]:
    """The devices that an export describes, as the process numbers them."""
    if not export.has(_GPUS, "id", "name"):
        return ()
    numbers = _device_of_gpu(export, process)
    wanted = {name: column for name, column in _LIMITS.items() if column in export.columns[_GPUS]}
    columns = ", ".join(["id", "name", *wanted.values()])
    found = {}
    for gpu, name, *values in export.rows(f"SELECT {columns} FROM {_GPUS}"):  # noqa: S608
        device = numbers.get(gpu, gpu)
        if not isinstance(device, int) or (numbers and gpu not in numbers):
            continue
        limits = {
            limit: value
            for limit, value in zip(wanted, values, strict=True)
            if isinstance(value, int)
        }
        threads = limits.pop("warps", 0) * limits.get("warp_size", 0)
        found[device] = DeviceProperties(device, str(name), threads_per_sm=threads, **limits)
    return tuple(found[device] for device in sorted(found))


def gpu_metrics(
    export: Export, process: Process, used: frozenset[int], base_time_ns: int, state: ReadState
) -> SampleTable:
    """Samples of the devices that a process uses.

    Parameters
    ----------
    used : frozenset of int
        Its devices.
    """
    wanted = ("timestamp", "typeId", "metricId", "value")
    if not export.has(METRICS, *wanted):
        state.skip(METRICS, export.count(METRICS) if export.has(METRICS) else 0)
        return SampleTable()
    found = state.with_times(export.integers(METRICS, wanted), "timestamp")
    names = _metric_names(export)
    devices = _device_of_gpu(export, process)
    parts = []
    sources, of_source = np.unique(found["typeId"], return_inverse=True)
    metrics, of_metric = np.unique(found["metricId"], return_inverse=True)
    pairs, places = np.unique(of_source * len(metrics) + of_metric, return_inverse=True)
    for position, pair in enumerate(pairs.tolist()):
        source, metric = int(sources[pair // len(metrics)]), int(metrics[pair % len(metrics)])
        rows = np.flatnonzero(places == position)
        gpu = source & _GPU_BITS
        device = devices.get(gpu, gpu)
        if device not in used:
            state.skip("GPU_METRICS of other devices", len(rows))
            continue
        text = names.get((source, metric), f"metric {metric}")
        name, unit = apart_from_unit(text, "[]")
        series = Series(name, unit.removeprefix("Throughput "), device, _INSTRUMENT)
        parts.append((series, found["timestamp"][rows] + base_time_ns, found["value"][rows]))
    return SampleTable.of(parts)


def _metric_names(export: Export) -> dict[tuple[int, int], str]:
    if not export.has(_NAMES, "typeId", "metricId", "metricName"):
        return {}
    rows = export.rows(f"SELECT typeId, metricId, metricName FROM {_NAMES}")  # noqa: S608
    return {(source, metric): str(name) for source, metric, name in rows}
