"""Collectives of libraries that record nothing: DeepEP, NVSHMEM, custom all-reduces.

Only the names and the order of their kernels are known. Kernels belong together if they are of one
library, on streams that run the same operations of it. A low-latency dispatch or combine is one
kernel, or two of one name: one sends, another receives later::

    one kernel    dispatch  combine  dispatch  combine            each waits for the other ranks
    two halves    dispatch dispatch  combine combine  dispatch …  the second of each pair does

In any other order it is unknown which half a kernel is, and it does not count as a collective.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.model.arrays import I64, Bools, Texts
from htagraph.model.collective_names import (
    LIBRARIES,
    MAY_BE_HALVES,
    NCCL_KERNEL,
    library_operation,
    ranks_in_name,
)
from htagraph.model.dag import Dag


class LibraryCollectives(NamedTuple):
    """What names and order tell about kernels of libraries.

    Parameters
    ----------
    operation : ndarray of shape (n,), dtype=object
        Empty where a kernel is of no library, or its name tells nothing.
    group : ndarray of shape (n,), dtype=object
        Library, number of ranks if the name has it, and role of the stream.
    arrival : ndarray of shape (n,), dtype=int64
        Position of the kernel whose start is the rank's arrival, -1 if unknown.
    meets : ndarray of shape (n,), dtype=bool
        The kernel ends after all others have arrived.
    """

    operation: Texts
    group: Texts
    arrival: I64
    meets: Bools


def _halves(code: I64, position: I64) -> tuple[I64, Bools]:
    """Arrival of each kernel of a role that may be halves, and whether it waits for others."""
    begins = np.flatnonzero(np.diff(code, prepend=-1))
    length = np.diff(begins, append=len(code))
    if (length == 1).all():
        return position, np.ones(len(code), dtype=bool)
    meets = np.zeros(len(code), dtype=bool)
    # A capture may begin or end between two halves: the single one meets no rank.
    if (length[1:-1] != 2).any() or length.max() > 2:
        return np.full(len(code), -1, dtype=np.int64), meets
    arrival, first = position.copy(), begins[length == 2]
    arrival[first + 1] = position[first]
    meets[first + 1] = True
    return arrival, meets


def library_collectives(dag: Dag, kernels: I64) -> LibraryCollectives:
    """Operation, group and halves of communication kernels, in the order of their launches."""
    events, n = dag.events, len(kernels)
    operation, group = np.full(n, "", dtype=object), np.full(n, "", dtype=object)
    arrival = np.arange(n)
    if not n:
        return LibraryCollectives(operation, group, arrival, np.zeros(n, dtype=bool))
    codes, at = np.unique(events.name[kernels], return_inverse=True)
    names = [events.symbols.texts[code] for code in codes.tolist()]
    labels = [_library(name) for name in names]
    known = {
        "label": labels,
        "operation": [
            library_operation(name) if label else ""
            for name, label in zip(names, labels, strict=True)
        ],
        "is_half": [_may_be_half(name) for name in names],
    }
    table = pd.DataFrame(known).iloc[at].reset_index(drop=True)
    table = table.assign(device=events.device[kernels], stream=events.stream[kernels])
    table = table[table["operation"] != ""]
    operation[table.index] = table["operation"]
    meets = operation != ""
    for (label, _, _), part in table.groupby(["label", "device", "stream"], sort=False):
        role = ", ".join(sorted(set(part["operation"])))
        group[part.index] = f"{label} ({role})"
    halves = table[table["is_half"]]
    for _, part in halves.groupby(group[halves.index], sort=False):
        own = part.index.to_numpy(np.int64)
        arrival[own], meets[own] = _halves(pd.factorize(part["operation"])[0], own)
    return LibraryCollectives(operation, group, arrival, meets)


def _library(name: str) -> str:
    """The library of a kernel, with the number of ranks if its name has it; or ""."""
    if NCCL_KERNEL.search(name):
        return ""
    label = next((label for label, regex in LIBRARIES.items() if regex.search(name)), "")
    n_ranks = ranks_in_name(name) if label else 0
    return f"{label} of {n_ranks} ranks" if n_ranks else label


def _may_be_half(name: str) -> bool:
    """Whether a kernel may be one half of a dispatch or combine."""
    is_exchange = library_operation(name) in ("dispatch", "combine")
    return is_exchange and MAY_BE_HALVES.search(name) is not None
