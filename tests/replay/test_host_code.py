"""Python frames and unrecorded host code as what a change is about."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.replay.rehearsal import Rehearsal
from tests.replay.drawn import drawn, saved_us

STACK = """
    us       |0         10        20        30        40
    cpu 1    |[aten::mm]   [aten::mm]            [aten::mm]
    cpu 1    |      [parse              ][sleep]
"""
"""`parse` is 21 us long: 4 of the first operator, all of the second, and the gaps around it."""


def test_a_removed_frame_takes_what_runs_in_it_along():
    """Gaps as far as they lie in it, and operators."""
    graph = drawn(STACK, frames=("parse", "sleep"))

    assert saved_us(graph, hg.remove("parse")) == 21
    assert saved_us(graph, hg.remove("sleep")) == 7


def test_a_scaled_frame_scales_what_runs_in_it():
    graph = drawn(STACK, frames=("parse", "sleep"))

    assert saved_us(graph, hg.scale("parse", by=0.5)) == 10.5
    assert saved_us(graph, hg.scale("parse", by=2)) == -21


def test_frames_in_frames_count_once():
    graph = drawn(STACK, frames=("parse", "sleep"))

    assert saved_us(graph, hg.scale("*p*", by=0.5)) == 14
    assert saved_us(graph, hg.remove("parse"), hg.remove("sleep")) == 28
    nested = drawn(
        """
        cpu 1 |[aten::mm]                      [aten::mm]
        cpu 1 |            [outer          ]
        cpu 1 |              [inner      ]
        """,
        frames=("outer", "inner"),
    )

    assert saved_us(nested, hg.remove("*er")) == 17


def test_without_a_frame_nothing_that_it_launched_runs():
    """Neither the call nor its kernel: the next one starts as long as before after its launch."""
    graph = drawn(
        """
        us       |0         10        20        30
        cpu 1    |[aten::a]  [launch >k] [launch >n]
        cpu 1    |          [hook      ]
        stream 7 |                [gemm <k  ][norm <n]
        """,
        frames=("hook",),
    )

    assert saved_us(graph, hg.remove("hook")) == 12


def test_frames_of_another_thread_stay():
    graph = drawn(
        """
        cpu 1 |[aten::mm]      [aten::mm]
        cpu 2 |[aten::mm] [parse ]  [aten::mm]
        """,
        frames=("parse",),
    )

    assert saved_us(graph, hg.remove("parse")) == 5


def test_a_frame_is_followed_by_more():
    graph = drawn(STACK, frames=("parse", "sleep"))

    assert saved_us(graph, hg.insert(after="sleep", dur_ns=3_000)) == -3


def test_code_that_no_operator_covers_is_named_by_what_is_before_it():
    """Without stacks. The first gap is of 10 us, the second of 5."""
    graph = drawn("""
        cpu 1 |[aten::a]          [aten::b]     [aten::a]
    """)

    assert saved_us(graph, hg.remove(hg.code("after aten::a"))) == 10
    assert saved_us(graph, hg.scale(hg.code("after aten::*"), by=0.5)) == 7.5


def test_code_is_named_by_its_line_where_stacks_were_read():
    """The frame that sleeps is called from a line of user code."""
    graph = drawn(
        """
        cpu 1 |[main                                   ]
        cpu 1 |[aten::mm]   [sleep         ]   [aten::mm]
        """,
        frames=("main", "sleep"),
        names={"main": "train.py(9): <module>", "sleep": "<built-in function sleep>"},
        columns={"call_from": {"sleep": "train.py:17"}},
    )

    assert saved_us(graph, hg.remove(hg.code("train.py:17"))) == 16


def test_what_is_nowhere_is_refused_with_what_there_is():
    graph = drawn("cpu 1 |[aten::a]          [aten::b]")

    with pytest.raises(QueryError, match="no untraced code matches") as refused:
        hg.what_if(graph, hg.remove(hg.code("train.py:3"))).dur_ns  # noqa: B018
    assert "'after aten::a'" in refused.value.hint
    with pytest.raises(QueryError) as refused:
        hg.what_if(graph, hg.remove("*train.py*")).dur_ns  # noqa: B018
    assert "stacks=True" in refused.value.hint


def test_code_is_found_anew_among_edges_that_another_change_added():
    """The 4 us before `aten::b`, whichever change is made first."""
    graph = drawn(
        """
        us       |0         10        20        30        40        50
        cpu 1    |[launch >k][launch >m][launch >n]    [aten::b      ]
        stream 7 |         [k <k     ][m <m   ][n <n     ]
        """
    )
    rehearsal = Rehearsal(graph.dag, graph.interval)
    code, overlap = hg.remove(hg.code("*")), hg.overlap("m")

    assert rehearsal.saved_ns([overlap, code]) == 4_000
    assert rehearsal.saved_ns([code, overlap]) == 4_000
