"""Matrix products. Biases are not counted as operations: they are added in the epilogue."""

from __future__ import annotations

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


@models("aten::linear", "aiter::gemm_a16w16")
def linear(call: Call) -> Work | None:
    """``linear(input, weight, bias)``: the weight is transposed."""
    x, weight = call.tensor(0), call.tensor(1)
    if x is None or weight is None or not x.dims or len(weight.dims) != 2:
        return None
    if len(call.tensors) > _MOST_TENSORS:
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


@models("aten::_grouped_mm", "aten::_scaled_grouped_mm")
def grouped_mm(call: Call) -> Work | None:
    """``_grouped_mm(self, mat2, offs)``: how many rows are live is in device memory.

    Groups split rows of a 2-D `self` against a 3-D `mat2`, or columns of both. All rows are an
    upper bound.
    """
    left, right = call.tensor(0), call.tensor(1)
    if left is None or right is None:
        return None
    m, n = left.dims[-2:][0], right.dims[-1]
    n_batch = left.dims[0] if len(left.dims) == len(right.dims) == 3 else 1
    k = left.dims[-1]
    out = Tensor((n_batch, m, n), "bf16" if left.dtype == "fp8" else left.dtype)
    found = traffic(
        Family.GEMM, [left, right], [out], flops=2 * n_batch * m * n * k, dtype=left.dtype
    )
    return found._replace(bytes_low=0)
