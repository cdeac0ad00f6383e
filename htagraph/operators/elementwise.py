"""Elementwise operators: all inputs are read, the broadcast result is written."""

from __future__ import annotations

from htagraph.operators.call import Call, Tensor, broadcast, result_type
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
    """An operator with a fixed number of inputs; a tensor beyond them is ``out=``.

    Examples
    --------
    >>> types = ["c10::BFloat16", "float"]
    >>> elementwise(Call("aten::add_", [[64, 128], [64, 128]], types)).bytes_low
    65536
    """
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


@models("aten::native_dropout", "aten::_fused_dropout")
def dropout(call: Call) -> Work | None:
    """``native_dropout(input, p, train)``: result and mask are written."""
    x = call.tensor(0)
    return x and traffic(Family.ELEMENTWISE, [x], [x, Tensor(x.dims, "bool")])


_ENGINES = ("_C", "sgl_kernel", "aiter")
"""Libraries of vLLM, SGLang and ROCm, whose operators have the same arguments."""


@models(*(f"{one}::{act}_and_mul" for one in _ENGINES for act in ("silu", "gelu", "gelu_tanh")))
def gated(call: Call) -> Work | None:
    """``silu_and_mul(out, input)``: the input has gates and values."""
    out, x = call.tensor(0), call.tensor(1)
    return traffic(Family.ELEMENTWISE, [x], [out]) if out and x else None


@models("_C::static_scaled_fp8_quant", "_C::dynamic_scaled_fp8_quant")
def quantized(call: Call) -> Work | None:
    """``static_scaled_fp8_quant(out, input, scale)``."""
    out, x = call.tensor(0), call.tensor(1)
    return traffic(Family.ELEMENTWISE, [x, *call.tensors[2:3]], [out]) if out and x else None


@models("_C::rotary_embedding", "sgl_kernel::rotary_embedding")
def rotary(call: Call) -> Work | None:
    """``rotary_embedding(positions, query, key, head_size, cache, is_neox)``, in place."""
    positions, query, key, cache = (call.tensor(at) for at in (0, 1, 2, 4))
    if positions is None or query is None:
        return None
    turned = [query, *([key] if key else [])]
    rows = (
        [Tensor((min(positions.n, cache.dims[0]), *cache.dims[1:]), cache.dtype)] if cache else []
    )
    return traffic(Family.ELEMENTWISE, [positions, *turned, *rows], turned)
