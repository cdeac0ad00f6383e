"""Work grouped by where it ran or was launched: shapes, module, annotation, step, phase."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from htagraph.arrays.ancestors import nearest
from htagraph.arrays.codes import gather
from htagraph.lookup.attribution import host_of, innermost, modules_at, under, under_pattern
from htagraph.lookup.operator_roofs import OperatorWork, call_of, operator_work
from htagraph.lookup.steps import find_steps, step_at
from htagraph.model.arrays import I64, Bools, Rows, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind

EVALUATES = re.compile(r"^autograd::engine::evaluate_function")
_STEPS = re.compile(r"^Optimizer\.step#")
_NEVER = np.iinfo(np.int64).max


class Phase(IntEnum):
    """A phase of training."""

    FORWARD = 0
    RECOMPUTED = 1
    BACKWARD = 2
    OPTIMIZER = 3
    NONE = 4

    @staticmethod
    def labels() -> tuple[str, ...]:
        """Their names, by code; none where there is no backward pass, or no launch."""
        return ("forward", "recomputed forward", "backward", "optimizer", "")


def phases(dag: Dag, work: I64) -> I64:
    """Phase of each piece of device work, as codes of `Phase`."""
    dag = dag.unrolled
    host = host_of(dag, work)
    evaluated = dag.events.searched(EVALUATES)
    out = np.full(len(work), int(Phase.NONE), dtype=np.int64)
    if evaluated.any():
        out[host >= 0] = Phase.FORWARD
    out[under(dag, work, evaluated & dag.events.is_host)] = Phase.BACKWARD
    out[under(dag, work, recomputed(dag)[0])] = Phase.RECOMPUTED
    began_ns = gather(dag.events.ts_ns, host, 0)
    is_step = under_pattern(dag, work, _STEPS) & ~runs_in_closure(dag, work, began_ns)
    out[is_step] = Phase.OPTIMIZER
    return out


def recomputed(dag: Dag) -> tuple[Bools, I64]:
    """Whether each event is a call that runs a part of the forward pass again, and until when.

    Activation checkpointing: a function of the backward pass first recomputes what was not kept.
    The autograd engine runs without recording gradients, and its functions carry the thread of
    their forward operator. Operators with a sequence number of their own inside of it record
    gradients: at least two in a row that are a row elsewhere repeat a forward pass, if something
    that does not record follows: the function itself. Without, gradients of gradients are computed.
    Until then, all calls of the function, and its own time, recompute; of other events it is 0.
    """
    events = dag.events
    is_call, until_ns = np.zeros(len(events), dtype=bool), np.zeros(len(events), dtype=np.int64)
    evaluated = events.searched(EVALUATES) & events.is_host
    if not evaluated.any() or "sequence" not in events.columns:
        return is_call, until_ns
    records = (events.column("sequence") >= 0) & (events.column("fwd_thread", 0) <= 0) & ~evaluated
    records &= events.kind == EventKind.OP
    op = np.flatnonzero((events.kind == EventKind.OP) & ~evaluated)
    parent = dag.parent[op].astype(np.int64)
    order = np.lexsort((events.ts_ns[op], parent, events.lane[op]))
    op, parent = op[order], parent[order]
    backward = nearest(dag.parent, op, evaluated) >= 0
    asks = backward & records[op] & ~gather(records, parent, default=True)
    if not asks.any():
        return is_call, until_ns
    row = (parent[1:] == parent[:-1]) & (events.lane[op[1:]] == events.lane[op[:-1]])
    pair = events.name[op[:-1]].astype(np.int64) * len(events.symbols) + events.name[op[1:]]
    repeats = row & asks[1:] & asks[:-1] & np.isin(pair, pair[row & ~backward[1:]])
    again = op[np.append(repeats, False) | np.append(False, repeats)]
    np.maximum.at(until_ns, dag.parent[again], events.end_ns[again])
    inside = np.flatnonzero(events.is_host & (gather(until_ns, dag.parent, 0) > 0))
    begins, caller = events.ts_ns[inside], dag.parent[inside]
    after = ~records[inside] & (events.kind[inside] == EventKind.OP) & (begins >= until_ns[caller])
    next_ns = np.full(len(events), _NEVER)
    np.minimum.at(next_ns, caller[after], begins[after])
    until_ns = np.where((until_ns > 0) & (next_ns < _NEVER), next_ns, 0)
    is_call[inside] = begins < until_ns[caller]
    return is_call, until_ns


def runs_in_closure(dag: Dag, events: Rows, at_ns: I64) -> Bools:
    """Whether each event runs in a closure that the optimizer calls: forward and backward.

    Lightning calls ``optimizer.step(closure)``, so all of a training step is inside of it. The
    closure lasts until the last operator that records gradients, as those of most optimizers do
    not, and until the last backward pass has ended. A pass of another thread counts only if the
    step has such operators: else that thread trains a model of its own. If no step of the trace has
    a backward pass, there are no closures.
    """
    table = dag.events
    is_step, evaluated = (
        table.is_host & table.searched(pattern) for pattern in (_STEPS, EVALUATES)
    )
    until_ns = np.zeros(len(table), dtype=np.int64)
    own = np.flatnonzero(table.is_host & (evaluated | (table.column("sequence") >= 0)))
    step = nearest(dag.parent, own, is_step)
    np.maximum.at(until_ns, step[step >= 0], table.end_ns[own[step >= 0]])
    if not until_ns.any():
        return np.zeros(len(events), dtype=bool)
    called = np.flatnonzero(until_ns)
    called = called[np.argsort(table.ts_ns[called], kind="stable")]
    backward = np.flatnonzero(evaluated)
    began_ns, ended_ns = table.ts_ns[backward], table.end_ns[backward]
    row = np.searchsorted(table.ts_ns[called], began_ns, side="right") - 1
    around = called[np.maximum(row, 0)]
    inside = (row >= 0) & (ended_ns <= table.end_ns[around])
    if not inside.any():
        return np.zeros(len(events), dtype=bool)
    np.maximum.at(until_ns, around[inside], ended_ns[inside])
    caller = nearest(dag.parent, host_of(dag, events), is_step)
    found: Bools = at_ns < gather(until_ns, caller, 0)
    return found


ComparedBy = Literal["name", "shape", "module", "annotation", "phase"]
"""Groups that two runs have in common."""

_OF_A_LIBRARY = re.compile(
    r"(?i)cudnn|miopen|mkldnn|^aiter::|^flash_attn|(flash|efficient|fused)_?attention"
    r"|attention_math"
)
"""Operators that PyTorch chooses by device and type; their caller is the same everywhere. Pinned by
test_differences.
"""


class Groups(NamedTuple):
    """The group of each event, and what the groups are called; "" for none."""

    code: I64
    names: Texts


def named(dag: Dag, events: I64) -> Groups:
    """By the name of an event of `Dag.unrolled`, -1 for none."""
    dag = dag.unrolled
    code = gather(dag.events.name, events, len(dag.events.symbols)).astype(np.int64)
    return Groups(code, np.append(dag.events.symbols.array, ""))


def by_shape_of(dag: Dag, operator: I64, *, typed: bool = True) -> Groups:
    """By an operator of `Dag.unrolled` and the shapes and types of its inputs, -1 for none."""
    dag = dag.unrolled
    known = np.unique(operator[operator >= 0])
    kind, _ = pd.factorize(dag.events.name[known])
    for column in ("arg_dims", "arg_types"):
        inputs = dag.events.column(column)[known]
        kind, _ = pd.factorize(kind * (inputs.max(initial=0) + 2) + inputs + 1)
    _, first = np.unique(kind, return_index=True)
    calls = (call_of(dag, one) for one in known[first].tolist())
    labels = [
        (call.label if typed else call.untyped_label) if call else name
        for call, name in zip(calls, dag.events.names(known[first]), strict=True)
    ]
    code = np.full(len(dag.events), len(labels), dtype=np.int64)
    code[known] = kind
    # Shapes that differ only outside tensors have one label.
    one, text = pd.factorize(np.array([*labels, ""], dtype=object))
    return Groups(one[gather(code, operator, len(labels))].astype(np.int64), np.asarray(text))


def operators_of(dag: Dag, work: I64, joined: OperatorWork) -> I64:
    """The operator of each piece of work: with a model, else the innermost; -1 for none."""
    event = gather(joined.event, joined.call)
    return np.where(event >= 0, event, innermost(dag.unrolled, work, (EventKind.OP,)))


def by_shape(dag: Dag, work: I64, joined: OperatorWork) -> Groups:
    """Device work by operator, preferably one with a model, and the shapes of its inputs."""
    return by_shape_of(dag, operators_of(dag, work, joined))


def work_of_shape(dag: Dag, label: str) -> Bools:
    """Whether each event is device work of the operator and shapes that a group is called by."""
    work = np.flatnonzero(dag.events.is_device)
    groups = by_shape(dag, work, operator_work(dag, work))
    found = np.zeros(len(dag.events), dtype=bool)
    found[work] = np.equal(groups.names, label)[groups.code]
    return found


def _by_common_shape(dag: Dag, work: I64) -> Groups:
    """By shapes without types, of the innermost operator that does not name a library."""
    dag = dag.unrolled
    of_library = dag.events.searched(_OF_A_LIBRARY)
    common = nearest(
        dag.parent, host_of(dag, work), (dag.events.kind == EventKind.OP) & ~of_library
    )
    own = innermost(dag, work, (EventKind.OP,))
    return by_shape_of(dag, np.where(common >= 0, common, own), typed=False)


def _by_step(dag: Dag, work: I64) -> Groups:
    steps = find_steps(dag.events)
    at = step_at(steps, gather(dag.events.ts_ns, host_of(dag, work), -1))
    names = np.append(steps["name"].to_numpy(object), "")
    return Groups(np.where(at >= 0, at, len(names) - 1), names)


BY_LAUNCH: Mapping[str, Callable[[Dag, I64], Groups]] = {
    "shape": lambda dag, work: by_shape_of(dag, innermost(dag.unrolled, work, (EventKind.OP,))),
    "module": lambda dag, work: named(dag, modules_at(dag.unrolled, host_of(dag.unrolled, work))),
    "annotation": lambda dag, work: named(dag, innermost(dag, work, (EventKind.ANNOTATION,))),
    "step": _by_step,
    "phase": lambda dag, work: Groups(phases(dag, work), np.array(Phase.labels(), dtype=object)),
}
"""Per way to group: the groups of device work, or of host events."""

COMPARED_BY: Mapping[str, Callable[[Dag, I64], Groups]] = {
    "shape": _by_common_shape,
    **{by: BY_LAUNCH[by] for by in ("module", "annotation", "phase")},
}
"""The same for two runs, on other devices or in other precisions."""
