"""Arguments and options that several commands share; used as `options.Rank`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from htagraph.cli import tables
from htagraph.lookup.find_window import WINDOWS_IN_WORDS
from htagraph.readers.storage import path_of

TracePaths = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...",
        parser=path_of,
        help="Trace of one rank (.json, .json.gz); or a folder, glob or files, with --rank N for "
        "one of several ranks.",
    ),
]
_RUN = typer.Argument(
    metavar="PATH...",
    parser=path_of,
    help="Trace of one rank; or a folder, a glob or files with all ranks of a job.",
)
RunPaths = Annotated[list[Path], _RUN]
JobPaths = Annotated[list[Path] | None, _RUN]
Rank = Annotated[
    int | None, typer.Option("--rank", metavar="N", min=0, help="Analyze only this rank of a job.")
]
Window = Annotated[str, typer.Option("--window", "-w", metavar="NAME", help=WINDOWS_IN_WORDS)]
Dask = Annotated[
    str,
    typer.Option(
        "--dask", metavar="ADDRESS", help="Address of a Dask scheduler; its workers read the ranks."
    ),
]
Workers = Annotated[
    int,
    typer.Option("--workers", min=0, help="Number of worker processes for a job; 0: automatic."),
]
Beside = Annotated[
    list[Path] | None,
    typer.Option(
        "--beside",
        metavar="FILE",
        parser=path_of,
        help="Add data from the same run: an execution trace, the trace of a graph's capture, "
        "Nsight Compute CSV, or a log of nvidia-smi or DCGM. Repeatable.",
    ),
]
Capture = Annotated[
    str,
    typer.Option(
        "--capture",
        metavar="N|FILE|all|list",
        help="Which capture, if the folder holds several: a number, one of its files, all (one by "
        "one), or list. Default: the latest complete one.",
    ),
]
Stacks = Annotated[
    bool | None,
    typer.Option(
        "--stacks/--no-stacks",
        help="Read Python stacks, which name untraced code. Default: of small files, "
        "and where that code is most of the path.",
    ),
]
Infer = Annotated[
    bool,
    typer.Option(
        "--infer/--no-infer",
        help="Infer waits that the trace does not record from the order and times of events.",
    ),
]
AcceptDamage = Annotated[
    bool,
    typer.Option(
        "--accept-damage",
        help="Check the limits although the recording is damaged: cut off, with lost events, …",
    ),
]
Format = Annotated[tables.Format, typer.Option("--format", "-f", help="Format of the table.")]
Columns = Annotated[
    str,
    typer.Option(
        "--columns", metavar="NAME,…", help="Columns to print, in this order; `all` for all."
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print the answer only, without progress and notices.")
]
