"""Host calls that wait for the device by what they mean, and whether the graph says for what."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, among

__all__ = ["READS", "is_matched", "long_waits"]

READS = re.compile(r"^aten::(item|_local_scalar_dense|is_nonzero|nonzero|masked_select|equal)$")
"""Operators that bring a value of the device to the host; with a call that waits below, they wait.

Those of tensors on the host have none: they compute.
"""

_SYNCS = (CallMeaning.DEVICE_SYNC, CallMeaning.STREAM_SYNC, CallMeaning.EVENT_SYNC)
_LONG_FACTOR = 2


def long_waits(dag: Dag) -> npt.NDArray[np.bool_]:
    """Whether each event is a synchronization that took longer than one that need not wait.

    Returns
    -------
    ndarray of shape (n_events,), dtype=bool
    """
    is_long = dag.events.dur_ns > _LONG_FACTOR * dag.calibration.launch_usual_ns
    waits: npt.NDArray[np.bool_] = among(call_meanings(dag.events), _SYNCS) & is_long
    return waits


def is_matched(dag: Dag) -> npt.NDArray[np.bool_]:
    """Whether each event is known to have waited for device work.

    Returns
    -------
    ndarray of shape (n_events,), dtype=bool
    """
    matched = np.zeros(len(dag.events), dtype=bool)
    matched[dag.edges.head[dag.edges.kind == EdgeKind.SYNC] >> 1] = True
    return matched
