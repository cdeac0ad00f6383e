"""Elementwise operators, copies, optimizers and reads at indices: each element moves once.

All inputs are read, the broadcast result is written. A copy between host and device is judged by
its own bytes and direction. At indices, at most as many rows move as asked for, and as there are.
"""

from __future__ import annotations

from math import prod

from htagraph.operators.call import UNKNOWN_TYPE, Call, Tensor, broadcast, result_type
from htagraph.operators.work import Family, Work, models, traffic

_UNARY = (
    "abs", "ceil", "clamp", "clamp_max", "clamp_min", "cos", "cosh", "cumsum", "cumprod", "elu",
    "erf", "exp", "exp2", "expm1", "floor", "gelu", "hardsigmoid", "hardswish", "hardtanh",
    "leaky_relu", "log", "log10", "log1p", "log2", "mish", "nan_to_num", "neg", "reciprocal",
    "relu", "round", "rsqrt", "sigmoid", "sign", "silu", "sin", "softplus", "sqrt", "square", "tan",
    "tanh", "tril", "triu", "trunc", "bitwise_not", "flip", "roll",
)  # fmt: skip
_BINARY = (
    "add", "atan2", "bitwise_and", "bitwise_or", "bitwise_xor", "clamp_Tensor", "div",
    "elu_backward", "floor_divide", "fmod", "gelu_backward", "hardswish_backward",
    "hardsigmoid_backward", "hardtanh_backward", "leaky_relu_backward", "log_sigmoid_backward",
    "masked_fill", "maximum", "minimum", "mish_backward", "mul", "pow", "remainder",
    "sigmoid_backward", "silu_backward", "softplus_backward", "sub", "rsub", "tanh_backward",
    "threshold_backward", "native_dropout_backward",
)  # fmt: skip
_TERNARY = ("addcdiv", "addcmul", "lerp")
_COMPARED = (
    "bitwise_not", "eq", "ge", "gt", "isfinite", "isinf", "isnan", "le", "logical_and",
    "logical_not", "logical_or", "logical_xor", "lt", "ne",
)  # fmt: skip
_ARITY = dict.fromkeys(_UNARY, 1) | dict.fromkeys(_BINARY, 2) | dict.fromkeys(_TERNARY, 3)
_ARITY |= dict.fromkeys(_COMPARED, 2)


def _names(kinds: dict[str, int]) -> list[str]:
    return [f"aten::{name}{end}" for name in kinds for end in ("", "_")]


@models(*_names(_ARITY))
def elementwise(call: Call) -> Work | None:
    """An operator with a fixed number of inputs; a tensor beyond them is ``out=``."""
    kind = call.name.removeprefix("aten::")
    in_place = kind.endswith("_")
    kind = kind.rstrip("_")
    n_inputs = _ARITY[kind]
    inputs, outs = call.tensors[:n_inputs], call.tensors[n_inputs:]
    if not inputs:
        return None
    dtype = "bool" if kind in _COMPARED and not kind.startswith("bitwise") else result_type(inputs)
    if kind == "masked_fill":
        dtype = inputs[0].dtype
    if kind in {"cumsum", "cumprod"} and dtype.startswith(("int", "uint", "bool")):
        dtype = "int64"
    result = inputs[0] if in_place else outs[0] if outs else Tensor(broadcast(inputs), dtype)
    return traffic(Family.ELEMENTWISE, inputs, [result])


@models("aten::where")
def where(call: Call) -> Work | None:
    """``where(condition, self, other)``."""
    if not call.tensors:
        return None
    result = Tensor(broadcast(call.tensors[:3]), result_type(call.tensors[1:3]))
    return traffic(Family.ELEMENTWISE, call.tensors[:3], [result])


@models("aten::native_dropout", "aten::_fused_dropout", tensors=[0])
def dropout(_: Call, x: Tensor) -> Work:
    """``native_dropout(input, p, train)``: result and mask are written."""
    return traffic(Family.ELEMENTWISE, [x], [x, Tensor(x.dims, "bool")])


_ENGINES = ("_C", "sgl_kernel", "aiter")
"""Libraries of vLLM, SGLang and ROCm, whose operators have the same arguments."""

_GATED = [f"{one}::{act}_and_mul" for one in _ENGINES for act in ("silu", "gelu", "gelu_tanh")]


@models(*_GATED, tensors=[0, 1])
def gated(_: Call, out: Tensor, x: Tensor) -> Work:
    """``silu_and_mul(out, input)``: the input has gates and values."""
    return traffic(Family.ELEMENTWISE, [x], [out])


