"""Device work joined with the operator calls that have a model, and what those have to do."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from htagraph.algorithms.ancestors import nearest
from htagraph.algorithms.gather import gather
from htagraph.lookup.attribution import host_of
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.events import LIST_COLUMNS
from htagraph.model.kinds import EventKind
from htagraph.operators.call import Call, Lengths
from htagraph.operators.paged_attention import PAGED
from htagraph.operators.work import Work, registered, work_of

_SUMS = r"\(sq(\d{1,9})sk(\d{1,9})sqsq(\d{1,17})sqsk(\d{1,17})\)"
_LENGTHS = re.compile(rf"_context_\d+{_SUMS}_generation_\d+{_SUMS}")
"""Name of the range around a step of vLLM or SGLang: sums over prompts, and over decoded tokens."""

_BETWEEN_HOST_AND_DEVICE = r"(?i)memcpy (HtoD|DtoH|host to device|device to host)"


class OperatorWork(NamedTuple):
    """Calls with a model, and the device work that belongs to each.

    Parameters
    ----------
    call : ndarray of shape (n_work,), dtype=int64
        For each piece of device work, the row of its call below; -1 for work without a model.
    event : ndarray of shape (n_calls,), dtype=int64
        The operator of each call, an event of `Dag.unrolled`: each replay of a graph calls the
        operators of its capture again.
    kind : ndarray of shape (n_calls,), dtype=int64
        Row of `works`: calls of one operator with the same inputs are of one kind.
    host_bytes : ndarray of shape (n_calls,), dtype=int64
        Bytes of its copies between host and device, if its work is nothing else: the link between
        them is the limit. -1 for all other calls.
    """

    call: I64
    event: I64
    kind: I64
    works: tuple[Work, ...]
    host_bytes: I64

    def of_calls(self, field: str) -> npt.NDArray[Any]:
        """A field of `Work` for each call."""
        return np.array([getattr(work, field) for work in self.works])[self.kind]


def call_of(dag: Dag, event: int) -> Call | None:
    """The inputs of an operator as recorded; None if its shapes were not.

    Parameters
    ----------
    event : int
        Of `Dag.unrolled`.
    """
    events, lists = dag.unrolled.events, list[list[Any]]()
    for name in LIST_COLUMNS:
        column = events.columns.get(name)
        at = np.searchsorted(column.event, event) if column else 0
        found = column is not None and at < len(column.event) and column.event[at] == event
        lists.append(_decoded(events.lists.texts[column.value[at]]) if column and found else [])
    dims, types, strides, values = lists
    if not types:
        return None
    return Call(events.symbols.texts[events.name[event]], dims, types, strides, values)


def _decoded(text: str) -> list[Any]:
    """A list as the file has it."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return []
    return found if isinstance(found, list) else []


def operator_work(dag: Dag, work: I64) -> OperatorWork:
    """Join device work with the innermost operator around its launch that has a model.

    All kernels of a call belong to it: parts of a split product, fills, changes of layout. A
    wrapper whose inner operator has a model of the same family has none itself. Operators of a
    capture are called once in each replay.
    """
    recorded_launch, n_recorded = dag.launch[work].astype(np.int64), len(dag.events)
    recorded_dag, dag = dag, dag.unrolled
    events = dag.events
    modelled = np.array([registered(name) is not None for name in events.symbols.texts], dtype=bool)
    is_modelled = (events.kind == EventKind.OP) & modelled[events.name]
    recorded = np.zeros(len(events), dtype=bool)
    if (types := events.columns.get("arg_types")) is not None:
        recorded[types.event] = True
    is_modelled &= recorded
    owner = nearest(dag.parent, host_of(dag, work), is_modelled)
    replay = np.where(owner >= n_recorded, 1 + recorded_launch, 0)
    keys, call = np.unique(replay * (len(events) + 1) + owner + 1, return_inverse=True)
    event = keys % (len(events) + 1) - 1
    has_call = event >= 0
    launch = keys // (len(events) + 1) - 1
    step = _steps(recorded_dag, np.where(launch >= 0, launch, event)[has_call])
    kind, works = _kinds(dag, event[has_call], step)
    families = np.array([work.family if work else -1 for work in works] + [-1])
    of_event = np.full(len(events), -1, dtype=np.int64)
    of_event[event[has_call]] = families[kind]
    # A wrapper of the same family would count the work of its inner operator again.
    outer = nearest(dag.parent, dag.parent[event[has_call]].astype(np.int64), of_event >= 0)
    is_again = np.zeros(len(events), dtype=bool)
    same = (outer >= 0) & (gather(of_event, outer) == families[kind])
    is_again[outer[same]] = True
    good = (families[kind] >= 0) & ~is_again[event[has_call]]
    number = np.full(len(event), -1, dtype=np.int64)
    number[np.flatnonzero(has_call)[good]] = np.arange(good.sum())
    known = np.flatnonzero(families[:-1] >= 0)
    place = np.full(len(works) + 1, -1, dtype=np.int64)
    place[known] = np.arange(len(known))
    of_work = number[call.reshape(-1)]
    is_copy = events.named(events.symbols.searched(_BETWEEN_HOST_AND_DEVICE))[work]
    n_calls, joined = int(good.sum()), of_work >= 0
    n_others = np.bincount(of_work[joined & ~is_copy], minlength=n_calls)
    n_bytes = np.maximum(events.column("bytes")[work], 0)
    copied = np.bincount(of_work[joined], weights=n_bytes[joined], minlength=n_calls)
    return OperatorWork(
        of_work,
        event[has_call][good],
        place[kind[good]],
        tuple(work for work in works if work is not None),
        np.where(n_others == 0, copied, -1).astype(np.int64),
    )


def _steps(dag: Dag, calls: I64) -> I64:
    """Name of the step of a serving engine around each call, -1 for none with lengths."""
    events = dag.events
    named = events.named(events.symbols.searched(_LENGTHS)) & (events.kind == EventKind.ANNOTATION)
    if not named.any():
        return np.full(len(calls), -1, dtype=np.int64)
    return gather(events.name.astype(np.int64), nearest(dag.parent, calls, named))


def _lengths(dag: Dag, step: int) -> Lengths | None:
    """The summed lengths of a step."""
    found = _LENGTHS.search(dag.events.symbols.texts[step]) if step >= 0 else None
    sums = [int(one) for one in found.groups()] if found else []
    return Lengths(*(a + b for a, b in zip(sums[:4], sums[4:], strict=True))) if sums else None


def _kinds(dag: Dag, calls: I64, step: I64) -> tuple[I64, list[Work | None]]:
    """The kind of each call, by operator and inputs, and what a call of each kind has to do.

    Attention with pages has the lengths of its step.
    """
    events = dag.events
    is_paged = events.named(events.symbols.mask(PAGED.__contains__))[calls]
    step = np.where(is_paged, step, -1)
    columns = [events.name[calls].astype(np.int64), step]
    for name in LIST_COLUMNS:
        column = events.columns.get(name)
        values = np.full(len(calls), -1, dtype=np.int64)
        if column is not None and len(column.event):
            at = np.minimum(np.searchsorted(column.event, calls), len(column.event) - 1)
            found = column.event[at] == calls
            values[found] = column.value[at[found]]
        columns.append(values)
    _, first, kind = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
    works: list[Work | None] = []
    for row in first.tolist():
        call = call_of(dag, int(calls[row]))
        if call and step[row] >= 0:
            call = replace(call, lengths=_lengths(dag, int(step[row])))
        works.append(work_of(call) if call else None)
    return kind.reshape(-1).astype(np.int64), works
