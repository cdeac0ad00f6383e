"""The Nsight Systems reader: an SQLite export in, the recording of one rank out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from htagraph.errors import TraceError, TraceFormatError
from htagraph.model.devices import DeviceProperties
from htagraph.model.events import FlowTable
from htagraph.model.progress import counted
from htagraph.model.recording import Origin, Recording
from htagraph.model.samples import SampleTable, Series
from htagraph.model.units import apart_from_unit
from htagraph.readers.event_filter import EventFilter, filtered
from htagraph.readers.nsys import device_work, host
from htagraph.readers.nsys.export import Export, opened, pid_of, refuse_remote, refuse_report
from htagraph.readers.nsys.ranks import NsysRank, base_time_ns, ranks_of
from htagraph.readers.nsys.table_rows import ReadState, TableRows, event_table, last_end
from htagraph.readers.storage import file_and_part, rank_in_name

_GPUS = "TARGET_INFO_GPU"
_OF_PROCESS = "TARGET_INFO_CUDA_DEVICE"

METRICS = "GPU_METRICS"
_NAMES = "TARGET_INFO_GPU_METRICS"
_INSTRUMENT = "nsys GPU metrics"
"""Counters of ``nsys profile --gpu-metrics-devices``."""

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


def _device_of_gpu(export: Export, process: int) -> dict[int, int]:
    """CUDA's number of each device in a process, by its number in the export."""
    if export.has(_OF_PROCESS, "gpuId", "cudaId", "pid"):
        sql = f"SELECT gpuId, cudaId FROM {_OF_PROCESS} WHERE pid = ?"  # noqa: S608 - own name
        if rows := export.rows(sql, (pid_of(process),)):
            return dict(rows)
    if export.has(_GPUS, "id", "cuDevice"):
        return dict(export.rows(f"SELECT id, cuDevice FROM {_GPUS}"))  # noqa: S608
    return {}


def devices_of(export: Export, process: int) -> tuple[DeviceProperties, ...]:
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
    export: Export, process: int, used: frozenset[int], base_time_ns: int, state: ReadState
) -> SampleTable:
    """Samples of the devices that a process uses."""
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


_READ: dict[str, Callable[[Export, int, ReadState], TableRows]] = {
    host.CALLS: host.api_calls,  # first: waits and os_calls refer to them
    device_work.KERNELS: device_work.kernels,
    device_work.COPIES: device_work.copies,
    device_work.FILLS: device_work.fills,
    device_work.GRAPHS: device_work.graph_launches,
    host.WAITS: host.waits,
    host.OS_TABLE: host.os_calls,
    host.RANGES: host.ranges,
    **{table: partial(host.overhead, table=table) for table in host.OVERHEAD_TABLES},
}
"""Tables of events, and what reads them."""

_NO_EVENTS = (host.RECORDS, METRICS)
"""Tables that are read, but not as events."""

_TIMES = frozenset({"start", "timestamp", "rawTimestamp"})
"""Columns by which a table counts as one of events."""

_METADATA = {
    "META_DATA_EXPORT": {
        "EXPORT_PRODUCT_NAME": "recorded by",
        "EXPORT_PRODUCT_VERSION": "version",
        "EXPORT_SCHEMA_VERSION": "schema",
    },
    "META_DATA_CAPTURE": {
        "CAPTURE_EVENT_TYPE": "traced",
        "CUDA_GRAPH_TRACE_OPTIONS:MODE": "CUDA graphs traced by",
    },
    "TARGET_INFO_SYSTEM_ENV": {
        "OsDescription": "system",
        "CpuDescription": "processor",
        "NvDriverVersion": "driver",
        "CudaDriverVersion": "CUDA driver",
    },
}
"""Names of an export's metadata by table and key."""


def read_nsys(
    source: str | Path | bytes,
    *,
    stacks: bool = False,
    categories: Collection[str] | None = None,
    window: tuple[int, int] | None = None,
) -> Recording:
    """The recording of one rank in an SQLite export of Nsight Systems; see `htagraph.load`.

    Of an export with several ranks, a path below the file names one: ``run.sqlite/rank-1``. Exports
    have no Python frames, so `stacks` has no effect.
    """
    wanted = EventFilter(stacks, categories, window)
    part, file = "", source
    if not isinstance(source, bytes):
        file, part = file_and_part(Path(source))
        refuse_report(file)
        refuse_remote(file)
    with opened(file) as export:
        ranks = ranks_of(export)
        rank = _chosen(export, ranks, part)
        state = ReadState(export)
        parts = {}
        for table, read in counted("table", _READ.items()):
            if export.has(table, "start"):
                parts[table] = read(export, rank.global_id, state)
        where = source if isinstance(source, bytes) else Path(source)
        recording = _recording(export, rank, parts, state, source=where, wanted=wanted)
        _count_the_rest(export, rank.global_id, [one.global_id for one in ranks], state)
    return recording


