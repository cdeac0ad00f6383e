"""`htagraph sql`: a query in SQL over the tables of a trace or a job."""

from __future__ import annotations

from typing import Annotated

import typer

from htagraph.cli import options
from htagraph.cli.console import notices, output, shown_progress
from htagraph.cli.inputs import executor_of, given, print_left_out, window_in_words
from htagraph.cli.rows import Limit, Out, print_rows, write_rows
from htagraph.cli.tables import Format
from htagraph.model.progress import begin_stage
from htagraph.model.units import human_count
from htagraph.run.compiled import LoadOptions

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
        aside.print(f"Wrote {out}", markup=False)
    if form is Format.TABLE and _PLAN in frame:
        output().print("\n".join(frame[_PLAN]), markup=False, soft_wrap=True)
        return
    of = window_in_words(window, of_job=source.is_job)
    headline = f"{human_count(len(frame), 'row')} of {of}."
    print_rows(frame, form, headline=headline, columns=columns, limit=limit, quiet=quiet)
    print_left_out(run.left_out, aside)
