"""Why steps are outliers: which names account for the difference from the median step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.arrays.ancestors import sums_under
from htagraph.arrays.intervals import distinct, sum_by_code
from htagraph.explain.self_time import time_innermost
from htagraph.lookup.steady_steps import FEWEST_ALIKE, SteadySteps, StepParts
from htagraph.model.arrays import I64, Texts
from htagraph.model.dag import Dag
from htagraph.model.labels import name_label
from htagraph.model.units import human_count, human_duration

_MOST = 0.5
"""A name that accounts for this share of a difference explains it. Chosen as a majority, so that at
most two names that exclude each other qualify. Pinned by tests/queries/test_memory_and_steps.py."""

_TIMES = 2
"""From this ratio on, a step is "2x as long", not "100% longer"."""

_NAMES = 3
"""Names that a reason lists."""

_UNRECORDED = "untraced code"


class _Named(NamedTuple):
    """Events and time by name, of the names that are there."""

    n_events: I64
    # host_ns, own_ns: on the thread of the steps: total, and self time
    host_ns: I64
    own_ns: I64
    device_ns: I64  # Device work launched in the step


def _compared(
    names: Texts, place: I64, table: _Named, both: tuple[int, int], n_parts: int
) -> tuple[Texts, _Named, _Named]:
    """Two steps, with the names of both: their ranges alone, or up to the next step."""
    n = len(names)
    limits = [[2 * one * n, (2 * one + n_parts) * n] for one in both]
    rows = [slice(*np.searchsorted(place, limit)) for limit in limits]
    of_rows = [place[of] % n for of in rows]
    every = np.unique(np.concatenate(of_rows))
    at = [np.searchsorted(every, own) for own in of_rows]
    one, other = (
        _Named(*(sum_by_code(own, column[of], len(every)) for column in table))
        for own, of in zip(at, rows, strict=True)
    )
    return names[every], one, other


def _named(dag: Dag, parts: StepParts) -> tuple[Texts, I64, _Named]:
    """Names, and counts and times of all steps.

    The second has part and name of each row, ascending: ``part * len(names) + name``.
    """
    events = dag.events
    codes, column = distinct(events.name[parts.event], len(events.symbols))
    place, row = distinct(parts.part * len(codes) + column, 2 * len(parts.step) * len(codes))
    size = len(place)
    is_device = events.is_device[parts.event]
    host, device = parts.event[~is_device], parts.event[is_device]
    own = np.zeros(len(events), dtype=np.int64)
    own[host] = time_innermost(dag)[host]
    code = np.full(len(events), -1, dtype=np.int64)
    code[host] = row[~is_device]
    table = _Named(
        n_events=np.bincount(row, minlength=size),
        host_ns=sums_under(dag.parent, code, own, size),
        own_ns=sum_by_code(row[~is_device], own[host], size),
        device_ns=sum_by_code(row[is_device], events.dur_ns[device], size),
    )
    return events.symbols.array[codes], place, table


def _other_work(names: Texts, more: I64) -> str:
    """How the events of a step differ from the median step: `more` of each name, in words."""
    if not more.any():
        return "other events between the steps"
    n_more, n_fewer = int(more[more > 0].sum()), -int(more[more < 0].sum())
    counts = [
        f"{human_count(n, 'event')} {word}"
        for n, word in ((n_more, "more"), (n_fewer, "fewer"))
        if n
    ]
    order = sorted(np.flatnonzero(more).tolist(), key=lambda k: (-abs(int(more[k])), names[k]))
    most = [f"{int(more[k]):+,} {name_label(names[k])}" for k in order[:_NAMES]]
    rest = [] if len(order) <= _NAMES else ["…"]
    return f"{' and '.join(counts)} than usual ({', '.join(most + rest)})"


def _other_length(dur_ns: int, usual_ns: int) -> str:
    """How much longer or shorter a step is than the median one."""
    ratio = dur_ns / max(usual_ns, 1)
    if ratio >= _TIMES:
        return f"{ratio:.3g}x as long"
    return f"{abs(ratio - 1):.0%} {'longer' if ratio > 1 else 'shorter'}"


def _largest(names: Texts, delta_ns: I64, n_names: int) -> list[str]:
    """Names with the largest time differences."""
    order = sorted(np.flatnonzero(delta_ns), key=lambda k: (-abs(int(delta_ns[k])), names[k]))
    return [_with_time(names[k], delta_ns[k]) for k in order[:n_names]]


def _with_time(name: str, delta_ns: int) -> str:
    """A name and its time difference."""
    return f"{'+' if delta_ns > 0 else ''}{human_duration(int(delta_ns))} {name_label(name)}"


def _where_longer(names: Texts, step: _Named, usual: _Named, delta_ns: int) -> list[str]:
    """Names that explain why a step is longer, or shorter, than the median one.

    The innermost name that accounts for most of it, else those with the most self time.
    """
    total, sign = abs(delta_ns), 1 if delta_ns > 0 else -1
    host, own, device = (
        sign * np.maximum(sign * (here - there), 0)
        for here, there in zip(step[1:], usual[1:], strict=True)
    )
    unrecorded = delta_ns - int((step.own_ns - usual.own_ns).sum())
    mostly = np.flatnonzero(np.abs(host) >= _MOST * total).tolist()
    if mostly and sign * unrecorded < _MOST * total:
        inner = min(mostly, key=lambda k: (abs(host[k]), step.host_ns[k], names[k]))
        on_host = [_with_time(names[inner], host[inner])]
    else:
        own_or_not = np.append(own, unrecorded if sign * unrecorded > 0 else 0)
        one_suffices = np.abs(own_or_not).max() >= _MOST * total
        on_host = _largest(np.append(names, _UNRECORDED), own_or_not, 1 if one_suffices else 2)
    on_device = _largest(names, np.where(np.abs(device) >= _MOST * total, device, 0), 1)
    return on_host + [f"{text} on the device" for text in on_device]


def _reference(steady: SteadySteps) -> int:
    """The step that others are compared with: the median one, if a step follows it."""
    n = len(steady.is_steady)
    among = np.flatnonzero(steady.is_steady if steady.is_steady.any() else steady.is_same_work)
    among = among[among < n - 1]
    if steady.usual < n - 1 or not len(among):
        return steady.usual
    away = np.abs(steady.compared_ns[among] - steady.compared_ns[steady.usual])
    return int(among[away.argmin()])


def odd_step_reasons(dag: Dag, steady: SteadySteps) -> list[str]:
    """Why each step is an outlier, as text; empty for steady steps.

    Steps are compared with the median one. The last step has no next one, so only its range counts;
    if it is the median step, the step closest in length replaces it.
    """
    parts, n = steady.parts, len(steady.parts.step)
    if n < FEWEST_ALIKE:
        return [f"too few steps to compare: {n}"] * n
    odd = np.flatnonzero(~steady.is_steady).tolist()
    if not odd:
        return [""] * n
    tables = _named(dag, parts)
    n_alike = int((steady.is_same_work & steady.is_same_length).sum())
    reference = _reference(steady)
    reasons = [""] * n
    for number in odd:
        last = n - 1 in (number, reference)
        names, step, usual = _compared(*tables, (number, reference), 1 if last else 2)
        until = (parts.end_ns if last else parts.next_ns) - parts.start_ns
        dur_ns, usual_ns = int(until[number]), int(until[reference])
        reason = []
        if not steady.is_same_work[number]:
            reason.append(_other_work(names, step.n_events - usual.n_events))
        if not steady.is_same_length[number]:
            where = _where_longer(names, step, usual, dur_ns - usual_ns)
            reason.append(
                _other_length(dur_ns, usual_ns) + (f" ({', '.join(where)})" if where else "")
            )
        reasons[number] = "; ".join(reason) or f"too few typical steps: {n_alike}"
    return reasons
