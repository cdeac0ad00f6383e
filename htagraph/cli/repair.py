"""`htagraph repair`: a valid trace out of a broken one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from htagraph.cli import options
from htagraph.cli.console import output, shown_progress
from htagraph.cli.inputs import Source
from htagraph.cli.tables import Format, print_frame
from htagraph.model.progress import begin_stage
from htagraph.readers.kineto.rewriting import repair_kineto
from htagraph.readers.storage import path_of
from htagraph.writers.output_file import output_file


def repair(
    broken: Annotated[
        Path,
        typer.Argument(metavar="IN", parser=path_of, help="Broken trace, or a folder with it."),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Repaired trace: .json, or .json.gz to compress.")
    ],
    *,
    rank: options.Rank = None,
    form: options.Format = Format.TABLE,
    quiet: options.Quiet = False,
) -> None:
    """Make a broken trace valid and list the repairs. Everything else stays byte for byte."""
    file_in = Source.of(broken, rank).file()
    with shown_progress(quiet=quiet):
        begin_stage(f"Repairing {file_in.name}")
        with output_file(out) as file:
            repairs = repair_kineto(file_in, file)
    rows = [(found.kind, found.n, found.first_offset, found.detail) for found in repairs]
    frame = pd.DataFrame(rows, columns=["kind", "n", "first_offset", "detail"])
    console = output()
    if len(frame) or form is not Format.TABLE:
        print_frame(console, frame, form)
    else:
        console.print("Nothing to repair.")
