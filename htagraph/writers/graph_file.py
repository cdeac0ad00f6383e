"""A compiled graph as one file: an uncompressed ``.npz`` of plain arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from htagraph.model.archive import pack
from htagraph.model.dag import Dag
from htagraph.model.recording import Origin
from htagraph.writers.atomic import output_file

__all__ = ["write_graph"]


def write_graph(out: str | Path, dag: Dag, *, rank: int = 0, origin: Origin | None = None) -> Path:
    """Write a compiled graph.

    Parameters
    ----------
    out : str or Path
    dag : Dag
    rank : int, default=0
    origin : Origin, optional

    Returns
    -------
    Path
        The file.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    with output_file(out) as file:
        np.savez(file, allow_pickle=False, **pack(dag, rank=rank, origin=origin))
    return Path(out)
