"""The door of the reader of Nsight Systems: an export in, the recording of one rank out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from htagraph.errors import TraceError, TraceFormatError
from htagraph.model.events import FlowTable
from htagraph.model.progress import report_progress
from htagraph.model.recording import Origin, Recording
from htagraph.readers.kineto.loading import Asked
from htagraph.readers.nsys import device_work, gpu_metrics, host_calls, ranges, waits
from htagraph.readers.nsys.devices import devices_of
from htagraph.readers.nsys.export import Export, Process, opened
from htagraph.readers.nsys.names import Names
from htagraph.readers.nsys.parts import Part, Reading, event_table, last_end
from htagraph.readers.nsys.ranks import NsysRank, base_time_ns, ranks_of
from htagraph.readers.nsys.reports import refuse_remote, refuse_report
from htagraph.readers.rank_paths import file_and_part, rank_in_name

__all__ = ["read_nsys"]

_DEVICE = {
    device_work.KERNELS: device_work.kernels,
    device_work.COPIES: device_work.copies,
    device_work.FILLS: device_work.fills,
    device_work.GRAPHS: device_work.graph_launches,
}
_READ = (
    *_DEVICE,
    host_calls.CALLS,
    host_calls.OS_TABLE,
    *host_calls.OVERHEAD_TABLES,
    waits.WAITS,
    ranges.RANGES,
)
"""Tables that events come from."""

_NO_EVENTS = (waits.RECORDS, gpu_metrics.METRICS)
"""Tables that are read, and of which no event is made."""

_TIMES = frozenset({"start", "timestamp", "rawTimestamp"})
"""Columns by which a table is known to hold events."""


_SAID = {
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
"""What of an export's own data is kept, and what it is called."""


def read_nsys(
    source: str | Path | bytes,
    *,
    stacks: bool = False,
    categories: Collection[str] | None = None,
    window: tuple[int, int] | None = None,
) -> Recording:
    """The recording of one rank in an SQLite export of Nsight Systems.

    Parameters
    ----------
    source : str, Path or bytes
        The export or its content. Of an export with several ranks, a path below the file names one:
        ``run.sqlite/rank-1``.
    stacks : bool
        Without effect: exports have no frames of Python.
    categories : collection of str, optional
        Load only events of these categories (``kernel``, ``cuda_runtime``, ``user_annotation``).
    window : (int, int), unit=ns, optional
        Load only events that touch ``[start_ns, end_ns)``, on the clock of ``ts_ns``.

    Raises
    ------
    TraceError
        If the export has several ranks, and none is named.
    TraceFormatError
        If it is no export, or damaged.
    """
    Asked(stacks, categories, window)  # checks the window
    part, file = "", source
    if not isinstance(source, bytes):
        file, part = file_and_part(Path(source))
        refuse_report(file)
        refuse_remote(file)
    with opened(file) as export:
        ranks = ranks_of(export)
        rank = _chosen(export, ranks, part)
        asked = _Asked(rank, tuple(one.global_id for one in ranks), categories, window)
        recording = _recording(export, asked)
    assert recording.origin is not None
    where = source if isinstance(source, bytes) else Path(source)
    return replace(recording, origin=replace(recording.origin, source=where))


def _no_events(export: Export) -> TraceFormatError:
    """The error of an export without events."""
    return TraceFormatError(
        "this export holds no events that are read here.",
        path=export.path,
        hint="was the program run with `nsys profile --trace cuda,nvtx`?",
    )


class _Asked(NamedTuple):
    """What is asked for, and the processes of all ranks."""

    rank: NsysRank
    all_ranks: tuple[int, ...]
    categories: Collection[str] | None
    window: tuple[int, int] | None


def _chosen(export: Export, ranks: list[NsysRank], part: str) -> NsysRank:
    """The rank that is asked for."""
    if not ranks:
        raise _no_events(export)
    name = export.path.name if export.path is not None else "run.sqlite"
    listed = ", ".join(f"{name}/rank-{rank.rank}" for rank in ranks)
    if part:
        wanted = rank_in_name(Path(part))
        found = [rank for rank in ranks if rank.rank == wanted]
        if not found:
            raise TraceError(
                f"this export has no {part}.", path=export.path, hint=f"there is {listed}."
            )
        return found[0]
    if len(ranks) > 1:
        told = "; ".join(
            f"rank {rank.rank}: pid {rank.pid} ({rank.process}), "
            f"device {', '.join(map(str, rank.devices))}"
            for rank in ranks
        )
        raise TraceError(
            f"this export holds {len(ranks)} ranks ({told}; by {ranks[0].rank_source}).",
            path=export.path,
            hint=f"take one as {listed}, with `--rank N`, or all with `load_job`.",
        )
    return ranks[0]


