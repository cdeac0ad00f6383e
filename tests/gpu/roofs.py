"""What a device reaches: products by element type, its memory, and its link to the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import record_function

import htagraph as hg
from htagraph.operators.peaks import DevicePeaks
from tests.gpu.machine import Machine
from tests.gpu.recording import record_block

_TERA = 1e12
_N_RUNS, _N_RECORDED = 10, 3


class Roof(NamedTuple):
    """A program that is limited by one thing."""

    name: str
    run: Callable[[], object]
    amount: float
    per_s: float
    precision: str = "highest"


def roofs(machine: Machine) -> list[Roof]:
    """The programs that this device can run."""
    peaks = machine.peaks
    return [*_products(machine, peaks), *_memory(machine, peaks), *_host_link(machine, peaks)]


def _products(machine: Machine, peaks: DevicePeaks | None) -> list[Roof]:
    n = machine.size(8192, 384)
    types = {"fp32": torch.float32, "bf16": torch.bfloat16}
    types |= {"tf32": torch.float32, "fp16": torch.float16} if machine.is_gpu else {}
    found = []
    for name, dtype in types.items():
        left, right = (torch.randn(n, n, device=machine.device, dtype=dtype) for _ in range(2))
        vector = peaks.fp32_tflops * _TERA if peaks else 0.0
        peak = vector if name == "fp32" or not peaks else peaks.flops_per_s(name)
        precision = "high" if name == "tf32" else "highest"
        run = lambda left=left, right=right: left @ right  # noqa: E731
        if name == "tf32" and peaks and "tf32" not in peaks.matrix_tflops:
            continue
        found.append(Roof(f"product, {name}", run, 2.0 * n**3, peak, precision))
    if machine.has_fp8:
        fp8 = torch.float8_e4m3fn
        left, right = (torch.randn(n, n, device=machine.device).to(fp8) for _ in range(2))
        one = torch.ones((), device=machine.device)
        peak = peaks.flops_per_s("fp8") if peaks else 0.0

        def scaled() -> torch.Tensor:
            return torch._scaled_mm(
                left, right.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16
            )

        found.append(Roof("product, fp8", scaled, 2.0 * n**3, peak))
    return found


def _memory(machine: Machine, peaks: DevicePeaks | None) -> list[Roof]:
    n = machine.size(1 << 28, 1 << 23)
    one, two, out = (torch.randn(n, device=machine.device) for _ in range(3))
    peak = peaks.bytes_per_s if peaks else 0.0
    return [
        Roof("memory, copy", lambda: out.copy_(one), 8.0 * n, peak),
        Roof("memory, triad", lambda: torch.add(one, two, alpha=3.0, out=out), 12.0 * n, peak),
    ]


def _host_link(machine: Machine, peaks: DevicePeaks | None) -> list[Roof]:
    """Copies between host and device; none for CPU tensors."""
    if not machine.is_gpu:
        return []
    n = 1 << 26
    peak = peaks.host_bytes_per_s if peaks else 0.0
    device = torch.randn(n, device=machine.device)
    found = []
    for memory in ("pinned", "pageable"):
        host = torch.randn(n, pin_memory=memory == "pinned")
        to_device = lambda host=host: device.copy_(host, non_blocking=True)  # noqa: E731
        to_host = lambda host=host: host.copy_(device, non_blocking=True)  # noqa: E731
        found.append(Roof(f"host to device, {memory}", to_device, 4.0 * n, peak))
        found.append(Roof(f"device to host, {memory}", to_host, 4.0 * n, peak))
    return found


def run_roofs(machine: Machine, out: Path) -> dict[str, Any]:
    """Measure each by the device's clock, then record it and ask for its share of the roof."""
    rows = []
    every = roofs(machine)
    for one in every:
        torch.set_float32_matmul_precision(one.precision)
        rate = one.amount / machine.ms(one.run, _N_RUNS) * 1e3
        share = rate / one.per_s if one.per_s else float("nan")
        rows.append({"roof": one.name, "tera_per_s": rate / _TERA, "share": share})

    def block() -> None:
        for one in every:
            torch.set_float32_matmul_precision(one.precision)
            with record_function(one.name):
                for _ in range(_N_RECORDED):
                    one.run()
                machine.wait()

    file = record_block(machine, out, "roofs", block)
    torch.set_float32_matmul_precision("highest")
    graph = hg.load(file).compile()
    for row in rows:
        row.update(_traced(graph.window(row["roof"], instance=0), row["roof"]))
    return {"rows": rows, "capture": file.name}


def _traced(graph: hg.TraceGraph, name: str) -> dict[str, float]:
    """The rate and the share of the roof by a trace; NaN if it has none, as of CPU tensors."""
    frame = graph.roofline(by="shape")
    frame = frame[frame["gb_per_s"].notna()]
    seconds = float(frame["device_ns"].sum()) / 1e9
    if not seconds:
        return {"traced_tera_per_s": float("nan"), "traced_share": float("nan")}
    amount = {"product": frame["gflop"] * 1e9, "memory": frame["bytes_low"]}
    # A copy to or from the host is read on one side and written on the other.
    moved = amount.get(name.partition(",")[0], frame["bytes_low"] / 2)
    return {
        "traced_tera_per_s": float(moved.sum()) / seconds / _TERA,
        "traced_share": float(frame["roof_ns"].sum(skipna=False)) / 1e9 / seconds,
    }
