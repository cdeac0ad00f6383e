"""SPAN: a device event ends after it has run."""

from __future__ import annotations

from htagraph.compiler.structure import Structure, end_node, start_node
from htagraph.model.edges import EdgeTable
from htagraph.model.rules import Rule


def span_edges(structure: Structure) -> EdgeTable:
    """Edges from start to end of each device event; their lag is the duration.

    ::

        stream 7   [kernel]
                   s ====> e
    """
    device = structure.queue
    lag = structure.events.dur_ns[device]
    return EdgeTable.of(
        Rule.DURATION,
        start_node(device),
        end_node(device),
        lag_ns=lag,
        event=device,
    )
