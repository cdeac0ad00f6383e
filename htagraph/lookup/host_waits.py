"""Host calls that wait for the device, and whether the graph has what they waited for."""

from __future__ import annotations

import re

import numpy as np

from htagraph.model.api_calls import CallMeaning, call_meanings
from htagraph.model.arrays import Bools
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind, among

READS = re.compile(r"^aten::(item|_local_scalar_dense|is_nonzero|nonzero|masked_select|equal)$")
"""Operators that read a value back from the device. On CPU tensors they contain no waiting call."""

_SYNCS = (CallMeaning.DEVICE_SYNC, CallMeaning.STREAM_SYNC, CallMeaning.EVENT_SYNC)
_LONG_FACTOR = 2
"""A synchronization that returns at once takes about as long as a launch; more than twice that is a
wait. Chosen: test_host_waits draws one on each side."""


def long_waits(dag: Dag) -> Bools:
    """Whether each event is a synchronization that took too long to have returned at once."""
    is_long = dag.events.dur_ns > _LONG_FACTOR * dag.calibration.launch_usual_ns
    waits: Bools = among(call_meanings(dag.events), _SYNCS) & is_long
    return waits


def is_matched(dag: Dag) -> Bools:
    """Whether each event is known to have waited for device work."""
    matched = np.zeros(len(dag.events), dtype=bool)
    matched[dag.edges.head[dag.edges.kind == EdgeKind.SYNC] >> 1] = True
    return matched
