"""`htagraph query` and `sql`: answers of any number of rows, printed in part and written whole."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from htagraph.cli import options
from htagraph.cli.console import notices, output, print_sentence, shown_progress
from htagraph.cli.inputs import executor_of, given, print_left_out, window_in_words, windowed
from htagraph.cli.tables import Format, csv_text, print_frame
from htagraph.errors import MissingEventsError, OutputError
from htagraph.lookup.patterns import parse_pattern
from htagraph.model.progress import begin_stage
from htagraph.model.units import human_count
from htagraph.run.compiled import LoadOptions
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
