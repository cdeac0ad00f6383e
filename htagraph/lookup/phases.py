"""The phase of training that device work belongs to, by the operators around its launch."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.ancestors import nearest
from htagraph.algorithms.gather import gather
from htagraph.lookup.attribution import host_of, under_pattern
from htagraph.model.dag import Dag

__all__ = ["Phase", "phases"]

I64 = npt.NDArray[np.int64]

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
    out[under_pattern(dag, work, _STEPS)] = Phase.OPTIMIZER
    return out
