"""Updates of lists of parameters; the profiler records no type of tensors in a list."""

from __future__ import annotations

from htagraph.operators.call import Call
from htagraph.operators.work import Family, Work, models, traffic

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
