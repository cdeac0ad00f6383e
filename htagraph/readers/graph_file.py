"""Reads a compiled graph that was saved; arrays only, nothing in the file is executed."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from htagraph.errors import TraceFormatError
from htagraph.model.archive import unpack
from htagraph.model.dag import Dag
from htagraph.model.recording import Origin

__all__ = ["read_graph"]


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
            return unpack({name: archive[name] for name in archive.files})
    except (
        OSError,
        EOFError,
        KeyError,
        ValueError,
        TypeError,
        IndexError,
        AttributeError,
        zipfile.BadZipFile,
    ) as exc:
        raise TraceFormatError(
            f"not a graph that can be opened: {exc}",
            path=path,
            hint="load the trace, compile it and save it again.",
        ) from exc
