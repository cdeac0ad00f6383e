"""`htagraph query`: chains of events that fit a pattern, one by one or in groups."""

from __future__ import annotations

from typing import Annotated

import typer

from htagraph.cli import options
from htagraph.cli.console import notices, shown_progress
from htagraph.cli.inputs import given, print_left_out, window_in_words, windowed
from htagraph.cli.rows import Limit, Out, print_rows, write_rows
from htagraph.cli.tables import Format
from htagraph.lookup.pattern_text import parse_pattern
from htagraph.model.progress import begin_stage
from htagraph.run.compiled import LoadOptions


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
        notices(quiet=quiet).print(f"Wrote {out}", markup=False)
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
