"""Work grouped by where it ran or was launched: shapes, module, annotation, step, phase."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from htagraph.algorithms.ancestors import nearest
from htagraph.algorithms.gather import gather
from htagraph.lookup.attribution import host_of, innermost
from htagraph.lookup.naming import modules_at
from htagraph.lookup.operator_work import OperatorWork, call_of, operator_work
from htagraph.lookup.phases import Phase, phases
from htagraph.lookup.steps import find_steps, step_at
from htagraph.model.arrays import I64, Bools, Texts
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind

ComparedBy = Literal["name", "shape", "module", "annotation", "phase"]
"""Groups that two runs have in common."""

_OF_A_LIBRARY = re.compile(
    r"(?i)cudnn|miopen|mkldnn|^aiter::|^flash_attn|(flash|efficient|fused)_?attention"
    r"|attention_math"
)
"""Operators that PyTorch chooses by device and type; their caller is the same everywhere.

Pinned by `test_differences.py::test_two_vendors_compare_by_the_operator_that_both_call`.
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


def _by_shape(dag: Dag, work: I64) -> Groups:
    return by_shape_of(dag, innermost(dag.unrolled, work, (EventKind.OP,)))


def _by_common_shape(dag: Dag, work: I64) -> Groups:
    """By shapes without types, of the innermost operator that does not name a library."""
    dag = dag.unrolled
    of_library = dag.events.named(dag.events.symbols.searched(_OF_A_LIBRARY))
    common = nearest(
        dag.parent, host_of(dag, work), (dag.events.kind == EventKind.OP) & ~of_library
    )
    own = innermost(dag, work, (EventKind.OP,))
    return by_shape_of(dag, np.where(common >= 0, common, own), typed=False)


def _by_module(dag: Dag, work: I64) -> Groups:
    return named(dag, modules_at(dag.unrolled, host_of(dag.unrolled, work)))


def _by_annotation(dag: Dag, work: I64) -> Groups:
    return named(dag, innermost(dag, work, (EventKind.ANNOTATION,)))


def _by_step(dag: Dag, work: I64) -> Groups:
    steps = find_steps(dag.events)
    at = step_at(steps, gather(dag.events.ts_ns, host_of(dag, work), -1))
    names = np.append(steps["name"].to_numpy(object), "")
    return Groups(np.where(at >= 0, at, len(names) - 1), names)


def _by_phase(dag: Dag, work: I64) -> Groups:
    return Groups(phases(dag, work), np.array(Phase.labels(), dtype=object))


BY_LAUNCH: Mapping[str, Callable[[Dag, I64], Groups]] = {
    "shape": _by_shape,
    "module": _by_module,
    "annotation": _by_annotation,
    "step": _by_step,
    "phase": _by_phase,
}
"""Per way to group: the groups of device work, or of host events."""

COMPARED_BY: Mapping[str, Callable[[Dag, I64], Groups]] = {
    "shape": _by_common_shape,
    "module": _by_module,
    "annotation": _by_annotation,
    "phase": _by_phase,
}
"""The same for two runs, on other devices or in other precisions."""
