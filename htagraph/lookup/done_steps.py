"""Done steps: the steps of a run, each from when the one before was done until it is done.

A step is done when its host range has ended and all device work launched in it or before is done.
Its host range alone is not enough: if nothing waits for the device, the host runs ahead, and its
ranges say nothing about the device. Done steps follow each other without gap or overlap, so their
mean is the time per step, and the critical path can be cut at them.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.lookup.steady_steps import (
    FEWEST_ALIKE,
    MOST_KINDS,
    SteadySteps,
    are_near,
    steady_steps,
)
from htagraph.lookup.steps import last_begun
from htagraph.model.arrays import I64, Bools, Texts
from htagraph.model.dag import Dag
from htagraph.model.units import human_count
from htagraph.model.window import Window

_FEWEST = 2
"""Steps of a default window: one step says nothing of what it is like in the middle of others.
Chosen. Pinned by test_default_window.
"""

_HALF = 0.5
"""Share of a window that steps must take to be judged in its place. Chosen: most of a run is never
left out. Pinned by test_default_window.
"""

_BEFORE = np.iinfo(np.int64).min
"""Launch time of work from before the profile."""


class DoneSteps(NamedTuple):
    """Steps of a rank or of a job, each from when the one before was done; all arrays by step."""

    names: Texts
    start_ns: I64
    end_ns: I64
    kind: I64  # What each does, as `SteadySteps.kind`
    anchor: I64  # Node with which each is done, if that is the end of its host range; else -1

    @classmethod
    def none(cls) -> Self:
        """No steps."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing.astype(object), nothing, nothing, nothing, nothing)

    def since(self, place: int) -> Self:
        """The steps from one on."""
        times = self.start_ns[place:], self.end_ns[place:]
        return type(self)(self.names[place:], *times, self.kind[place:], self.anchor[place:])

    @property
    def frame(self) -> pd.DataFrame:
        """``name``, ``start_ns`` and ``dur_ns``."""
        columns = {"name": self.names, "start_ns": self.start_ns, "dur_ns": self.lengths_ns}
        return pd.DataFrame(columns)

    @property
    def lengths_ns(self) -> I64:
        """Length of each."""
        return self.end_ns - self.start_ns

    def inside(self, start_ns: int, end_ns: int) -> Bools:
        """Steps that are done within a window, from their start on."""
        within = (self.start_ns >= start_ns) & (self.end_ns <= end_ns)
        return np.asarray(within & (self.end_ns > self.start_ns))

    def of_window(self, start_ns: int, end_ns: int) -> slice | None:
        """The steps that stand for a window: at least two whole ones, of at least half of it.

        Without the first of the trace, up to a typical one, if three typical ones remain: without
        the first one only, or with all, if what is left is less. None if there are none.
        """
        inside = self.inside(start_ns, end_ns)
        rows, n_warming_up = np.flatnonzero(inside), self.n_warming_up(inside)
        for n_left_out in (n_warming_up, min(n_warming_up, 1), 0):
            some = rows[n_left_out:]
            if len(some) < _FEWEST:
                continue
            first, last = int(some[0]), int(some[-1])
            begin_ns, done_ns = int(self.start_ns[first]), int(self.end_ns[last])
            whole = self.inside(begin_ns, done_ns)
            is_tiled = self.lengths_ns[whole].sum() == done_ns - begin_ns
            is_tiled &= whole.sum() == len(some)
            if is_tiled and done_ns - begin_ns >= _HALF * (end_ns - start_ns):
                return slice(first, last + 1)
        return None

    def window(self, some: slice) -> Window:
        """The window of some steps that follow each other."""
        first, last = some.start, some.stop - 1
        n = int((self.lengths_ns[some] > 0).sum())
        times = int(self.start_ns[first]), int(self.end_ns[last])
        return Window(*times, human_count(n, "step"), int(self.anchor[last]), n)

    def n_warming_up(self, inside: Bools) -> int:
        """Steps of some before the first typical one, from the first of the trace on."""
        if not inside.any() or not inside[0]:
            return 0
        found = alike_steps(self, inside)
        typical = found.kept & ~np.isin(found.kind, found.outliers)
        return int(typical[inside].argmax()) if typical.sum() >= FEWEST_ALIKE else 0


