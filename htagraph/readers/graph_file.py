"""Reads a compiled graph that was saved; arrays only, nothing in the file is executed."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.errors import TraceFormatError
from htagraph.model.archive import unpack
from htagraph.model.dag import Dag
from htagraph.model.recording import Origin
from htagraph.readers.graph_checks import check_graph

__all__ = ["read_graph"]

_BROKEN = (
    OSError,
    EOFError,
    KeyError,
    ValueError,
    TypeError,
    IndexError,
    AttributeError,
    MemoryError,
    OverflowError,
    RuntimeError,  # encrypted, nested too deep, columns that differ in length
    zipfile.BadZipFile,
)
"""What a file that is no graph, or one that was tampered with, can end in."""


def read_graph(path: str | Path) -> tuple[Dag, int, Origin | None]:
    """A saved graph, its rank, and the file that it was read from.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    tuple of (Dag, int, Origin or None)

    Raises
    ------
    TraceFormatError
        If the file is not there, is no saved graph, or was saved by another version.
    """
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            dag, rank, origin = unpack(_arrays(archive))
        check_graph(dag)
        if type(rank) is not int or (origin and type(origin.base_time_ns) is not int):
            raise ValueError("its rank or its time is no number")
    except _BROKEN as exc:
        raise TraceFormatError(
            f"not a graph that can be opened: {str(exc) or type(exc).__name__}.",
            path=path,
            hint="load the trace, compile it and save it again.",
        ) from exc
    return dag, rank, origin


def _arrays(archive: np.lib.npyio.NpzFile) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an archive, which are as large as the file and not larger."""
    entries = archive.zip.infolist() if archive.zip is not None else []
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ValueError("it is compressed")
    return {name: archive[name] for name in archive.files}
