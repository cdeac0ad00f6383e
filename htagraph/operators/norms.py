"""Softmax and normalizations: each element is read and written once; training may read it again."""

from __future__ import annotations

from htagraph.operators.call import Call, Tensor
from htagraph.operators.work import Family, Work, models, traffic


def _norm(call: Call, n_read: int, n_written: int, *, is_read_again: bool = False) -> Work | None:
    """Reads the first tensors of the largest size and all smaller ones, writes of the largest."""
    most = max((one.n for one in call.tensors), default=0)
    large = [one for one in call.tensors if one.n == most][:n_read]
    if len(large) < n_read:
        return None
    reads = [*large, *(one for one in call.tensors if one.n < most)]
    return traffic(Family.NORM, reads, large[:n_written], again=large if is_read_again else [])


@models("aten::_softmax", "aten::_log_softmax", "aten::_safe_softmax")
def softmax(call: Call) -> Work | None:
    """``_softmax(self, dim, half_to_float)``."""
    x = call.tensor(0)
    if x is None:
        return None
    out = Tensor(x.dims, "fp32" if call.flag(2) and call.value(2) == "True" else x.dtype)
    return traffic(Family.NORM, [x], [out])


@models("aten::_softmax_backward_data", "aten::_log_softmax_backward_data")
def softmax_backward(call: Call) -> Work | None:
    """``_softmax_backward_data(gradient, output, dim, input_dtype)``."""
    gradient, output = call.tensor(0), call.tensor(1)
    if gradient is None or output is None:
        return None
    result = Tensor(gradient.dims, call.dtype(3) or gradient.dtype)
    return traffic(Family.NORM, [gradient, output], [result])


@models(
    "aten::native_layer_norm",
    "aten::native_group_norm",
    "aten::native_batch_norm",
    "aten::cudnn_batch_norm",
    "aten::miopen_batch_norm",
    "aten::_native_batch_norm_legit",
    "aten::_batch_norm_with_update",
    "aten::_fused_rms_norm",
    "aten::rms_norm",
)
def norm(call: Call) -> Work | None:
    """Input, parameters and output; statistics may need a pass of their own."""
    return _norm(call, 1, 1, is_read_again=True)


@models(
    "aten::native_layer_norm_backward",
    "aten::native_group_norm_backward",
    "aten::native_batch_norm_backward",
    "aten::cudnn_batch_norm_backward",
    "aten::miopen_batch_norm_backward",
    "aten::_fused_rms_norm_backward",
    "aten::batch_norm_backward",
)
def norm_backward(call: Call) -> Work | None:
    """Gradient and input, parameters, and the gradient of the input."""
    return _norm(call, 2, 1, is_read_again=True)


@models(
    "_C::rms_norm",
    "_C::layer_norm",
    "aiter::rms_norm",
    "aiter::rmsnorm",
    "aiter::rmsnorm2d_fwd",
    "sgl_kernel::rmsnorm",
    "sgl_kernel::gemma_rmsnorm",
)
def rms_norm(call: Call) -> Work | None:
    """``rms_norm(out, input, weight, epsilon)``, or without ``out``."""
    return _norm(call, 1, 1)


@models(
    "_C::fused_add_rms_norm",
    "aiter::add_rmsnorm",
    "aiter::rmsnorm2d_fwd_with_add*",
    "sgl_kernel::fused_add_rmsnorm",
    "sgl_kernel::gemma_fused_add_rmsnorm",
)
def add_rms_norm(call: Call) -> Work | None:
    """``fused_add_rms_norm(input, residual, weight, epsilon)``: both are read and written.

    Or ``add_rmsnorm(out, input, residual_in, residual_out, weight, epsilon)``.
    """
    return _norm(call, 2, 2)