def _no_events(export: Export) -> TraceFormatError:
    return TraceFormatError(
        "this export holds no events that htagraph reads.",
        path=export.path,
        hint="was the program run with `nsys profile --trace cuda,nvtx`?",
    )


def _chosen(export: Export, ranks: list[NsysRank], part: str) -> NsysRank:
    """The requested rank, or the only one."""
    if not ranks:
        raise _no_events(export)
    name = export.path.name if export.path is not None else "run.sqlite"
    listed = ", ".join(f"{name}/rank-{rank.rank}" for rank in ranks)
    if part:
        number = rank_in_name(Path(part))
        found = next((rank for rank in ranks if rank.rank == number), None)
        if found is None:
            raise TraceError(
                f"this export has no {part}.", path=export.path, hint=f"there is {listed}."
            )
        return found
    if len(ranks) > 1:
        described = "; ".join(
            f"rank {rank.rank}: pid {rank.pid} ({rank.process}), "
            f"device {', '.join(map(str, rank.devices))}"
            for rank in ranks
        )
        raise TraceError(
            f"this export holds {len(ranks)} ranks ({described}; by {ranks[0].rank_source}).",
            path=export.path,
            hint=f"take one as {listed}, with `--rank N`, or all with `load_job`.",
        )
    return ranks[0]


def _recording(
    export: Export,
    rank: NsysRank,
    parts: dict[str, TableRows],
    state: ReadState,
    *,
    source: Path | bytes,
    wanted: EventFilter,
) -> Recording:
    process, base_ns = rank.global_id, base_time_ns(export)
    last_ns = last_end(list(parts.values()))
    sound = {table: state.with_sound_times(part, last_ns) for table, part in parts.items()}
    flows = FlowTable()
    if host.RANGES in sound:
        tables = list(sound)
        first = sum(len(sound[table]) for table in tables[: tables.index(host.RANGES)])
        flows = host.backward_flows(sound[host.RANGES], first, base_ns, state)
    metrics = gpu_metrics(export, process, frozenset(rank.devices), base_ns, state)
    events = replace(
        event_table(list(sound.values()), base_ns, state),
        flows=flows,
        symbols=state.names.table(),
        lanes=state.lanes.table(export, process),
        devices=devices_of(export, process),
        samples=metrics,
    )
    if not len(events):
        raise _no_events(export)
    events = filtered(events, state.skipped, wanted)
    return Recording(
        events=events,
        rank=rank.rank,
        rank_source=rank.rank_source,
        world_size=rank.world_size,
        repairs=state.all_repairs(),
        skipped=state.skipped,
        origin=Origin(source, base_ns, metadata=_metadata(export, rank)),
    )


def _count_the_rest(export: Export, process: int, ranks: Collection[int], state: ReadState) -> None:
    """Count rows of processes that are no ranks, and of tables that are not read."""
    for table, columns in export.columns.items():
        if table in _NO_EVENTS or not (table in _READ or columns & _TIMES):
            continue
        owned = _any_of(sorted({export.of_process(table, rank) for rank in ranks}))
        n = export.count(table, f"({owned}) IS NOT TRUE")
        state.skip(f"{table} of processes that are no rank", n)
        if table not in _READ or "start" not in columns:
            state.skip(table, export.count(table, export.of_process(table, process)))


def _any_of(conditions: list[str]) -> str:
    """Conditions joined by OR; as a tree, as SQLite allows a depth of 1,000."""
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return f"({_any_of(conditions[:half])} OR {_any_of(conditions[half:])})"


def _metadata(export: Export, rank: NsysRank) -> dict[str, Any]:
    """What an export records about itself and its machine."""
    found: dict[str, list[str]] = {}
    for table, names in _METADATA.items():
        if export.has(table, "name", "value"):
            for name, value in export.rows(f"SELECT name, value FROM {table}"):  # noqa: S608
                if name in names:
                    found.setdefault(names[name], []).append(str(value))
    texts = {what: ", ".join(dict.fromkeys(values)) for what, values in found.items()}
    return {"process": rank.process, "pid": rank.pid, "host": rank.host} | texts
