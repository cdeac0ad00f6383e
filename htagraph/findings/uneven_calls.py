"""Calls that should take equally long and do not: one micro-batch is slow in every step."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.arrays.nesting import nest
from htagraph.lookup.attribution import host_of
from htagraph.lookup.programs import is_users_range
from htagraph.lookup.python_code import user_code
from htagraph.lookup.steps import step_at, steps_in
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import Cause, EventKind
from htagraph.model.labels import name_label
from htagraph.model.names import function_and_place
from htagraph.model.window import Window

_WORK = (
    Cause.COMPUTE,
    Cause.COPIES,
    Cause.CPU_WORK,
    Cause.CPU_OPERATORS,
    Cause.SMALL_OPERATORS,
    Cause.HOST_CODE,
    Cause.RECOMPUTATION,
)
_FEWEST_STEPS, _FEWEST_CALLS = 2, 3
"""Steps, and calls in each, from which on one call can differ from the others (chosen)."""
_TIMES = 1.5
"""In every step, a call takes so many times as long as the longest other one, as noise does not,
and the others, in the median step, differ by less. Chosen. Pinned, with the rest, by
test_uneven_calls.py."""
_MATTERS = 0.05
"""Least share of the window that it takes longer. Chosen."""


def uneven_calls(dag: Dag, window: Window, attributed: pd.DataFrame) -> str:
    """The call of a range, module or user function that works longer in all steps; or empty.

    `attributed`: the path by causes. The work of a call is what the path has of it and of all that
    it calls or launches, without waits and collectives. Calls are compared by their place in the
    step, if all steps have as many, within one other call.
    """
    events, steps = dag.events, steps_in(dag.events, window)
    called = _calls(dag, steps["event"].to_numpy())
    if len(steps) < _FEWEST_STEPS or not len(called):
        return ""
    step, start_ns = step_at(steps, events.ts_ns[called]), events.ts_ns[called]
    above = nest(events.lane[called], start_ns, events.end_ns[called]).parent.astype(np.int64)
    work = attributed[attributed["cause"].isin(_WORK)]
    event = work["event"].to_numpy(np.int64)
    began_ns = gather(events.ts_ns, host_of(dag, event))
    is_device = gather(events.is_device, event, default=False)
    at_ns = np.where(is_device, began_ns, work["start_ns"].to_numpy(np.int64))
    order = np.argsort(at_ns, kind="stable")
    until_ns = np.append(0, np.cumsum(work["dur_ns"].to_numpy(np.int64)[order]))
    first, last = (
        until_ns[np.searchsorted(at_ns[order], times)]
        for times in (start_ns, events.end_ns[called])
    )
    calls = pd.DataFrame(
        {
            "name": events.name[called],
            "within": gather(events.name[called], above),
            "caller": above,
            "step": step,
            "work_ns": last - first,
        }
    )[step >= 0]
    found, of_group = (_MATTERS * window.dur_ns, ""), calls.groupby(["name", "within"])["work_ns"]
    # Most groups are too small to differ by so much: only the others are looked at one by one.
    calls = calls[of_group.transform("sum") >= found[0]]
    for _, each in calls.groupby(["name", "within"]):
        n = len(each) // len(steps)
        n_in_step = np.bincount(each["step"], minlength=len(steps))
        n_callers = len(each[["step", "caller"]].drop_duplicates())
        if n < _FEWEST_CALLS or (n_in_step != n).any() or n_callers > len(steps):
            continue
        work_ns = each["work_ns"].to_numpy().reshape(len(steps), n)
        place = int(work_ns.sum(axis=0).argmax())
        others = np.delete(work_ns, place, axis=1)
        usual, most = np.median(others, axis=1), _TIMES * others.max(axis=1)
        each_ns = np.median(others, axis=0)
        is_one = 0 < each_ns.max() <= _TIMES * each_ns.min() and (work_ns[:, place] >= most).all()
        more_ns = float((work_ns[:, place] - usual).sum())
        if is_one and more_ns >= found[0]:
            name = events.symbols.texts[each["name"].iloc[0]]
            function, where = function_and_place(name)
            of = f"{name_label(function)} ({where})" if where else name_label(function)
            times = np.median(work_ns[:, place]) / np.median(usual)
            said = f"Call {place + 1} of {n} of {of} takes {times:.1f} times as long as the others"
            found = more_ns, f"{said}, in every step."
    return found[1]


def _calls(dag: Dag, step: I64) -> I64:
    """Users' ranges, and frames of modules and of user code, of the threads of steps, in order.

    Samples cannot tell one call from the next, so their frames do not count.
    """
    events = dag.events
    named = user_code(dag)[0] | events.symbols.searched(r"^nn\.Module: ")
    exact = (events.kind == EventKind.PYTHON) & (events.column("n_samples", 0) <= 0)
    found = is_users_range(dag) | (exact & named[events.name])
    rows = np.flatnonzero(found & np.isin(events.lane, events.lane[step]))
    return rows[np.argsort(events.ts_ns[rows], kind="stable")]
