"""Answers of any number of rows, printed in part and written whole: `ask`, `query` and `sql`."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from htagraph.cli import options
from htagraph.cli.console import notices, output, print_sentence, shown_progress
from htagraph.cli.inputs import (
    Source,
    executor_of,
    given,
    print_left_out,
    window_in_words,
    windowed,
)
from htagraph.cli.tables import Format, csv_text, print_frame
from htagraph.errors import MissingEventsError, OutputError, QueryError
from htagraph.job.job import JOB_QUESTIONS, Job
from htagraph.lookup.patterns import parse_pattern
from htagraph.lookup.selecting import rows_where
from htagraph.model.columns import schema_of
from htagraph.model.kinds import in_words
from htagraph.model.progress import begin_stage
from htagraph.model.units import human_count
from htagraph.queries.questions import QUESTIONS, STACK_READERS, check_options
from htagraph.queries.synonyms import targets_of
from htagraph.readers.captures import CaptureName
from htagraph.reports.answers import all_questions, not_recorded
from htagraph.run.compiled import LoadOptions
from htagraph.run.graph import TraceGraph
from htagraph.writers.output_file import output_file

_MAX_ROWS = 40
"""Chosen: rows of a table on the terminal."""

Limit = Annotated[
    int, typer.Option(min=0, help=f"Rows to print at most; of a table, {_MAX_ROWS} by default.")
]
Out = Annotated[
    Path | None, typer.Option(help="Also write the whole table (.csv, .json, .parquet).")
]


def print_rows(
    frame: pd.DataFrame,
    form: Format,
    *,
    headline: str,
    columns: str = "",
    first: Sequence[str] = (),
    limit: int = 0,
    quiet: bool = False,
) -> None:
    """Print the first rows of an answer: of a table not too many, unless a limit is given."""
    console, aside = output(), notices(quiet=quiet)
    shown = frame.head(limit or (_MAX_ROWS if form is Format.TABLE else len(frame)))
    if form is Format.TABLE:
        print_sentence(console, headline, style="bold")
    said = aside if len(frame) else None
    print_frame(console, shown, form, columns=columns, first=first, aside=said)
    if len(shown) < len(frame):
        aside.print(f"{len(shown):,} of {len(frame):,} rows; --format csv or --out gives all.")


def write_rows(frame: pd.DataFrame, out: Path, *, more: str = "") -> None:
    """Write an answer by the ending of the file; `more` names the caller's other endings."""
    content = io.BytesIO()
    match out.suffix:
        case ".csv":
            content.write(csv_text(frame).encode("utf-8", "replace"))
        case ".json":
            frame.to_json(content, orient="records", indent=2)
        case ".parquet":
            try:
                frame.to_parquet(content, index=False)
            except ImportError as exc:
                raise MissingEventsError(
                    "writing Parquet needs pyarrow.", missing="pyarrow", hint="pip install pyarrow."
                ) from exc
        case _:
            raise OutputError(
                f"tables are .csv, .json or .parquet{more}.",
                path=out,
                hint="choose one of these endings.",
            )
    with output_file(out) as file:
        file.write(content.getbuffer())


def query(
    paths: options.TracePaths,
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN",
            help="Events with arrows between them: 'op aten::linear -LAUNCH> kernel -STREAM{1,3}> "
            "nccl* [dur>1ms]'.",
        ),
    ],
    *,
    rank: options.Rank = None,
    window: options.Window = "",
    by: Annotated[
        str,
        typer.Option(
            metavar="NAME,…",
            help="Count and add up by these columns; `name`: the names of all events.",
        ),
    ] = "",
    out: Out = None,
    columns: options.Columns = "",
    limit: Limit = 0,
    form: options.Format = Format.TABLE,
    beside: options.Beside = None,
    capture: options.Capture = "",
    infer: options.Infer = True,
    quiet: options.Quiet = False,
) -> None:
    """Find chains of events: what follows what along which edges, and how long it waits."""
    parse_pattern(pattern)  # a typing error should not cost the reading of a file
    source = given(paths, rank, capture, beside, form)
    with shown_progress(quiet=quiet):
        read = source.one(source.one_capture, LoadOptions(infer=infer), window)
        graph = windowed(read.graph, window)
        begin_stage("Matching")
        found = graph.match(pattern)
        frame = found.group([one.strip() for one in by.split(",")]) if by else found.frame
    if out is not None:
        write_rows(frame, out)
        notices(quiet=quiet).print(f"Wrote {out}")
    headline = f"{found.title} in {window_in_words(window, of_job=False)}."
    print_rows(
        frame,
        form,
        headline=headline,
        columns=columns,
        first=frame.main_columns,
        limit=limit,
        quiet=quiet,
    )
    print_left_out(graph.left_out, notices(quiet=quiet))


