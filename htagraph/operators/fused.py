"""Kernels that Inductor fused. The trace does not tell which pointers are read, and which parts."""

from __future__ import annotations

from htagraph.operators.call import Call
from htagraph.operators.work import Family, Work, models, traffic


@models(*(f"triton_{kind}_fused*" for kind in ("poi", "red", "per", "for")))
def fused(call: Call) -> Work | None:
    """Each pointer once to twice: read, and written in place."""
    if not call.tensors:
        return None
    return traffic(Family.FUSED, call.tensors, [], again=call.tensors)
