"""The opening of a job: its devices still run work from before the profile."""

from __future__ import annotations

from dataclasses import dataclass, replace

from htagraph.findings.opening import LATER, rest_after_opening
from htagraph.graph import TraceGraph
from htagraph.model.window import Window

__all__ = ["AfterOpening"]


@dataclass(frozen=True)
class AfterOpening:
    """A window of every rank: from the end of its own opening on."""

    def __str__(self) -> str:
        """Name of the window."""
        return LATER

    def __call__(self, graph: TraceGraph) -> Window:
        """The window of a rank; all of it if it has no work from before the profile."""
        rest = rest_after_opening(graph.critical_path())
        return rest if rest is not None else replace(graph.interval, name=LATER)
