"""What a window would be shorter by without a group: by hand, and replayed one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.model.kinds import EventKind
from htagraph.queries.cost import cost
from htagraph.replay.changes import remove
from htagraph.replay.rehearsal import Rehearsal
from htagraph.replay.removal import Removal
from htagraph.synth import timeline
from tests.laws.test_query_laws import any_events

DRAWING = """
    us       |0         10        20        30        40
    cpu 1    |[launch >a][launch >b]        [sync @*   ]
    stream 7 |      [a <a                       ]
    stream 9 |                 [b <b   ][c    ]
"""


def costs(drawing: str, by: str = "name") -> dict[str, tuple[int, int, int]]:
    """Own time, time on the path and cost by group, in us."""
    dag = compile_events(timeline(drawing))
    found = cost(dag, dag.span, by=by)
    columns = (found[name] // 1000 for name in ("time_ns", "path_ns", "cost_ns"))
    return dict(zip(found["group"], zip(*columns, strict=True), strict=True))


def test_the_cost_of_work_ends_where_other_work_is_what_takes_longest() -> None:
    """Without a, the wait is for c, which ends at 33; and the wait still takes 7 us after it."""
    found = costs(DRAWING)

    assert found["a"] == (29, 35, 9)
    assert found["b"] == (9, 0, 0)
    assert found["cudaDeviceSynchronize"] == (12, 7, 7)


def test_without_an_operator_all_that_it_launched_is_gone_as_well() -> None:
    """The op with its call takes 16 us on the path. Without the tail, a is last, at 27 of 31."""
    assert costs(
        """
        us       |0         10        20        30
        cpu 1    |[op [launch >a]]    [tail     ]
        stream 7 |          [a <a           ]
        """,
        by="op",
    ) == {"op": (33, 16, 16), "tail": (11, 11, 4)}


def test_work_of_a_stream_is_taken_out_together() -> None:
    """Two streams that hide each other: neither loses alone what both do."""
    found = costs(DRAWING, by="stream")

    assert found == {"stream 7": (29, 35, 9), "stream 9": (16, 0, 0)}


@pytest.mark.parametrize("by", ["bound", "rule"])
def test_times_of_bounds_and_rules_on_the_path_are_the_window(by: str) -> None:
    """As the path's own breakdown has them."""
    graph = hg.Trace.from_events(timeline(DRAWING)).compile()
    found = graph.cost(by=by).set_index("group")["path_ns"]
    path = graph.critical_path().breakdown(by=by)["dur_ns"]

    assert found[found > 0].to_dict() == path[path > 0].to_dict()


def test_modules_are_named_by_the_python_stack_of_the_launch() -> None:
    """The kernel is of the module that launched it; the tail is of none."""
    events = timeline(
        """
        us       |0         10        20        30
        cpu 1    |[linear                 ]
        cpu 1    |    [mm [launch >a]]     [tail     ]
        stream 7 |          [a <a           ]
        """,
        names={"linear": "nn.Module: Linear_0"},
    )
    is_frame = events.names() == "nn.Module: Linear_0"
    kind = np.where(is_frame, EventKind.PYTHON, events.kind).astype(np.int8)
    dag = compile_events(replace(events, kind=kind))
    found = cost(dag, dag.span, by="module")

    assert found[["group", "n_events", "time_ns"]].to_numpy().tolist() == [
        ["nn.Module: Linear_0", 3, 16_000 + 17_000]
    ]


def test_without_stacks_nothing_is_said_of_modules() -> None:
    """Rather than one group of everything."""
    graph = hg.Trace.from_events(timeline(DRAWING)).compile()

    with pytest.raises(hg.errors.MissingEventsError, match="modules"):
        graph.cost(by="module")


@given(events=any_events, cut=st.tuples(st.integers(0, 100), st.integers(1, 100)))
def test_a_cost_is_the_replay_without_the_event(events, cut) -> None:
    """Of every event with nothing under it, in the trace and in a part of it."""
    graph = hg.Trace.from_events(events).compile().window("trace")
    dag, span = graph.dag, graph.interval
    is_leaf = dag.events.is_host | dag.events.is_device
    for above in (dag.parent, dag.launch):
        is_leaf[above[above >= 0]] = False
    leaves = np.flatnonzero(is_leaf)[:30]
    group = np.full(len(dag.events), -1, dtype=np.int64)
    group[leaves] = np.arange(len(leaves))
    start_ns = span.start_ns + span.dur_ns * cut[0] // 200
    for part in (graph, graph.window((start_ns, start_ns + span.dur_ns * cut[1] // 200))):
        rehearsal = Rehearsal(dag, part.interval)
        removal = Removal.of_events(dag, rehearsal.expected.replay, group, len(leaves))
        one_by_one = [
            part.dur_ns - rehearsal.dur_ns(rehearsal.run([remove(chosen)]).times_ns)
            for chosen in (graph.select(where=f"event == {event}") for event in leaves)
        ]

        assert removal.costs_ns(part.interval).tolist() == one_by_one
