"""Answers of any number of rows: printed in part, and written to a file whole."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from htagraph.cli.console import notices, output, print_sentence
from htagraph.cli.tables import Format, csv_text, print_frame
from htagraph.errors import MissingEventsError, OutputError
from htagraph.writers.output_file import output_file

_MAX_ROWS = 40
"""Chosen: rows of a table on the terminal."""

Limit = Annotated[
    int, typer.Option(min=0, help=f"Rows to print at most; of a table, {_MAX_ROWS} by default.")
]
Out = Annotated[
    Path | None, typer.Option(help="Also write the whole table (.csv, .json, .parquet).")
]


def print_rows(
    frame: pd.DataFrame,
    form: Format,
    *,
    headline: str,
    columns: str = "",
    first: Sequence[str] = (),
    limit: int = 0,
    quiet: bool = False,
) -> None:
    """Print the first rows of an answer: of a table not too many, unless a limit is given."""
    console, aside = output(), notices(quiet=quiet)
    shown = frame.head(limit or (_MAX_ROWS if form is Format.TABLE else len(frame)))
    if form is Format.TABLE:
        print_sentence(console, headline, style="bold")
    said = aside if len(frame) else None
    print_frame(console, shown, form, columns=columns, first=first, aside=said)
    if len(shown) < len(frame):
        aside.print(f"{len(shown):,} of {len(frame):,} rows; --format csv or --out gives all.")


def write_rows(frame: pd.DataFrame, out: Path, *, more: str = "") -> None:
    """Write an answer by the ending of the file; `more` names the caller's other endings."""
    content = io.BytesIO()
    match out.suffix:
        case ".csv":
            content.write(csv_text(frame).encode("utf-8", "replace"))
        case ".json":
            frame.to_json(content, orient="records", indent=2)
        case ".parquet":
            try:
                frame.to_parquet(content, index=False)
            except ImportError as exc:
                raise MissingEventsError(
                    "writing Parquet needs pyarrow.", missing="pyarrow", hint="pip install pyarrow."
                ) from exc
        case _:
            raise OutputError(
                f"tables are .csv, .json or .parquet{more}.",
                path=out,
                hint="choose one of these endings.",
            )
    with output_file(out) as file:
        file.write(content.getbuffer())
