"""Device work of an export: kernels, copies, fills, and launches of whole CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from htagraph.model.arrays import I32, I64
from htagraph.model.kinds import EventKind
from htagraph.readers.nsys.export import ABSENT, Export
from htagraph.readers.nsys.table_rows import ReadState, TableRows, Values, enumeration

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
"""CUPTI's invalid id: -1 as 32 bits."""

_HOST = (1 << 31) - 1
"""Device of a graph that begins on the host."""

_DIRECTIONS = {
    0: "Unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA",
    8: "DtoD", 9: "HtoH", 10: "PtoP", 11: "Unified HtoD", 12: "Unified DtoH", 13: "Unified DtoD",
}  # fmt: skip
"""``ENUM_CUDA_MEMCPY_OPER``, in the words of the PyTorch profiler."""

_MEMORIES = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static",
    6: "Managed Static", 7: "Unknown",
}  # fmt: skip
"""``ENUM_CUDA_MEM_KIND``, for exports without it."""

_N_MEMORIES = 16
"""More than kinds of memory, for numbering their combinations."""


def kernels(export: Export, process: int, state: ReadState) -> TableRows:
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
    return _part(state, found, EventKind.KERNEL, state.names.of_ids(name), sparse)


def copies(export: Export, process: int, state: ReadState) -> TableRows:
    """Copies, named as by the PyTorch profiler: ``Memcpy HtoD (Pageable -> Device)``."""
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
    names = state.names.of_numbers(numbers, name)
    return _part(state, found, EventKind.MEMCPY, names, _traffic(found))


def fills(export: Export, process: int, state: ReadState) -> TableRows:
    """Fills: ``Memset (Device)``."""
    found = export.integers(
        FILLS, (*_PLACE, "bytes", "memKind", "graphNodeId"), export.of_process(FILLS, process)
    )
    memories = enumeration(export, "ENUM_CUDA_MEM_KIND", _MEMORIES)
    names = state.names.of_numbers(
        found["memKind"], lambda memory: f"Memset ({memories.get(memory, 'Unknown')})"
    )
    return _part(state, found, EventKind.MEMSET, names, _traffic(found))


def graph_launches(export: Export, process: int, state: ReadState) -> TableRows:
    """Launches of whole CUDA graphs: ``CUDA graph 3``.

    Nsight Systems records them unless told to trace graph nodes: one span for everything in the
    launch. Its parts are unknown, so it counts as computation.
    """
    wanted = (*_PLACE, "graphId", "graphExecId")
    found = export.integers(GRAPHS, wanted, export.of_process(GRAPHS, process))
    untimed = (found["start"] == 0) & (found["end"] == 0)
    state.skip(f"{GRAPHS} without times", np.count_nonzero(untimed))
    found = {column: values[~untimed] for column, values in found.items()}
    graph = np.where(found["graphId"] == ABSENT, found["graphExecId"], found["graphId"])
    names = state.names.of_numbers(
        graph, lambda number: "CUDA graph" if number == ABSENT else f"CUDA graph {number}"
    )
    return _part(state, found, EventKind.KERNEL, names, {"graph_id": graph})


def device_of_context(export: Export, process: int) -> dict[int, int]:
    """The device of each context, by the work that runs in it.

    Wait records have a device, too, but not always that of their context.
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
    """Ids with -1 for none."""
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
    state: ReadState,
    found: dict[str, I64],
    kind: EventKind,
    names: I32,
    sparse: Mapping[str, Values],
) -> TableRows:
    device, stream = devices(found["deviceId"]), ids(found["streamId"])
    return TableRows(
        found["start"],
        found["end"],
        kind,
        names,
        state.names.code(_CATEGORIES[kind]),
        state.lanes.streams(device, stream),
        device,
        stream,
        ids(found["correlationId"]),
        sparse=sparse,
    )
