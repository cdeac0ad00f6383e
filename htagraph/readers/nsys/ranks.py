"""Ranks of an export: one export may hold all processes of a machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from htagraph.model.recording import MAX_RANKS
from htagraph.readers.nsys.device_work import DEVICE_TABLES
from htagraph.readers.nsys.export import (
    NUMBERED_TEXTS,
    TIDS,
    Export,
    opened,
    pid_of,
    refuse_report,
)
from htagraph.readers.nsys.table_rows import named
from htagraph.readers.storage import file_of, rank_in_name

_HOST_TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API")
_MAX_DEVICE = (1 << 31) - 1
"""Device of a graph that begins on the host."""


@dataclass(frozen=True)
class NsysRank:
    """A rank of an export: one process."""

    rank: int
    # ``NCCL`` (its ranges, exported with ``--include-json``), ``order of devices``, ``order of
    # processes``; of an only rank ``file name`` or ``default``
    rank_source: str
    world_size: int | None
    pid: int
    process: str  # Name of the process
    host: str
    devices: tuple[int, ...]  # Devices that its work runs on
    # start_ns, end_ns: first start and last end since 1970, of its device work or else of its calls
    # and ranges
    start_ns: int
    end_ns: int
    global_id: int  # Its id in the export


def nsys_ranks(path: str | Path | bytes) -> list[NsysRank]:
    """The ranks of an export, by rank.

    A rank is a process with device work; without any, the process that did most.
    """
    if not isinstance(path, bytes):
        path = file_of(Path(path))
        refuse_report(path)
    with opened(path) as export:
        return ranks_of(export)


def base_time_ns(export: Export) -> int:
    """Time since 1970 at which the clock of an export is 0."""
    table = "TARGET_INFO_SESSION_START_TIME"
    if not export.has(table, "utcEpochNs"):
        return 0
    clock = "systemClockNs" if export.has(table, "systemClockNs") else "0"
    for start, clock_ns in export.rows(f"SELECT utcEpochNs, {clock} FROM {table}"):  # noqa: S608
        if isinstance(start, int) and 0 <= start < 1 << 62:
            return start - (clock_ns if isinstance(clock_ns, int) and 0 <= clock_ns < start else 0)
    return 0


def ranks_of(export: Export) -> list[NsysRank]:
    """The ranks of an open export, by rank."""
    found = _extents(export, DEVICE_TABLES) or dict(
        sorted(_extents(export, _HOST_TABLES).items(), key=lambda item: -item[1].n)[:1]
    )
    names = named(export, "PROCESSES", "globalPid", "name")
    base, host = base_time_ns(export), _host(export)
    ranks = [
        NsysRank(
            rank=-1,
            rank_source="",
            world_size=None,
            pid=pid_of(process),
            process=names.get(process, ""),
            host=host,
            devices=tuple(sorted(extent.devices)),
            start_ns=base + extent.start_ns,
            end_ns=base + extent.end_ns,
            global_id=process,
        )
        for process, extent in found.items()
    ]
    return sorted(_numbered(export, ranks), key=lambda rank: rank.rank)


@dataclass
class _Extent:
    """What the rows of a process cover."""

    n: int
    start_ns: int
    end_ns: int
    devices: set[int]


def _extents(export: Export, tables: tuple[str, ...]) -> dict[int, _Extent]:
    """What the rows of some tables cover, by process."""
    found: dict[int, _Extent] = {}
    for table in tables:
        if not export.has(table, "start"):
            continue
        columns = export.columns[table]
        process = "0"
        if "globalPid" in columns:
            process = "globalPid"
        elif "globalTid" in columns:
            process = f"globalTid - globalTid % {TIDS}"
        device = "deviceId" if "deviceId" in columns else "-1"
        end = "end" if "end" in columns else "start"
        sql = (
            f"SELECT {process}, {device}, count(*), min(start), max({end}) "  # noqa: S608
            f"FROM {table} GROUP BY 1, 2"
        )
        for owner, on, n, start_ns, end_ns in export.rows(sql):
            if not all(isinstance(value, int) for value in (owner, start_ns)):
                continue
            extent = found.setdefault(owner, _Extent(0, start_ns, start_ns, set()))
            extent.n += n
            extent.start_ns = min(extent.start_ns, start_ns)
            extent.end_ns = max(extent.end_ns, end_ns if isinstance(end_ns, int) else start_ns)
            if isinstance(on, int) and 0 <= on < _MAX_DEVICE:
                extent.devices.add(on)
    return found


def _host(export: Export) -> str:
    if not export.has("TARGET_INFO_SYSTEM_ENV", "name", "value"):
        return ""
    found = export.rows("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'")
    return str(found[0][0]) if found else ""


def _numbered(export: Export, ranks: list[NsysRank]) -> list[NsysRank]:
    """Processes with their ranks."""
    by_nccl = _ranks_in_nccl(export)
    numbers = [by_nccl.get(rank.global_id) for rank in ranks]
    known = {number[0] for number in numbers if number is not None}
    if len(known) == len(ranks):
        return [
            replace(rank, rank=number[0], rank_source="NCCL", world_size=number[1])
            for rank, number in zip(ranks, numbers, strict=True)
            if number is not None
        ]
    if len(ranks) == 1:
        in_name = rank_in_name(export.path) if export.path is not None else None
        source = "default" if in_name is None else "file name"
        return [replace(ranks[0], rank=in_name or 0, rank_source=source)]
    firsts = [rank.devices[:1] for rank in ranks]
    source = "order of devices" if len(set(firsts)) == len(ranks) else "order of processes"
    ordered = sorted(ranks, key=lambda rank: (rank.devices, rank.pid, rank.global_id))
    return [replace(rank, rank=number, rank_source=source) for number, rank in enumerate(ordered)]


def _ranks_in_nccl(export: Export) -> dict[int, tuple[int, int]]:
    """Rank and size of the largest communicator of each process."""
    if not export.has("NVTX_EVENTS", "jsonText", "globalTid"):
        return {}
    columns = export.columns["NVTX_EVENTS"]
    text, join = "jsonText", ""
    if "jsonTextId" in columns:
        text, join = "ifnull(jsonText, numbered_text)", f"{NUMBERED_TEXTS} jsonTextId"
    sql = (
        f"SELECT globalTid, {text} AS payload FROM NVTX_EVENTS {join} "  # noqa: S608
        "WHERE payload LIKE '%No. of ranks%'"
    )
    found: dict[int, tuple[int, int]] = {}
    for global_tid, payload in export.rows(sql):
        try:
            objects = list(_objects(json.loads(payload)))
        except (ValueError, TypeError, RecursionError):
            continue
        for made in objects:
            rank, n_ranks = made.get("Rank"), made.get("No. of ranks")
            if isinstance(rank, int) and isinstance(n_ranks, int) and isinstance(global_tid, int):
                process = global_tid - global_tid % TIDS
                if 0 <= rank < n_ranks < MAX_RANKS and n_ranks > found.get(process, (0, 0))[1]:
                    found[process] = rank, n_ranks
    return found


def _objects(value: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for inside in value:
            yield from _objects(inside)
