"""The phase of training that device work belongs to, by the operators around its launch."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np

from htagraph.algorithms.ancestors import nearest
from htagraph.algorithms.gather import gather
from htagraph.lookup.attribution import host_of, under_pattern
from htagraph.model.arrays import I64, Bools, Rows
from htagraph.model.dag import Dag

_EVALUATES = re.compile(r"^autograd::engine::evaluate_function")
_STEPS = re.compile(r"^Optimizer\.step#")


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
    """Phase of each piece of device work, as codes of `Phase`.

    The autograd engine runs without recording gradients, so its operators have no sequence number.
    Those that have one inside of it, and are no functions of the backward pass themselves, run the
    forward pass again: activation checkpointing. Functions of the backward pass carry the thread of
    their forward operator.
    """
    dag = dag.unrolled
    events, host = dag.events, host_of(dag, work)
    is_backward = under_pattern(dag, work, _EVALUATES)
    numbered = nearest(dag.parent, host, events.column("sequence") >= 0)
    answers = gather(events.column("fwd_thread", 0) > 0, numbered, default=False)
    evaluated = events.named(events.symbols.searched(_EVALUATES))
    again = is_backward & (numbered >= 0) & ~answers & ~gather(evaluated, numbered, default=False)
    out = np.full(len(work), int(Phase.NONE), dtype=np.int64)
    if evaluated.any():
        out[host >= 0] = Phase.FORWARD
    out[is_backward] = Phase.BACKWARD
    out[again] = Phase.RECOMPUTED
    began_ns = gather(events.ts_ns, host, 0)
    is_step = under_pattern(dag, work, _STEPS) & ~runs_in_closure(dag, work, began_ns)
    out[is_step] = Phase.OPTIMIZER
    return out


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
        table.is_host & table.named(table.symbols.searched(pattern))
        for pattern in (_STEPS, _EVALUATES)
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
