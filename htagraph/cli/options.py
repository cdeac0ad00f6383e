"""Arguments and options that several verbs share (`options.Rank`); lengths and shares as texts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from htagraph.cli import tables
from htagraph.lookup.find_window import WINDOWS_IN_WORDS
from htagraph.model.units import TIME_UNITS
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
Keep = Annotated[
    Path | None,
    typer.Option(
        "--keep",
        metavar="FOLDER",
        help="Also keep the run in FOLDER/.htagraph, for `htagraph history`.",
        show_default=False,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print the answer only, without progress and notices.")
]


_DURATION = re.compile(r"(\d+(?:\.\d*)?) ?(ns|us|ms|s)")
_SHARE = re.compile(r"(\d+(?:\.\d*)?) ?(%?)")


def duration_of(text: str) -> float:
    """A length in nanoseconds.

    >>> duration_of("120ms"), duration_of("1.5 s")
    (120000000.0, 1500000000.0)
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no length: give a number and ns, us, ms or s.")
    return float(found[1]) * TIME_UNITS[found[2]]


def share_of(text: str) -> float:
    """A share of 1; a number above 1 needs a percent sign.

    >>> share_of("5%"), share_of("0.05")
    (0.05, 0.05)
    """
    found = _SHARE.fullmatch(text.strip())
    value = None if found is None else float(found[1]) / (100 if found[2] else 1)
    if value is None or (value > 1 and not (found and found[2])):
        raise typer.BadParameter(f"{text!r} is no share: give 5% or 0.05.")
    return value
