"""Convolutions, forward and backward, also grouped and transposed."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from htagraph.operators.call import Call, Tensor
from htagraph.operators.work import Family, Work, models, traffic


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


def _spatial(call: Call, at: _Arguments, *, is_transposed: bool) -> Sequence[int] | None:
    """Spatial shape of the output; None if it cannot be told."""
    x, weight = call.tensor(0), call.tensor(1)
    if x is None or weight is None:
        return None
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


@models(*_FORWARD)
def forward(call: Call) -> Work | None:
    """Each output is a product with one filter; transposed, each input is."""
    at = _FORWARD[call.name]
    x, weight = call.tensor(0), call.tensor(1)
    if x is None or weight is None or len(x.dims) != len(weight.dims) or len(x.dims) < 3:
        return None
    is_transposed = at.is_transposed or (at.transposed >= 0 and bool(call.flag(at.transposed)))
    spatial = _spatial(call, at, is_transposed=is_transposed)
    groups = _per_dim(call, at.groups, 1, 1)
    if spatial is None or groups is None:
        return None
    channels = weight.dims[1] * groups[0] if is_transposed else weight.dims[0]
    out = Tensor((x.dims[0], channels, *spatial), x.dtype)
    bias = call.tensor(at.bias) if at.bias >= 0 else None
    n_filters_applied = x.dims[0] * prod(x.dims[2:] if is_transposed else spatial)
    return traffic(
        Family.CONVOLUTION,
        [x, weight, *([bias] if bias else [])],
        [out],
        flops=2 * n_filters_applied * weight.n,
        dtype=x.dtype,
    )


@models("aten::convolution_backward", "aten::convolution_backward_overrideable")
def backward(call: Call) -> Work | None:
    """``convolution_backward(gradient, input, weight, ..., transposed, _, groups, output_mask)``.

    The gradients of input and weight, each only if asked for. Each may read the gradient anew.
    """
    gradient, x, weight = (call.tensor(k) for k in range(3))
    mask = call.flags(10)
    if gradient is None or x is None or weight is None or mask is None or len(mask) != 3:
        return None
    of_input, of_weight, of_bias = mask
    spatial = x.dims[2:] if call.flag(7) else gradient.dims[2:]
    each = 2 * gradient.dims[0] * prod(spatial) * weight.n
    reads = [gradient, *([weight] if of_input else []), *([x] if of_weight else [])]
    writes = [*([x] if of_input else []), *([weight] if of_weight else [])]
    writes += [Tensor((weight.dims[0],), weight.dtype)] if of_bias else []
    return traffic(
        Family.CONVOLUTION,
        reads,
        writes,
        flops=each * (of_input + of_weight),
        dtype=gradient.dtype,
        again=[gradient] if of_input and of_weight else [],
    )
