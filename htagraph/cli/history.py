"""`htagraph history`: the runs that are kept in a folder, and where their step time changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from htagraph.cli import options
from htagraph.cli.console import notices, output, print_sentence
from htagraph.cli.tables import Format, print_frame, print_titled
from htagraph.model.frames import KEPT_RUNS, RUN_CHANGES
from htagraph.reports.history import history as history_of

_N_ROWS = 12
"""Chosen: runs that the table shows; --format csv gives all."""

_COMMIT = 7
"""Characters of a commit in a table, as git shows them."""


def history(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with kept runs.")],
    *,
    last: Annotated[int, typer.Option(metavar="N", min=1, help="Take the last N runs.")] = 500,
    changes: Annotated[
        bool, typer.Option("--changes", help="With --format: the changes, not the runs.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the figure as HTML; needs plotly.")
    ] = None,
    columns: options.Columns = "",
    form: options.Format = Format.TABLE,
    quiet: options.Quiet = False,
) -> None:
    """Print the kept runs of a folder, where their step time changed, and of which commits.

    `htagraph watch`, and `report` and `check` with `--keep`, keep runs in FOLDER/.htagraph.
    """
    found = history_of(folder, last=last)
    console, aside = output(), notices(quiet=quiet)
    frame, of = (found.changes, RUN_CHANGES) if changes else (found.runs, KEPT_RUNS)
    if form is not Format.TABLE or columns:
        print_frame(console, frame, form, columns=columns, first=of.shown(frame), aside=aside)
    else:
        print_sentence(console, found.headline, style="bold")
        if len(found.changes):
            moved = found.changes[RUN_CHANGES.shown(found.changes)]
            print_titled(console, "Changes", moved.assign(time=moved["time"].str[:16]))
        runs = found.runs[KEPT_RUNS.shown(found.runs)]
        short = {"time": runs["time"].str[:16], "commit": runs["commit"].str[:_COMMIT]}
        title = f"Runs, last {_N_ROWS} of {len(runs):,}" if len(runs) > _N_ROWS else "Runs"
        print_titled(console, title, runs.assign(**short).tail(_N_ROWS))
    if out is not None:
        found.figure().write_html(out)
        aside.print(f"Wrote {out}  (in a browser)", markup=False)
