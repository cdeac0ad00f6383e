"""The change that makes operators run at the roof of their device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from htagraph.algorithms.gather import gather
from htagraph.errors import QueryError
from htagraph.lookup.operator_roofs import OperatorRoofs, operator_roofs
from htagraph.lookup.work_groups import work_of_shape
from htagraph.model.arrays import F64, Bools
from htagraph.model.dag import Dag
from htagraph.replay.changes import Change, written
from htagraph.replay.draft import Draft, Events, Parts

_SHAPED = "["
"""What the name of an operator with its shapes has: ``aten::mm 2x bf16[64, 64]``."""


def spared_shares(dag: Dag, efficiency: float = 1.0) -> F64:
    """Share of the time of each event that its operator does not need; 0 where that is unknown."""
    return _spared(dag, lambda roofs: roofs.roof_ns / efficiency)


def _spared(dag: Dag, needed_ns: Callable[[OperatorRoofs], F64]) -> F64:
    """Share of the time of each event that its operator spares, if it takes as long as needed."""
    work = np.flatnonzero(dag.events.is_device)
    roofs = operator_roofs(dag, work, dag.events.dur_ns[work])
    out = np.zeros(len(dag.events))
    if roofs.has_peaks:
        spared = 1 - needed_ns(roofs) / np.maximum(roofs.device_ns, 1)
        out[work] = np.maximum(gather(spared, roofs.work.call, 0.0), 0.0)
    return out


@dataclass(frozen=True)
class AtRoof(Change):
    """Operators with a model take the least time that their device needs."""

    is_most: ClassVar[bool] = True

    chosen: Events | None
    efficiency: float

    def apply(self, draft: Draft) -> None:
        """Scale device work; other work keeps its time."""
        spared = spared_shares(draft.dag, self.efficiency)
        if self.chosen is not None:
            spared[~self._work(draft)] = 0.0
        if not spared.any():
            hint = "the question roofline lists operators that have one."
            raise QueryError(f"{self}: no such work is above a known roof.", hint=hint)
        draft.scale(Parts.of(gather(spared, draft.replay.owner, 0.0)), 0.0)

    def _work(self, draft: Draft) -> Bools:
        """Whether each event is chosen: by an operator with its shapes, or as all changes do."""
        if isinstance(self.chosen, str) and _SHAPED in self.chosen:
            found = draft.once(self, partial(work_of_shape, draft.dag, self.chosen))
            if found.any():
                return found
        assert self.chosen is not None
        return draft.launched(draft.events(self.chosen))

    def __str__(self) -> str:
        """Write it."""
        chosen = [] if self.chosen is None else [written(self.chosen)]
        more = [] if self.efficiency == 1 else [f"efficiency={self.efficiency:g}"]
        return f"at_roof({', '.join(chosen + more)})"


def at_roof(chosen: Events | None = None, *, efficiency: float = 1.0) -> AtRoof:
    """Change: operators take the least time that the device needs for their work.

    The roof is that of `TraceGraph.roofline`. Work without a model keeps its time.

    Parameters
    ----------
    chosen : str, re.Pattern or Selection, optional
        Kernels, or operators with all that they launch; an operator with its shapes, as
        `TraceGraph.speed_of_light` names it. Default: all.
    efficiency : float, default=1.0
        Share of the roof that is reached, above 0 and at most 1.

    Returns
    -------
    AtRoof

    Raises
    ------
    QueryError
        If the efficiency is out of range.
    """
    if not 0 < efficiency <= 1:
        raise QueryError(f"at_roof: efficiency must be above 0 and at most 1, not {efficiency}.")
    return AtRoof(chosen, efficiency)


@dataclass(frozen=True)
class AllowTf32(Change):
    """Products that run in FP32, as TF32 is not allowed, run on tensor cores."""

    is_most: ClassVar[bool] = True

    def apply(self, draft: Draft) -> None:
        """Scale their device work."""
        spared = _spared(draft.dag, lambda roofs: roofs.tf32_ns)
        if not spared.any():
            hint = "the question roofline has the limit of each operator."
            raise QueryError(f"{self}: no product runs in FP32 where TF32 is faster.", hint=hint)
        draft.scale(Parts.of(gather(spared, draft.replay.owner, 0.0)), 0.0)

    def __str__(self) -> str:
        """Write it."""
        return "allow_tf32()"


def allow_tf32() -> AllowTf32:
    """Change: products of fp32 run as TF32, at the same share of its peak.

    Of matrix products or convolutions none of which runs on tensor cores yet, as the names of their
    kernels say. No faster than memory allows. Results are rounded: 10 bits of mantissa.

    Returns
    -------
    AllowTf32
    """
    return AllowTf32()
