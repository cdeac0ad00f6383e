"""What limits a window of one rank, or why it cannot be judged; captured graphs; uneven calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from shlex import quote

import numpy as np
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.arrays.nesting import nest
from htagraph.explain.self_time import ReplayTime, replay_time
from htagraph.explain.stacks import window_stacks
from htagraph.findings.context import Context, Light, find_context
from htagraph.findings.findings import (
    Told,
    advice_off_path,
    charged,
    completed,
    costs_by_cause,
    roof_in_words,
)
from htagraph.findings.path import CriticalPath
from htagraph.findings.verdict import LEAST_CARD, FunctionCost, Verdict, percent
from htagraph.lookup.attribution import host_of
from htagraph.lookup.damage import (
    LOST_LIMIT,
    damage_of,
    longest_whole_part,
    lost_in_words,
    lost_share,
)
from htagraph.lookup.find_window import WHOLE
from htagraph.lookup.programs import is_users_range
from htagraph.lookup.python_code import user_code
from htagraph.lookup.steps import step_at, steps_in
from htagraph.lookup.windowed import device_work
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, Cause, EventKind
from htagraph.model.labels import name_label
from htagraph.model.names import function_and_place
from htagraph.model.recording import Damage, DamageKind, damage_in_words
from htagraph.model.units import human_count, human_duration
from htagraph.model.window import Window
from htagraph.queries.operators import EVERYWHERE, functions_in
from htagraph.queries.quality import UNKNOWN_LIMIT
from htagraph.queries.roofline import speed_of_light
from htagraph.replay.changes import remove
from htagraph.replay.excerpt import LARGE

_COSTS = 0.05
"""Share of the window above which lost time is named. Chosen. Pinned by test_planted."""

_MOST = 0.5
"""More than this share is most of the window. Pinned by the same test."""

_SAME = 1.1
"""Up to so many times the cost of a card, a function that it names says the same. Chosen. Pinned by
test_findings."""

_MEANING = {
    "launch": "Launch-bound: the host launches the next graph too late.",
    "graph": "Graph-bound: time is lost inside the replays, in gaps between short nodes.",
    "kernels": "Graph-bound: most time is spent inside the replays, in the kernels themselves.",
    "": "Neither late launches nor the graphs are the main cost.",
}


def replay_bound(found: ReplayTime) -> str:
    """What limits captured graphs: late launches, gaps between nodes, the kernels, or neither."""
    lost_ns = max(found.late_ns, found.gap_ns)
    if lost_ns > _COSTS * found.window_ns:
        return "launch" if found.late_ns >= found.gap_ns else "graph"
    return "kernels" if found.inside_ns > _MOST * found.window_ns else ""


def replays_in_words(found: ReplayTime) -> str:
    """What limits captured graphs, with the times that show it; empty without replays."""
    if not found.n_replays or not found.window_ns:
        return ""
    gap = found.gap_ns / max(found.inside_ns, 1)
    idle, late = found.idle_ns / found.window_ns, found.late_ns / found.window_ns
    return (
        f"{_MEANING[replay_bound(found)]} Replays of captured graphs ({found.n_replays:,}) take "
        f"{found.inside_ns / found.window_ns:.1%} of the window: the device is busy for "
        f"{1 - gap:.1%} of that and idle between nodes for {gap:.1%}. Between replays it is idle "
        f"for {idle:.1%} of the window, for {late:.1%} before the host calls the next launch."
    )


_FEW_EVENTS = 100
"""Below this number of events on all threads, a trace is not the profile of a step. Chosen: a step
of a small model has several hundred. Pinned with `_LEAST_SHARE` by `test_findings.py`.
"""

_LEAST_SHARE = 0.01
"""Share of the path in operators, functions, ranges and calls below which nothing is known of it.
Chosen: of what else there is, not even the neighbours are known.
"""


def too_little(
    attributed_time: pd.DataFrame,
    damage: Iterable[Damage],
    n_events: int,
    *,
    has_device: bool,
    uses_device: bool,
) -> str:
    """Why a path without device work cannot be judged, and what to do; empty if it can.

    It cannot if the file is cut and the process used a device: a profiler writes device work last;
    nor with hardly an event in the whole trace, and nothing recorded on the path.
    """
    if has_device:
        return ""
    if uses_device and any(one.kind == DamageKind.CUT_FILE for one in damage):
        return (
            "the file is cut off and ends before the device begins, so what the device did is "
            "unknown. Copy the whole file, or capture again, and wait until it is written."
        )
    if n_events >= _FEW_EVENTS or not len(attributed_time):
        return ""
    time = attributed_time
    between = time["bound"].isin([Bound.UNTRACED_CODE.label, Bound.WAITING_FOR_WORK.label])
    known = ~between | (time["frame"] != "") | (time["ranges"] != "")
    whole_ns, known_ns = int(time["dur_ns"].sum()), int(time.loc[known, "dur_ns"].sum())
    if known_ns >= _LEAST_SHARE * whole_ns:
        return ""
    return (
        f"{human_count(n_events, 'event')}, no device work, and "
        f"{human_duration(known_ns)} of {human_duration(whole_ns)} in operators, calls or ranges "
        "of the program. Capture whole steps: profile around the training loop, with "
        "ProfilerActivity.CPU and the device's activity (ProfilerActivity.CUDA); htagraph.profile "
        "does, and samples Python code."
    )


_MIN_SHARE = 0.1
"""Smallest part of a window that is worth a report, and least share of compute that is looked into.
Chosen. Pinned by test_findings.
"""


def find_bounds(path: CriticalPath, *, costs: pd.DataFrame | None = None) -> Verdict:
    """Verdict on a window: the causes of its critical path, largest cost first.

    `costs`: what each cause costs; by default that is replayed. Withheld if unknown waits are too
    much of the path, or too little was recorded, or too much lost.
    """
    damage = damage_of(path.dag, path.window)
    lost = lost_share(damage, path.window)
    if lost > LOST_LIMIT:
        part = longest_whole_part(damage, path.window)
        command = _command_for(path, part if _is_worth(part, path) else None)
        why = f"{lost_in_words(lost)} {command}"
        verdict = Verdict((), why, path.window_name, path.dur_ns, path.n_steps)
    else:
        verdict = _bounds(path, costs, damage)
    return replace(verdict, damage=damage_in_words(damage))


def _bounds(path: CriticalPath, costs: pd.DataFrame | None, damage: Sequence[Damage]) -> Verdict:
    """The verdict, unless too little was recorded."""
    context, events = find_context(path.dag, path.window), path.dag.events
    labels, uses_device = path.attributed_labels, bool(context.api or events.device_names)
    few = too_little(
        labels, damage, len(events), has_device=context.has_device, uses_device=uses_device
    )
    if few:
        return Verdict((), few, path.window_name, path.dur_ns, path.n_steps)
    found = path.excerpt.scaled(path.trials.causes) if costs is None else costs
    compute_ns = int(labels.loc[labels["cause"] == Cause.COMPUTE, "dur_ns"].sum())
    if len(found) and compute_ns > _MIN_SHARE * path.dur_ns:
        context = replace(context, compute=light_on(path))
    verdict = charged(labels, path.window_name, path.dur_ns, told_of(path, context, found))
    verdict = replace(verdict, n_steps=path.n_steps, roof=roof_in_words(context.compute))
    if verdict.withheld:
        return replace(verdict, withheld=f"{verdict.withheld} {_next_command(path)}")
    if len(found):
        advise = partial(advice_off_path, context, path.dur_ns)
        verdict = completed(verdict, path.trials, advise, by=path.excerpt.factor)
        verdict = replace(verdict, rests_on=path.excerpt.sentence)
        if context.has_stacks:
            verdict = replace(verdict, functions=function_costs(path, verdict))
        verdict = replace(verdict, uneven=uneven_calls(path.dag, path.window, labels))
    if context.is_replayed:
        said = replays_in_words(replay_time(path.dag, path.window))
        verdict = replace(verdict, replays=said)
    return verdict


_N_FUNCTIONS = 3
"""Functions that a verdict names. A limit of the screen: `functions` has all. Pinned by
test_findings."""


def function_costs(path: CriticalPath, verdict: Verdict) -> tuple[FunctionCost, ...]:
    """What the largest functions cost with all that they call; none without Python stacks.

    Those around others, in which most of their time is, are left out.
    """
    part, rehearsal = path.excerpt, path.trials.rehearsal
    find = partial(window_stacks, part.dag, part.window)
    found = functions_in(rehearsal.expected.replay.once("stacks", find), part.window)
    whole_ns = part.window.dur_ns
    is_one = (found["frame"] != "") & (found["inclusive_ns"] < EVERYWHERE * whole_ns)
    is_one &= found["own_ns"] >= np.maximum(LEAST_CARD * whole_ns, _MOST * found["inclusive_ns"])
    costs = []
    for row in found[is_one].head(_N_FUNCTIONS).to_dict("records"):
        cost_ns = round(part.factor * rehearsal.saved_ns([remove(row["frame"])]))
        file = re.split(r"[/\\]", row["place"])[-1]
        said = f"{row['function']} ({file}) costs {percent(cost_ns, path.dur_ns)}"
        said += f", mostly {name_label(row['mostly'])}" if row["mostly"] else ""
        if row["backward_ns"] >= LEAST_CARD * whole_ns:
            said += f", and its gradients up to {percent(row['backward_ns'], whole_ns)}"
        for one in verdict.top_findings:
            if one.evidence and row["function"] in one.evidence[0].frame:
                is_same = cost_ns / _SAME <= one.weight_ns <= _SAME * cost_ns
                said = "" if is_same else said
        path_ns = round(part.factor * row["inclusive_ns"])
        costs.append(FunctionCost(row["frame"], path_ns, cost_ns, said))
    return tuple(one for one in costs if one.cost_ns >= LEAST_CARD * path.dur_ns)


def told_of(path: CriticalPath, context: Context, costs: pd.DataFrame) -> Told:
    """What is known of a run beyond its attributed time, with what each cause costs."""
    return Told(
        context=context,
        unread_stacks=path.dag.notes.get("n_unread_stacks", 0) > 0,
        costs=costs_by_cause(costs),
    )


def _next_command(path: CriticalPath) -> str:
    """The command to run if a window cannot be judged: a report on a part that can."""
    name = _file_name(path)
    if not path.dur_ns:
        if path.dag.span.dur_ns:
            return f"The whole trace: htagraph report {name} -w {WHOLE}"
        return f"What was recorded: htagraph info {name}"
    return _command_for(path, _judged_part(path, UNKNOWN_LIMIT))


def _command_for(path: CriticalPath, part: Window | None) -> str:
    """The command that reports on a part of a window, if any."""
    name = _file_name(path)
    if part is None:
        return f"No part of it can be judged; all checks: htagraph info {name}"
    origin_ns = path.dag.span.start_ns
    times = f"{part.start_ns - origin_ns}:{part.end_ns - origin_ns}"
    share = f"{part.dur_ns / path.dur_ns:.0%}"
    return f"{share} of it can be judged: htagraph report {name} -w {times}"


def _file_name(path: CriticalPath) -> str:
    """The file of a path, for a command line."""
    file = path.origin.path if path.origin is not None else None
    return quote(str(file)) if file is not None else "FILE"


def _is_worth(part: Window | None, path: CriticalPath) -> bool:
    """Whether a part is long enough for a report."""
    return part is not None and part.dur_ns >= max(1, _MIN_SHARE * path.dur_ns)


def _judged_part(path: CriticalPath, limit: float) -> Window | None:
    """Longest part of a window with unknown waits up to half the limit; None if it is short."""
    time = path.attributed_time.sort_values("start_ns", kind="stable")
    dur_ns = time["dur_ns"].to_numpy()
    unknown_ns = np.where(time["cause"] == Cause.UNKNOWN_WAITS, dur_ns, 0)
    # A part will do if its unknown waits, less its allowance, is not above zero.
    excess = np.append(0.0, np.cumsum(unknown_ns - limit / 2 * dur_ns))
    highest = np.maximum.accumulate(excess)
    first = np.searchsorted(highest, excess)
    times = path.window.start_ns + np.append(0, np.cumsum(dur_ns))
    last = int(np.argmax(times - times[first]))
    start_ns, end_ns = int(times[first[last]]), int(times[last])
    part = Window(start_ns, end_ns, f"[{start_ns}, {end_ns})")
    if not _is_worth(part, path):
        return None
    # A part has a path of its own, which may run elsewhere.
    found = CriticalPath(path.dag, part, path.rank, path.origin)
    known = found.attributed_time
    unknown = int(known.loc[known["cause"] == Cause.UNKNOWN_WAITS, "dur_ns"].sum())
    return part if unknown <= limit * part.dur_ns else None


_WORTH_NAMING = 0.02
"""Least share of the window that an operator saves at its roof to be named. Chosen. Pinned by
test_findings.
"""
_MOST_WORK = 0.8
"""Share of device time with a model from which on the rest cannot change what is left to gain.
Chosen. Pinned by test_findings.
"""
_LIMITS = {
    "compute": "the peak of its matrix units",
    "FP32 compute": "the peak of FP32",
    "memory": "memory bandwidth",
    "host link": "the bandwidth of the link to the host",
}


def light_on(path: CriticalPath) -> Light:
    """What to speed up on the device, or how little is left to gain."""
    part = path.excerpt
    if not part.n_steps and len(part.dag.edges) > LARGE:
        return Light()
    found = speed_of_light(part.dag, part.window)
    if not len(found):
        return Light()
    every, first = found.iloc[0], found.iloc[1]
    tf32_ns = every["tf32_ns"]
    light = Light(wants_tf32=tf32_ns >= max(_WORTH_NAMING * part.window.dur_ns, first["cost_ns"]))
    if first["cost_share"] >= _WORTH_NAMING and first["limit"] in _LIMITS:
        share, limit = float(first["roof_share"]), _LIMITS[first["limit"]]
        return light._replace(operator=first["group"], roof_share=share, limit=limit)
    modelled = every["device_ns"] / max(int(device_work(part.dag, part.window).dur_ns.sum()), 1)
    if every["cost_share"] < _WORTH_NAMING and modelled >= _MOST_WORK:
        return light._replace(roof_share=float(every["roof_share"]))
    return light


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
