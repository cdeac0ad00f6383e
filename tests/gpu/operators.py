"""Operators whose floating-point operations and bytes are known by hand, and what a trace says."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional
from torch.profiler import record_function

import htagraph as hg
from htagraph.arrays.ancestors import nearest
from htagraph.lookup.operator_roofs import call_of, operator_work
from htagraph.model.dag import Dag
from htagraph.operators.work import registered
from htagraph.run.graph import TraceGraph
from tests.gpu.machine import Machine
from tests.gpu.recording import record_block
from tests.gpu.traffic import traffic

_N_CALLS = 3


class Known(NamedTuple):
    """An operator, and what one call has to do."""

    name: str
    run: Callable[[], object]
    flops: int
    n_bytes: int


class Found(NamedTuple):
    """What htagraph says of all calls."""

    flops: int
    bytes_low: int
    bytes_high: int
    roof_share: float = float("nan")
    peak_share: float = float("nan")
    unmodelled: list[str] | None = None


def known_operators(machine: Machine) -> list[Known]:
    """Operators with inputs large enough for a device."""
    here = {"device": machine.device, "dtype": machine.dtype}
    s = machine.dtype.itemsize
    m, k, n = (machine.size(*both) for both in ((4096, 128), (2048, 96), (1024, 64)))
    left, right, bias = torch.randn(m, k, **here), torch.randn(k, n, **here), torch.randn(n, **here)
    batch = 8
    lefts, rights = torch.randn(batch, m, k, **here), torch.randn(batch, k, n, **here)
    heads, length, width = 16, machine.size(2048, 128), 64
    query, key, value = (torch.randn(batch, heads, length, width, **here) for _ in range(3))
    scores = batch * heads * length * length
    causal_scores = batch * heads * length * (length + 1) // 2
    attention_bytes = 4 * batch * heads * length * width * s
    images, channels, filters, side = 8, machine.size(128, 8), machine.size(256, 16), 32
    image = torch.randn(images, channels, side, side, **here, requires_grad=True)
    weight = torch.randn(filters, channels, 3, 3, **here, requires_grad=True)
    gradient = torch.randn(images, filters, side, side, **here)
    convolution = 2 * images * side * side * filters * channels * 9
    # Forward x, w, y; backward the gradient and both inputs, and both of their gradients.
    convolution_n = 3 * image.numel() + 3 * weight.numel() + gradient.numel() + gradient.numel()
    rows, columns = machine.size(8192, 256), machine.size(4096, 128)
    table = torch.randn(rows, columns, **here)
    scale, shift, row = (torch.randn(columns, **here) for _ in range(3))
    asked = torch.randperm(rows, device=machine.device)[: rows // 2]
    out = torch.empty(rows, columns, **here)
    across = torch.empty(columns, rows, **here)
    adam = _adam(machine)
    return [
        Known("mm", lambda: left @ right, 2 * m * k * n, (m * k + k * n + m * n) * s),
        Known(
            "addmm",
            lambda: torch.addmm(bias, left, right),
            2 * m * k * n,
            (n + m * k + k * n + m * n) * s,
        ),
        Known(
            "bmm",
            lambda: torch.bmm(lefts, rights),
            2 * batch * m * k * n,
            batch * (m * k + k * n + m * n) * s,
        ),
        Known(
            "sdpa",
            lambda: functional.scaled_dot_product_attention(query, key, value),
            4 * scores * width,
            attention_bytes,
        ),
        Known(
            "sdpa causal",
            lambda: functional.scaled_dot_product_attention(query, key, value, is_causal=True),
            4 * causal_scores * width,
            attention_bytes,
        ),
        Known(
            "conv2d and backward",
            lambda: torch.autograd.grad(
                functional.conv2d(image, weight, padding=1), [image, weight], gradient
            ),
            3 * convolution,
            convolution_n * s,
        ),
        Known("softmax", lambda: torch.softmax(table, -1), 0, 2 * rows * columns * s),
        Known(
            "layer_norm",
            lambda: functional.layer_norm(table, (columns,), scale, shift),
            0,
            (2 * rows * columns + 2 * columns) * s,
        ),
        Known("sum", lambda: table.sum(-1), 0, (rows * columns + rows) * s),
        Known(
            "embedding",
            lambda: functional.embedding(asked, table),
            0,
            rows // 2 * (2 * columns * s + 8),
        ),
        Known("cat", lambda: torch.cat([table, out]), 0, 4 * rows * columns * s),
        Known("foreach adam", adam, 0, traffic(adam)),
        Known(
            "copy of a row",
            lambda: out.copy_(row.expand(rows, columns)),
            0,
            (columns + rows * columns) * s,
        ),
        Known("copy transposed", lambda: across.copy_(table.t()), 0, 2 * rows * columns * s),
    ]


def _adam(machine: Machine) -> Callable[[], object]:
    """A step of Adam that works on lists of tensors."""
    parameters = [
        torch.nn.Parameter(torch.randn(machine.size(1 << 20, 1 << 12), device=machine.device))
        for _ in range(8)
    ]
    for one in parameters:
        one.grad = torch.randn_like(one)
    optimizer = torch.optim.Adam(parameters, foreach=True)
    optimizer.step()
    return optimizer.step


def record_operators(machine: Machine, out: Path) -> tuple[Path, list[Known]]:
    """A capture with a range for each operator."""
    known = known_operators(machine)
    for one in known:
        one.run()
    machine.wait()

    def block() -> None:
        for one in known:
            with record_function(one.name):
                for _ in range(_N_CALLS):
                    one.run()
                machine.wait()

    return record_block(machine, out, "operators", block), known


def found_work(machine: Machine, graph: TraceGraph) -> Found:
    """The work of all calls in a window: by the roofline of a GPU, or by the models alone."""
    if not machine.is_gpu:
        return _of_host(graph)
    frame = graph.roofline(by="shape")
    has = frame["gb_per_s"].notna()
    rows = frame[has]
    device_ns = max(int(rows["device_ns"].sum()), 1)
    flops, n_bytes = round(rows["gflop"].sum() * 1e9), int(rows["bytes_low"].sum())
    return Found(
        flops,
        n_bytes,
        int(rows["bytes_high"].sum()),
        float(rows["roof_ns"].sum(skipna=False)) / device_ns,
        _peak_share(machine, flops, n_bytes, int(rows["n_calls"].sum()), device_ns / 1e9),
        frame.loc[~has, "group"].tolist(),
    )


def _peak_share(machine: Machine, flops: int, n_bytes: int, n_calls: int, seconds: float) -> float:
    """How near the device is to its peaks, apart from the roof that htagraph computes."""
    if (peaks := machine.peaks) is None:
        return float("nan")
    name = {torch.bfloat16: "bf16", torch.float32: "fp32"}[machine.dtype]
    beyond_cache = max(n_bytes - n_calls * peaks.cache_bytes, 0)
    per_s = peaks.flops_per_s(name) or math.inf
    return max(flops / per_s, beyond_cache / peaks.bytes_per_s) / seconds


def _of_host(graph: TraceGraph) -> Found:
    """The work of the outermost operators that have a model: within, the CPU copies and fills."""
    dag = graph.dag
    events = graph.select(kind="op").rows
    calls = np.array([event for event in events.tolist() if _has_model(dag, event)], dtype=np.int64)
    is_call = np.zeros(len(dag.events), dtype=bool)
    is_call[calls] = True
    around = nearest(dag.parent, dag.parent[calls].astype(np.int64), is_call)
    found = operator_work(dag, calls[around < 0])
    total = {name: int(found.of_calls(name).sum()) for name in Found._fields[:3]}
    return Found(**total)


def _has_model(dag: Dag, event: int) -> bool:
    call = call_of(dag, event)
    model = registered(call.name) if call else None
    return call is not None and model is not None and model(call) is not None


def run_operators(machine: Machine, out: Path) -> dict[str, Any]:
    """Record the operators, ask for their work, and put both next to each other."""
    file, known = record_operators(machine, out)
    graph = hg.load(file).compile()
    rows = []
    for one in known:
        found = found_work(machine, graph.window(one.name, instance=0))
        rows.append(
            {
                "operator": one.name,
                "gflop": one.flops * _N_CALLS / 1e9,
                "found_gflop": found.flops / 1e9,
                "bytes": one.n_bytes * _N_CALLS,
                "found_bytes": [found.bytes_low, found.bytes_high],
                "roof_share": found.roof_share,
                "peak_share": found.peak_share,
                "unmodelled": found.unmodelled or [],
            }
        )
    return {"rows": rows, "capture": file.name}