class Alike(NamedTuple):
    """Steps to compare."""

    kept: Bools  # Of each kind those of typical length, unless they are few
    kind: I64  # Kind of each step; one for all if they vary
    varies: bool  # Most steps do what no other one does, as where the work depends on the data
    is_first_left_out: bool  # The first of the trace is like others, and left out all the same
    outliers: I64  # Kinds of one step, where most steps are of kinds that recur


def device_work_began(dag: Dag) -> tuple[I64, I64]:
    """Device work, and when it was launched, or when it began if its launch was not recorded.

    Work without a launch that began before all work with one was from before the profile.
    """
    work = np.flatnonzero(dag.events.is_device)
    is_launched, began_ns = dag.launch[work] >= 0, dag.events.ts_ns[work]
    first_ns = began_ns[is_launched].min(initial=np.iinfo(np.int64).max)
    if is_launched.any():
        began_ns = np.where(began_ns < first_ns, _BEFORE, began_ns)
    return work, np.where(is_launched, gather(dag.events.ts_ns, dag.launch[work], -1), began_ns)


def done_steps(dag: Dag, found: SteadySteps | None = None) -> DoneSteps:
    """The steps of a rank, each from when the one before was done until it is done.

    `found` are its `steady_steps`, if they are known.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     us       |0         10        20        30        40        50
    ...     cpu 1    |{ProfilerStep#0}{ProfilerStep#1}
    ...     cpu 1    | [launch >a]     [launch >b]
    ...     stream 7 |          [gemm <a          ][gemm <b          ]
    ... '''))
    >>> found = done_steps(dag)
    >>> found.start_ns.tolist(), found.end_ns.tolist()
    ([0, 29000], [29000, 48000])
    """
    found = found or steady_steps(dag)
    parts = found.parts
    names = dag.events.names(parts.step)
    if not len(parts.step):
        return DoneSteps(names, parts.start_ns, parts.end_ns, found.kind, parts.step)
    work, began_ns = device_work_began(dag)
    ends_ns = dag.events.end_ns[work]
    row = last_begun(parts.start_ns, parts.next_ns, began_ns)
    done_ns = parts.end_ns.copy()
    np.maximum.at(done_ns, row[row >= 0], ends_ns[row >= 0])
    done_ns = np.maximum.accumulate(done_ns)
    earlier = ends_ns[began_ns < parts.start_ns[0]]
    first_ns = min(int(max(parts.start_ns[0], earlier.max(initial=0))), int(done_ns[0]))
    start_ns = np.append(np.array([first_ns], dtype=np.int64), done_ns[:-1])
    anchor = np.where(done_ns == dag.events.end_ns[parts.step], 2 * parts.step + 1, -1)
    return DoneSteps(names, start_ns, done_ns, found.kind, anchor)


def alike_steps(steps: DoneSteps, inside: Bools) -> Alike:
    """Steps inside a window to compare: of each kind those of typical length, unless they are few.

    If their work varies, so does their length. The first of the trace is left out if enough others
    are typical: its device starts idle, and no gap between steps precedes it.
    """
    _, n_alike = np.unique(steps.kind[inside], return_counts=True)
    n_recur, n_all = int(n_alike[n_alike > 1].sum()), int(n_alike.sum())
    varies, lengths_ns = n_all >= FEWEST_ALIKE and 2 * n_recur < n_all, steps.lengths_ns
    kind = np.zeros_like(steps.kind) if varies else steps.kind
    kept, is_first_left_out = np.zeros_like(inside), False
    kinds, n_of_kind = np.unique(kind[inside], return_counts=True)
    for number in kinds[np.argsort(-n_of_kind, kind="stable")[:MOST_KINDS]]:
        same = inside & (kind == number)
        near = same & are_near(lengths_ns, same)
        alike = near if near.sum() >= FEWEST_ALIKE and not varies else same
        if alike[0] and alike.sum() > FEWEST_ALIKE:
            is_first_left_out, alike[0] = True, False
        kept |= alike
    numbers, n_alike = np.unique(kind[kept], return_counts=True)
    recur = 2 * int(n_alike[n_alike > 1].sum()) >= inside.sum()
    return Alike(kept, kind, varies, is_first_left_out, numbers[(n_alike == 1) & recur])
