"""Tables on the terminal: names shrink, figures and keys never do, at any width."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

import htagraph as hg
from htagraph.cli.columns import DEFAULT_COLUMNS
from htagraph.cli.layout import fitted
from htagraph.cli.main import main
from htagraph.cli.tables import Format, print_frame
from htagraph.errors import QueryError
from htagraph.job.job import JOB_QUESTIONS
from htagraph.model import answers, job_answers
from htagraph.questions import QUESTIONS
from htagraph.reports.headings import SENTENCES, holds_names
from htagraph.reports.markdown import human_frame

GEMM = "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16"
KERNELS = pd.DataFrame(
    {
        "group": [GEMM, GEMM.replace("128x128x16", "64x64x8"), "gemm"],
        "share": [0.838, 0.1, 0.062],
        "sum_ns": [55_500_000, 6_620_000, 4_100_000],
        "n_kernels": [1_234_567, 2, 1],
        "is_short": [True, False, False],
    }
)


def printed(frame: pd.DataFrame, width: int, **options: object) -> list[str]:
    """Lines of a frame on a terminal of this width."""
    console = Console(width=width, file=io.StringIO(), highlight=False)
    print_frame(console, frame, Format.TABLE, **options)  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_names_shrink_and_figures_do_not() -> None:
    """Two names that differ at their end stay two names."""
    assert [line.rstrip() for line in printed(KERNELS, 60)] == [
        "group                    share      sum    kernels  is short",
        "sm80_xmma_fprop…x128x16  83.8%  55.5 ms  1,234,567       yes",
        "sm80_xmma_fprop…64x64x8  10.0%  6.62 ms          2",
        "gemm                      6.2%  4.10 ms          1",
    ]


@pytest.fixture(scope="module")
def graph() -> hg.TraceGraph:
    rank = hg.synth.simulate(hg.synth.training_rank(steps=2, layers=2))
    return hg.Trace.from_events(rank.events).compile()


@pytest.mark.parametrize("question", sorted(set(QUESTIONS) - {"cupti_counters", "cupti_rates"}))
def test_every_figure_and_key_that_is_shown_is_whole(graph: hg.TraceGraph, question: str) -> None:
    """Of each question, at any width: the lines hold the texts of all columns that are shown."""
    frame = graph.ask(question).head(5)
    names = [name for name in frame.columns if holds_names(name, frame[name])]
    texts = human_frame(frame).set_axis(frame.columns, axis=1).drop(columns=names)
    for width in range(10, 200, 5):
        left_out = fitted(frame, width)[1]
        rows = printed(frame, width)[1:]
        shown = texts.drop(columns=[*left_out, *SENTENCES], errors="ignore")
        for cells in shown.to_numpy().tolist():
            assert any(all(cell in row for cell in cells) for row in rows), (width, cells)
        assert len(frame.columns) - len(left_out) <= 2 or max(map(len, rows), default=0) <= width


def test_what_there_is_no_room_for_is_named() -> None:
    """The last columns go first; nothing is dropped in silence."""
    beside = Console(width=200, file=io.StringIO())
    head, *_ = printed(KERNELS, 42, beside=beside)
    assert head.split() == ["group", "share", "sum"]
    assert isinstance(beside.file, io.StringIO)
    assert beside.file.getvalue().startswith("Not shown: n_kernels, is_short. --columns")


def test_columns_are_chosen_by_name_or_heading_and_all_are_printed() -> None:
    """However wide: who asks for a column gets it."""
    head, *_ = printed(KERNELS, 20, columns="is short,sum_ns,n_kernels")
    assert head.split() == ["is", "short", "sum", "kernels"]
    head, *_ = printed(KERNELS, 20, columns="all")
    assert [*head.split()][:4] == ["group", "share", "sum", "kernels"]


def test_a_column_that_does_not_exist_is_a_wrong_question() -> None:
    """The hint lists those there are."""
    with pytest.raises(QueryError, match=r"no column 'dur'.*one of group, share, sum_ns"):
        printed(KERNELS, 80, columns="dur")


def test_default_columns_are_columns_of_their_questions() -> None:
    """The table of defaults follows the schemas."""
    for shown, columns in DEFAULT_COLUMNS.items():
        question = shown.split()[0]
        schemas = [
            getattr(room, question.upper())
            for room in (answers, job_answers)
            if hasattr(room, question.upper())
        ]
        assert question in QUESTIONS or question in JOB_QUESTIONS
        assert any(set(columns) <= {*schema.columns, "rank"} for schema in schemas), question


def test_the_example_of_the_readme_shows_its_numbers(capsys, tmp_path: Path) -> None:
    """`ask kernel_breakdown FILE -o by=name`: a share for every kernel, at the width of a pipe."""
    file = hg.synth.simulate(hg.synth.training_rank(steps=1)).write(tmp_path / "rank0.json")
    with pytest.raises(SystemExit):
        main(["ask", "kernel_breakdown", str(file), "-o", "by=name", "-q"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["group", "share", "sum", "kernels", "mean", "max", "p50"]
    assert all("%" in row and row.count("s") >= 3 for row in rows)
