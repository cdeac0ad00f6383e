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
        help="Trace of one rank (.json, .json.gz); or a folder, glob or files, with --rank N for "
        "one of several ranks.",
    ),
]
ReportArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...",
        help="Trace of one rank; or a folder, a glob or files with all ranks of a job.",
    ),
]
JobArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PATH...",
        help="Trace of one rank; or a folder, a glob or files with all ranks of a job.",
    ),
]
RankOption = Annotated[
    int | None,
    typer.Option("--rank", metavar="N", min=0, help="Analyze only this rank of a job."),
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
    typer.Option(
        "--dask", metavar="ADDRESS", help="Address of a Dask scheduler; its workers read the ranks."
    ),
]
WorkersOption = Annotated[
    int,
    typer.Option("--workers", min=0, help="Number of worker processes for a job; 0: automatic."),
]
BesideOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--beside",
        metavar="FILE",
        help="Add data from the same run: an execution trace, Nsight Compute CSV, or a log of "
        "nvidia-smi or DCGM. Repeatable.",
    ),
]
CaptureOption = Annotated[
    str,
    typer.Option(
        "--capture",
        metavar="N|FILE|all|list",
        help="Which capture, if the folder holds several: a number, one of its files, all (one by "
        "one), or list. Default: the latest complete one.",
    ),
]
StacksOption = Annotated[
    bool,
    typer.Option(
        "--stacks", help="Also read Python stacks: they name the code in host gaps (slower)."
    ),
]
InferOption = Annotated[
    bool,
    typer.Option(
        "--infer/--no-infer",
        help="Infer waits that the trace does not record from the order and times of events.",
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", "-f", help="Format of the table.")]
ColumnsOption = Annotated[
    str,
    typer.Option(
        "--columns",
        metavar="NAME,…",
        help="Columns to print, in this order; `all` for all.",
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print the answer only, without progress and notices.")
]
