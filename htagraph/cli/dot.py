"""`htagraph dot`: the critical path, the neighborhood of an event, or a small graph, as DOT."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from htagraph.cli import options
from htagraph.cli.console import notices, shown_progress
from htagraph.cli.inputs import given, windowed
from htagraph.errors import QueryError
from htagraph.model.progress import begin_stage
from htagraph.run.compiled import LoadOptions


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
        notices(quiet=quiet).print(f"Wrote {file}", markup=False)
