"""Names of kernels that compute on tensor cores (matrix cores)."""

from __future__ import annotations

__all__ = ["TENSOR_CORE_KERNELS"]

TENSOR_CORE_KERNELS = (
    r"tensorop|[sh](884|1688|16816)(gemm|cudnn|fprop|dgrad|wgrad|_)|(?<![a-z])[hiq]g?mma|wgmma"
    r"|tcgen05|sm1?\d\d_xmma_\w*(tf32|f16|i8|e4m3|e5m2)|^nvjet|flash_(fwd|bwd)|(?<![a-z])fmha"
    r"|^Cijk_.*_MI\d|xdlops|mfma|igemm_\w*gtcx"
)
"""Searched in the name of a kernel. Other kernels may use them, too (those of Triton tell nothing):
what is found is a lower bound."""
