"""A Kineto file read the slow and obvious way: `json.loads`, exact decimals, a loop."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from htagraph.model.kinds import EventKind

LAUNCH_FLOWS = {"ac2g", "async_cpu_to_gpu", "async_gpu", "async"}
ON_STREAM = {
    EventKind.KERNEL,
    EventKind.MEMCPY,
    EventKind.MEMSET,
    EventKind.SYNC,
    EventKind.DEVICE_ANNOTATION,
}
KINDS = {
    "cpu_op": EventKind.OP,
    "Operator": EventKind.OP,
    "cuda_runtime": EventKind.RUNTIME,
    "cuda_driver": EventKind.RUNTIME,
    "Runtime": EventKind.RUNTIME,
    "hip_runtime": EventKind.RUNTIME,
    "mtia_runtime": EventKind.RUNTIME,
    "kernel": EventKind.KERNEL,
    "Kernel": EventKind.KERNEL,
    "mtia_ccp_events": EventKind.KERNEL,
    "gpu_memcpy": EventKind.MEMCPY,
    "Memcpy": EventKind.MEMCPY,
    "gpu_memset": EventKind.MEMSET,
    "Memset": EventKind.MEMSET,
    "cuda_sync": EventKind.SYNC,
    "user_annotation": EventKind.ANNOTATION,
    "gpu_user_annotation": EventKind.DEVICE_ANNOTATION,
    "python_function": EventKind.PYTHON,
    "overhead": EventKind.OVERHEAD,
    "cpu_instant_event": EventKind.INSTANT,
    "cuda_profiler_range": EventKind.COUNTER_RANGE,
    "Trace": EventKind.SPAN,
}
INTEGERS = {
    "bytes": ("bytes", "Bytes"),
    "wait_on_stream": ("wait_on_stream",),
    "wait_on_event_record": ("wait_on_cuda_event_record_corr_id",),
    "wait_on_event": ("wait_on_cuda_event_id",),
    "sequence": ("Sequence number",),
    "fwd_thread": ("Fwd thread id",),
    "graph_id": ("graph id",),
    "graph_node": ("graph node id",),
    "registers": ("registers per thread",),
    "shared_memory": ("shared memory",),
    "python_id": ("Python id",),
    "python_parent": ("Python parent id",),
    "msg_in": ("In msg nelems",),
    "msg_out": ("Out msg nelems",),
    "group_size": ("Group size",),
    "seq": ("Seq",),
    "comms_id": ("Comms Id",),
    "comms_rank": ("Rank",),
    "src_rank": ("Src Rank",),
    "dst_rank": ("Dst Rank",),
    "is_async": ("Is asynchronized op",),
    "addr": ("Addr",),
    "total_allocated": ("Total Allocated",),
    "total_reserved": ("Total Reserved",),
    "device_type": ("Device Type",),
    "device_id": ("Device Id",),
    "record_function": ("Record function id",),
    "step_num": ("step_num",),
}
REALS = {
    "memory_bandwidth": "memory bandwidth (GB/s)",
    "occupancy": "est. achieved occupancy %",
    "blocks_per_sm": "blocks per SM",
    "warps_per_sm": "warps per SM",
}
TEXTS = {
    "call_from": "CallFrom",
    "collective": "Collective name",
    "dtype": "dtype",
    "group_name": "Process Group Name",
    "group_ranks": "Process Group Ranks",
    "group_description": "Process Group Description",
}
LISTS = {
    "arg_dims": "Input Dims",
    "arg_types": "Input type",
    "arg_strides": "Input Strides",
    "arg_values": "Concrete Inputs",
}


def content(path: Path) -> bytes:
    """The decompressed bytes of a file."""
    data = path.read_bytes()
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def document(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The events and the other top-level keys of a file, numbers exact; ``{}`` is padding."""
    value = json.loads(content(path).decode("utf-8", "replace"), parse_float=Decimal)
    if isinstance(value, list):
        return [event for event in value if event], {}
    return [event for event in value.pop("traceEvents") if event], value


