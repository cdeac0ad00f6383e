"""Plain traces: of functions of a program, from another tracer than the profiler of PyTorch."""

from __future__ import annotations

import numpy as np

from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind

__all__ = ["NO_DEVICE_WORK", "is_plain"]

NO_DEVICE_WORK = (
    "a trace of functions, not of PyTorch: it has threads, functions and their critical path, but "
    "no device work and no launches, so no kernels and no idle time."
)
"""What cannot be asked of a plain trace."""

_OF_PYTORCH = ("cpu_op", "Operator")


def is_plain(events: EventTable) -> bool:
    """Whether a trace has host slices, but no operator of PyTorch, no API call, no device work.

    Examples
    --------
    >>> from htagraph.synth import timeline
    >>> is_plain(timeline("cpu 1 |[aten::mm]"))
    False
    """
    of_host = events.kind == EventKind.OP
    if not of_host.any() or (events.is_device | (events.kind == EventKind.RUNTIME)).any():
        return False
    categories = [events.symbols.texts[code] for code in np.unique(events.category[of_host])]
    return not set(categories) & set(_OF_PYTORCH)
