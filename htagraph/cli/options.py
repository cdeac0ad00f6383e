"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from htagraph.cli.tables import Format
from htagraph.graph import TraceGraph

__all__ = [
    "ColumnsOption",
    "DaskOption",
    "FormatOption",
    "JobArgument",
    "QuietOption",
    "ReportArgument",
    "StacksOption",
    "TraceArgument",
    "WindowOption",
    "WorkersOption",
    "times_of",
    "windowed",
]

TraceArgument = Annotated[
    Path, typer.Argument(metavar="PATH", help="Trace of one rank: .json or .json.gz.")
]
WindowOption = Annotated[
    str,
    typer.Option(
        "--window",
        "-w",
        metavar="NAME",
        help="Step or other host range, as a name, glob or regex; or START:END in ns from the "
        "start of the trace.",
    ),
]
JobArgument = Annotated[
    Path | None,
    typer.Argument(metavar="PATH", help="Trace of one rank, or a folder with the traces of a job."),
]
ReportArgument = Annotated[
    Path,
    typer.Argument(metavar="PATH", help="Trace of one rank, or a folder with the traces of a job."),
]
DaskOption = Annotated[
    str,
    typer.Option("--dask", metavar="ADDRESS", help="Dask scheduler whose workers read the ranks."),
]
WorkersOption = Annotated[
    int, typer.Option("--workers", min=0, help="Processes for the ranks of a job; 0: automatic.")
]
StacksOption = Annotated[
    bool,
    typer.Option(
        "--stacks", help="Also read Python stacks, which name the code of host gaps (slower)."
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", "-f", help="How to print the table.")]
ColumnsOption = Annotated[
    str,
    typer.Option(
        "--columns",
        metavar="NAME,…",
        help="Columns to print, in this order, however wide; `all` for all.",
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print the answer only: no progress, no notices.")
]

_RANGE = re.compile(r"(\d[\d_,]*):(\d[\d_,]*)")


def times_of(window: str) -> tuple[int, int] | None:
    """Times of a `--window` of the form START:END; None for a name."""
    found = _RANGE.fullmatch(window)
    if found is None:
        return None
    start, end = (int(text.replace("_", "").replace(",", "")) for text in found.groups())
    return start, end


def windowed(graph: TraceGraph, window: str) -> TraceGraph:
    """Part of a graph that `--window` names; all of it for an empty name."""
    if not window:
        return graph
    times = times_of(window)
    if times is None:
        return graph.window(window)
    origin = graph.dag.span.start_ns
    return graph.window((origin + times[0], origin + times[1]))
