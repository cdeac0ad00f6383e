"""Tables on the terminal: names shrink, figures and keys never do, at any width."""

from __future__ import annotations

import io
import json
import math
import re

import pandas as pd
import pytest
from rich.cells import cell_len
from rich.console import Console

import htagraph as hg
from htagraph.cli.tables import Format, print_frame
from htagraph.errors import QueryError
from htagraph.job.job import JOB_QUESTIONS
from htagraph.model.columns import heading, quantity, schema_of
from htagraph.model.schema import Quantity
from htagraph.queries.questions import QUESTIONS
from htagraph.reports.json_document import records
from htagraph.writers.cells import cell_text, fitted, human_frame
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank

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
    rank = simulate(training_rank(steps=2, layers=2))
    return hg.Trace.from_events(rank.events).compile()


@pytest.mark.some(8)
@pytest.mark.parametrize("question", sorted(set(QUESTIONS) - {"cupti_counters", "cupti_rates"}))
def test_every_figure_and_key_that_is_shown_is_whole(graph: hg.TraceGraph, question: str) -> None:
    """Of each question, at any width: the lines hold the texts of all columns that are shown."""
    frame = graph.ask(question).head(5)
    kinds = {name: quantity(name, frame[name]) for name in frame.columns}
    wraps = [name for name, kind in kinds.items() if kind in (Quantity.NAME, Quantity.TEXT)]
    texts = human_frame(frame).set_axis(frame.columns, axis=1).drop(columns=wraps)
    for width in (10, 25, 40, 60, 80, 100, 140, 200):
        left_out = fitted(frame, width)[1]
        rows = printed(frame, width)[1:]
        shown = texts.drop(columns=left_out, errors="ignore")
        for cells in shown.to_numpy().tolist():
            assert any(all(cell in row for cell in cells) for row in rows), (width, cells)
        assert len(frame.columns) - len(left_out) <= 2 or max(map(len, rows), default=0) <= width


UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "%": 0.01, "": 1}
NUMBER = re.compile(r"(?<![\w.…])\+?(-?[\d,]*\.?\d+(?:e[+-]\d+)?)(?: ?(ns|us|ms|s|%))?(?![\w.…])")


def numbers_in(line: str) -> list[float]:
    """Numbers as people read them: with units, as shares, or plain."""
    return [float(n.replace(",", "")) * UNITS[unit] for n, unit in NUMBER.findall(line)]


def is_near(value: float, number: float) -> bool:
    """Whether a number is a value, rounded to three digits; of a share, to a thousandth."""
    return math.isclose(value, number, rel_tol=6e-3, abs_tol=6e-4)


def check_numbers(asked: hg.TraceGraph | hg.Job, question: str, width: int) -> None:
    """Check that a table has each number of the answer, row by row, to three digits."""
    frame = asked.ask(question).head(40)
    aside = Console(width=10_000, file=io.StringIO())
    schema = schema_of(question, of_job=isinstance(asked, hg.Job))
    first = schema.shown(frame)
    lines = iter(printed(frame, width, first=first, aside=aside)[1:])
    said = aside.file.getvalue()  # type: ignore[attr-defined]
    hidden = set(re.findall(r"[\w-]+", said.partition("Not shown:")[2].partition(". --")[0]))
    shown = [name for name in frame.columns if name not in hidden]
    kinds = {name: quantity(name, frame[name]) for name in frame.columns}
    times = [name for name in first if kinds[name] is Quantity.INSTANT]
    origin = min((int(frame[name].min()) for name in times), default=0) if len(frame) else 0
    for row in json.loads(json.dumps(records(frame), default=str)):
        wanted = [
            row[name] - (origin if name in times else 0)
            for name in shown
            if isinstance(row[name], int | float)
            and not isinstance(row[name], bool)
            and cell_text(kinds[name], row[name])
        ]
        for line in lines:  # a sentence may go on in the next line; its numbers do not
            there = numbers_in(line)
            if all(any(is_near(value, number) for number in there) for value in wanted):
                break
        else:
            pytest.fail(f"{question} at {width}: no line has {wanted} of {shown}")


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> hg.Job:
    into = tmp_path_factory.mktemp("job")
    simulate_job(training_job(ranks=2, steps=2, layers=1)).write(into)
    return hg.load_job(into)


ASKED = sorted(set(QUESTIONS) - {"cupti_counters", "cupti_rates"})


@pytest.mark.parametrize("question", ASKED)
def test_each_number_of_an_answer_is_read_at_80_columns(graph: hg.TraceGraph, question) -> None:
    """In the columns that are shown, and rounded: none is cut."""
    check_numbers(graph, question, 80)


def test_each_number_of_a_job_is_read_at_80_columns(job: hg.Job) -> None:
    for question in ("overlap", "step_times", "quality", *JOB_QUESTIONS):
        check_numbers(job, question, 80)


@pytest.mark.parametrize("question", [*ASKED, *JOB_QUESTIONS])
def test_no_two_columns_of_an_answer_have_one_heading(question: str) -> None:
    """`n_blocked` and `blocked_ns` would both be called blocked."""
    columns = schema_of(question, of_job=question in JOB_QUESTIONS).columns

    assert len({heading(name) for name in columns}) == len(columns)


def test_a_name_stands_in_full_where_there_is_room() -> None:
    """And what is shortened says what tells it from the others."""
    names = [
        f"void at::elementwise_kernel<4, {op}Functor<float>>(int, float)" for op in ("Add", "Mul")
    ]
    frame = pd.DataFrame({"name": names, "n": [1, 2]})

    assert [line.rsplit(maxsplit=1)[0] for line in printed(frame, 120)[1:]] == names
    assert [line.split("  ")[0] for line in printed(frame, 40)[1:]] == [
        "elementwise_kernel · AddFunctor",
        "elementwise_kernel · MulFunctor",
    ]


def test_characters_that_are_two_columns_wide_do_not_keep_a_table_from_ending() -> None:
    """A short name of theirs may be wider than its column: it is cut."""
    names = ["核" * 60, "核" * 59 + "心", "gemm"]
    frame = pd.DataFrame({"group": names, "op": names, "sum_ns": [3_000, 2_000, 1_000]})

    for width in range(60, 90):
        assert all(cell_len(line.rstrip()) <= width for line in printed(frame, width))


def test_what_there_is_no_room_for_is_named() -> None:
    """The last columns go first; nothing is dropped in silence."""
    aside = Console(width=200, file=io.StringIO())
    head, *_ = printed(KERNELS, 42, aside=aside)
    assert head.split() == ["group", "share", "sum"]
    assert isinstance(aside.file, io.StringIO)
    assert aside.file.getvalue().startswith("Not shown: n_kernels, is_short. --columns")


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
