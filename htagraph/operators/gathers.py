"""Reads and writes at indices: at most as many rows as asked for, and as there are."""

from __future__ import annotations

from math import prod

from htagraph.operators.call import Call, Tensor
from htagraph.operators.work import Family, Work, models, traffic

__all__: list[str] = []


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
