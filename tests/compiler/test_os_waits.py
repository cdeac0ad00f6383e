"""Calls of the operating system that wait: they have a name, and hide nothing that is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from htagraph.compiler.passes import compile_events
from htagraph.explain.critical_path import critical_path
from htagraph.model.api_calls import OS_CALLS
from htagraph.model.dag import Dag
from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule
from htagraph.model.symbols import SymbolTable
from htagraph.synth import timeline

_WAITS = ("pthread_cond_wait", "poll")


def _drawn(drawing: str) -> EventTable:
    """Events of a drawing; those that are named as calls of the operating system are such."""
    events = timeline(drawing)
    is_wait = np.isin(events.names(), _WAITS)
    symbols = SymbolTable((*events.symbols.texts, OS_CALLS))
    return replace(
        events,
        kind=np.where(is_wait, EventKind.RUNTIME, events.kind).astype(np.int8),
        category=np.where(is_wait, len(symbols) - 1, events.category).astype(np.int32),
        symbols=symbols,
    )


def _path(dag: Dag) -> list[tuple[str, str]]:
    """Bound and name of each segment; neighbors that are alike are one."""
    segments = critical_path(dag, dag.span)[["bound", "name"]].astype(str)
    rows = list(segments.itertuples(index=False, name=None))
    return [row for row, before in zip(rows, [None, *rows], strict=False) if row != before]


def _arrows(dag: Dag, rule: Rule) -> list[tuple[str, str]]:
    """Tails and heads of the edges of a rule."""
    edges, names = dag.edges.take(dag.edges.rule == rule), dag.events.names
    return sorted(zip(names(edges.tail >> 1), names(edges.head >> 1), strict=True))


def test_a_thread_that_waits_for_autograd_in_a_call_hands_over_as_in_a_gap():
    """The path runs through the backward pass, and no nanosecond of it is the wait's."""
    dag = compile_events(
        _drawn("""
            cpu 1 |[aten::mm ~>f][pthread_cond_wait                 ][aten::add]
            cpu 2 |                [MmBackward0 ~<f][AddBackward0 ]
        """)
    )

    assert _arrows(dag, Rule.HANDOFF) == [
        ("AddBackward0", "pthread_cond_wait"),
        ("pthread_cond_wait", "MmBackward0"),
    ]
    assert [name for bound, name in _path(dag) if bound == "host"] == [
        "aten::mm",
        "MmBackward0",
        "AddBackward0",
        "aten::add",
    ]


def test_a_wait_that_nothing_explains_is_named():
    """It is no untraced code."""
    dag = compile_events(_drawn("cpu 1 |[aten::mm][poll         ][aten::add]"))

    assert _path(dag) == [("host", "aten::mm"), ("host", "poll"), ("host", "aten::add")]


def test_a_wait_does_not_end_a_window():
    """A thread that has nothing to do any more often waits for the end of its process."""
    drawing = """
        cpu 1    |[aten::mm [launch >a]]             [poll                 ]
        cpu 2    |      [poll                                                    ]
        stream 7 |                             [k <a]
    """
    dag = compile_events(_drawn(drawing))
    events = dag.events

    assert dag.span.end_ns == events.end_ns[np.flatnonzero(events.is_device)].max()
