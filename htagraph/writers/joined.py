"""One file of several parts: written one after the other, whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from htagraph.model.progress import counted
from htagraph.writers.atomic import output_file

__all__ = ["write_joined"]


def write_joined(out: str | Path, parts: Iterable[Callable[[Path], object]]) -> Path:
    """Write a file as the concatenation of its parts.

    Parameters
    ----------
    out : str or Path
        Compressed where it ends in ``.gz``.
    parts : iterable of callable
        Each writes one part to the file that it is given; that lies beside `out` until it is
        joined.
    """
    target = Path(out)
    with (
        output_file(target) as file,
        tempfile.TemporaryDirectory(dir=target.parent, prefix=".htagraph-") as folder,
    ):
        part = Path(folder) / "part.pftrace"
        for write in counted("part", list(parts)):
            write(part)
            with part.open("rb") as source:
                shutil.copyfileobj(source, file)
    return target
