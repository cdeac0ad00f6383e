"""Names and categories with a meaning of their own: autograd, clocks, metrics, steps, pipes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from htagraph.model.events import EventTable, SparseColumn

AUTOGRAD_FUNCTION = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$|AccumulateGrad$")
"""Functions of the backward pass: ``AddmmBackward0``, and what evaluates them."""

CRITICAL_PATH = "critical_path"
"""A path that was written into a trace; no part of what ran when it is read again."""

FORWARD_BACKWARD = "fwdbwd"
"""From a forward operator to its backward operator; PyTorch's profiler writes them."""

TENSOR_DEPENDENCY = "tensor dependency"
"""From the operator that wrote a tensor to one that reads it; an execution trace knows them."""

SM_CLOCK = re.compile(
    r"^clocks(\.current)?\.sm$|^pclk$|^SMCLK$|^DCGM_FI_DEV_SM_CLOCK$|^gfx_0_clk$", re.IGNORECASE
)
"""Series with the clock of multiprocessors in MHz: of ``nvidia-smi --query-gpu``, its ``dmon``,
``dcgmi dmon -e 100``, the DCGM exporter, and ``amd-smi metric -c``."""
MEMORY_CLOCK = re.compile(
    r"^clocks(\.current)?\.mem(ory)?$|^mclk$|^MMCLK$|^DCGM_FI_DEV_MEM_CLOCK$|^mem_0_clk$",
    re.IGNORECASE,
)
"""The same of memory: ``dcgmi dmon -e 101``."""

FRAME = re.compile(r"^(?P<file>.*)\((?P<line>-?\d+)\): (?P<function>.*)$", re.DOTALL)
"""A Python frame with a file: ``train.py(4): loss``."""

NCU = "ncu."
"""Before the name of each metric of Nsight Compute; a value is in bytes, ns, or per second."""


def function_and_place(frame: str) -> tuple[str, str]:
    """Name of the function of a frame, and the file and line where it begins."""
    parts = FRAME.match(frame)
    return (parts["function"], f"{parts['file']}:{parts['line']}") if parts else (frame, "")


def ncu_columns(events: EventTable) -> Mapping[str, SparseColumn]:
    """Columns of the metrics of Nsight Compute, by the name of the metric."""
    return {
        name.removeprefix(NCU): column
        for name, column in events.columns.items()
        if name.startswith(NCU)
    }


PROFILER_STEP = re.compile(r"^ProfilerStep\s*#(\d+)")
"""Name of a step of ``profiler.step()``: ``ProfilerStep#12``."""

STEP_MARKERS = {
    "profiler step": PROFILER_STEP,
    "serving marker": re.compile(
        r"^(execute_\w+|step\[\w+)|^execute_model|^(Prefill|Decode|EXTEND|DECODE)\b"
    ),
}
"""Patterns of host ranges that are steps, by what marks them; the first that a trace has counts."""


def step_number(name: str) -> int:
    """Number of a step of the profiler; -1 for any other name."""
    found = PROFILER_STEP.fullmatch(name)
    return int(found[1]) if found else -1


def without_step_number(name: str) -> str:
    """The name that all steps of the profiler share; any other name stays."""
    return "ProfilerStep" if PROFILER_STEP.fullmatch(name) else name


TENSOR_CORE_KERNELS = (
    r"tensorop|[sh](884|1688|16816)(gemm|cudnn|fprop|dgrad|wgrad|_)|(?<![a-z])[hiq]g?mma|wgmma"
    r"|tcgen05|sm1?\d\d_xmma_\w*(tf32|f16|i8|e4m3|e5m2)|^nvjet|flash_(fwd|bwd)|(?<![a-z])fmha"
    r"|^Cijk_.*_MI\d|xdlops|mfma|igemm_\w*gtcx"
)
"""Searched in the name of a kernel. Other kernels may use them, too (those of Triton tell nothing):
what is found is a lower bound."""

FP32_KERNELS = (
    r"sgemm|ffma|scudnn(?!_winograd)|(?<![a-z])gemv|(dgrad|wgrad_alg\d)_engine|conv_depthwise"
    r"|^Cijk_[A-Za-z]+_[A-Za-z]+_SB_"
)
"""Products at the peak of FP32: CUDA cores, and AMD's matrix cores without xf32 (``SB``). Searched
in the name. Winograd's convolutions multiply less than is counted, so that no peak is theirs;
test_colors has real names of each pipe, and of none.
"""
