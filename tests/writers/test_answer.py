"""Answers are frames that Python shows as the command line does."""

from __future__ import annotations

import json
import pickle

import pandas as pd
import pytest

import htagraph as hg
from htagraph.model.frames import SEGMENTS
from htagraph.writers.answer import Answer
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

FRAME = pd.DataFrame(
    {
        "name": ["void f<int>(int)", "g"],
        "bound": ["untraced_code", "host"],
        "dur_ns": [1_500_000, 20],
    }
).astype({"bound": "category"})


@pytest.fixture(autouse=True)
def _lines_of_100_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(scope="module")
def graph() -> hg.TraceGraph:
    return hg.Trace.from_events(simulate(training_rank(steps=2, layers=2)).events).compile()


def test_values_have_units_and_columns_and_labels_their_names_in_code() -> None:
    assert repr(Answer(FRAME)).splitlines() == [
        "name              bound           dur_ns",
        "void f<int>(int)  untraced_code  1.50 ms",
        "g                 host             20 ns",
    ]


def test_ten_rows_and_the_main_columns_are_shown_and_what_is_left_out_is_named(
    graph: hg.TraceGraph,
) -> None:
    segments = graph.critical_path().segments
    lines = repr(segments).splitlines()

    assert lines[0].split() == SEGMENTS.first.split()[:-1]
    assert len(lines) == 12
    assert lines[-1] == (
        f"… {len(segments) - 10} more; not shown: kind, lag_ns, residual_ns, event, edge, "
        "is_inferred (.plain has all)"
    )


def test_rows_and_columns_of_an_answer_are_shown_like_it(graph: hg.TraceGraph) -> None:
    segments = graph.critical_path().segments

    assert repr(segments.head(1)).splitlines()[0].split() == SEGMENTS.first.split()
    assert repr(segments[["event", "dur_ns"]].nlargest(1, "dur_ns")).splitlines()[0].split() == [
        "event",
        "dur_ns",
    ]


@pytest.mark.parametrize(
    "compute",
    [
        lambda one: one[["dur_ns"]] / 1_000,
        lambda one: one.describe(),
        lambda one: one.groupby("name").agg({"dur_ns": "sum"}),
        lambda one: one.assign(dur_ns=0),
        lambda one: one.copy(),
        lambda one: one.plain,
    ],
)
def test_what_is_computed_is_a_plain_frame(compute) -> None:
    """A ratio of times is no time, whatever the name of its column."""
    assert type(compute(Answer(FRAME))) is pd.DataFrame


def test_a_query_finds_what_is_named_where_it_is_asked() -> None:
    wanted = "host"  # noqa: F841  the query reads it

    assert Answer(FRAME).query("bound == @wanted")["name"].tolist() == ["g"]


def test_an_answer_equals_its_frame_in_both_directions() -> None:
    answer = Answer(FRAME)

    pd.testing.assert_frame_equal(answer, FRAME)
    pd.testing.assert_frame_equal(FRAME, answer)
    assert answer.equals(FRAME)


def test_an_answer_survives_another_process(graph: hg.TraceGraph) -> None:
    """With the columns that it shows."""
    segments = graph.critical_path().segments

    assert repr(pickle.loads(pickle.dumps(segments))) == repr(segments)  # noqa: S301  its own


def test_names_of_a_trace_are_no_markup() -> None:
    named = Answer(pd.DataFrame({"name": ["<script>alert(1)</script>"], "dur_ns": [1]}))

    assert "<script" not in named._repr_html_()
    assert "1 ns" in named._repr_html_()


def test_a_named_index_is_a_column(graph: hg.TraceGraph) -> None:
    assert repr(graph.critical_path().breakdown(by="bound")).splitlines()[0].split() == [
        "bound",
        "dur_ns",
        "share",
        "n_segments",
    ]


@pytest.mark.parametrize("columns", [[0, 1, 2], ["name", "name", "dur_ns"]])
def test_columns_that_say_nothing_are_shown_by_pandas(columns: list[object]) -> None:
    renamed = FRAME.set_axis(columns, axis=1)

    assert repr(Answer(renamed)) == repr(renamed)


def test_an_empty_answer_says_so() -> None:
    assert repr(Answer(FRAME.head(0))).splitlines() == ["name  bound  dur_ns", "No rows."]


def test_the_window_of_predictions_is_told(graph: hg.TraceGraph) -> None:
    assert repr(graph.opportunities()).splitlines()[-1] == "Of 2 steps (4.01 ms)."


def test_damage_is_told_below_every_answer() -> None:
    """Not below that of `damage`, which has it as rows."""
    event = {"ph": "X", "cat": "cpu_op", "name": "mm", "pid": 1, "tid": 1, "ts": 0, "dur": 5}
    graph = hg.load(json.dumps({"traceEvents": [event] * 9})[:-30].encode()).compile()
    said = "The file is cut off"

    assert said in repr(graph.operator_breakdown()).splitlines()[-1]
    assert said in graph.operator_breakdown()._repr_html_()
    assert "notes" not in graph.damage().attrs
