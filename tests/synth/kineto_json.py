"""Rows and flow points as a file: Kineto JSON as PyTorch writes it today."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from htagraph.model.events import Lane
from htagraph.model.kinds import DEVICE_KINDS, EventKind
from tests.synth.program import Program
from tests.synth.rows import FlowPoint, Row

_ARGS = {
    "bytes": "bytes",
    "memory_bandwidth": "memory bandwidth (GB/s)",
    "wait_on_stream": "wait_on_stream",
    "wait_on_event_record": "wait_on_cuda_event_record_corr_id",
    "wait_on_event": "wait_on_cuda_event_id",
    "sequence": "Sequence number",
    "fwd_thread": "Fwd thread id",
    "graph_id": "graph id",
    "graph_node": "graph node id",
    "registers": "registers per thread",
    "shared_memory": "shared memory",
    "occupancy": "est. achieved occupancy %",
    "blocks_per_sm": "blocks per SM",
    "warps_per_sm": "warps per SM",
    "collective": "Collective name",
    "msg_in": "In msg nelems",
    "msg_out": "Out msg nelems",
    "dtype": "dtype",
    "group_size": "Group size",
    "group_name": "Process Group Name",
    "group_ranks": "Process Group Ranks",
    "group_description": "Process Group Description",
    "seq": "Seq",
    "src_rank": "Src Rank",
    "dst_rank": "Dst Rank",
    "comms_rank": "Rank",
    "call_from": "CallFrom",
}
"""Keys of ``args`` that hold sparse columns; launch geometry has lists of its own."""

_TRIPLES = {"grid": ("grid_x", "grid_y", "grid_z"), "block": ("block_x", "block_y", "block_z")}


def kineto_json(
    rows: Sequence[Row],
    flows: Sequence[FlowPoint],
    lane_names: Mapping[Lane, Mapping[str, str | int]],
    program: Program,
) -> bytes:
    """A trace file in Kineto JSON.

    Timestamps are decimal microseconds with three digits, relative to ``baseTimeNanoseconds``,
    which is exact.
    """
    header = json.dumps(_header(program), indent=1)[:-2]
    base_time_ns = program.base_time_ns
    events = ",\n".join(
        [
            *_slices(rows, base_time_ns),
            *_arrows(rows, flows, base_time_ns),
            *_metadata(lane_names, rows, base_time_ns),
        ]
    )
    name = f"traces/rank{program.rank}.pt.trace.json"
    return f'{header},\n"traceEvents": [\n{events}\n],\n"traceName": "{name}"\n}}\n'.encode()


def _header(program: Program) -> dict[str, Any]:
    """The header: everything that stands before the events."""
    limits = program.properties
    device = {
        "id": limits.device, "name": limits.name, "totalGlobalMem": limits.memory_bytes,
        "computeMajor": limits.compute_major, "computeMinor": limits.compute_minor,
        "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": limits.threads_per_sm,
        "regsPerBlock": limits.registers_per_sm, "warpSize": limits.warp_size,
        "sharedMemPerBlock": 49152, "numSms": limits.n_sms,
        "regsPerMultiprocessor": limits.registers_per_sm,
        "sharedMemPerMultiprocessor": limits.shared_memory_per_sm,
    }  # fmt: skip
    groups = [
        {"pg_name": g.name, "pg_desc": g.description, "backend_config": "cuda:nccl",
         "pg_size": len(g.ranks), "ranks": list(g.ranks)}
        for g in program.groups
    ]  # fmt: skip
    return {
        "schemaVersion": 1,
        "simulated": True,
        "deviceProperties": [device],
        "cuda_runtime_version": 12080,
        "cuda_driver_version": 12080,
        "distributedInfo": {
            "backend": "nccl", "rank": program.rank, "world_size": program.world_size,
            "pg_count": len(groups), "pg_config": groups, "nccl_version": "2.27.5",
        },
        "trace_id": f"{program.rank + 1:032X}",
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": program.base_time_ns,
    }  # fmt: skip


def _us(ns: int) -> str:
    """Nanoseconds as decimal microseconds.

    >>> _us(12_003_004), _us(-5)
    ('12003.004', '-0.005')
    """
    whole, digits = divmod(abs(ns), 1000)
    return f"{'-' if ns < 0 else ''}{whole}.{digits:03d}"


@functools.lru_cache(maxsize=4_096)
def _text(text: str) -> str:
    """A text as JSON; few texts recur very often."""
    return json.dumps(text)


@functools.lru_cache(maxsize=4_096)
def _place(lane: Lane) -> str:
    """The JSON members that name the lane of an event."""
    return f'"pid": {json.dumps(lane[0])}, "tid": {json.dumps(lane[1])}'


def _slices(rows: Sequence[Row], base_time_ns: int) -> Iterator[str]:
    """One complete event per row."""
    for row in rows:
        yield (
            f'{{"ph": "X", "cat": {_text(row.category)}, "name": {_text(row.name)}, '
            f'{_place(row.lane)}, "ts": {_us(row.ts_ns - base_time_ns)}, "dur": {_us(row.dur_ns)}, '
            f'"args": {json.dumps(_args(row))}}}'
        )


def _args(row: Row) -> dict[str, Any]:
    """The arguments of an event."""
    args: dict[str, Any] = {"Op count": 0} if row.kind == EventKind.SPAN else {}
    if row.external_id >= 0:
        args["External id"] = row.external_id
    if row.kind == EventKind.SYNC:
        args["cuda_sync_kind"] = row.name
    if row.kind in DEVICE_KINDS or row.kind == EventKind.SYNC:
        args |= {"device": row.device, "context": 1, "stream": row.stream}
    if row.correlation >= 0:
        args["correlation"] = row.correlation
    for key, columns in _TRIPLES.items():
        if columns[0] in row.values:
            args[key] = [row.values[column] for column in columns]
    return args | {_ARGS[column]: value for column, value in row.values.items() if column in _ARGS}


def _arrows(rows: Sequence[Row], flows: Sequence[FlowPoint], base_time_ns: int) -> Iterator[str]:
    """Flow events: launches to their work, forward to backward operators."""
    launched = {row.correlation for row in rows if row.kind in DEVICE_KINDS}
    for row in rows:
        if row.kind == EventKind.RUNTIME and row.correlation in launched:
            yield _arrow("s", row.correlation, row.lane, row.ts_ns - base_time_ns, "ac2g")
        elif row.kind in DEVICE_KINDS:
            yield _arrow("f", row.correlation, row.lane, row.ts_ns - base_time_ns, "ac2g")
    for point in flows:
        yield _arrow(
            "f" if point.phase else "s",
            point.id,
            point.lane,
            point.ts_ns - base_time_ns,
            point.category,
        )


def _arrow(phase: str, number: int, lane: Lane, ts_ns: int, category: str) -> str:
    """One flow event."""
    binding = ', "bp": "e"' if phase == "f" else ""
    return (
        f'{{"ph": "{phase}", "id": {number}, {_place(lane)}, "ts": {_us(ts_ns)}, '
        f'"cat": "{category}", "name": "{category}"{binding}}}'
    )


def _metadata(
    lane_names: Mapping[Lane, Mapping[str, str | int]], rows: Sequence[Row], base_time_ns: int
) -> Iterator[str]:
    """The events that name processes and threads."""
    ts = _us(min((row.ts_ns for row in rows), default=base_time_ns) - base_time_ns)
    named = set()
    for (pid, tid), name in lane_names.items():
        process = [
            ("process_name", {"name": name["process"]}),
            ("process_labels", {"labels": name.get("process_labels", "")}),
        ]
        process += [("process_sort_index", {"sort_index": name["process_sort"]})]  # type: ignore[dict-item]
        thread = [
            ("thread_name", {"name": name["thread"]}),
            ("thread_sort_index", {"sort_index": name.get("thread_sort", 0)}),
        ]
        for lane, what in [((pid, 0), process)] * (pid not in named) + [((pid, tid), thread)]:
            for key, args in what:
                yield (
                    f'{{"name": "{key}", "ph": "M", "ts": {ts}, {_place(lane)}, '
                    f'"args": {json.dumps(args)}}}'
                )
        named.add(pid)