@models("_C::static_scaled_fp8_quant", "_C::dynamic_scaled_fp8_quant", tensors=[0, 1])
def quantized(call: Call, out: Tensor, x: Tensor) -> Work:
    """``static_scaled_fp8_quant(out, input, scale)``."""
    return traffic(Family.ELEMENTWISE, [x, *call.tensors[2:3]], [out])


@models("_C::rotary_embedding", "sgl_kernel::rotary_embedding", tensors=[0, 1])
def rotary(call: Call, positions: Tensor, query: Tensor) -> Work:
    """``rotary_embedding(positions, query, key, head_size, cache, is_neox)``, in place."""
    key, cache = call.tensor(2), call.tensor(4)
    turned = [query, *([key] if key else [])]
    rows = []
    if cache:
        rows = [Tensor((min(positions.n, cache.dims[0]), *cache.dims[1:]), cache.dtype)]
    return traffic(Family.ELEMENTWISE, [positions, *turned, *rows], turned)


@models("aten::copy_", tensors=[0, 1])
def copy(_: Call, out: Tensor, source: Tensor) -> Work:
    """``copy_(self, src)``."""
    return traffic(Family.COPY, [source], [out])


@models("aten::clone", "aten::contiguous", tensors=[0])
def clone(_: Call, x: Tensor) -> Work:
    """``clone(self)``."""
    return traffic(Family.COPY, [x], [x])


_FILLS = ("fill_", "zero_", "uniform_", "normal_", "bernoulli_")


@models(*(f"aten::{name}" for name in _FILLS), tensors=[0])
def fill(_: Call, x: Tensor) -> Work:
    """``fill_(self, value)``."""
    return traffic(Family.COPY, [], [x])


@models("aten::cat", "aten::stack")
def cat(call: Call) -> Work | None:
    """``cat(tensors, dim)``: the profiler records no type of tensors in a list."""
    if not call.lists or not call.lists[0]:
        return None
    parts = call.lists[0]
    dtype = call.tensors[0].dtype if call.tensors else UNKNOWN_TYPE  # out=
    parts = tuple(one._replace(dtype=dtype) for one in parts)
    return traffic(Family.COPY, parts, [Tensor((sum(one.n for one in parts),), dtype)])


@models("_C_cache_ops::reshape_and_cache*")
def cache_copy(call: Call) -> Work | None:
    """``reshape_and_cache(key, value, key_cache, value_cache, slots)``."""
    if len(call.tensors) < 5:
        return None
    key, value, key_cache, value_cache, slots = call.tensors[:5]
    written = [key._replace(dtype=key_cache.dtype), value._replace(dtype=value_cache.dtype)]
    return traffic(Family.COPY, [key, value, slots], written)


_WRITTEN = {
    "aten::_fused_adam_": (0, 2, 3),
    "aten::_fused_adamw_": (0, 2, 3),
    "aten::_fused_sgd_": (0, 2),
}
"""Lists that fused optimizers write: parameters and state; gradients are the list at 1."""


@models(*_WRITTEN)
def fused(call: Call) -> Work | None:
    """``_fused_adam_(params, gradients, averages, averages of squares, ...)``."""
    lists = call.lists
    at = _WRITTEN[call.name]
    if len(lists) <= max(at) or not lists[0]:
        return None
    read = [one for some in lists[: max(at) + 1] for one in some]
    return traffic(Family.OPTIMIZER, read, [one for place in at for one in lists[place]])


@models("aten::_foreach_*")
def foreach(call: Call) -> Work | None:
    """``_foreach_add_(self, others)``: all lists are read; the first one's sizes are written."""
    lists = [one for one in call.lists if one]
    if not lists:
        return None
    return traffic(Family.OPTIMIZER, [one for some in lists for one in some], lists[0])


def _rows(table: Tensor, n: int, dim: int = 0) -> Tensor:
    """At most `n` rows of a table."""
    of_row = prod(table.dims[:dim] + table.dims[dim + 1 :])
    return Tensor((min(n, table.dims[dim] if table.dims else 1), of_row), table.dtype)


@models("aten::embedding", tensors=[0, 1])
def embedding(_: Call, weight: Tensor, indices: Tensor) -> Work | None:
    """``embedding(weight, indices)``."""
    if len(weight.dims) != 2:
        return None
    out = Tensor((indices.n, weight.dims[1]), weight.dtype)
    return traffic(Family.GATHER, [_rows(weight, indices.n), indices], [out])


