"""Work of operators whose floating-point operations and bytes are known by hand."""

from __future__ import annotations

from typing import Any

import pytest

from htagraph.operators.attention import cells
from htagraph.operators.call import Call
from htagraph.operators.work import Work, registered

BF16, FP32, FP64, FP8, LONG = "c10::BFloat16", "float", "double", "c10::Float8_e4m3fn", "long int"


def work(
    name: str,
    dims: list[Any],
    types: list[str],
    values: list[str] | None = None,
    strides: list[Any] | None = None,
) -> Work:
    """The work of a call; a scalar argument has no dimensions."""
    model = registered(name)
    assert model is not None
    found = model(Call(name, dims, types, strides or [], values or []))
    assert found is not None
    return found


def convolution(
    x: list[int], weight: list[int], bias: list[int], stride: str, padding: str, **more: str
) -> Work:
    values = ["", "", "", stride, padding, "[1, 1]", more.get("transposed", "False")]
    values += ["[0, 0]", more.get("groups", "1")]
    types = [
        BF16,
        BF16,
        BF16 if bias else "",
        *["ScalarList"] * 3,
        "Scalar",
        "ScalarList",
        "Scalar",
    ]
    return work("aten::convolution", [x, weight, bias, *[[]] * 6], types, values)


def backward(gradient: list[int], weight: list[int], mask: str, groups: str = "1") -> Work:
    x = [8, 64, 56, 56]
    types = [BF16] * 3 + ["ScalarList"] * 4 + ["Scalar", "ScalarList", "Scalar", "ScalarList"]
    values = ["", "", "", "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", groups, mask]
    return work("aten::convolution_backward", [gradient, x, weight, *[[]] * 8], types, values)


def flash(query: list[int], key: list[int], causal: str = "False") -> Work:
    types = [BF16, BF16, BF16, "Scalar", "Scalar"]
    values = ["", "", "", "0.", causal]
    name = "aten::_scaled_dot_product_flash_attention"
    return work(name, [query, key, key, [], []], types, values)


@pytest.mark.parametrize(
    ("found", "flops", "n_bytes"),
    [
        pytest.param(
            convolution([8, 64, 56, 56], [128, 64, 3, 3], [128], "[1, 1]", "[1, 1]"),
            3_699_376_128,
            9_781_504,
            id="convolution with a bias",
        ),
        pytest.param(
            convolution([8, 64, 56, 56], [128, 16, 3, 3], [], "[1, 1]", "[1, 1]", groups="4"),
            924_844_032,
            9_670_656,
            id="convolution in 4 groups",
        ),
        pytest.param(
            convolution(
                [8, 64, 28, 28],
                [64, 32, 2, 2],
                [],
                "[2, 2]",
                "[0, 0]",
                transposed="True",
                groups="2",
            ),
            102_760_448,
            4_030_464,
            id="transposed convolution in 2 groups has twice the channels of its weight",
        ),
        pytest.param(
            flash([2, 8, 1024, 64], [2, 8, 1024, 64]), 4_294_967_296, 8_388_608, id="attention"
        ),
        pytest.param(
            flash([2, 8, 1024, 64], [2, 8, 1024, 64], "True"),
            2_149_580_800,
            8_388_608,
            id="causal attention has S(S+1)/2 scores",
        ),
        pytest.param(
            flash([2, 8, 256, 64], [2, 8, 1024, 64], "True"),
            134_742_016,
            5_242_880,
            id="a causal mask begins at the top left",
        ),
        pytest.param(
            flash([2, 32, 1024, 64], [2, 8, 1024, 64]),
            17_179_869_184,
            20_971_520,
            id="attention with grouped queries",
        ),
        pytest.param(
            work(
                "aten::_scaled_dot_product_efficient_attention",
                [[2, 8, 1024, 64]] * 3 + [[]] * 4,
                [FP32] * 3 + ["", "Scalar", "Scalar", "Scalar"],
                ["", "", "", "", "False", "0.", "False"],
            ),
            4_294_967_296,
            16_777_216,
            id="attention in fp32 reads 4 bytes",
        ),
        pytest.param(
            work(
                "aten::addmm", [[512], [64, 256], [256, 512], [], []], [BF16] * 3 + ["Scalar"] * 2
            ),
            16_777_216,
            361_472,
            id="the bias of addmm is no operation",
        ),
        pytest.param(
            work(
                "aten::bmm",
                [[16, 64, 32], [16, 32, 64]],
                [BF16, BF16],
                strides=[[2048, 32, 1], [0, 64, 1]],
            ),
            4_194_304,
            200_704,
            id="an expanded batch is read once",
        ),
        pytest.param(
            work(
                "aten::_scaled_mm",
                [[64, 256], [256, 512], [], [], [], [], [], []],
                [FP8, FP8, FP32, FP32, "", "", "Scalar", "Scalar"],
                ["", "", "", "", "", "", "6", "False"],
            ),
            16_777_216,
            278_528,
            id="_scaled_mm may write fp32",
        ),
        pytest.param(
            work(
                "aten::sum",
                [[64, 8, 128], [], [], []],
                [BF16, "ScalarList", "Scalar", ""],
                ["", "[1]", "False", ""],
            ),
            0,
            147_456,
            id="sum over one dimension",
        ),
        pytest.param(
            work("aten::add_", [[64, 128], [64, 128], []], [BF16, FP32, "Scalar"]),
            0,
            65_536,
            id="an operator in place writes the type of its first input",
        ),
        pytest.param(
            work("aten::mul", [[], [64, 128]], [FP64, BF16]),
            0,
            32_776,
            id="a tensor without dimensions does not decide the type",
        ),
        pytest.param(
            work(
                "aten::copy_",
                [[64, 128], [64, 128], []],
                [BF16, BF16, "Scalar"],
                strides=[[128, 1], [0, 1], []],
            ),
            0,
            16_640,
            id="a copy of an expanded row reads it once",
        ),
    ],
)
def test_work_by_hand(found: Work, flops: int, n_bytes: int) -> None:
    assert (found.flops, found.bytes_low, found.bytes_high) == (flops, n_bytes, n_bytes)


