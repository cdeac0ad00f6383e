"""What would help, for people: each thing told once, in words, and nothing that is not known."""

from __future__ import annotations

import pandas as pd
import pytest

import htagraph as hg
from htagraph.model.answers import OPPORTUNITIES
from htagraph.reports.markdown import markdown_summary
from htagraph.reports.what_helps import what_helps
from htagraph.synth import timeline


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


def test_what_shares_with_a_change_is_told_by_its_row():
    found = what_helps(
        asked(
            kind=["launches", "operator"],
            target=["each step captured as a CUDA graph", "aten::mm"],
            change=["graphed()", "scale('aten::mm', by=0.5)"],
            shares_with=[-1, 0],
        )
    )

    assert found[["row", "kind", "target", "shares_with"]].to_numpy().tolist() == [
        [1, "as a CUDA graph", "each step captured as a CUDA graph", ""],
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


def demo(name: str) -> hg.Summary:
    trace = hg.load(hg.demo_trace(name))
    return hg.Summary.of(trace, trace.compile())


def test_what_one_can_do_is_listed_by_what_it_saves():
    """The fixes of the cards that are replayed, as they are advised, and parts twice as fast."""
    summary = demo("dataloader")
    found = summary.first_changes

    assert found["change"].tolist() == [
        "DataLoader.__next__ twice as fast",
        'Launch less: torch.compile(mode="reduce-overhead") captures each step as a CUDA graph',
        "ampere_sgemm_128x64_nn twice as fast",
    ]
    fix = summary.verdict.findings[1].fix
    assert (fix.do, fix.saves_ns) == (f"{found['change'][1]}.", found["saves_ns"][1])
    assert f"| {found['change'][0].replace('__', chr(92) + '_' + chr(92) + '_')} |" in (
        markdown_summary(summary)
    )


def test_what_one_can_do_saves_what_an_opportunity_saves():
    summary = demo("dataloader")
    every = summary.opportunities.set_index("change")["saves_ns"]

    assert summary.first_changes["saves_ns"][2] == every["scale('ampere_sgemm_128x64_nn', by=0.5)"]


def test_eight_changes_are_listed():
    """Of twelve kernels one after the other, each a twelfth of the run."""
    kernels = "".join(f"[k{n} <a{n}       ]" for n in range(12))
    launches = "".join(f"[launch >a{n}]" for n in range(12))
    drawing = f"cpu 1 |{launches}[sync @*]\nstream 7 |    {kernels}"
    trace = hg.Trace.from_events(timeline(drawing))

    assert len(hg.Summary(trace, trace.compile()).first_changes) == 8


def test_a_saving_below_one_percent_is_not_listed():
    assert demo("none").first_changes["saves_share"].min() >= 0.01


def test_nothing_is_predicted_where_nothing_is_judged():
    """An empty trace: no table."""
    trace = hg.Trace.from_events(timeline(""))
    summary = hg.Summary(trace, trace.compile())

    assert (len(summary.what_helps), len(summary.first_changes)) == (0, 0)
    assert "What would help" not in markdown_summary(summary)