_PLAN = "explain_value"
"""Column of an EXPLAIN, which is a drawing."""


def sql(
    paths: options.RunPaths,
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY",
            help="One SELECT, WITH or EXPLAIN (DuckDB) over events, edges, segments, steps, "
            "kernels, launches and collectives; 'DESCRIBE events' lists columns.",
        ),
    ],
    *,
    rank: options.Rank = None,
    window: options.Window = "",
    out: Out = None,
    columns: options.Columns = "",
    limit: Limit = 0,
    form: options.Format = Format.TABLE,
    beside: options.Beside = None,
    capture: options.Capture = "",
    workers: options.Workers = 0,
    dask: options.Dask = "",
    infer: options.Infer = True,
    quiet: options.Quiet = False,
) -> None:
    """Answer a query in SQL over events, edges, the path and more; of a job, with ranks."""
    source = given(paths, rank, capture, beside, form)
    with shown_progress(quiet=quiet), executor_of(workers, dask) as executor:
        reading = LoadOptions(infer=infer)
        run = source.run(source.one_capture, reading, window, executor)
        begin_stage("Querying")
        frame = run.sql(query)
    aside = notices(quiet=quiet)
    if out is not None:
        write_rows(frame, out)
        aside.print(f"Wrote {out}")
    if form is Format.TABLE and _PLAN in frame:
        output().print("\n".join(frame[_PLAN]), soft_wrap=True)
        return
    of = window_in_words(window, of_job=source.is_job)
    headline = f"{human_count(len(frame), 'row')} of {of}."
    print_rows(frame, form, headline=headline, columns=columns, limit=limit, quiet=quiet)
    print_left_out(run.left_out, aside)


_WHOLE = re.compile(r"-?[0-9]{1,19}")
"""A whole number, as an option has it."""


def ask(
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="Name of a question; `list` lists all.")
    ],
    paths: options.JobPaths = None,
    *,
    rank: options.Rank = None,
    window: options.Window = "",
    where: Annotated[
        str, typer.Option(help="Keep only rows that match: 'idle_ns > 1000 and device == 0'.")
    ] = "",
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-o", metavar="NAME=VALUE", help="Option of the question. Repeatable."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write the whole table (.csv, .json, .parquet), its plot (.html), or the "
            "trace with each row as a slice (.pftrace)."
        ),
    ] = None,
    columns: options.Columns = "",
    form: options.Format = Format.TABLE,
    beside: options.Beside = None,
    capture: options.Capture = "",
    workers: options.Workers = 0,
    dask: options.Dask = "",
    stacks: options.Stacks = None,
    infer: options.Infer = True,
    quiet: options.Quiet = False,
) -> None:
    """Answer a question; for a folder, on every rank. `htagraph ask list` lists all questions."""
    if question == "list" or not paths:
        print_frame(output(), all_questions(), form)
        return
    stacks = True if stacks is None and question in STACK_READERS else stacks
    question_options, reading = _parsed(option or []), LoadOptions(stacks=stacks, infer=infer)
    answers: dict[CaptureName, pd.DataFrame] = {}
    runs: list[TraceGraph | Job] = []
    left_out: tuple[str, ...] = ()
    _check(question, question_options, paths=paths)
    if out is not None and out.suffix == ".html":
        _check_plot(question)
    source = given(paths, rank, capture, beside, form)
    _check(question, question_options, of_job=source.is_job)
    with shown_progress(quiet=quiet), executor_of(workers, dask) as executor:
        for number in source.captures:
            run = source.run(number, reading, window, executor)
            begin_stage(f"Answering {question}")
            answers[number], left_out = run.ask(question, **question_options), run.left_out
            runs.append(run)
    frame = next(iter(answers.values()))
    if len(answers) > 1:
        frame = pd.concat(answers, names=["capture", None]).reset_index("capture")
    n_rows = len(frame)
    said = not_recorded(question, frame, question_options.get("by"))
    if where:
        frame = rows_where(frame, where)
    if out is not None:
        _write(frame, out, question, runs)
        notices(quiet=quiet).print(f"Wrote {out}")
    first = schema_of(question, of_job=source.is_job).shown(frame, question_options.get("by"))
    of = window_in_words(window, of_job=source.is_job)
    headline = f"{in_words(question).capitalize()} of {of}: {human_count(len(frame), 'row')}."
    print_rows(frame, form, headline=headline, columns=columns, first=first, quiet=quiet)
    aside = notices(quiet=quiet)
    if said or frame.empty:
        aside.print(said or f"None of {human_count(n_rows, 'row')} fits --where.")
    print_left_out(left_out, aside)


