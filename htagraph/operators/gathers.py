"""Reads and writes at indices: at most as many rows as asked for, and as there are."""

from __future__ import annotations

from math import prod

from htagraph.operators.call import Call, Tensor
from htagraph.operators.work import Family, Work, models, traffic


def _rows(table: Tensor, n: int, dim: int = 0) -> Tensor:
    """At most `n` rows of a table."""
    of_row = prod(table.dims[:dim] + table.dims[dim + 1 :])
    return Tensor((min(n, table.dims[dim] if table.dims else 1), of_row), table.dtype)


@models("aten::embedding")
def embedding(call: Call) -> Work | None:
    """``embedding(weight, indices)``."""
    weight, indices = call.tensor(0), call.tensor(1)
    if weight is None or indices is None or len(weight.dims) != 2:
        return None
    out = Tensor((indices.n, weight.dims[1]), weight.dtype)
    return traffic(Family.GATHER, [_rows(weight, indices.n), indices], [out])


@models("aten::embedding_dense_backward")
def embedding_backward(call: Call) -> Work | None:
    """``embedding_dense_backward(gradient, indices, n_weights, ...)``: all weights are written."""
    gradient, indices, n = call.tensor(0), call.tensor(1), call.integers(2)
    if gradient is None or indices is None or not n or not gradient.dims:
        return None
    return traffic(
        Family.GATHER, [gradient, indices], [Tensor((n[0], gradient.dims[-1]), gradient.dtype)]
    )


@models("aten::index_select")
def index_select(call: Call) -> Work | None:
    """``index_select(self, dim, index)``."""
    x, index, dim = call.tensor(0), call.tensor(2), call.integers(1)
    if x is None or index is None or dim is None or not x.dims:
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


@models("aten::scatter_add_", "aten::index_add_", "aten::scatter_", "aten::index_copy_")
def scatter(call: Call) -> Work | None:
    """``scatter_add_(self, dim, index, src)``: what is added to is read, too."""
    x, index, source = call.tensor(0), call.tensor(2), call.tensor(3)
    if x is None or index is None or source is None:
        return None
    touched = Tensor((min(x.n, source.n),), x.dtype)
    adds = "add" in call.name
    return traffic(Family.GATHER, [index, source, *([touched] if adds else [])], [touched])


@models("aten::_index_put_impl_")
def index_put(call: Call) -> Work | None:
    """``_index_put_impl_(self, indices, values, accumulate)``: the profiler omits the indices.

    They are one for each row that `self` and `values` have in common, or for each element, in each
    other dimension. If a single value is written, anything may be.

    Examples
    --------
    >>> index_put(Call("aten::_index_put_impl_", [[8192, 8, 64], [], [32, 8, 64]],
    ...     ["c10::BFloat16", "", "c10::BFloat16"])).bytes_low
    65536
    """
    x, values = call.tensor(0), call.tensor(2)
    if x is None or values is None:
        return None
    n_common = 0
    while x.dims[::-1][n_common : n_common + 1] == values.dims[::-1][n_common : n_common + 1] != ():
        n_common += 1
    n_rows = values.n // max(prod(values.dims[len(values.dims) - n_common :]), 1)
    index = Tensor((n_rows, max(len(x.dims) - n_common, 1)), "int64")
    touched = Tensor((min(x.n, values.n),), x.dtype)
    adds = [touched] if call.flag(3) else []
    least = traffic(Family.GATHER, [values, *adds], [touched])
    most = x if values.n == 1 else touched
    return least._replace(
        bytes_high=traffic(Family.GATHER, [values, index, *adds], [most]).bytes_high
    )


_READ = {
    "nearest1d": 1, "nearest2d": 1, "nearest3d": 1, "linear1d": 2, "bilinear2d": 4,
    "trilinear3d": 8, "bicubic2d": 16,
}  # fmt: skip
"""Elements of the input that an element of the result is interpolated from."""


@models(*(f"aten::upsample_{kind}" for kind in _READ))
def upsample(call: Call) -> Work | None:
    """``upsample_bilinear2d(self, output_size, ...)``.

    Examples
    --------
    >>> upsample(Call("aten::upsample_bilinear2d", [[2, 3, 64, 64], [], []],
    ...     ["float", "ScalarList", "Scalar"], values=["", "[128, 128]", "False"])).bytes_low
    491520
    """
    x, size = call.tensor(0), call.integers(1)
    if x is None or not size or len(size) != len(x.dims) - 2:
        return None
    out = Tensor((*x.dims[:2], *size), x.dtype)
    n_read = _READ[call.name.removeprefix("aten::upsample_")] * out.n
    return traffic(Family.GATHER, [Tensor((min(x.n, n_read),), x.dtype)], [out])


@models(*(f"aten::upsample_{kind}_backward" for kind in _READ))
def upsample_backward(call: Call) -> Work | None:
    """``upsample_bilinear2d_backward(gradient, output_size, input_size, ...)``."""
    gradient, size = call.tensor(0), call.integers(2)
    if gradient is None or not size:
        return None
    return traffic(Family.GATHER, [gradient], [Tensor(tuple(size), gradient.dtype)])
