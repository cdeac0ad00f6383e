"""Operations of collectives: their names, and which of them wait for whom."""

from __future__ import annotations

import re

__all__ = [
    "FROM_ROOT",
    "POINT_TO_POINT",
    "RENDEZVOUS",
    "TO_ROOT",
    "collective_operation",
]

RENDEZVOUS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Operations in which every rank waits for every other."""

FROM_ROOT = ("broadcast", "scatter")
"""Operations in which the others wait for one rank, the root."""

TO_ROOT = ("reduce", "gather")
"""Operations in which the root waits for the others."""

POINT_TO_POINT = ("send", "recv")
"""Operations between two ranks."""

_PATTERNS = (
    ("all_to_all", r"all_?to_?all"),
    ("reduce_scatter", r"reduce_?scatter"),
    ("all_reduce", r"all_?reduce"),
    ("all_gather", r"all_?gather"),
    ("broadcast", r"broadcast"),
    ("barrier", r"barrier"),
    ("gather", r"gather"),
    ("scatter", r"scatter"),
    ("reduce", r"reduce"),
    ("send_recv", r"send_?recv|coalesced"),
    ("send", r"send"),
    ("recv", r"recv"),
)


def collective_operation(text: str) -> str:
    """Operation that a name stands for: that of a collective, an annotation or a kernel.

    Parameters
    ----------
    text : str

    Returns
    -------
    str
        Empty where the text names none.

    Examples
    --------
    >>> collective_operation("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    'all_reduce'
    >>> collective_operation("_reduce_scatter_base")
    'reduce_scatter'
    """
    lowered = text.lower()
    return next((name for name, pattern in _PATTERNS if re.search(pattern, lowered)), "")
