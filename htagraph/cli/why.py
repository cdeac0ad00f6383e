"""`htagraph why`: why an event started only then, and what that waited for, back in time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from htagraph.cli import options
from htagraph.cli.console import notices, output, print_sentence, shown_progress
from htagraph.cli.inputs import executor_of, given
from htagraph.cli.path import write_path
from htagraph.cli.tables import Format, print_frame
from htagraph.errors import QueryError
from htagraph.model.progress import begin_stage
from htagraph.run.compiled import LoadOptions
from htagraph.run.graph import TraceGraph

if TYPE_CHECKING:
    from htagraph.job.why import JobWhy
    from htagraph.run.why import Why


def why(
    paths: options.RunPaths,
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="Event, by name, glob, regex or row; or a time from the start of the trace "
            "(12.3ms): why is the device idle then?",
        ),
    ],
    *,
    rank: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Of a job: the rank that the event is on."),
    ] = None,
    instance: Annotated[
        int | None,
        typer.Option(help="Which of several events, in order of time; -1: the last."),
    ] = None,
    device: Annotated[int | None, typer.Option(min=0, help="With a time: which device.")] = None,
    end: Annotated[bool, typer.Option("--end", help="Why it ended only then.")] = False,
    window: options.Window = "",
    out: Annotated[
        Path | None,
        typer.Option(help="Also write the chain: .pftrace (Perfetto) or .dot."),
    ] = None,
    columns: options.Columns = "",
    form: options.Format = Format.TABLE,
    beside: options.Beside = None,
    capture: options.Capture = "",
    workers: options.Workers = 0,
    dask: options.Dask = "",
    infer: options.Infer = True,
    quiet: options.Quiet = False,
) -> None:
    """Say why an event started only then: the chain of what it waited for, on other ranks, too.

    Prints sentences; --format csv, json or md, or --columns, prints the segments of the chain.
    """
    source = given(paths, None, capture, beside, form)
    with shown_progress(quiet=quiet), executor_of(workers, dask) as executor:
        reading = LoadOptions(infer=infer)
        run = source.run(source.one_capture, reading, window, executor)
        if isinstance(run, TraceGraph):
            begin_stage("Following the chain")
            chain = run.why(what, instance=instance, device=device, end=end)
            found: Why | JobWhy = chain
            frame = chain.chain
        else:
            if rank is None:
                ranks = ", ".join(map(str, run.ranks[:4]))
                raise QueryError(
                    f"{source.name} has {len(run)} ranks.",
                    hint=f"--rank N says which one the event is on: {ranks}, …",
                )
            begin_stage("Following the chain across ranks")
            found = run.why(rank, what, instance=instance, device=device, end=end)
            frame = found.segments[::-1]
        if out is not None:
            begin_stage(f"Writing {out}")
            write_path(found, out)
    console, aside = output(), notices(quiet=quiet)
    if form is Format.TABLE and not columns:
        for number, said in enumerate(found.sentences):
            print_sentence(console, said, style="" if number else "bold", indent=2 * bool(number))
    else:
        print_frame(console, frame, form, columns=columns, aside=aside)
    if out is not None:
        aside.print(f"Wrote {out}", markup=False)
