"""Matrix products and convolutions. Biases, added in the epilogue, are no operations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from htagraph.operators.call import Call, Tensor
from htagraph.operators.work import Family, Work, models, traffic

_MOST_TENSORS = 3
"""Tensors that ``linear`` takes: of scripted functions, old profilers recorded the whole stack."""


def _product(
    left: Tensor | None,
    right: Tensor | None,
    added: Tensor | None = None,
    out: Tensor | None = None,
    dtype: str = "",
) -> Work | None:
    """``left @ right``, both with the same batch; what is added is read, too."""
    if left is None or right is None or not 2 <= len(left.dims) == len(right.dims) <= 3:
        return None
    *batch, m, k = left.dims
    *batch_right, k_right, n = right.dims
    if k != k_right or batch != batch_right:
        return None
    result = Tensor((*batch, m, n), dtype or (out.dtype if out else left.dtype))
    reads = [left, right, *([added] if added else [])]
    return traffic(Family.GEMM, reads, [result], flops=2 * result.n * k, dtype=left.dtype)


@models("aten::mm", "aten::bmm")
def mm(call: Call) -> Work | None:
    """``mm(self, mat2)``."""
    return _product(call.tensor(0), call.tensor(1), out=call.tensor(2))


@models("aten::addmm", "aten::baddbmm", "aten::addmm_", "aten::baddbmm_", "aten::_addmm_activation")
def addmm(call: Call) -> Work | None:
    """``addmm(self, mat1, mat2, beta, alpha)``."""
    return _product(call.tensor(1), call.tensor(2), added=call.tensor(0))


@models("aten::linear", "aiter::gemm_a16w16", tensors=[0, 1])
def linear(call: Call, x: Tensor, weight: Tensor) -> Work | None:
    """``linear(input, weight, bias)``: the weight is transposed."""
    if not x.dims or len(weight.dims) != 2 or len(call.tensors) > _MOST_TENSORS:
        return None
    left = Tensor((x.n // max(x.dims[-1], 1), x.dims[-1]), x.dtype)
    return _product(left, Tensor(weight.dims[::-1], weight.dtype), added=call.tensor(2))


@models("aten::_scaled_mm")
def scaled_mm(call: Call) -> Work | None:
    """``_scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, ...)``."""
    out = next((one for one in call.tensors[4:] if len(one.dims) == 2), None)
    return _product(
        call.tensor(0), call.tensor(1), added=call.tensor(4), out=out, dtype=call.dtype(6)
    )


@models("aten::mv", "aten::addmv", "aten::addmv_")
def mv(call: Call) -> Work | None:
    """``mv(self, vec)``, ``addmv(self, mat, vec)``."""
    added = call.tensor(0) if call.name != "aten::mv" else None
    matrix, vector = call.tensors[-2:] if len(call.tensors) > 1 else (None, None)
    if matrix is None or vector is None or len(vector.dims) != 1:
        return None
    return _product(matrix, Tensor((*vector.dims, 1), vector.dtype), added=added)


@models("aten::_grouped_mm", "aten::_scaled_grouped_mm", tensors=[0, 1])
def grouped_mm(_: Call, left: Tensor, right: Tensor) -> Work:
    """``_grouped_mm(self, mat2, offs)``: how many rows are live is in device memory.

    Groups split rows of a 2-D `self` against a 3-D `mat2`, or columns of both. All rows are an
    upper bound.
    """
    m, n = left.dims[-2:][0], right.dims[-1]
    n_batch = left.dims[0] if len(left.dims) == len(right.dims) == 3 else 1
    k = left.dims[-1]
    out = Tensor((n_batch, m, n), "bf16" if left.dtype == "fp8" else left.dtype)
    flops = 2 * n_batch * m * n * k
    found = traffic(Family.GEMM, [left, right], [out], flops=flops, dtype=left.dtype)
    return found._replace(bytes_low=0)


class _Arguments(NamedTuple):
    """Where an operator has its arguments; -1 for none."""

    stride: int
    padding: int
    dilation: int
    groups: int
    bias: int = -1
    transposed: int = -1
    output_padding: int = -1
    is_transposed: bool = False


_FORWARD = {
    "aten::convolution": _Arguments(3, 4, 5, 8, 2, transposed=6, output_padding=7),
    "aten::_convolution": _Arguments(3, 4, 5, 8, 2, transposed=6, output_padding=7),
    "aten::convolution_overrideable": _Arguments(3, 4, 5, 8, 2, transposed=6, output_padding=7),
    "aten::cudnn_convolution": _Arguments(3, 2, 4, 5),
    "aten::miopen_convolution": _Arguments(4, 3, 5, 6, 2),
    "aten::mkldnn_convolution": _Arguments(4, 3, 5, 6, 2),
    "aten::cudnn_convolution_relu": _Arguments(3, 4, 5, 6, 2),
    "aten::cudnn_convolution_transpose": _Arguments(
        4, 2, 5, 6, output_padding=3, is_transposed=True
    ),
    "aten::miopen_convolution_transpose": _Arguments(
        5, 3, 6, 7, 2, output_padding=4, is_transposed=True
    ),
    "aten::_conv_depthwise2d": _Arguments(4, 5, 6, -1, 3),
    "aten::thnn_conv2d": _Arguments(4, 5, -1, -1, 3),
    "aten::_slow_conv2d_forward": _Arguments(4, 5, -1, -1, 3),
}


def _per_dim(call: Call, at: int, n: int, default: int) -> list[int] | None:
    """One integer for each spatial dimension."""
    if at < 0:
        return [default] * n
    found = call.integers(at)
    if found is None:
        return None
    return found if len(found) == n else found * n if len(found) == 1 else None


def _spatial(
    call: Call, x: Tensor, weight: Tensor, at: _Arguments, *, is_transposed: bool
) -> Sequence[int] | None:
    """Spatial shape of the output; None if it cannot be told."""
    n = len(x.dims) - 2
    read = [_per_dim(call, k, n, 1) for k in (at.stride, at.dilation)]
    read += [_per_dim(call, k, n, 0) for k in (at.padding, at.output_padding)]
    if any(one is None for one in read):
        return None
    out = []
    for size, kernel, stride, dilation, padding, more in zip(
        x.dims[2:], weight.dims[2:], *[one or [] for one in read], strict=False
    ):
        reach = dilation * (kernel - 1)
        out.append(
            (size - 1) * stride - 2 * padding + reach + more + 1
            if is_transposed
            else (size + 2 * padding - reach - 1) // stride + 1
        )
    return out if len(out) == n and all(one > 0 for one in out) else None


@models(*_FORWARD, tensors=[0, 1])
def forward(call: Call, x: Tensor, weight: Tensor) -> Work | None:
    """Each output is a product with one filter; transposed, each input is."""
    at = _FORWARD[call.name]
    if len(x.dims) != len(weight.dims) or len(x.dims) < 3:
        return None
    is_transposed = at.is_transposed or (at.transposed >= 0 and bool(call.flag(at.transposed)))
    spatial = _spatial(call, x, weight, at, is_transposed=is_transposed)
    groups = _per_dim(call, at.groups, 1, 1)
    if spatial is None or groups is None:
        return None
    channels = weight.dims[1] * groups[0] if is_transposed else weight.dims[0]
    out = Tensor((x.dims[0], channels, *spatial), x.dtype)
    bias = call.tensor(at.bias) if at.bias >= 0 else None
    n_filters_applied = x.dims[0] * prod(x.dims[2:] if is_transposed else spatial)
    reads, flops = [x, weight, *([bias] if bias else [])], 2 * n_filters_applied * weight.n
    return traffic(Family.CONVOLUTION, reads, [out], flops=flops, dtype=x.dtype)


@models("aten::convolution_backward", "aten::convolution_backward_overrideable", tensors=range(3))
def backward(call: Call, gradient: Tensor, x: Tensor, weight: Tensor) -> Work | None:
    """``convolution_backward(gradient, input, weight, ..., transposed, _, groups, output_mask)``.

    The gradients of input and weight, each only if asked for. Each may read the gradient anew.
    """
    mask = call.flags(10)
    if mask is None or len(mask) != 3:
        return None
    of_input, of_weight, of_bias = mask
    spatial = x.dims[2:] if call.flag(7) else gradient.dims[2:]
    each = 2 * gradient.dims[0] * prod(spatial) * weight.n
    reads = [gradient, *([weight] if of_input else []), *([x] if of_weight else [])]
    writes = [*([x] if of_input else []), *([weight] if of_weight else [])]
    writes += [Tensor((weight.dims[0],), weight.dtype)] if of_bias else []
    flops = each * (of_input + of_weight)
    again = [gradient] if of_input and of_weight else []
    return traffic(
        Family.CONVOLUTION, reads, writes, flops=flops, dtype=gradient.dtype, again=again
    )
