"""`htagraph hang`: where a job hangs, from its Flight Recorder dumps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from htagraph.cli import options
from htagraph.cli.console import notices, output, shown_progress
from htagraph.cli.tables import Format, print_frame, print_titled
from htagraph.job.dumps import load_dumps
from htagraph.model.frames import HANGS, LAST_COLLECTIVES
from htagraph.model.progress import begin_stage
from htagraph.model.units import human_time
from htagraph.readers.storage import path_of

_N_ROWS = 32
"""Chosen: ranks that the table shows; --format csv gives all."""


def hang(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            parser=path_of,
            help="Folder with the dumps of all ranks, traces or other files among them; or files.",
        ),
    ],
    *,
    stacks: Annotated[
        bool, typer.Option("--stacks", help="Print the stacks of the ranks that wait.")
    ] = False,
    columns: options.Columns = "",
    form: options.Format = Format.TABLE,
    quiet: options.Quiet = False,
) -> None:
    """Find where a job hangs, from the Flight Recorder dumps of its ranks (JSON or pickle)."""
    with shown_progress(quiet=quiet):
        begin_stage("Reading dumps")
        dumps = load_dumps(paths)
        found = dumps.hangs()
    console, aside = output(), notices(quiet=quiet)
    if form is not Format.TABLE:
        print_frame(console, found, form, columns=columns, first=HANGS.shown(found), aside=aside)
        return
    console.print(dumps.verdict(), markup=False, soft_wrap=True)
    last = dumps.last_collectives()
    last["at"] = [human_time(ns) for ns in last["start_ns"]]
    shown = [name for name in LAST_COLLECTIVES.shown(last) if name != "code"]
    of = f", first {_N_ROWS} of {len(last):,}" if len(last) > _N_ROWS else ""
    ranks = last.sort_values("is_waiting", ascending=False, kind="stable").head(_N_ROWS)
    print_titled(console, f"What each rank entered last{of}", ranks[[*shown, "at"]])
    if stacks:
        for row in ranks[ranks["is_waiting"] & (ranks["stack"] != "")].to_dict("records"):
            console.print(f"\nRank {row['rank']}", style="bold", markup=False)
            console.print(row["stack"], markup=False, soft_wrap=True)
