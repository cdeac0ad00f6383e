"""Text files, whole or not at all, and the folders for them."""

from __future__ import annotations

from pathlib import Path

from htagraph.errors import OutputError
from htagraph.writers.atomic import output_file

__all__ = ["new_folder", "write_text"]


def new_folder(folder: Path, *, hint: str = "choose another folder (--out).") -> None:
    """Make a folder for files, unless it is there.

    Parameters
    ----------
    hint : str
        What to do where it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise OutputError(
            f"no folder can be made here: {exc.strerror}.",
            path=folder,
            hint=hint,
        ) from exc


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, whole or not at all.

    What UTF-8 cannot hold, as in the names of files that are not UTF-8, is a question mark.
    """
    with output_file(path) as file:
        file.write(text.encode("utf-8", "replace"))
