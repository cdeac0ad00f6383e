"""Colors that everyone can tell apart, with each kind of color vision, on light and dark."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest

from htagraph.model.colors import (
    COLORS,
    FILLS,
    IDLE,
    INFERRED,
    LATE,
    LEAST_DIFFERENCE,
    SERIES,
    WAITS,
    Color,
)
from htagraph.model.kinds import Bound, in_words
from htagraph.model.names import FP32_KERNELS, TENSOR_CORE_KERNELS
from htagraph.reports.page.panels import resource

F64 = npt.NDArray[np.float64]

VISION = {
    "normal": np.eye(3),
    "protan": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deutan": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritan": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
SAME_HATCH = 1.5 * LEAST_DIFFERENCE
"""What bars of one hatch differ by: they have only their color."""
NOTICED = 7.5
"""What lines of a hatch differ by from the bar: three times what is just noticeable."""
LEGIBLE = 4.5
"""Contrast of text by WCAG 2.2, level AA."""


def rgb(fill: str) -> F64:
    """Red, green and blue from 0 to 1."""
    return np.array([int(fill[at : at + 2], 16) for at in (1, 3, 5)]) / 255


def over(paint: str, ground: F64) -> F64:
    """What a translucent paint, ``rgba(…)``, makes of the ground."""
    *paint_rgb, alpha = map(float, re.findall(r"[\d.]+", paint))
    mixed: F64 = np.array(paint_rgb) / 255 * alpha + ground * (1 - alpha)
    return mixed


def linear(color: F64) -> F64:
    """Light of a color of sRGB."""
    return np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)


def lab(color: F64, vision: str) -> F64:
    """L*, a* and b* of a color as one sees it, under D65."""
    xyz = TO_XYZ @ np.clip(VISION[vision] @ linear(color), 0, 1) / TO_XYZ.sum(axis=1)
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / 3 * (29 / 6) ** 2 + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def ciede2000(one: F64, other: F64) -> float:
    """Difference of two colors in L*, a* and b*."""
    chroma = (np.hypot(*one[1:]) + np.hypot(*other[1:])) / 2
    g = 0.5 * (1 - np.sqrt(chroma**7 / (chroma**7 + 25**7)))
    a, b = np.array([one[1], other[1]]) * (1 + g), np.array([one[2], other[2]])
    c, h = np.hypot(a, b), np.degrees(np.arctan2(b, a)) % 360
    has_hue = c.prod() > 0
    turn = (h[1] - h[0] + 180) % 360 - 180 if has_hue else 0.0
    d_l, d_c = other[0] - one[0], c[1] - c[0]
    d_h = 2 * np.sqrt(c.prod()) * np.sin(np.radians(turn / 2))
    mean_l, mean_c = (one[0] + other[0]) / 2, c.mean()
    mean_h = (h[0] + turn / 2) % 360 if has_hue else h.sum()
    t = 1 + sum(
        share * np.cos(np.radians(times * mean_h + shift))
        for share, times, shift in ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.2, 4, -63))
    )
    s_l = 1 + 0.015 * (mean_l - 50) ** 2 / np.sqrt(20 + (mean_l - 50) ** 2)
    s_c, s_h = 1 + 0.045 * mean_c, 1 + 0.015 * mean_c * t
    theta = 30 * np.exp(-(((mean_h - 275) / 25) ** 2))
    r_t = -2 * np.sqrt(mean_c**7 / (mean_c**7 + 25**7)) * np.sin(np.radians(2 * theta))
    parts = np.array([d_l / s_l, d_c / s_c, d_h / s_h])
    return float(np.sqrt(parts @ parts + r_t * parts[1] * parts[2]))


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 0, 0), (50, -1, 2), 2.3669),
        ((50, 2.49, -0.001), (50, -2.49, 0.0009), 7.1792),
        ((50, 2.49, -0.001), (50, -2.49, 0.0011), 7.2195),
        ((50, -0.001, 2.49), (50, 0.0011, -2.49), 4.7461),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((50, 2.5, 0), (58, 24, 15), 19.4535),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((63.0109, -31.0961, -5.8663), (62.8187, -29.7946, -4.0864), 1.2630),
        ((90.8027, -2.0831, 1.4410), (91.1528, -1.6435, 0.0447), 1.4441),
        ((6.7747, -0.2908, -2.4247), (5.8714, -0.0985, -2.2286), 0.6377),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_difference_is_that_of_the_published_pairs(
    one: tuple[float, ...], other: tuple[float, ...], difference: float
) -> None:
    """Pairs 1, 7, 9, 10, 14, 17, 20, 23, 25, 30, 33 and 34 of Sharma's table 1, four decimals."""
    found = ciede2000(np.array(one), np.array(other))
    assert found == pytest.approx(difference, abs=5e-5)
    assert ciede2000(np.array(other), np.array(one)) == pytest.approx(found)


def papers() -> list[F64]:
    """The ground of figures on the page, light and dark."""
    found = re.search(r"--card: light-dark\((#\w+), (#\w+)\)", resource("page.css"))
    assert found is not None
    return [rgb(paper) for paper in found.groups()]


