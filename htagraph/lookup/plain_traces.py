"""What recorded a trace: PyTorch, another program with device work, or a tracer of functions."""

from __future__ import annotations

import re

import numpy as np

from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind

NO_DEVICE_WORK = (
    "a trace of functions, not of PyTorch: it has threads, functions and their critical path, but "
    "no device work and no launches, so no kernels and no idle time."
)

_OF_PYTORCH = ("cpu_op", "Operator")
_NAMES_OF_PYTORCH = re.compile(
    r"\b(aten|c10|c10d|at::native|autograd::engine)::|^ProfilerStep\b|torch"
)


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


def is_pytorch(events: EventTable) -> bool:
    """Whether a trace has names or categories of PyTorch.

    Examples
    --------
    >>> from htagraph.synth import timeline
    >>> is_pytorch(timeline("cpu 1 |[aten::mm]"))
    True
    """
    symbols = events.symbols
    known = any(symbols.code(category) >= 0 for category in _OF_PYTORCH)
    return known or bool(symbols.searched(_NAMES_OF_PYTORCH).any())
