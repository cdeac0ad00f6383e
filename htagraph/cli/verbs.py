"""The small verbs: `dot`, `repair`, `hang` and `mcp`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from htagraph.cli import options
from htagraph.cli.console import notices, output, shown_progress
from htagraph.cli.inputs import Source, given, windowed
from htagraph.cli.tables import Format, print_frame, print_titled
from htagraph.errors import MissingEventsError, QueryError, TraceNotFoundError
from htagraph.job.dumps import load_dumps
from htagraph.model.frames import HANGS, LAST_COLLECTIVES
from htagraph.model.progress import begin_stage
from htagraph.model.units import human_time
from htagraph.readers.storage import path_of
from htagraph.run.compiled import LoadOptions
from htagraph.writers.output_file import output_file


def dot(
    paths: options.TracePaths,
    *,
    rank: options.Rank = None,
    window: options.Window = "",
    out: Annotated[str, typer.Option(help="File to write; - prints it.")] = "-",
    around: Annotated[
        str, typer.Option(help="Draw what is linked with an event: a name, glob or row.")
    ] = "",
    instance: Annotated[
        int | None,
        typer.Option(help="With --around: which of several events; negative from the end."),
    ] = None,
    hops: Annotated[int, typer.Option(help="With --around: edges to follow.", min=1)] = 2,
    query: Annotated[
        str,
        typer.Option(help="Draw the matches of a pattern: 'op aten::mm -LAUNCH> kernel'."),
    ] = "",
    whole: Annotated[
        bool, typer.Option("--graph", help="Draw all events of the window, not just the path.")
    ] = False,
    reduce: Annotated[
        bool,
        typer.Option(
            "--reduce", help="With --graph, leave out redundant arrows (transitive reduction)."
        ),
    ] = False,
    max_nodes: Annotated[
        int,
        typer.Option(help="With --graph, --around or --query, maximum number of boxes.", min=2),
    ] = 200,
    beside: options.Beside = None,
    capture: options.Capture = "",
    infer: options.Infer = True,
    quiet: options.Quiet = False,
) -> None:
    """Draw the critical path for Graphviz. htagraph dot FILE | dot -Tpng > path.png."""
    if bool(around) + bool(query) + whole > 1:
        raise QueryError("--around, --query and --graph are three drawings.", hint="give one.")
    source = given(paths, rank, capture, beside)
    file = None if out == "-" else Path(out)
    with shown_progress(quiet=quiet):
        number, reading = source.one_capture, LoadOptions(infer=infer)
        if not (around or query or whole):
            run = source.run(number, reading, window)
            begin_stage("Finding the path across ranks" if source.is_job else "Drawing")
            text = run.critical_path().to_dot(file)
        else:
            graph = windowed(source.one(number, reading, window).graph, window)
            begin_stage("Drawing")
            if around:
                event = graph.find(around, instance=instance)
                text = event.around(hops).to_dot(file, max_nodes=max_nodes, marked=event)
            elif query:
                text = graph.match(query).to_dot(file, max_nodes=max_nodes)
            else:
                text = graph.to_dot(file, max_nodes=max_nodes, reduce=reduce)
    if file is None:
        typer.echo(text)
    else:
        notices(quiet=quiet).print(f"Wrote {file}")


def repair(
    broken: Annotated[
        Path,
        typer.Argument(metavar="IN", parser=path_of, help="Broken trace, or a folder with it."),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Repaired trace: .json, or .json.gz to compress.")
    ],
    *,
    rank: options.Rank = None,
    form: options.Format = Format.TABLE,
    quiet: options.Quiet = False,
) -> None:
    """Make a broken trace valid and list the repairs. Everything else stays byte for byte."""
    file_in = Source.of(broken, rank).file()
    from htagraph.readers.kineto.rewriting import repair_kineto  # noqa: PLC0415  deferred: large

    with shown_progress(quiet=quiet):
        begin_stage(f"Repairing {file_in.name}")
        with output_file(out) as file:
            repairs = repair_kineto(file_in, file)
    rows = [(found.kind, found.n, found.first_offset, found.detail) for found in repairs]
    frame = pd.DataFrame(rows, columns=["kind", "n", "first_offset", "detail"])
    console = output()
    if len(frame) or form is not Format.TABLE:
        print_frame(console, frame, form)
    else:
        console.print("Nothing to repair.")


_N_ROWS = 32
"""Chosen: ranks that the table shows; --format csv gives all."""


def hang(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            parser=path_of,
            help="Folder with the dumps of all ranks, traces or other files among them; or files.",
        ),
    ],
    *,
    stacks: Annotated[
        bool, typer.Option("--stacks", help="Print the stacks of the ranks that wait.")
    ] = False,
    columns: options.Columns = "",
    form: options.Format = Format.TABLE,
    quiet: options.Quiet = False,
) -> None:
    """Find where a job hangs, from the Flight Recorder dumps of its ranks (JSON or pickle)."""
    with shown_progress(quiet=quiet):
        begin_stage("Reading dumps")
        dumps = load_dumps(paths)
        found = dumps.hangs()
    console, aside = output(), notices(quiet=quiet)
    if form is not Format.TABLE:
        print_frame(console, found, form, columns=columns, first=HANGS.shown(found), aside=aside)
        return
    console.print(dumps.verdict(), soft_wrap=True)
    last = dumps.last_collectives()
    last["at"] = [human_time(ns) for ns in last["start_ns"]]
    shown = [name for name in LAST_COLLECTIVES.shown(last) if name != "code"]
    of = f", first {_N_ROWS} of {len(last):,}" if len(last) > _N_ROWS else ""
    ranks = last.sort_values("is_waiting", ascending=False, kind="stable").head(_N_ROWS)
    print_titled(console, f"What each rank entered last{of}", ranks[[*shown, "at"]])
    if stacks:
        for row in ranks[ranks["is_waiting"] & (ranks["stack"] != "")].to_dict("records"):
            console.print(f"\nRank {row['rank']}", style="bold")
            console.print(row["stack"], soft_wrap=True)


def mcp(
    *,
    root: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Only files below this folder are read.")
    ] = Path(),
) -> None:
    """Serve coding agents over MCP (stdio). Nothing is written."""
    if not root.is_dir():
        raise TraceNotFoundError("no such folder.", path=root, hint="give --root FOLDER.")
    try:
        from htagraph.agents.server import serve  # noqa: PLC0415  deferred: an extra
    except ImportError as exc:
        raise MissingEventsError(
            "htagraph mcp needs mcp.", missing="mcp", hint="pip install 'htagraph[mcp]'."
        ) from exc
    if sys.stdin.isatty():
        notices().print("Waiting for a client on standard input; docs/agents.md sets one up.")
    serve(root)
