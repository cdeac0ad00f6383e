"""Arguments and options that several commands share."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Annotated

import typer

from htagraph.cli.tables import Format
from htagraph.errors import QueryError
from htagraph.graph import TraceGraph
from htagraph.lookup.find_window import WHOLE, named_ranges

__all__ = [
    "CaptureOption",
    "ColumnsOption",
    "DaskOption",
    "FormatOption",
    "InferOption",
    "JobArgument",
    "QuietOption",
    "ReportArgument",
    "StacksOption",
    "TraceArgument",
    "WindowOption",
    "WorkersOption",
    "first_of",
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
        help="Step or other host range, as a name, glob or regex; START:END in ns from the start "
        f"of the trace; or {WHOLE!r}, which is all of it.",
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
CaptureOption = Annotated[
    str,
    typer.Option(
        "--capture",
        metavar="N|FILE|all|list",
        help="Capture of a folder that holds several, by its number, or by one of its files; all, "
        "one after another; or list them. By default the latest complete one.",
    ),
]
StacksOption = Annotated[
    bool,
    typer.Option(
        "--stacks", help="Also read Python stacks, which name the code of host gaps (slower)."
    ),
]
InferOption = Annotated[
    bool,
    typer.Option(
        "--infer/--no-infer",
        help="Whether waits that no record names are inferred from order and times.",
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

_LOG = logging.getLogger("htagraph")
_RANGE = re.compile(r"(\d[\d_,]{0,30}):(\d[\d_,]{0,30})")


def times_of(window: str) -> tuple[int, int] | None:
    """Times of a `--window` of the form START:END; None for a name.

    Raises
    ------
    QueryError
        If they are in the wrong order.
    """
    found = _RANGE.fullmatch(window)
    if found is None:
        return None
    start, end = (int(text.replace("_", "").replace(",", "")) for text in found.groups())
    if end < start:
        raise QueryError(f"the window {window!r} ends before it starts.", hint="give START:END.")
    return start, end


def windowed(graph: TraceGraph, window: str) -> TraceGraph:
    """Part of a graph that `--window` names; all of it for an empty name, and for `WHOLE`.

    Of several ranges that match, it is the first, and a notice says so.
    """
    if window in ("", WHOLE):
        return graph
    times = times_of(window)
    if times is not None:
        origin = graph.dag.span.start_ns
        return graph.window((origin + times[0], origin + times[1]))
    part = graph.window(window)
    first_of(window, len(named_ranges(graph.dag, window)), part.interval.name)
    return part


def first_of(window: str, n_matching: int, first: str) -> None:
    """Say which of several ranges a `--window` stands for."""
    if n_matching > 1:
        _LOG.warning(
            "%s ranges match %r; this is the first, %s. Name another one to see it.",
            f"{n_matching:,}",
            window,
            first,
        )
