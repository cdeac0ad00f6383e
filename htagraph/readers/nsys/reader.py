"""The Nsight Systems reader: an SQLite export in, the recording of one rank out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from htagraph.errors import TraceError, TraceFormatError
from htagraph.model.events import FlowTable
from htagraph.model.progress import counted
from htagraph.model.recording import Origin, Recording
from htagraph.readers.event_filter import EventFilter, filtered
from htagraph.readers.nsys import device_work, host_calls, ranges, waits
from htagraph.readers.nsys.devices import METRICS, devices_of, gpu_metrics
from htagraph.readers.nsys.export import Export, Process, opened
from htagraph.readers.nsys.ranks import NsysRank, base_time_ns, ranks_of
from htagraph.readers.nsys.reports import refuse_remote, refuse_report
from htagraph.readers.nsys.table_rows import ReadState, TableRows, event_table, last_end
from htagraph.readers.rank_paths import file_and_part, rank_in_name

_READ: dict[str, Callable[[Export, Process, ReadState], TableRows]] = {
    host_calls.CALLS: host_calls.api_calls,  # first: waits and os_calls refer to them
    device_work.KERNELS: device_work.kernels,
    device_work.COPIES: device_work.copies,
    device_work.FILLS: device_work.fills,
    device_work.GRAPHS: device_work.graph_launches,
    waits.WAITS: waits.waits,
    host_calls.OS_TABLE: host_calls.os_calls,
    ranges.RANGES: ranges.ranges,
    **{table: partial(host_calls.overhead, table=table) for table in host_calls.OVERHEAD_TABLES},
}
"""Tables of events, and what reads them."""

_NO_EVENTS = (waits.RECORDS, METRICS)
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

    Parameters
    ----------
    source : str, Path or bytes
        The export or its content. Of an export with several ranks, a path below the file names one:
        ``run.sqlite/rank-1``.
    stacks : bool
        No effect: exports have no Python frames.
    window : (int, int), unit=ns, optional
        On the clock of ``ts_ns``.
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
                parts[table] = read(export, Process(rank.global_id), state)
        recording = _recording(export, rank, parts, state, wanted)
        _count_the_rest(export, rank.global_id, [one.global_id for one in ranks], state)
    assert recording.origin is not None
    where = source if isinstance(source, bytes) else Path(source)
    return replace(recording, origin=replace(recording.origin, source=where))


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
    wanted: EventFilter,
) -> Recording:
    """The recording of a rank, without its origin's source."""
    process, base_ns = Process(rank.global_id), base_time_ns(export)
    last_ns = last_end(list(parts.values()))
    sound = {table: state.with_sound_times(part, last_ns) for table, part in parts.items()}
    flows = FlowTable()
    if ranges.RANGES in sound:
        tables = list(sound)
        first = sum(len(sound[table]) for table in tables[: tables.index(ranges.RANGES)])
        flows = ranges.backward_flows(sound[ranges.RANGES], first, base_ns, state)
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
        origin=Origin(b"", base_ns, metadata=_metadata(export, rank)),
    )


def _count_the_rest(export: Export, process: int, ranks: Collection[int], state: ReadState) -> None:
    """Count rows of processes that are no ranks, and of tables that are not read."""
    for table, columns in export.columns.items():
        if table in _NO_EVENTS or not (table in _READ or columns & _TIMES):
            continue
        owned = _any_of(sorted({export.of_process(table, Process(rank)) for rank in ranks}))
        n = export.count(table, f"({owned}) IS NOT TRUE")
        state.skip(f"{table} of processes that are no rank", n)
        if table not in _READ or "start" not in columns:
            state.skip(table, export.count(table, export.of_process(table, Process(process))))


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
