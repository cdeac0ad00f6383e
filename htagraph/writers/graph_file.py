"""A compiled graph as one file: an uncompressed ``.npz`` of plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
import numpy.typing as npt

from htagraph.writers.output_file import output_file


def write_arrays(
    out: str | Path,
    arrays: Mapping[str, npt.NDArray[Any]],
    *,
    seal: Callable[[Sequence[ZipInfo]], bytes] | None = None,
) -> Path:
    """Like ``np.savez``, which before numpy 2.1 may pickle, and leaks handles on a full disk.

    `seal`: what marks a file in a folder that is shared, by its members.
    """
    with output_file(out, is_shared=seal is not None) as file, ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        archive.comment = seal(archive.infolist()) if seal else b""
    return Path(out)
