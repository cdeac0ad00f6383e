"""`htagraph dot`: the critical path, or a small graph, as DOT."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from htagraph.cli import options
from htagraph.cli.console import notices, shown_progress
from htagraph.cli.runs import loaded_trace, windowed
from htagraph.cli.sources import given
from htagraph.compiled import LoadOptions
from htagraph.model.progress import begin_stage


def dot(
    paths: options.TracePaths,
    *,
    rank: options.Rank = None,
    window: options.Window = "",
    out: Annotated[str, typer.Option(help="File to write; - prints it.")] = "-",
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
        int, typer.Option(help="With --graph, maximum number of boxes.", min=2)
    ] = 200,
    beside: options.Beside = None,
    capture: options.Capture = "",
    infer: options.Infer = True,
    quiet: options.Quiet = False,
) -> None:
    """Write the critical path as DOT for Graphviz. htagraph dot TRACE | dot -Tsvg > path.svg."""
    source = given(paths, rank, capture, beside)
    with shown_progress(quiet=quiet):
        made = loaded_trace(source, source.one_capture, LoadOptions(infer=infer), window)
        begin_stage("Drawing")
        graph = windowed(made.graph, window)
        file = None if out == "-" else Path(out)
        if whole:
            text = graph.to_dot(file, max_nodes=max_nodes, reduce=reduce)
        else:
            text = graph.critical_path().to_dot(file)
    if file is None:
        typer.echo(text)
    else:
        notices(quiet=quiet).print(f"Wrote {file}", markup=False)