@pytest.mark.parametrize(
    ("found", "flops", "low", "high"),
    [
        pytest.param(
            backward([8, 128, 56, 56], [128, 64, 3, 3], "[True, True, False]"),
            7_398_752_256,
            13_139_968,
            19_562_496,
            id="both gradients of a convolution: the gradient is read once or twice",
        ),
        pytest.param(
            backward([8, 128, 56, 56], [128, 64, 3, 3], "[False, True, False]"),
            3_699_376_128,
            9_781_248,
            9_781_248,
            id="the first layer needs no gradient of its input",
        ),
        pytest.param(
            backward([8, 128, 56, 56], [128, 16, 3, 3], "[True, True, False]", "4"),
            1_849_688_064,
            12_918_784,
            19_341_312,
            id="both gradients of a convolution in 4 groups",
        ),
    ],
)
def test_gradients_of_a_convolution(found: Work, flops: int, low: int, high: int) -> None:
    assert (found.flops, found.bytes_low, found.bytes_high) == (flops, low, high)


def test_a_causal_mask_by_counting() -> None:
    """Every shape of mask up to 9 by 9, aligned at either corner."""
    for n in range(10):
        for m in range(10):
            top = sum(min(i + 1, m) for i in range(n))
            bottom = sum(min(max(i + 1 + m - n, 0), m) for i in range(n))
            assert cells(n, m) == top, (n, m)
            assert cells(n, m, is_bottom_right=True) == bottom, (n, m)


def test_packed_sequences_have_no_model() -> None:
    """Their lengths are in device memory."""
    model = registered("aten::_flash_attention_forward")
    assert model is not None
    packed = Call(
        "aten::_flash_attention_forward",
        [[4096, 16, 128]] * 3 + [[9], [9]] + [[]] * 4,
        [BF16] * 3 + ["int", "int", "Scalar", "Scalar", "Scalar", "Scalar"],
    )
    assert model(packed) is None


def test_the_stack_of_a_scripted_function_is_not_the_inputs_of_an_operator():
    """`linear` takes three tensors; the other ones are of its caller."""
    stack = [[2048, 1953], [2048, 1953], [2048, 1024], [541, 1024], [541]]
    model = registered("aten::linear")

    assert model is not None
    assert model(Call("aten::linear", stack, [FP32] * 5)) is None


SERVED = [[4096, 8192], [4096, 8192], [8192]]
"""Rows of a prompt of 4,096 tokens, in bf16: 67,108,864 bytes each, and a weight of 16,384."""
ROWS, WEIGHT = 67_108_864, 16_384


