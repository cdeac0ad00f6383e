"""`htagraph path`: the critical path as a table, or as a file."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from htagraph.cli.console import Waiting, notices, output
from htagraph.cli.options import (
    ColumnsOption,
    FormatOption,
    InferOption,
    QuietOption,
    TraceArgument,
    WindowOption,
    windowed,
)
from htagraph.cli.tables import Format, print_frame
from htagraph.errors import OutputError
from htagraph.path import BreakdownKey, CriticalPath

__all__ = ["By", "path"]

_MAX_ROWS = 40
_SEGMENT = (
    "start_ns",
    "dur_ns",
    "bound",
    "name",
    "track",
    "op",
    "kind",
    "rule",
    "is_inferred",
    "step",
)
"""Columns of a segment that a table shows by default."""


class By(StrEnum):
    """Keys by which the time of the path is grouped."""

    BOUND = "bound"
    KIND = "kind"
    NAME = "name"
    OP = "op"
    TRACK = "track"
    RULE = "rule"
    STEP = "step"
    SEGMENT = "segment"

    @property
    def key(self) -> BreakdownKey:
        """Key of `CriticalPath.breakdown`."""
        return cast("BreakdownKey", self.value)


def path(
    trace: TraceArgument,
    *,
    window: WindowOption = "",
    by: Annotated[
        By, typer.Option(help="Group by this; `segment` lists the path itself.")
    ] = By.BOUND,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write the path: .pftrace (Perfetto), .json (the original trace with the "
            "path added), .dot."
        ),
    ] = None,
    columns: ColumnsOption = "",
    form: FormatOption = Format.TABLE,
    infer: InferOption = True,
    quiet: QuietOption = False,
) -> None:
    """Print the critical path of a trace by its parts. They add up to the window."""
    with Waiting(quiet=quiet).shown() as waiting:
        loaded = waiting.load(trace)
        waiting.stage("Finding the critical path")
        found = windowed(loaded.compile(infer=infer), window).critical_path()
        frame = found.segments if by is By.SEGMENT else found.breakdown(by=by.key).reset_index()
        if out is not None:
            waiting.stage(f"Writing {out}")
            _write(found, out)
    console, beside = output(), notices(quiet=quiet)
    if form is Format.TABLE:
        console.print(repr(found), markup=False)
        print_frame(
            console,
            frame.head(_MAX_ROWS),
            form,
            columns=columns,
            first=_SEGMENT if by is By.SEGMENT else (),
            beside=beside,
        )
        if len(frame) > _MAX_ROWS:
            n_more = len(frame) - _MAX_ROWS
            beside.print(f"… and {n_more:,} more rows: --format csv prints all.", style="dim")
    else:
        print_frame(console, frame, form, columns=columns)
    if out is not None:
        beside.print(f"Wrote {out}", markup=False)


def _write(found: CriticalPath, out: Path) -> None:
    """Write the path in the format that the ending of the file names."""
    suffix = Path(out.name.removesuffix(".gz")).suffix
    writers: dict[str, Callable[[Path], Any]] = {
        ".pftrace": found.to_perfetto,
        ".json": found.to_chrome_json,
        ".dot": found.to_dot,
    }
    if suffix not in writers:
        raise OutputError(
            f"no format is called {suffix!r}.",
            path=out,
            hint="end the name in .pftrace, .json or .dot.",
        )
    writers[suffix](out)
