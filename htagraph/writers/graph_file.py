"""A compiled graph as one file: an uncompressed ``.npz`` of plain arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt

from htagraph.model.archive import pack
from htagraph.model.dag import Dag
from htagraph.model.recording import Origin
from htagraph.writers.output_file import output_file


def write_graph(
    out: str | Path,
    dag: Dag,
    *,
    rank: int = 0,
    origin: Origin | None = None,
    more: Mapping[str, npt.NDArray[Any]] | None = None,
) -> Path:
    """Write a compiled graph.

    Parameters
    ----------
    more : mapping of str to ndarray, optional
        Arrays to store with those of the graph, under other names.
    """
    return write_arrays(out, {**pack(dag, rank=rank, origin=origin), **(more or {})})


def write_arrays(out: str | Path, arrays: Mapping[str, npt.NDArray[Any]]) -> Path:
    """Like ``np.savez``, which before numpy 2.1 may pickle, and leaks handles on a full disk."""
    with output_file(out) as file, ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return Path(out)
