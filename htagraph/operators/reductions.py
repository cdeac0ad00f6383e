"""Reductions: the input is read, what is left of it is written; and what is sorted."""

from __future__ import annotations

from htagraph.operators.call import Call, Tensor
from htagraph.operators.work import Family, Work, models, traffic

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


@models(*(f"aten::{name}" for name in _NAMES))
def reduction(call: Call) -> Work | None:
    """``sum(self, dim, keepdim, dtype)``; without recorded dimensions, anything may be left.

    Examples
    --------
    >>> reduction(Call("aten::sum", [[64, 8, 128], []], ["c10::BFloat16", "ScalarList"],
    ...     values=["", "[1]"])).bytes_low
    147456
    """
    x, kind = call.tensor(0), call.name.removeprefix("aten::")
    if x is None:
        return None
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


@models("aten::sort", "aten::topk")
def ordered(call: Call) -> Work | None:
    """``sort(self, dim, descending)``, ``topk(self, k, dim, ...)``: values, and where they were.

    Examples
    --------
    >>> ordered(Call("aten::topk", [[32, 4096], [], []], ["float", "Scalar", "Scalar"],
    ...     values=["", "8", "-1"])).bytes_low
    527360
    """
    x = call.tensor(0)
    if x is None:
        return None
    left = list(x.dims)
    if call.name == "aten::topk":
        k, dim = call.integers(1), call.integers(2)
        if not k or not dim:
            return None
        left[dim[0]] = k[0]
    kept = Tensor(tuple(left), x.dtype)
    return traffic(Family.REDUCTION, [x], [kept, kept._replace(dtype="int64")])
