"""Device work of an export: kernels, copies, fills, and launches of graphs that were not opened."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from htagraph.model.kinds import EventKind
from htagraph.readers.nsys.export import ABSENT, Export, Process
from htagraph.readers.nsys.numbered_names import enumeration
from htagraph.readers.nsys.table_rows import Part, Reading, Values

__all__ = ["DEVICE_TABLES", "copies", "device_of_context", "fills", "graph_launches", "kernels"]

I64 = npt.NDArray[np.int64]

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
FILLS = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
DEVICE_TABLES = (KERNELS, COPIES, FILLS, GRAPHS)
"""Tables of device work."""

_PLACE = ("start", "end", "deviceId", "streamId", "correlationId")
_CATEGORIES = {
    EventKind.KERNEL: "kernel",
    EventKind.MEMCPY: "gpu_memcpy",
    EventKind.MEMSET: "gpu_memset",
}
_NO_ID = (1 << 32) - 1
_HOST = (1 << 31) - 1  # where a graph that begins on the host runs

_DIRECTIONS = {
    0: "Unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA",
    8: "DtoD", 9: "HtoH", 10: "PtoP", 11: "Unified HtoD", 12: "Unified DtoH", 13: "Unified DtoD",
}  # fmt: skip
"""Copies, by the value of ``ENUM_CUDA_MEMCPY_OPER``, in the words of the PyTorch profiler."""

_MEMORIES = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static",
    6: "Managed Static", 7: "Unknown",
}  # fmt: skip
_N_MEMORIES = 16


def kernels(export: Export, process: Process, reading: Reading) -> Part:
    """Kernels, with their geometry."""
    geometry = {
        "grid_x": "gridX", "grid_y": "gridY", "grid_z": "gridZ",
        "block_x": "blockX", "block_y": "blockY", "block_z": "blockZ",
        "registers": "registersPerThread", "graph_id": "graphId", "graph_node": "graphNodeId",
    }  # fmt: skip
    shared = ("staticSharedMemory", "dynamicSharedMemory")
    names = ("demangledName", "shortName")
    found = export.integers(
        KERNELS, (*_PLACE, *names, *shared, *geometry.values()), export.of_process(KERNELS, process)
    )
    name = np.where(found["demangledName"] == ABSENT, found["shortName"], found["demangledName"])
    sparse = {column: found[name] for column, name in geometry.items()}
    static, dynamic = (found[column] for column in shared)
    sparse["shared_memory"] = np.where(
        (static == ABSENT) | (dynamic == ABSENT), np.maximum(static, dynamic), static + dynamic
    )
    for column in ("graph_id", "graph_node"):
        sparse[column] = np.where(sparse[column] == 0, ABSENT, sparse[column])
    return _part(reading, found, EventKind.KERNEL, reading.names.of_ids(name), sparse)


def copies(export: Export, process: Process, reading: Reading) -> Part:
    """Copies, named as the PyTorch profiler names them: ``Memcpy HtoD (Pageable -> Device)``."""
    found = export.integers(
        COPIES,
        (*_PLACE, "bytes", "copyKind", "srcKind", "dstKind", "graphNodeId"),
        export.of_process(COPIES, process),
    )
    memories = enumeration(export, "ENUM_CUDA_MEM_KIND", _MEMORIES)
    direction, source, target = (
        np.where((found[name] >= 0) & (found[name] < _N_MEMORIES), found[name], _N_MEMORIES - 1)
        for name in ("copyKind", "srcKind", "dstKind")
    )

    def name(number: int) -> str:
        number, to = divmod(number, _N_MEMORIES)
        way, of = divmod(number, _N_MEMORIES)
        ends = (memories.get(memory, "Unknown") for memory in (of, to))
        return f"Memcpy {_DIRECTIONS.get(way, 'Unknown')} ({' -> '.join(ends)})"

    numbers = (direction * _N_MEMORIES + source) * _N_MEMORIES + target
    names = reading.names.of_numbers(numbers, name)
    return _part(reading, found, EventKind.MEMCPY, names, _traffic(found))


def fills(export: Export, process: Process, reading: Reading) -> Part:
    """Fills: ``Memset (Device)``."""
    found = export.integers(
        FILLS, (*_PLACE, "bytes", "memKind", "graphNodeId"), export.of_process(FILLS, process)
    )
    memories = enumeration(export, "ENUM_CUDA_MEM_KIND", _MEMORIES)
    names = reading.names.of_numbers(
        found["memKind"], lambda memory: f"Memset ({memories.get(memory, 'Unknown')})"
    )
    return _part(reading, found, EventKind.MEMSET, names, _traffic(found))


def graph_launches(export: Export, process: Process, reading: Reading) -> Part:
    """Launches of CUDA graphs as a whole: ``CUDA graph 3``.

    That is what Nsight Systems records unless it is asked for the nodes of graphs: one span for all
    that a launch runs. It is device work of unknown parts, and counts as computation.
    """
    wanted = (*_PLACE, "graphId", "graphExecId")
    found = export.integers(GRAPHS, wanted, export.of_process(GRAPHS, process))
    untimed = (found["start"] == 0) & (found["end"] == 0)
    reading.skip(f"{GRAPHS} without times", np.count_nonzero(untimed))
    found = {column: values[~untimed] for column, values in found.items()}
    graph = np.where(found["graphId"] == ABSENT, found["graphExecId"], found["graphId"])
    names = reading.names.of_numbers(
        graph, lambda number: "CUDA graph" if number == ABSENT else f"CUDA graph {number}"
    )
    return _part(reading, found, EventKind.KERNEL, names, {"graph_id": graph})


def device_of_context(export: Export, process: Process) -> dict[int, int]:
    """The device of each context, by the work that runs in it.

    Records of waits name a device, too, but not always the one of their context.
    """
    found: dict[int, int] = {}
    for table in DEVICE_TABLES:
        if export.has(table, "contextId", "deviceId"):
            where = export.of_process(table, process)
            sql = f"SELECT DISTINCT contextId, deviceId FROM {table} WHERE {where}"  # noqa: S608
            for context, device in export.rows(sql):
                if isinstance(context, int) and isinstance(device, int) and device < _HOST:
                    found.setdefault(context, device)
    return found


def ids(numbers: I64) -> I64:
    """Ids with -1 for every way to write that there is none."""
    return np.where((numbers < 0) | (numbers >= _NO_ID), -1, numbers)


def devices(numbers: I64) -> I64:
    """Devices with -1 for none."""
    return np.where((numbers < 0) | (numbers >= _HOST), -1, numbers)


def _traffic(found: dict[str, I64]) -> dict[str, Values]:
    """Bytes, and bytes per nanosecond, which are GB/s."""
    dur_ns = (found["end"] - found["start"]).astype(np.float64)
    known = (found["bytes"] >= 0) & (dur_ns > 0) & (found["end"] != ABSENT)
    bandwidth = np.full(len(dur_ns), np.nan)
    np.divide(found["bytes"], dur_ns, out=bandwidth, where=known)
    node = found["graphNodeId"]
    return {
        "bytes": found["bytes"],
        "memory_bandwidth": bandwidth,
        "graph_node": np.where(node == 0, ABSENT, node),
    }


def _part(
    reading: Reading,
    found: dict[str, I64],
    kind: EventKind,
    names: npt.NDArray[np.int32],
    sparse: Mapping[str, Values],
) -> Part:
    """Rows of device work."""
    device, stream = devices(found["deviceId"]), ids(found["streamId"])
    return Part(
        found["start"],
        found["end"],
        kind,
        names,
        reading.names.code(_CATEGORIES[kind]),
        reading.lanes.streams(device, stream),
        device,
        stream,
        ids(found["correlationId"]),
        sparse=sparse,
    )
