"""Frees inside operators: only an allocator that is out of memory frees and allocates at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import htagraph as hg
from htagraph.lookup.memory_frees import FreesWithin, frees_within_operators
from htagraph.model.api_calls import ALLOCATOR_WALK_NS
from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind
from htagraph.synth import timeline

NAMES = {"m": "cudaMalloc", "f": "cudaFree", "op": "aten::cat", "other": "aten::empty"}

RAN_OUT, UNKNOWN, ASKED = ["aten::cat", True], ["aten::cat", False], []

CASES = {
    "an allocation failed": ("[op [m ][f ][f ][m ] [launch >a] ]", RAN_OUT),
    "a limit of the program": ("[op [f ][f ][m ] [launch >a] ]", RAN_OUT),
    "a wait for streams between": ("[op [m ] [cudaEventSynchronize] [f ][f ][m ]]", RAN_OUT),
    "a library is set up": ("[op [f ][m ] [launch >a] ]", UNKNOWN),
    "set up after an allocation": ("[op [m ][f ][m ] [launch >a] ]", UNKNOWN),
    "cudnn.benchmark": ("[op [m ][launch >a][f ][f ][m ]  ]", UNKNOWN),
    "cudnn.benchmark of an inner operator": ("[op [other [launch >a]][f ][f ][m ] ]", UNKNOWN),
    "nothing is allocated": ("[op [f ][f ][launch >a]  ]", UNKNOWN),
    "another operator allocates": ("[op [f ][f ]  ][other [m ] ]", UNKNOWN),
    "work before the operator": ("[launch >a][op [f ][f ][m ]  ]", RAN_OUT),
    "work within": ("[op [f ][launch >a][f ][m ] ]", UNKNOWN),
    "at top level": ("[op    ][f ][f ][m ]", ASKED),
    "in a range of the program": ("{cleanup [f ][f ][m ]}", ASKED),
    "empty_cache": ("[empty_cache [f ][f ] ][op [m ]   ]", ASKED),
    "empty_cache in an operator of the program": ("[op [empty_cache [f ][f ] ]   ]", ASKED),
    "an operator while the cache is emptied": ("[empty_cache [op [f ][f ]] ]", UNKNOWN),
}


def drawn(drawing: str, **more: str) -> EventTable:
    """Events of a drawing, with their full names."""
    names = {
        short: full
        for short, full in (NAMES | more).items()
        if f"[{short} " in drawing or f"{{{short} " in drawing
    }
    return timeline(drawing, names=names)


def found(drawing: str) -> list[FreesWithin]:
    """Frees inside operators of a drawn thread; functions named empty_cache are Python's."""
    device = f"stream 7 |{' ' * len(drawing)}[k <a]" if ">a" in drawing else ""
    events = drawn(f"cpu 1 |{drawing}\n{device}")
    kind = np.where(events.names() == "empty_cache", EventKind.PYTHON, events.kind)
    graph = hg.Trace.from_events(replace(events, kind=kind.astype(np.int8))).compile()
    return sorted(frees_within_operators(graph.dag, graph.interval))


@pytest.mark.parametrize("case", CASES)
def test_an_allocator_that_is_out_of_memory_frees_several_and_allocates(case: str) -> None:
    """In an operator that has enqueued nothing yet; a program frees elsewhere."""
    drawing, expected = CASES[case]

    assert [value for one in found(drawing) for value in (one.op, one.ran_out)] == expected


@pytest.mark.parametrize(
    ("gap_ns", "ran_out"), [(ALLOCATOR_WALK_NS, True), (ALLOCATOR_WALK_NS + 1, False)]
)
def test_an_allocator_does_nothing_else_between(gap_ns: int, ran_out: bool) -> None:
    """Between its last free and its allocation."""
    events = drawn("cpu 1 |[op [f ][f ][m ]  ]")
    order = np.argsort(events.ts_ns, kind="stable")
    last = order[-1]
    moved = np.where(np.arange(len(events)) == last, gap_ns, 0)
    whole = np.where(np.arange(len(events)) == order[0], gap_ns, 0)
    events = replace(events, ts_ns=events.ts_ns + moved, dur_ns=events.dur_ns + whole)
    graph = hg.Trace.from_events(events).compile()

    assert [one.ran_out for one in frees_within_operators(graph.dag, graph.interval)] == [ran_out]


def test_a_free_is_told_with_its_step() -> None:
    """And only those of the window."""
    events = drawn(
        """
        cpu 1 |{s1 [op [f ][f ][m ] ]}{s2 [op [f ][m ]    ]}
    """,
        s1="ProfilerStep#1",
        s2="ProfilerStep#2",
    )
    graph = hg.Trace.from_events(events).compile()
    first = graph.window("ProfilerStep#1")

    assert sorted(frees_within_operators(graph.dag, graph.interval)) == [
        ("aten::cat", "ProfilerStep#1", True),
        ("aten::cat", "ProfilerStep#2", False),
    ]
    assert list(frees_within_operators(graph.dag, first.interval)) == [
        ("aten::cat", "ProfilerStep#1", True)
    ]
