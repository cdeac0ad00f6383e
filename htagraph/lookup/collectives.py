"""Collectives: their sizes, those of libraries that record nothing, readiness, and the host's own.

Of DeepEP, NVSHMEM and custom all-reduces, only the names and the order of kernels are known. They
belong together if they are of one library, on streams that run the same operations of it. A
low-latency dispatch or combine is one kernel, or two of one name: one sends, another receives::

    one kernel    dispatch  combine  dispatch  combine            each waits for the other ranks
    two halves    dispatch dispatch  combine combine  dispatch …  the second of each pair does

In any other order it is unknown which half a kernel is, and it does not count as a collective.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.ancestors import nearest
from htagraph.arrays.binding import origins
from htagraph.arrays.codes import gather
from htagraph.lookup.operator_roofs import call_of
from htagraph.model.arrays import F64, I32, I64, Bools, Texts
from htagraph.model.collective_names import (
    HOST_CALL,
    HOST_COLLECTIVE,
    LIBRARIES,
    MAY_BE_HALVES,
    NCCL_KERNEL,
    library_operation,
    ranks_in_name,
)
from htagraph.model.dag import Dag
from htagraph.model.kinds import HOST_KINDS, among
from htagraph.model.rules import Rule

_NCCL_TYPES = {1: "Char Byte Bool Float8_e4m3fn Float8_e5m2", 2: "Short Half BFloat16"}
_NCCL_TYPES |= {4: "Int Float", 8: "Long Double"}
_NCCL_BYTES = {one: n for n, names in _NCCL_TYPES.items() for one in names.split()}
"""Bytes of the element types that the metadata of collectives have: `c10::ScalarType`."""
_OF_OUTPUT = "all_gather"
"""The operation whose size is that of its output."""
_BUS_FACTORS = dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"), 1)
_BUS_FACTORS |= {"all_reduce": 2}
"""Operations in which each link carries this times (n - 1) / n of the size, for n ranks; in all
others, the size. NCCL's tests, `PERFORMANCE.md`."""


def bus_factors(operation: Texts, n_ranks: I64) -> F64:
    """What each link carries of the size of collectives; NaN where the ranks are unknown."""
    times = np.array([_BUS_FACTORS.get(str(one), 0) for one in operation], dtype=np.float64)
    ranks = np.where(n_ranks > 0, n_ranks, np.nan)
    return np.where(times > 0, times * (ranks - 1) / ranks, 1.0)


def collective_sizes(
    dag: Dag, kernels: I64, operation: Texts, recorded: tuple[I64, I64, Texts]
) -> I64:
    """Bytes of each collective as NCCL's tests define them: of the larger side, on one rank.

    From metadata: elements sent and received, -1 for none, and their type. Else from the shapes of
    the operator above the launch, whose tensors are the output, and then the input. -1 if neither
    is recorded.
    """
    n_in, n_out, dtype = recorded
    n = np.where(operation == _OF_OUTPUT, n_out, n_in)
    width = np.array([_NCCL_BYTES.get(str(one), 0) for one in dtype], dtype=np.int64)
    sizes = np.where((n >= 0) & (width > 0), n * width, -1)
    unknown = np.flatnonzero(sizes < 0)
    if not len(unknown):
        return sizes
    calls = dag.events.searched(r"^c10d::")
    above = nearest(dag.parent, dag.launch[kernels[unknown]].astype(np.int64), calls)
    for row, event in zip(unknown.tolist(), above.tolist(), strict=True):
        call = call_of(dag, event) if event >= 0 else None
        if call and call.tensors:
            is_output = operation[row] == _OF_OUTPUT
            tensor = call.tensors[0] if is_output else call.tensors[:2][-1]
            sizes[row] = tensor.n_bytes[1]
    return sizes


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


def library_collectives(dag: Dag, kernels: I64) -> tuple[Texts, Texts, I64, Bools]:
    """What names and order tell about communication kernels, in the order of their launches.

    The operation: empty where a kernel is of no library, or its name tells nothing. The group:
    library, number of ranks if the name has it, role of the stream. Position of the kernel whose
    start is the rank's arrival, -1 if unknown. Whether it ends after all others have arrived.
    """
    events, n = dag.events, len(kernels)
    operation, group = np.full(n, "", dtype=object), np.full(n, "", dtype=object)
    arrival = np.arange(n)
    if not n:
        return operation, group, arrival, np.zeros(n, dtype=bool)
    codes, at = np.unique(events.name[kernels], return_inverse=True)
    names = [events.symbols.texts[code] for code in codes.tolist()]
    labels = [_library(name) for name in names]
    operations = [library_operation(name) for name in names]
    # A kernel may be one half of a dispatch or combine.
    is_half = [
        done in ("dispatch", "combine") and MAY_BE_HALVES.search(name) is not None
        for name, done in zip(names, operations, strict=True)
    ]
    done = [one if label else "" for one, label in zip(operations, labels, strict=True)]
    known = {"label": labels, "operation": done, "is_half": is_half}
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
    return operation, group, arrival, meets