def _check(
    question: str,
    options: dict[str, Any],
    *,
    of_job: bool | None = None,
    paths: Sequence[Path] = (),
) -> None:
    """Check a question and its options before a file is read; `of_job` is None if unknown."""
    if question not in QUESTIONS and question not in JOB_QUESTIONS:
        near = targets_of(question, (*QUESTIONS, *JOB_QUESTIONS))
        where = Source.of(paths).typed
        commands = " or ".join(f"`{target.command(where)}`" for target in near)
        tried = f"try {commands}; " if near else ""
        hint = f"{tried}`htagraph ask list` lists all questions."
        raise QueryError(f"unknown question {question!r}.", hint=hint)
    if of_job is False and question not in QUESTIONS:
        raise QueryError(
            f"{question!r} needs a job.", hint="give the folder with the traces of its ranks."
        )
    if of_job is None:
        of_job = question not in QUESTIONS
    check_options(Job if of_job else TraceGraph, question, options)


def _parsed(options: list[str]) -> dict[str, Any]:
    """Options as keyword arguments; whole numbers are numbers."""
    parsed: dict[str, Any] = {}
    for option in options:
        name, separator, value = option.partition("=")
        if not separator:
            raise QueryError(
                f"{option!r} is no option.", hint="write NAME=VALUE, for example --option by=name."
            )
        digits = value.replace("_", "")
        parsed[name.strip()] = int(digits) if _WHOLE.fullmatch(digits) else value
    return parsed


def _write(frame: pd.DataFrame, out: Path, question: str, runs: Sequence[TraceGraph | Job]) -> None:
    """Write a table, its plot, or the trace with a slice for each row, by the ending."""
    if out.name.endswith((".pftrace", ".pftrace.gz")):
        if len(runs) > 1 or isinstance(runs[0], Job):
            hint = "name one with --rank N, and --capture N."
            raise QueryError("an answer is drawn on the trace of one rank.", hint=hint)
        runs[0].critical_path().to_perfetto(out, tracks={in_words(question): frame})
    elif out.suffix == ".html":
        from htagraph.reports import plots  # noqa: PLC0415  deferred: few ask for it

        with output_file(out) as file:
            file.write(getattr(plots, question)(frame).to_html().encode())
    else:
        write_rows(frame, out, more=", plots .html, traces .pftrace")


def _check_plot(question: str) -> None:
    """Check that a question has a plot, before a file is read."""
    from htagraph.reports import plots  # noqa: PLC0415  as above

    drawn = sorted({*plots.__all__} & {*QUESTIONS, *JOB_QUESTIONS})
    if question not in drawn:
        raise QueryError(
            f"there is no plot of {question}.",
            hint=f"there are plots of {', '.join(drawn)}; `htagraph report` draws a whole page.",
        )
