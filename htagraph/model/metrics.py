"""Metrics of kernels that another profiler measured: columns of events whose name begins so."""

from __future__ import annotations

from collections.abc import Mapping

from htagraph.model.events import EventTable, SparseColumn

NCU = "ncu."
"""Before the name of each metric of Nsight Compute; a value is in bytes, ns, or per second."""


def ncu_columns(events: EventTable) -> Mapping[str, SparseColumn]:
    """Columns of the metrics of Nsight Compute, by the name of the metric."""
    return {
        name.removeprefix(NCU): column
        for name, column in events.columns.items()
        if name.startswith(NCU)
    }