def _recording(export: Export, asked: _Asked) -> Recording:
    """The recording of a rank, without its origin's source."""
    rank, categories, window = asked.rank, asked.categories, asked.window
    process, base_ns = Process(rank.global_id), base_time_ns(export)
    reading = Reading(Names(export))
    parts = _parts(export, process, reading)
    last_ns = last_end(list(parts.values()))
    span_ns = None if window is None else (window[0] - base_ns, window[1] - base_ns)
    kept: dict[str, Part] = {}
    for table, part in parts.items():
        sound = reading.with_sound_times(part, last_ns)
        kept[table] = reading.asked_for(sound, categories, span_ns)
    flows = FlowTable()
    if ranges.RANGES in kept:
        tables = list(kept)
        first = sum(len(kept[table]) for table in tables[: tables.index(ranges.RANGES)])
        flows = ranges.backward_flows(kept[ranges.RANGES], first, base_ns, reading)
    events = event_table(list(kept.values()), base_ns, reading)
    metrics = gpu_metrics.gpu_metrics(export, process, frozenset(rank.devices), base_ns, reading)
    events = replace(
        events,
        flows=flows,
        symbols=reading.names.table(),
        lanes=reading.lanes.table(export, process),
        devices=devices_of(export, process),
        samples=metrics,
    )
    if not len(events) and categories is None and window is None:
        raise _no_events(export)
    _count_the_rest(export, process, asked.all_ranks, reading)
    return Recording(
        events=events,
        rank=rank.rank,
        rank_source=rank.rank_source,
        world_size=rank.world_size,
        repairs=reading.all_repairs(),
        skipped=reading.skipped,
        origin=Origin(b"", base_ns, metadata=_metadata(export, rank)),
    )


def _parts(export: Export, process: Process, reading: Reading) -> dict[str, Part]:
    """The rows of a process, by table."""

    def has(table: str) -> bool:
        report_progress(table)
        return export.has(table, "start")

    parts: dict[str, Part] = {}
    calls = None
    if has(host_calls.CALLS):
        calls = parts[host_calls.CALLS] = host_calls.api_calls(export, process, reading)
    for table, read in _DEVICE.items():
        if has(table):
            parts[table] = read(export, process, reading)
    if has(waits.WAITS):
        parts[waits.WAITS] = waits.waits(export, process, reading, calls)
    if has(host_calls.OS_TABLE):
        parts[host_calls.OS_TABLE] = host_calls.os_calls(export, process, reading, calls)
    if has(ranges.RANGES):
        parts[ranges.RANGES] = ranges.ranges(export, process, reading)
    for table in host_calls.OVERHEAD_TABLES:
        if has(table):
            parts[table] = host_calls.overhead(export, process, reading, table)
    return parts


def _count_the_rest(
    export: Export, process: Process, ranks: Collection[int], reading: Reading
) -> None:
    """Count rows of processes that are no ranks, and of tables that are not read."""
    for table, columns in export.columns.items():
        if table in _NO_EVENTS or not (table in _READ or columns & _TIMES):
            continue
        owned = _any_of(sorted({export.of_process(table, Process(rank)) for rank in ranks}))
        n = export.count(table, f"({owned}) IS NOT TRUE")
        reading.skip(f"{table} of processes that are no rank", n)
        if table not in _READ or "start" not in columns:
            reading.skip(table, export.count(table, export.of_process(table, process)))


def _any_of(conditions: list[str]) -> str:
    """A condition that holds where one of some does, which SQLite nests but a thousand deep."""
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return f"({_any_of(conditions[:half])} OR {_any_of(conditions[half:])})"


def _metadata(export: Export, rank: NsysRank) -> dict[str, Any]:
    """What an export says of itself and of its machine."""
    found: dict[str, list[str]] = {}
    for table, names in _SAID.items():
        if export.has(table, "name", "value"):
            for name, value in export.rows(f"SELECT name, value FROM {table}"):  # noqa: S608
                if name in names:
                    found.setdefault(names[name], []).append(str(value))
    said = {what: ", ".join(dict.fromkeys(values)) for what, values in found.items()}
    return {"process": rank.process, "pid": rank.pid, "host": rank.host} | said