def alike(colors: dict[str, F64], least: float) -> list[str]:
    """Pairs of colors that differ by less, with the vision that sees it."""
    names = list(colors)
    return [
        f"{one} and {other} differ by {found:.1f} ({vision})"
        for vision in VISION
        for at, one in enumerate(names)
        for other in names[:at]
        if (found := ciede2000(lab(colors[one], vision), lab(colors[other], vision))) < least
    ]


BOUNDS = {bound.label: rgb(color.fill) for bound, color in COLORS.items()}


@pytest.mark.parametrize("paper", papers(), ids=["light", "dark"])
def test_all_that_a_figure_of_bounds_shows_can_be_told_apart(paper: F64) -> None:
    """Any two bounds may meet on a path; idle devices and the paper may be next to any."""
    drawn = {**BOUNDS, "idle": over(IDLE.fill, paper), "paper": paper}
    assert not alike(drawn, LEAST_DIFFERENCE)


@pytest.mark.parametrize("paper", papers(), ids=["light", "dark"])
def test_how_full_a_device_is_can_be_told_apart(paper: F64) -> None:
    """The parts of the figure of utilization."""
    others = {name: BOUNDS[name] for name in ("communication", "unknown_waits")}
    shades = {color.fill: rgb(color.fill) for color in FILLS}
    idle = {"idle": over(IDLE.fill, paper)}
    assert not alike(shades | others | idle, LEAST_DIFFERENCE)


def test_series_can_be_told_apart_and_are_no_bounds() -> None:
    """Lines of one dash; no figure has series and bounds, so the eye that sees all hues counts."""
    series = {fill: rgb(fill) for fill in SERIES}
    assert not alike(series, LEAST_DIFFERENCE)
    assert not [pair for pair in alike(BOUNDS | series, LEAST_DIFFERENCE) if "normal" in pair]


def test_bars_of_one_hatch_differ_more_in_color() -> None:
    """No bound has the hatch of what is inferred."""
    hatches = {color.hatch for color in COLORS.values()}
    assert INFERRED not in hatches
    for hatch in hatches:
        same = [bound.label for bound, color in COLORS.items() if color.hatch == hatch]
        assert not alike({name: BOUNDS[name] for name in same}, SAME_HATCH)


def contrast(one: F64, other: F64) -> float:
    """Ratio of relative luminances."""
    low, high = sorted(float(TO_XYZ[1] @ linear(color)) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


def test_ranks_that_are_late_or_wait_can_be_told_apart() -> None:
    """On their tracks are collectives, too."""
    drawn = {color.perfetto: rgb(color.fill) for color in (LATE, WAITS)}
    assert not alike(drawn | {"collective": BOUNDS["communication"]}, LEAST_DIFFERENCE)


@pytest.mark.parametrize(
    "color", [*COLORS.values(), *FILLS, LATE, WAITS], ids=lambda color: color.fill
)
def test_text_on_a_bar_is_legible_on_its_hatch_too(color: Color) -> None:
    """Bars are the same on light and dark paper; lines of the hatch can be seen."""
    fill, ink = rgb(color.fill), rgb(color.ink)
    lines = over(color.lines, fill)

    assert contrast(ink, fill) >= LEGIBLE
    assert contrast(ink, lines) >= LEGIBLE
    assert not color.hatch or not alike({"fill": fill, "lines": lines}, NOTICED)


def hashed(text: str, limit: int) -> int:
    """The hash of the Perfetto UI: FNV-1a in doubles, which lose the lowest bits."""
    state = 0x11C9DC5
    for letter in text:
        product = int(float(16_777_619 * (state ^ ord(letter)))) & 0xFFFFFFFF
        state = product - (1 << 32) if product >> 31 else product
    return abs(state) % limit


def hsluv(hue: float, saturation: float, lightness: float) -> F64:
    """Red, green and blue of a color of HSLuv: the chroma is a share of the largest in sRGB."""
    to_rgb = np.linalg.inv(TO_XYZ)
    y = ((lightness + 16) / 116) ** 3
    u_white, v_white = 0.19783, 0.46832

    def color(chroma: float) -> F64:
        u = chroma * np.cos(np.radians(hue)) / (13 * lightness) + u_white
        v = chroma * np.sin(np.radians(hue)) / (13 * lightness) + v_white
        return to_rgb @ np.array([9 * u, 4 * v, 12 - 3 * u - 20 * v]) * y / (4 * v)

    low, high = 0.0, 400.0
    for _ in range(40):
        middle = (low + high) / 2
        inside = bool((color(middle) >= 0).all() and (color(middle) <= 1).all())
        low, high = (middle, high) if inside else (low, middle)
    light = color(low * saturation / 100)
    return np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)


@pytest.mark.parametrize("color", [*COLORS.values(), LATE, WAITS], ids=lambda color: color.perfetto)
def test_viewers_of_perfetto_choose_the_same_color(color: Color) -> None:
    """They hash a text to a hue, and the text with an x after it to a lightness."""
    hue, lightness = hashed(color.perfetto, 360), hashed(f"{color.perfetto}x", 40) + 40
    assert np.abs(hsluv(hue, 80, lightness) - rgb(color.fill)).max() < 1.5 / 255


@pytest.mark.parametrize("bound", list(Bound), ids=lambda bound: bound.label)
def test_the_text_of_a_color_begins_with_the_bound(bound: Bound) -> None:
    """Viewers show it."""
    assert COLORS[bound].perfetto.startswith(f"{in_words(bound.label)} ")


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
