"""Copies and fills. A copy between host and device is judged by its own bytes and direction."""

from __future__ import annotations

from htagraph.operators.call import UNKNOWN_TYPE, Call, Tensor
from htagraph.operators.work import Family, Work, models, traffic


@models("aten::copy_")
def copy(call: Call) -> Work | None:
    """``copy_(self, src)``."""
    out, source = call.tensor(0), call.tensor(1)
    return traffic(Family.COPY, [source], [out]) if out and source else None


@models("aten::clone", "aten::contiguous")
def clone(call: Call) -> Work | None:
    """``clone(self)``."""
    x = call.tensor(0)
    return x and traffic(Family.COPY, [x], [x])


@models("aten::fill_", "aten::zero_", "aten::uniform_", "aten::normal_", "aten::bernoulli_")
def fill(call: Call) -> Work | None:
    """``fill_(self, value)``."""
    x = call.tensor(0)
    return x and traffic(Family.COPY, [], [x])


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
