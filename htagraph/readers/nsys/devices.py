"""Devices of an export: their names and limits, and which device of a process each of them is."""

from __future__ import annotations

from htagraph.model.devices import DeviceProperties
from htagraph.readers.nsys.export import Export, Process

__all__ = ["device_of_gpu", "devices_of"]

_GPUS = "TARGET_INFO_GPU"
_OF_PROCESS = "TARGET_INFO_CUDA_DEVICE"

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
"""Columns of the export by what they are called in `DeviceProperties`; warps become its threads."""


def device_of_gpu(export: Export, process: Process) -> dict[int, int]:
    """The number that CUDA gives each device in a process, by the number of the device."""
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
    numbers = device_of_gpu(export, process)
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
