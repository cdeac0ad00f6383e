"""Drawn timelines, compiled: the graph that most tests begin with."""

from __future__ import annotations

from typing import Any

from htagraph.compiler.passes import compile_events
from htagraph.model.dag import Dag
from htagraph.run.graph import TraceGraph
from htagraph.run.trace import Trace
from htagraph.synth import timeline


def drawn_dag(drawing: str, **options: Any) -> Dag:
    """The event graph of a drawing."""
    return compile_events(timeline(drawing, **options))


def drawn_graph(drawing: str, **options: Any) -> TraceGraph:
    """The graph of a drawing, as a user has it."""
    return Trace.from_events(timeline(drawing, **options)).compile()
