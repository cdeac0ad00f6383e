"""The pipe that a kernel multiplies on, by its name: as real traces have them."""

from __future__ import annotations

import re

import pytest

from htagraph.model.pipe_names import FP32_KERNELS, TENSOR_CORE_KERNELS

IN_FP32 = (
    "ampere_sgemm_128x64_nn",
    "ampere_sgemm_32x32_sliced1x4_tn",
    "volta_sgemm_128x32_sliced1x4_nt",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(cutlass_80_simt_sgemm_…)",
    "void magma_sgemmEx_kernel<float, float, float, true, false, 6, 4, 6, 3, 4>(int, int, int)",
    "void sgemm_largek_lds64<true, true, 6, 3, 4, 5, 2, 66>(float*, float const*, float const*)",
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4",
    "sm80_xmma_fprop_implicit_gemm_indexed_f32f32_f32f32_f32_nchwkcrs_nchw_g1_ffma",
    "cudnn_infer_ampere_scudnn_128x64_relu_xregs_large_nn_v1",
    "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int)",
    "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 8, 3, 3, 5, false, 512>(int, int, int)",
    "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int)",
    "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>",
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, float>",
    "Cijk_Ailk_Bjlk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1_SN_LDSB0_AFC1_AFEM1_AFEM1",
)
ON_TENSOR_CORES = (
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>(cutlass_80_tensorop)",
    "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_32x4>",
    "sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute",
    "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x6_tn",
    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT",
    "Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB0_APM1_ABV0_ACED0_AF0EM1_AF1EM1",
    "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x64x8_wt64x16x4_ws1x1_wr2x2_ta1x1x8x1_1x8x1x32",
)
UNTOLD = (
    "triton_tem_fused_addmm_relu_0",
    "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
    "void splitKreduce_kernel<float, float, float, float, true, false, false>(cublasSplitKParams)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
)


@pytest.mark.parametrize("name", [*IN_FP32, *ON_TENSOR_CORES, *UNTOLD])
def test_a_name_tells_the_pipe_or_nothing(name):
    """Matrix cores of AMD multiply fp32 as it is, so that one name may be of both."""
    in_fp32 = re.search(FP32_KERNELS, name) is not None
    on_tensor_cores = re.search(TENSOR_CORE_KERNELS, name) is not None

    assert in_fp32 == (name in IN_FP32)
    assert on_tensor_cores == (name in ON_TENSOR_CORES or name.startswith("Cijk"))
