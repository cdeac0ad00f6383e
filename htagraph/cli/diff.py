"""`htagraph diff`: what changed between two runs, and whether that is a regression."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from htagraph.cli import options
from htagraph.cli.check import end_with
from htagraph.cli.console import (
    notices,
    output,
    print_notes,
    print_sentence,
    shown_progress,
)
from htagraph.cli.inputs import executor_of, loaded_run
from htagraph.cli.options import share_of
from htagraph.cli.tables import Format, print_frame
from htagraph.comparison.limits import Limits, check_run
from htagraph.comparison.run_diff import RunDiff
from htagraph.model.progress import begin_stage
from htagraph.model.units import human_percent
from htagraph.readers.storage import path_of
from htagraph.reports.gate import diff_document, known_noise, shown_diff
from htagraph.reports.page.diff_page import write_diff_page

_TOP = 20
"""Chosen: rows of a table on the terminal."""


class What(StrEnum):
    """What is compared."""

    PATH = "path"
    KERNELS = "kernels"
    OPS = "ops"
    DEVICES = "devices"
    ALL = "all"


def diff(
    before: Annotated[
        Path,
        typer.Argument(
            metavar="BEFORE",
            parser=path_of,
            help="Trace, folder, or JSON of a report before the change.",
        ),
    ],
    after: Annotated[
        Path, typer.Argument(metavar="AFTER", parser=path_of, help="The same after the change.")
    ],
    *,
    rank: options.Rank = None,
    window: options.Window = "",
    what: Annotated[
        What,
        typer.Option(
            help="Compare critical paths (deltas add up), kernels, operators or devices; all: "
            "everything as JSON."
        ),
    ] = What.PATH,
    by: Annotated[
        str,
        typer.Option(
            help="For paths: bound, op or name. For kernels: name, shape, module, annotation or "
            "phase; shapes compare devices and precisions."
        ),
    ] = "",
    fail_above: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="Exit with 3 if steps are slower by more than this (5%) and by more than noise, "
            "with 1 if that is unknown.",
        ),
    ] = "",
    accept_damage: options.AcceptDamage = False,
    out: Annotated[
        Path | None, typer.Option(metavar="PAGE.html", help="Also write a page with everything.")
    ] = None,
    columns: options.Columns = "",
    form: options.Format = Format.TABLE,
    workers: options.Workers = 0,
    infer: options.Infer = True,
    quiet: options.Quiet = False,
) -> None:
    """Compare the steps of two runs, with noise. The largest change is first.

    The same work on another device is compared by operators and shapes, against both roofs.
    """
    limit = share_of(fail_above) if fail_above else None
    with shown_progress(quiet=quiet), executor_of(workers) as executor:
        runs = [
            loaded_run(path, window, rank=rank, executor=executor, infer=infer)
            for path in (before, after)
        ]
        begin_stage("Comparing")
        found = RunDiff(*runs)
        frame = _asked(found, what, by)
    console, aside = output(), notices(quiet=quiet)
    if what is What.ALL:
        console.file.write(json.dumps(diff_document(found), indent=2) + "\n")
    else:
        if form is Format.TABLE:
            print_sentence(console, found.verdict(), style="bold")
            print_notes(console, found.notes)
        is_for_people = form in (Format.TABLE, Format.MD) and not columns
        if "noise_ns" in frame:
            is_path = what is What.PATH
            frame = shown_diff(frame, calls=not is_path) if is_for_people else known_noise(frame)
        shown = frame
        shown = shown.head(_TOP) if form is Format.TABLE else shown
        print_frame(console, shown, form, columns=columns, aside=aside)
    if out is not None:
        write_diff_page(out, found)
        aside.print(f"Wrote {out}  (in a browser)")
    if limit is not None:
        checked = check_run(
            found.after,
            Limits(fail_above=limit),
            baseline=found.before,
            accept_damage=accept_damage,
        )
        if checked.state != "passed":
            is_told = checked.state == "broken"
            said = f"Failed: limit {human_percent(limit)}." if is_told else checked.verdict()
            aside.print(said)
        end_with(checked)


def _asked(found: RunDiff, what: What, by: str) -> pd.DataFrame:
    """The table that is asked for."""
    match what:
        case What.KERNELS:
            return found.kernels(by=by or "name")  # type: ignore[arg-type]
        case What.OPS:
            return found.ops()
        case What.DEVICES:
            return found.device_time()
        case _:
            if found.is_elsewhere and not by:
                return found.shapes()
            return found.critical_path(by=by or "bound")  # type: ignore[arg-type]
