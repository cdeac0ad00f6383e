"""Softmax, normalizations and reductions: each element is read and written once, or read again."""

from __future__ import annotations

from functools import partial

from htagraph.operators.call import Call, Tensor
from htagraph.operators.work import Family, Work, models, traffic


def _norm(call: Call, *, n_read: int, n_written: int, is_read_again: bool) -> Work | None:
    """Reads the first tensors of the largest size and all smaller ones, writes of the largest."""
    most = max((one.n for one in call.tensors), default=0)
    large = [one for one in call.tensors if one.n == most][:n_read]
    if len(large) < n_read:
        return None
    reads = [*large, *(one for one in call.tensors if one.n < most)]
    return traffic(Family.NORM, reads, large[:n_written], again=large if is_read_again else [])


@models("aten::_softmax", "aten::_log_softmax", "aten::_safe_softmax", tensors=[0])
def softmax(call: Call, x: Tensor) -> Work:
    """``_softmax(self, dim, half_to_float)``."""
    out = Tensor(x.dims, "fp32" if call.flag(2) and call.value(2) == "True" else x.dtype)
    return traffic(Family.NORM, [x], [out])


@models("aten::_softmax_backward_data", "aten::_log_softmax_backward_data", tensors=[0, 1])
def softmax_backward(call: Call, gradient: Tensor, output: Tensor) -> Work:
    """``_softmax_backward_data(gradient, output, dim, input_dtype)``."""
    result = Tensor(gradient.dims, call.dtype(3) or gradient.dtype)
    return traffic(Family.NORM, [gradient, output], [result])


_NORMS = {
    # Input, parameters and output; statistics may need a pass of their own
    (1, 1, True): (
        "aten::native_layer_norm",
        "aten::native_group_norm",
        "aten::native_batch_norm",
        "aten::cudnn_batch_norm",
        "aten::miopen_batch_norm",
        "aten::_native_batch_norm_legit",
        "aten::_batch_norm_with_update",
        "aten::_fused_rms_norm",
        "aten::rms_norm",
    ),
    # Gradient and input, parameters, and the gradient of the input
    (2, 1, True): (
        "aten::native_layer_norm_backward",
        "aten::native_group_norm_backward",
        "aten::native_batch_norm_backward",
        "aten::cudnn_batch_norm_backward",
        "aten::miopen_batch_norm_backward",
        "aten::_fused_rms_norm_backward",
        "aten::batch_norm_backward",
    ),
    # ``rms_norm(out, input, weight, epsilon)``, or without ``out``
    (1, 1, False): (
        "_C::rms_norm",
        "_C::layer_norm",
        "aiter::rms_norm",
        "aiter::rmsnorm",
        "aiter::rmsnorm2d_fwd",
        "sgl_kernel::rmsnorm",
        "sgl_kernel::gemma_rmsnorm",
    ),
    # ``fused_add_rms_norm(input, residual, weight, epsilon)``: both are read and written; or
    # ``add_rmsnorm(out, input, residual_in, residual_out, weight, epsilon)``
    (2, 2, False): (
        "_C::fused_add_rms_norm",
        "aiter::add_rmsnorm",
        "aiter::rmsnorm2d_fwd_with_add*",
        "sgl_kernel::fused_add_rmsnorm",
        "sgl_kernel::gemma_fused_add_rmsnorm",
    ),
}
"""Names by how many of the largest tensors are read, and written, and if they may be read again."""

for (_n_read, _n_written, _is_again), _named in _NORMS.items():
    models(*_named)(partial(_norm, n_read=_n_read, n_written=_n_written, is_read_again=_is_again))


_DTYPE_AT = {"sum": 3, "mean": 3, "prod": 3, "nansum": 3}
"""Where reductions have the type of their result."""
_AS_INT64 = ("argmax", "argmin", "count_nonzero")
_AS_BOOL = ("any", "all")
_NAMES = (
    "sum", "mean", "var", "std", "amax", "amin", "max", "min", "prod", "nansum", "norm",
    "linalg_vector_norm", "logsumexp", "any", "all", "argmax", "argmin", "count_nonzero",
    "var_mean", "std_mean",
)  # fmt: skip
_DIM_AT = {"norm": 2, "linalg_vector_norm": 2}


@models(*(f"aten::{name}" for name in _NAMES), tensors=[0])
def reduction(call: Call, x: Tensor) -> Work | None:
    """``sum(self, dim, keepdim, dtype)``; without recorded dimensions, anything may be left."""
    kind = call.name.removeprefix("aten::")
    if len(call.tensors) > 1 and call.tensor(1) is not None and kind in {"max", "min"}:
        return None  # elementwise, of two tensors
    dtype = call.dtype(_DTYPE_AT[kind]) if kind in _DTYPE_AT else ""
    if not dtype:
        is_sum = kind in {"sum", "nansum", "prod"} and x.dtype[:3] in {"int", "uin", "boo"}
        dtype = "int64" if kind in _AS_INT64 or is_sum else "bool" if kind in _AS_BOOL else x.dtype
    at = _DIM_AT.get(kind, 1)
    dims = call.integers(at)
    if dims is None and call.values:
        dims = []  # none given: all are reduced
    if dims is None:
        left = Tensor((1,), dtype)
        found = traffic(Family.REDUCTION, [x], [left])
        return found._replace(bytes_high=found.bytes_high + x.n_bytes[1])
    rank = len(x.dims)
    reduced = {one % rank for one in dims} if dims and rank else set(range(rank))
    kept = tuple(size for place, size in enumerate(x.dims) if place not in reduced)
    return traffic(Family.REDUCTION, [x], [Tensor(kept, dtype)])


@models("aten::sort", "aten::topk", tensors=[0])
def ordered(call: Call, x: Tensor) -> Work | None:
    """``sort(self, dim, descending)``, ``topk(self, k, dim, ...)``: values, and where they were."""
    left = list(x.dims)
    if call.name == "aten::topk":
        k, dim = call.integers(1), call.integers(2)
        if not k or not dim:
            return None
        left[dim[0]] = k[0]
    kept = Tensor(tuple(left), x.dtype)
    return traffic(Family.REDUCTION, [x], [kept, kept._replace(dtype="int64")])
