"""What would help, for people: each thing told once, in words, and nothing that is not known."""

from __future__ import annotations

import pandas as pd
import pytest

import htagraph as hg
from htagraph.model.answers import OPPORTUNITIES
from htagraph.reports.markdown import markdown_summary
from htagraph.reports.what_helps import what_helps
from htagraph.synth import timeline
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


def asked(**columns: object) -> pd.DataFrame:
    """Opportunities of which only some columns matter."""
    n_rows = len(columns["kind"])  # type: ignore[arg-type]
    rest = {
        name: [""] * n_rows if column.dtype == "object" else [0] * n_rows
        for name, column in OPPORTUNITIES.columns.items()
    }
    return OPPORTUNITIES.frame(
        rest | {"saves_ns": [5] * n_rows, "alone_ns": [5] * n_rows} | columns
    )


def test_a_change_that_is_also_a_repair_is_told_once():
    """In its own words; what shares with it is told by its row."""
    found = what_helps(
        asked(
            kind=["repair", "launches", "operator"],
            target=["host", "each step captured as a graph", "aten::mm"],
            change=["graphed()", "graphed()", "scale('aten::mm', by=0.5)"],
            cause=["host", "", ""],
            shares_with=[-1, -1, 0],
        )
    )

    assert found[["row", "kind", "target", "shares_with"]].to_numpy().tolist() == [
        [1, "as a graph", "each step captured as a graph", ""],
        [2, "twice as fast", "aten::mm", "1"],
    ]


def test_a_kernel_is_told_at_twice_its_speed():
    """Its other speeds are points of a curve."""
    found = what_helps(
        asked(
            kind=["kernel"] * 3,
            target=["gemm"] * 3,
            change=["a", "b", "c"],
            left_share=[0.0, 0.5, 0.75],
            saves_ns=[9, 5, 2],
            alone_ns=[9, 5, 2],
        )
    )

    assert found[["kind", "saves_ns"]].to_numpy().tolist() == [["twice as fast", 5]]


@pytest.mark.parametrize(("alone_ns", "told"), [(5, False), (1, True)])
def test_other_ranks_have_a_column_where_they_make_a_difference(alone_ns: int, told: bool):
    found = what_helps(asked(kind=["overlap"], change=["a"], alone_ns=[alone_ns]))

    assert ("alone_ns" in found) is told


def test_a_fusion_is_named_by_its_first_two_kernels():
    found = what_helps(asked(kind=["fusion"], target=["void f<int>(int) + g + h"], change=["a"]))

    assert found["target"].tolist() == ["f + g + 1 more"]


def test_the_summary_says_what_would_help():
    """First what was planted; and curves of kernels and operators."""
    trace = hg.Trace.from_events(simulate(training_rank(fault="dataloader")).events)
    summary = hg.Summary(trace, trace.compile())

    assert summary.what_helps.loc[0, "target"] == "data loading"
    assert "| 1 | without | data loading |" in markdown_summary(summary)
    assert summary.speed_ups["target"].iloc[0].startswith("enumerate(DataLoader)")


def test_nothing_is_predicted_where_nothing_is_judged():
    """An empty trace: no table, no curves."""
    trace = hg.Trace.from_events(timeline(""))
    summary = hg.Summary(trace, trace.compile())

    assert (len(summary.what_helps), len(summary.speed_ups)) == (0, 0)
    assert "What would help" not in markdown_summary(summary)
