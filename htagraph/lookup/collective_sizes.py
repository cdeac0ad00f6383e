"""Sizes of collectives in bytes, as NCCL's tests define them: of the larger side, on one rank."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.algorithms.ancestors import nearest
from htagraph.lookup.operator_work import call_of
from htagraph.model.arrays import F64, I64, Texts
from htagraph.model.dag import Dag

_NCCL_BYTES = {
    "Char": 1,
    "Byte": 1,
    "Bool": 1,
    "Float8_e4m3fn": 1,
    "Float8_e5m2": 1,
    "Short": 2,
    "Half": 2,
    "BFloat16": 2,
    "Int": 4,
    "Float": 4,
    "Long": 8,
    "Double": 8,
}
"""Bytes of the element types that the metadata of collectives have: `c10::ScalarType`."""
_OF_OUTPUT = "all_gather"
"""The operation whose size is that of its output."""
_BUS_FACTORS = {
    "all_reduce": 2,
    "all_gather": 1,
    "reduce_scatter": 1,
    "all_to_all": 1,
    "gather": 1,
    "scatter": 1,
}
"""Operations in which each link carries this times (n - 1) / n of the size, for n ranks; in all
others, the size. NCCL's tests, `PERFORMANCE.md`."""


class Recorded(NamedTuple):
    """What metadata say of each collective: elements sent and received, -1 for none, and type."""

    n_in: I64
    n_out: I64
    dtype: Texts


def bus_factors(operation: Texts, n_ranks: I64) -> F64:
    """What each link carries of the size of collectives; NaN where the ranks are unknown.

    Examples
    --------
    >>> bus_factors(np.array(["all_reduce", "all_gather", "broadcast"]), np.array([4, 4, 4]))
    array([1.5 , 0.75, 1.  ])
    """
    times = np.array([_BUS_FACTORS.get(str(one), 0) for one in operation], dtype=np.float64)
    ranks = np.where(n_ranks > 0, n_ranks, np.nan)
    return np.where(times > 0, times * (ranks - 1) / ranks, 1.0)


def collective_sizes(dag: Dag, kernels: I64, operation: Texts, recorded: Recorded) -> I64:
    """Bytes of each collective; -1 if not recorded.

    From the metadata; else from the shapes of the operator above the launch, whose tensors are the
    output, and then the input.
    """
    n = np.where(operation == _OF_OUTPUT, recorded.n_out, recorded.n_in)
    width = np.array([_NCCL_BYTES.get(str(one), 0) for one in recorded.dtype], dtype=np.int64)
    sizes = np.where((n >= 0) & (width > 0), n * width, -1)
    unknown = np.flatnonzero(sizes < 0)
    if not len(unknown):
        return sizes
    calls = dag.events.named(dag.events.symbols.searched(r"^c10d::"))
    above = nearest(dag.parent, dag.launch[kernels[unknown]].astype(np.int64), calls)
    for row, event in zip(unknown.tolist(), above.tolist(), strict=True):
        call = call_of(dag, event) if event >= 0 else None
        if call and call.tensors:
            is_output = operation[row] == _OF_OUTPUT
            tensor = call.tensors[0] if is_output else call.tensors[:2][-1]
            sizes[row] = tensor.n_bytes[1]
    return sizes
