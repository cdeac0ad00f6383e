"""Small Kineto traces whose operators have recorded inputs, and a device with known peaks."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import htagraph as hg

BF16 = "c10::BFloat16"
H100 = {
    "id": 0,
    "name": "NVIDIA H100 80GB HBM3",
    "numSms": 132,
    "warpSize": 32,
    "computeMajor": 9,
    "computeMinor": 0,
    "totalGlobalMem": 85_000_000_000,
    "maxThreadsPerMultiprocessor": 2048,
}
A100 = {
    **H100,
    "name": "NVIDIA A100-SXM4-40GB",
    "numSms": 108,
    "computeMajor": 8,
    "totalGlobalMem": 42_000_000_000,
}


class Op(NamedTuple):
    """An operator with its kernels: name and duration in us of each."""

    name: str
    dims: list[Any]
    kernels: list[tuple[str, int]]
    types: list[str] | None = None
    inside: str = ""  #: an operator around it, with the same inputs


def recorded(
    *ops: Op, device: dict[str, Any] | None = H100, is_awaited: bool = False
) -> hg.TraceGraph:
    """The graph of operators that run one after the other, 1 ms each, in a step of their own.

    At the end, the host may wait for the device.
    """
    events: list[dict[str, Any]] = []
    correlation, free = 0, 0

    def slice_of(cat: str, name: str, ts: float, dur: float, tid: int, **args: Any) -> None:
        events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}
            | {"args": args}
        )

    for number, op in enumerate(ops):
        start = 1_000 * number
        slice_of("user_annotation", f"ProfilerStep#{number}", start, 999, 1)
        types = op.types or [BF16] * len(op.dims)
        inputs = {"Input Dims": op.dims, "Input type": types}
        if op.inside:
            slice_of("cpu_op", op.inside, start + 1, 900, 1, **inputs)
        slice_of("cpu_op", op.name, start + 2, 890, 1, **inputs)
        at = start + 20
        for name, dur in op.kernels:
            correlation += 1
            slice_of("cuda_runtime", "cudaLaunchKernel", at - 10, 5, 1, correlation=correlation)
            on = {"device": 0, "stream": 7, "correlation": correlation}
            if name.startswith("Memcpy"):
                on["bytes"] = math.prod(op.dims[0]) * 2
            kind = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
            free = max(at, free)
            slice_of(kind, name, free, dur, 7, **on)
            free += dur
            at += 20
    if is_awaited:
        ends = max(event["ts"] + event["dur"] for event in events)
        start = 1_000 * len(ops)
        slice_of("cuda_runtime", "cudaDeviceSynchronize", start, ends - start + 10, 1)
    document = {"traceEvents": events, "deviceProperties": [device] if device else []}
    return hg.load(json.dumps(document).encode()).compile()
