"""What an event may be called: a name, a glob, a regex, its row; and the next work of a device."""

from __future__ import annotations

import re

import pytest

import htagraph as hg
from htagraph.errors import AmbiguousWindowWarning, QueryError
from htagraph.lookup.find_event import find_event, next_work
from htagraph.model.dag import Dag
from htagraph.synth import timeline

DRAWN = """
    us       |0         10        20        30        40
    cpu 1    |[aten::mm [launch >a] ][aten::mm [launch >b]]
    stream 7 |               [gemm <a]                [gemm <b]
"""


@pytest.fixture(scope="module")
def dag() -> Dag:
    return hg.Trace.from_events(timeline(DRAWN)).compile().dag


def found(dag: Dag, what, **options) -> tuple[str, int]:
    event = find_event(dag, dag.span, what, **options)
    return str(dag.events.names([event])[0]), int(dag.events.ts_ns[event])


@pytest.mark.parametrize(
    ("what", "instance", "start_ns"),
    [
        ("gemm", 0, 15_000),
        ("gemm", -1, 40_000),
        ("ge*", 1, 40_000),
        (re.compile("^g.mm$"), 0, 15_000),
    ],
)
def test_a_name_and_a_number_in_order_of_time(dag, what, instance, start_ns) -> None:
    assert found(dag, what, instance=instance) == ("gemm", start_ns)


def test_a_row_also_as_text(dag) -> None:
    row = find_event(dag, dag.span, "gemm", instance=1)

    assert find_event(dag, dag.span, row) == find_event(dag, dag.span, str(row)) == row


def test_of_several_the_first_is_taken_and_said(dag) -> None:
    with pytest.warns(AmbiguousWindowWarning, match="2 events match 'gemm'; this is the first"):
        assert found(dag, "gemm") == ("gemm", 15_000)


@pytest.mark.parametrize(
    ("what", "instance", "said"),
    [
        ("gem", None, "no event of trace is called 'gem'. Hint: similar: gemm"),
        ("gemm", 2, "there is no instance 2 of 'gemm': trace has 2"),
        ("gemm", -3, "there is no instance -3"),
        (99, None, "there is no event 99"),
        ("-1", None, "no event of trace is called '-1'"),
    ],
)
def test_what_is_not_there_is_said(dag, what, instance, said) -> None:
    with pytest.raises(QueryError, match=re.escape(said)):
        find_event(dag, dag.span, what, instance=instance)


@pytest.mark.parametrize(
    ("at_us", "start_ns"), [(0, 15_000), (16, 15_000), (24, 40_000), (41, 40_000)]
)
def test_the_work_that_runs_or_comes_next(dag, at_us, start_ns) -> None:
    event = next_work(dag, dag.span.start_ns + at_us * 1_000, 0)

    assert int(dag.events.ts_ns[event]) == start_ns


def test_after_the_last_work_there_is_none(dag) -> None:
    with pytest.raises(QueryError, match="device 1 runs nothing from 0 ns after"):
        next_work(dag, dag.span.start_ns, 1)
    with pytest.raises(QueryError, match="the device runs nothing"):
        next_work(dag, dag.span.end_ns)