@pytest.mark.parametrize(
    ("found", "n_bytes"),
    [
        pytest.param(
            work("sgl_kernel::silu_and_mul", [[4096, 4096], [4096, 8192]], [BF16] * 2),
            ROWS * 3 // 2,
            id="the product of gates and values is half of what is read",
        ),
        pytest.param(
            work("aiter::rmsnorm", [*SERVED, []], [BF16] * 3 + ["Scalar"]),
            2 * ROWS + WEIGHT,
            id="a norm with its result as an argument",
        ),
        pytest.param(
            work("aiter::rms_norm", [*SERVED[1:], [], []], [BF16] * 2 + ["Scalar"] * 2),
            2 * ROWS + WEIGHT,
            id="a norm that returns its result",
        ),
        pytest.param(
            work(
                "aiter::add_rmsnorm",
                [SERVED[0], *SERVED[:2], *SERVED[1:], []],
                [BF16] * 5 + ["Scalar"],
            ),
            4 * ROWS + WEIGHT,
            id="a norm of a sum reads two and writes the sum, too",
        ),
        pytest.param(
            work("sgl_kernel::fused_add_rmsnorm", [*SERVED, []], [BF16] * 3 + ["Scalar"]),
            4 * ROWS + WEIGHT,
            id="the same in place",
        ),
        pytest.param(
            work(
                "sgl_kernel::rotary_embedding",
                [[888], [888, 512], [888, 64], [], [131072, 64], []],
                [LONG, BF16, BF16, "Scalar", BF16, "Scalar"],
            ),
            888 * 8 + 2 * 888 * (512 + 64) * 2 + 888 * 64 * 2,
            id="queries and keys are turned in place, by a row of the cache for each token",
        ),
        pytest.param(
            work(
                "sgl_kernel::rotary_embedding",
                [[888], [888, 512], [], [], [131072, 64], []],
                [LONG, BF16, "", "Scalar", BF16, "Scalar"],
            ),
            888 * 8 + 2 * 888 * 512 * 2 + 888 * 64 * 2,
            id="there may be no keys",
        ),
        pytest.param(
            work("aten::sort", [[32, 4096], [], []], [FP32, "Scalar", "Scalar"], ["", "-1", "0"]),
            32 * 4096 * (4 + 4 + 8),
            id="sort writes values and where they were",
        ),
        pytest.param(
            work(
                "aten::topk",
                [[32, 4096], [], [], [], []],
                [FP32, *["Scalar"] * 4],
                ["", "8", "-1", "True", "True"],
            ),
            32 * 4096 * 4 + 32 * 8 * (4 + 8),
            id="topk writes no more than the largest",
        ),
        pytest.param(
            work("aten::cumsum", [[2048], [], []], [LONG, "Scalar", ""], ["", "0", ""]),
            2048 * 16,
            id="cumsum",
        ),
        pytest.param(
            work(
                "aten::upsample_bilinear2d",
                [[2, 3, 64, 64], [], [], [], []],
                [FP32, "ScalarList", "Scalar", "", ""],
                ["", "[128, 256]", "False", "", ""],
            ),
            (2 * 3 * 64 * 64 + 2 * 3 * 128 * 256) * 4,
            id="interpolation up reads all",
        ),
        pytest.param(
            work(
                "aten::upsample_bilinear2d",
                [[2, 3, 640, 640], [], [], [], []],
                [FP32, "ScalarList", "Scalar", "", ""],
                ["", "[16, 16]", "False", "", ""],
            ),
            2 * 3 * 16 * 16 * (4 + 1) * 4,
            id="interpolation down reads four neighbours each",
        ),
        pytest.param(
            work(
                "aten::upsample_bilinear2d_backward",
                [[2, 3, 128, 256], [], [], [], [], []],
                [FP32, "ScalarList", "ScalarList", "Scalar", "", ""],
                ["", "[128, 256]", "[2, 3, 64, 64]", "False", "", ""],
            ),
            (2 * 3 * 64 * 64 + 2 * 3 * 128 * 256) * 4,
            id="the gradient of interpolation is as large as its input",
        ),
    ],
)
def test_traffic_of_what_serving_runs(found: Work, n_bytes: int) -> None:
    assert (found.flops, found.bytes_low, found.bytes_high) == (0, n_bytes, n_bytes)


@pytest.mark.parametrize(
    ("dims", "types", "values", "low", "high"),
    [
        pytest.param(
            [[8192, 8, 64], [], [32, 8, 64], [], []],
            [BF16, "", BF16, "Scalar", "Scalar"],
            ["", "", "", "False", "False"],
            2 * 32 * 8 * 64 * 2,
            2 * 32 * 8 * 64 * 2 + 32 * 8,
            id="rows: an index each",
        ),
        pytest.param(
            [[8192, 8, 64], [], [32, 8, 64], [], []],
            [BF16, "", BF16, "Scalar", "Scalar"],
            ["", "", "", "True", "False"],
            3 * 32 * 8 * 64 * 2,
            3 * 32 * 8 * 64 * 2 + 32 * 8,
            id="rows that are added to are read",
        ),
        pytest.param(
            [[6, 2048], [], [6825], [], []],
            [FP32, "", FP32, "Scalar", "Scalar"],
            [],
            2 * 6825 * 4,
            2 * 6825 * 4 + 2 * 6825 * 8,
            id="elements: an index in each dimension",
        ),
        pytest.param(
            [[6, 2048], [], [], [], []],
            [FP32, "", FP32, "Scalar", "Scalar"],
            [],
            8,
            4 + 2 * 8 + 6 * 2048 * 4,
            id="a number may be written anywhere",
        ),
    ],
)
def test_indices_that_are_not_recorded_are_open(dims, types, values, low, high) -> None:
    found = work("aten::_index_put_impl_", dims, types, values)

    assert (found.bytes_low, found.bytes_high) == (low, high)
