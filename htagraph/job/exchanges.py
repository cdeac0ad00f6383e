"""Exchanges: what a rank sends and receives in each all-to-all."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.algorithms.ancestors import nearest
from htagraph.lookup.operator_work import call_of
from htagraph.model.dag import Dag
from htagraph.operators.call import Call
from htagraph.queries.collectives import launches_of

_OUTPUT_SPLITS, _INPUT_SPLITS = 3, 4
"""Positions of the split sizes among the arguments of ``c10d::alltoall_base_``."""


_FLOATS = re.compile("Half|BFloat16|Float|Double")
"""Element types of activations, as metadata have them: tokens, not their numbers."""


class Exchange(NamedTuple):
    """What a rank sends and receives in an all-to-all.

    Parameters
    ----------
    event : int
        Event of the collective.
    n_sent, n_received : int
        Rows, or elements where `row_bytes` is that of an element.
    row_bytes : int
    counts_rows : bool
        Rows were recorded, so they are tokens; else elements were.
    is_split : bool
        Sizes for each peer were given, as they differ from call to call.
    """

    event: int
    n_sent: int
    n_received: int
    row_bytes: int
    counts_rows: bool
    is_split: bool


def exchanges_of(dag: Dag, collectives: pd.DataFrame) -> pd.DataFrame:
    """The all-to-alls of a rank whose sizes in both directions were recorded: `Exchange` as rows.

    From the split sizes of the operator above, with ``record_shapes``, else from NCCL's metadata.
    All-to-alls of integers, such as numbers of tokens, are left out.
    """
    chosen = (collectives["operation"] == "all_to_all").to_numpy(dtype=bool)
    events = collectives["event"].to_numpy(np.int64)[chosen]
    named = dag.events.named(dag.events.symbols.searched(r"^c10d::alltoall"))
    above = nearest(dag.parent, launches_of(dag, events), named).tolist()
    calls = [call_of(dag, operator) if operator >= 0 else None for operator in above]
    metadata = [dag.events.column(name)[events].tolist() for name in ("msg_in", "msg_out")]
    rest = (collectives[name][chosen].tolist() for name in ("n_bytes", "dtype"))
    found = (
        _of_call(event, call) if call is not None else _of_metadata(event, *one)
        for event, call, *one in zip(events.tolist(), calls, *metadata, *rest, strict=True)
    )
    return _frame([one for one in found if one is not None])


def no_exchanges() -> pd.DataFrame:
    """The exchanges of a rank without any."""
    return _frame([])


def _frame(found: list[Exchange]) -> pd.DataFrame:
    columns = zip(*found, strict=True) if found else [()] * len(Exchange._fields)
    types = (np.int64, np.int64, np.int64, np.int64, np.bool_, np.bool_)
    return pd.DataFrame(
        {
            name: np.array(values, dtype=kind)
            for name, values, kind in zip(Exchange._fields, columns, types, strict=True)
        }
    )


def _of_metadata(event: int, n_in: int, n_out: int, n_bytes: int, dtype: str) -> Exchange | None:
    """The exchange that NCCL's metadata have; None without sizes, and for integers."""
    if n_in <= 0 or n_out < 0 or n_bytes <= 0 or not _FLOATS.search(dtype):
        return None
    return Exchange(event, n_in, n_out, n_bytes // n_in, counts_rows=False, is_split=False)


def _of_call(event: int, call: Call) -> Exchange | None:
    """The exchange of an operator with an output and an input; None for lists, and for integers."""
    tensors = call.tensors
    if len(tensors) != 2 or not all(one.dims for one in tensors):
        return None
    output, source = tensors
    if not source.dtype.startswith(("fp", "bf")):
        return None
    sent, received = call.integers(_INPUT_SPLITS), call.integers(_OUTPUT_SPLITS)
    widest = max(tensors, key=lambda one: one.n)
    return Exchange(
        event,
        sum(sent) if sent else source.dims[0],
        sum(received) if received else output.dims[0],
        widest.n_bytes[1] // max(widest.dims[0], 1),
        counts_rows=True,
        is_split=bool(sent and received),
    )