def listed(text: str) -> list[Any]:
    """A list as it is written, numbers exact."""
    value: list[Any] = json.loads(text, parse_float=Decimal)
    return value


def integer(value: Any) -> int | None:
    """A value of args as an integer, in int64 bits; None if it is none."""
    if isinstance(value, str):
        try:
            value = int(value, 0) if value.startswith("0x") else int(Decimal(value))
        except (ValueError, ArithmeticError):
            return None
    if not isinstance(value, (int, Decimal)):
        return None
    value = int(value)
    return value - 2**64 if value >= 2**63 else value


def nanoseconds(value: Any) -> int:
    """A time in microseconds as nanoseconds, half to even."""
    return int((Decimal(value) * 1000).to_integral_value())


def place(value: Any) -> int | str:
    """A pid or tid: an int where it is written as one."""
    text = "" if value is None else str(value)
    return int(text) if text.lstrip("-").isdigit() else text


def kind(event: dict[str, Any]) -> EventKind:
    """What an event is."""
    if event["ph"] in "iI":
        return EventKind.INSTANT
    if event["ph"] == "C":
        return EventKind.COUNTER
    found = KINDS.get(event.get("cat", ""), EventKind.OTHER)
    if found == EventKind.OP and event["name"].startswith("ProfilerStep#"):
        return EventKind.ANNOTATION
    is_wait = event.get("name") in {
        "event_wait",
        "Stream Sync",
        "Stream Wait Event",
        "Event Sync",
        "Context Sync",
    }
    return EventKind.SYNC if found == EventKind.KERNEL and is_wait else found


def stream(event: dict[str, Any], args: dict[str, Any]) -> int:
    """The stream of a device event, -1 for none."""
    value = integer(args.get("stream"))
    if value is None:
        text = str(event.get("tid", "")).removeprefix("stream ")
        value = int(text) if text.isdigit() else -1
    return -1 if value == 4294967295 else value


def device(event: dict[str, Any], args: dict[str, Any]) -> int:
    """The device of a device event, -1 for none."""
    value = integer(args.get("device"))
    if value is None:
        pid = place(event.get("pid"))
        value = pid if isinstance(pid, int) and 0 <= pid < 4096 else -1
    return value


def row(event: dict[str, Any], base_time_ns: int) -> dict[str, Any]:
    """All columns of an event; what it does not have is left out."""
    args = event.get("args", {})
    what = kind(event)
    on_stream = what in ON_STREAM
    out: dict[str, Any] = {
        "ts_ns": nanoseconds(event["ts"]) + base_time_ns,
        "dur_ns": nanoseconds(event.get("dur", 0)),
        "kind": what,
        "name": event["name"],
        "category": event.get("cat", ""),
        "lane": (place(event.get("pid")), place(event.get("tid"))),
        "device": device(event, args) if on_stream else -1,
        "stream": stream(event, args) if on_stream else -1,
        "correlation": args.get("correlation", -1),
        "external_id": args.get("External id", args.get("external id", -1)),
    }
    for column, keys in INTEGERS.items():
        values = [integer(args[key]) for key in keys if key in args]
        if values and values[0] is not None:
            no_stream = column == "wait_on_stream" and values[0] == 4294967295
            out[column] = -1 if no_stream else values[0]
    out |= {column: float(args[key]) for column, key in REALS.items() if key in args}
    out |= {column: str(args[key]) for column, key in TEXTS.items() if key in args}
    out |= {column: args[key] for column, key in LISTS.items() if isinstance(args.get(key), list)}
    for axis in ("grid", "block"):
        if isinstance(args.get(axis), list):
            out |= {f"{axis}_{name}": value for name, value in zip("xyz", args[axis], strict=True)}
    if not on_stream and integer(args.get("stream")) is not None:
        out["api_stream"] = stream(event, args)
    return out
