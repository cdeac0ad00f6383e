"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from htagraph.cli.tables import Format
from htagraph.lookup.find_window import WINDOWS_IN_WORDS

__all__ = [
    "BesideOption",
    "CaptureOption",
    "ColumnsOption",
    "DaskOption",
    "FormatOption",
    "InferOption",
    "JobArgument",
    "QuietOption",
    "RankOption",
    "ReportArgument",
    "StacksOption",
    "TraceArgument",
    "WindowOption",
    "WorkersOption",
]

TraceArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...",
        help="Trace of one rank (.json, .json.gz), or a folder, glob or files with it; of several "
        "ranks, --rank N says which.",
    ),
]
ReportArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...",
        help="Trace of one rank; or a folder, a glob or files with the traces of a job.",
    ),
]
JobArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PATH...",
        help="Trace of one rank; or a folder, a glob or files with the traces of a job.",
    ),
]
RankOption = Annotated[
    int | None,
    typer.Option("--rank", metavar="N", min=0, help="One rank of a job, by itself."),
]
WindowOption = Annotated[
    str,
    typer.Option(
        "--window",
        "-w",
        metavar="NAME",
        help=WINDOWS_IN_WORDS,
    ),
]
DaskOption = Annotated[
    str,
    typer.Option("--dask", metavar="ADDRESS", help="Dask scheduler whose workers read the ranks."),
]
WorkersOption = Annotated[
    int, typer.Option("--workers", min=0, help="Processes for the ranks of a job; 0: automatic.")
]
BesideOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--beside",
        metavar="FILE",
        help="What another instrument saw of the same run: an execution trace, Nsight Compute CSV, "
        "a log of nvidia-smi or DCGM; may be given again.",
    ),
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