@models("aten::embedding_dense_backward", tensors=[0, 1])
def embedding_backward(call: Call, gradient: Tensor, indices: Tensor) -> Work | None:
    """``embedding_dense_backward(gradient, indices, n_weights, ...)``: all weights are written."""
    n = call.integers(2)
    if not n or not gradient.dims:
        return None
    out = Tensor((n[0], gradient.dims[-1]), gradient.dtype)
    return traffic(Family.GATHER, [gradient, indices], [out])


@models("aten::index_select", tensors=[0, 2])
def index_select(call: Call, x: Tensor, index: Tensor) -> Work | None:
    """``index_select(self, dim, index)``."""
    dim = call.integers(1)
    if dim is None or not x.dims:
        return None
    at = dim[0] % len(x.dims)
    of_row = prod(x.dims[:at] + x.dims[at + 1 :])
    out = Tensor((index.n, of_row), x.dtype)
    return traffic(Family.GATHER, [_rows(x, index.n, at), index], [out])


@models("aten::gather")
def gather(call: Call) -> Work | None:
    """``gather(self, dim, index)``."""
    x, index = call.tensor(0), call.tensor(2) or call.tensor(1)
    if x is None or index is None:
        return None
    read = Tensor((min(x.n, index.n),), x.dtype)
    return traffic(Family.GATHER, [read, index], [Tensor(index.dims, x.dtype)])


@models(
    "aten::scatter_add_",
    "aten::index_add_",
    "aten::scatter_",
    "aten::index_copy_",
    tensors=[0, 2, 3],
)
def scatter(call: Call, x: Tensor, index: Tensor, source: Tensor) -> Work:
    """``scatter_add_(self, dim, index, src)``: what is added to is read, too."""
    touched = Tensor((min(x.n, source.n),), x.dtype)
    adds = "add" in call.name
    return traffic(Family.GATHER, [index, source, *([touched] if adds else [])], [touched])


@models("aten::_index_put_impl_", tensors=[0, 2])
def index_put(call: Call, x: Tensor, values: Tensor) -> Work:
    """``_index_put_impl_(self, indices, values, accumulate)``: the profiler omits the indices.

    They are one for each row that `self` and `values` have in common, or for each element, in each
    other dimension. If a single value is written, anything may be.
    """
    n_common = 0
    while x.dims[::-1][n_common : n_common + 1] == values.dims[::-1][n_common : n_common + 1] != ():
        n_common += 1
    n_rows = values.n // max(prod(values.dims[len(values.dims) - n_common :]), 1)
    index = Tensor((n_rows, max(len(x.dims) - n_common, 1)), "int64")
    touched = Tensor((min(x.n, values.n),), x.dtype)
    adds = [touched] if call.flag(3) else []
    least = traffic(Family.GATHER, [values, *adds], [touched])
    most = x if values.n == 1 else touched
    high = traffic(Family.GATHER, [values, index, *adds], [most]).bytes_high
    return least._replace(bytes_high=high)


_READ = {
    "nearest1d": 1, "nearest2d": 1, "nearest3d": 1, "linear1d": 2, "bilinear2d": 4,
    "trilinear3d": 8, "bicubic2d": 16,
}  # fmt: skip
"""Elements of the input that an element of the result is interpolated from."""


@models(*(f"aten::upsample_{kind}" for kind in _READ), tensors=[0])
def upsample(call: Call, x: Tensor) -> Work | None:
    """``upsample_bilinear2d(self, output_size, ...)``."""
    size = call.integers(1)
    if not size or len(size) != len(x.dims) - 2:
        return None
    out = Tensor((*x.dims[:2], *size), x.dtype)
    n_read = _READ[call.name.removeprefix("aten::upsample_")] * out.n
    return traffic(Family.GATHER, [Tensor((min(x.n, n_read),), x.dtype)], [out])


@models(*(f"aten::upsample_{kind}_backward" for kind in _READ), tensors=[0])
def upsample_backward(call: Call, gradient: Tensor) -> Work | None:
    """``upsample_bilinear2d_backward(gradient, output_size, input_size, ...)``."""
    size = call.integers(2)
    return traffic(Family.GATHER, [gradient], [Tensor((*size,), gradient.dtype)]) if size else None


@models(*(f"triton_{kind}_fused*" for kind in ("poi", "red", "per", "for")))
def inductor(call: Call) -> Work | None:
    """Each pointer once to twice: read, and written in place.

    The trace does not tell which pointers a kernel that Inductor fused reads, and which parts.
    """
    if not call.tensors:
        return None
    return traffic(Family.FUSED, call.tensors, [], again=call.tensors)
