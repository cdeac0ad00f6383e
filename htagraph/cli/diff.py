"""`htagraph diff`: what changed between two traces, and whether that is a regression."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from htagraph.cli.console import Waiting, notices, output
from htagraph.cli.options import (
    ColumnsOption,
    FormatOption,
    InferOption,
    QuietOption,
    WindowOption,
    windowed,
)
from htagraph.cli.sources import Source
from htagraph.cli.tables import Format, print_frame
from htagraph.comparison import diff as compare
from htagraph.model.units import human_duration

__all__ = ["What", "diff"]

_TOP = 20


class What(StrEnum):
    """What is compared."""

    PATH = "path"
    KERNELS = "kernels"
    OPS = "ops"


def diff(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="Trace before the change.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Trace after it.")],
    *,
    window: WindowOption = "",
    what: Annotated[
        What,
        typer.Option(help="Compare critical paths (deltas add up), kernels, or operators."),
    ] = What.PATH,
    by: Annotated[str, typer.Option(help="For paths: bound, kind, name, op or track.")] = "bound",
    fail_above: Annotated[
        float,
        typer.Option(
            help="Exit with 1 if AFTER is longer by more than this share (0.05: 5%); 0: never."
        ),
    ] = 0.0,
    columns: ColumnsOption = "",
    form: FormatOption = Format.TABLE,
    infer: InferOption = True,
    quiet: QuietOption = False,
) -> None:
    """Compare two traces, or one window of both. The largest change comes first."""
    with Waiting(quiet=quiet).shown() as waiting:
        graphs = [
            windowed(waiting.load(Source.of(path).file()).compile(infer=infer), window)
            for path in (before, after)
        ]
        waiting.stage("Comparing")
        found = compare(*graphs)
        match what:
            case What.PATH:
                frame = found.critical_path(by=by).reset_index(names=by)  # type: ignore[arg-type]
            case What.KERNELS:
                frame = found.kernels(short_names=True)
            case _:
                frame = found.ops()
    console = output()
    if form is Format.TABLE:
        share = found.delta_ns / max(found.before.dur_ns, 1)
        console.print(
            f"{human_duration(found.before.dur_ns)} -> {human_duration(found.after.dur_ns)} "
            f"({share:+.1%})",
            style="bold",
            markup=False,
        )
    shown = frame.head(_TOP) if form is Format.TABLE else frame
    print_frame(console, shown, form, columns=columns, beside=notices(quiet=quiet))
    if fail_above > 0 and found.delta_ns > fail_above * found.before.dur_ns:
        raise typer.Exit(1)
