"""LAUNCH: device work starts after the call that enqueued it."""

from __future__ import annotations

import numpy as np

from htagraph.compiler.structure import Structure, start_node
from htagraph.model.edges import EdgeTable
from htagraph.model.rules import Rule


def launch_edges(structure: Structure) -> EdgeTable:
    """Edges from the START of each launch call to the start of each event that it enqueued.

    A kernel may start while its call still runs, so the call's end is no bound. The lag is the
    launch latency, capped by the measured delay. A graph launch has an edge to each of its kernels.
    Of this and the work before it on its stream, the later arrival binds, each with its learnt
    floor. Measured in eight traces, of 267 kernels launched while that work ended and whose stream
    arrived last: they start 1 us after that, and 3 us after their launch allows it (medians).

    ::

        thread 1   [cudaLaunchKernel]
                   |----- L0 ---->.
        stream 7                  [kernel]
    """
    events, launch = structure.events, structure.launch
    device = structure.queue[launch[structure.queue] >= 0]
    call = launch[device]
    delay = events.ts_ns[device] - events.ts_ns[call]
    rule = np.where(structure.replays[call], Rule.GRAPH_REPLAY, Rule.CORRELATION)
    lag = np.clip(delay, 0, structure.calibration.launch_latency_ns)
    return EdgeTable.of(rule, start_node(call), start_node(device), lag_ns=lag, event=device)
