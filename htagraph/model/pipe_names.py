"""Names of kernels by the pipe that multiplies: tensor cores (matrix cores), or full FP32."""

from __future__ import annotations

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
