"""Whether device work already comes from compiled code, or from a graph that is replayed."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from htagraph.lookup.clipping import device_work
from htagraph.lookup.selecting import under_mask
from htagraph.model.dag import Dag
from htagraph.model.kinds import HOST_KINDS
from htagraph.model.window import Window

__all__ = ["graph_launches", "is_compiled", "is_replayed"]

_COMPILED = re.compile(r"^Torch-Compiled Region|CompiledFxGraph|^CompiledFunction")
"""Ranges of code that torch.compile made."""
_REPLAYED = re.compile(r"^(cuda|cu|hip)GraphLaunch")
"""Calls that launch a captured graph."""
_MOST = 0.5


def graph_launches(dag: Dag) -> npt.NDArray[np.bool_]:
    """Whether each event is a call that launches a captured graph."""
    return _named(dag, _REPLAYED)


def is_compiled(dag: Dag, window: Window) -> bool:
    """Whether most device time of a window comes from code that torch.compile made."""
    return _is_mostly_under(dag, window, _COMPILED)


def is_replayed(dag: Dag, window: Window) -> bool:
    """Whether most device time of a window comes from captured graphs."""
    return _is_mostly_under(dag, window, _REPLAYED)


def _is_mostly_under(dag: Dag, window: Window, pattern: re.Pattern[str]) -> bool:
    """Whether most device time of a window was launched in host events with such a name."""
    tops = _named(dag, pattern)
    if not tops.any():
        return False
    work = device_work(dag, window)
    dur_ns = work.end_ns - work.start_ns
    under_ns = dur_ns[under_mask(dag, tops)[work.event]].sum()
    return bool(under_ns > _MOST * dur_ns.sum())


def _named(dag: Dag, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    """Whether each event is a host event with such a name."""
    events = dag.events
    found = events.named(events.symbols.mask(lambda name: pattern.search(name) is not None))
    return found & np.isin(events.kind, HOST_KINDS)