def _library(name: str) -> str:
    """The library of a kernel, with the number of ranks if its name has it; or ""."""
    if NCCL_KERNEL.search(name):
        return ""
    label = next((label for label, regex in LIBRARIES.items() if regex.search(name)), "")
    n_ranks = ranks_in_name(name) if label else 0
    return f"{label} of {n_ranks} ranks" if n_ranks else label


_EVER = np.iinfo(np.int64).min


class Readiness(NamedTuple):
    """Since when each collective was ready, and what it waited for until then."""

    ready_ns: I64  # On the rank's clock
    # Node at that time: the end of what the collective or one before it needs, or a launch; its own
    # start where nothing else is recorded
    ready_node: I64
    # Position of the collective that `first_anchor` finds for that node, -1 for none
    ready_after: I64


def first_anchor(dag: Dag, kernels: I64) -> I32:
    """End of the collective that the walk back from each node meets first, -1 for none.

    The walk follows binding edges; an end meets itself. What happens after the end of a collective
    depends on its rank alone, so a job's path is cut at these ends.
    """
    is_anchor = np.zeros(2 * len(dag.events), dtype=bool)
    is_anchor[2 * kernels + 1] = True
    return origins(dag.order, dag.binding, dag.edges.tail, is_anchor)


def readiness(dag: Dag, kernels: I64) -> Readiness:
    """Since when each collective of a rank was ready, whatever other collectives did.

    Collectives queue up on a stream of their own. One that waits for a late rank delays the next,
    while compute continues: the start of the next says little about its own rank. `kernels`:
    kernels of collectives, or their ranges on the host.
    """
    place = np.full(len(dag.events), -1, dtype=np.int64)
    place[kernels] = np.arange(len(kernels))
    edges = dag.edges
    into = np.flatnonzero((edges.head % 2 == 0) & (place[edges.head >> 1] >= 0))
    into = into[np.argsort(dag.arrival_ns[into], kind="stable")]
    behind = (edges.tail[into] % 2 == 1) & (place[edges.tail[into] >> 1] >= 0)
    held_up, needed = into[behind], into[~behind]
    before = np.full(len(kernels), -1, dtype=np.int64)
    before[place[edges.head[held_up] >> 1]] = place[edges.tail[held_up] >> 1]
    node = np.full(len(kernels), -1, dtype=np.int64)
    node[place[edges.head[needed] >> 1]] = edges.tail[needed]  # of several, the latest one stays
    times = dag.events.node_ts_ns
    while (rows := np.flatnonzero(before >= 0)).size:  # twice as far each time
        ahead = node[before[rows]]
        is_later = gather(times, ahead, _EVER) > gather(times, node[rows], _EVER)
        node[rows] = np.where(is_later, ahead, node[rows])
        before[rows] = before[before[rows]]
    node = np.where(node >= 0, node, 2 * kernels)
    after = gather(place, first_anchor(dag, kernels)[node] >> 1)
    return Readiness(times[node], node, after)


def host_ranges(dag: Dag) -> I64:
    """Host ranges that last as long as a collective, ascending."""
    named = dag.events.searched(HOST_COLLECTIVE)
    return np.flatnonzero(named & among(dag.events.kind, HOST_KINDS))


def host_collectives(dag: Dag) -> I64:
    """Host events of collectives, ascending: a call replaces the range in it."""
    ranges, calls = host_ranges(dag), dag.events.searched(HOST_CALL)
    around = dag.parent[ranges]
    by_call = (around >= 0) & calls[around]
    return np.union1d(ranges[~by_call], around[by_call]).astype(np.int64)


def given_ranges(dag: Dag, ranges: I64) -> tuple[I64, I64]:
    """The ranges that a worker thread runs for a caller, and the call of each."""
    edges = dag.edges
    begins = (edges.rule == Rule.HANDOFF) & (edges.tail % 2 == 0)
    rows = np.flatnonzero(begins)
    rows = rows[np.isin(edges.head[rows], 2 * ranges)]
    return (edges.head[rows] >> 1).astype(np.int64), (edges.tail[rows] >> 1).astype(np.int64)
