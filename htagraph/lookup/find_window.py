"""From what people call a window to its bounds, and what they call an event to its row.

A window is named by a host range of the trace, as a name, glob or regex; by a step's number or
place (``5``, ``first``, ``last``, ``median``); or by times. An annotation that is really called
``last`` or ``5`` wins; only ``trace`` always means the whole trace.
An event is named by a name, glob or regex, by its row, or by a time at which a device idles.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from difflib import get_close_matches

import numpy as np

from htagraph.errors import AmbiguousWindowWarning, QueryError
from htagraph.lookup.selecting import events_in, name_mask
from htagraph.lookup.steady_steps import FEWEST_ALIKE, steady_steps
from htagraph.lookup.steps import find_steps, instance_window, is_annotation, named_ranges
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.names import step_number
from htagraph.model.units import TIME_UNITS, human_duration
from htagraph.model.window import Window, WindowClock, pair_of

WHOLE = "trace"
"""The window that is the whole trace."""

FIRST, LAST, MEDIAN = "first", "last", "median"
"""Words for steps; the median step is the representative one of the typical steps."""

WINDOWS_IN_WORDS = (
    "Window to analyze: a step or other host range by name, glob or regex; a step by number (5: "
    f"ProfilerStep#5), or {FIRST}, {LAST} or {MEDIAN} (a representative step); START:END from the "
    f"start of the trace (10ms:20ms; default unit ns); {WHOLE}: all of it."
)
"""Help of the option."""

_HINT = "give the name of a step or range, a regex, or (start_ns, end_ns) in nanoseconds."
_LAST_NS = 2**62 - 1
"""Latest time, before and after 1970: differences of two such times fit into 64 bits, and of no
later ones. A limit of memory: test_find_window asks for both sides of it."""

_TIME = r"(-?\d[\d_,]{0,18})(\.\d{1,9})?\s?(ns|us|µs|ms|s)?"
_TIMES = re.compile(rf"{_TIME}:\s?{_TIME}")
_MOMENT = re.compile(_TIME.removesuffix("?"))
_NUMBER = re.compile(r"\d{1,18}")


def is_step_word(window: str) -> bool:
    """Whether a text is a number or word for a step."""
    return window in (FIRST, LAST, MEDIAN) or _NUMBER.fullmatch(window) is not None


def annotations_like_words(dag: Dag) -> tuple[str, ...]:
    """Names of annotations that are also words for a window."""
    events = dag.events
    names = np.unique(events.name[events.kind == EventKind.ANNOTATION]).tolist()
    texts = (events.symbols.texts[name] for name in names)
    return tuple(text for text in texts if is_step_word(text) or _TIMES.fullmatch(text))


def times_in(window: str) -> tuple[int, int] | None:
    """Times from the start of a trace, in ns, as in ``10ms:20ms``; None for any other text.

    A number without a unit has the unit of the other one; the default is nanoseconds.
    """
    found = _TIMES.fullmatch(window)
    if found is None:
        return None
    start, start_part, start_unit, end, end_part, end_unit = found.groups()
    start_ns = _nanoseconds(start, start_part, start_unit or end_unit)
    end_ns = _nanoseconds(end, end_part, end_unit or start_unit)
    if end_ns <= start_ns:
        what = "is empty" if end_ns == start_ns else "ends before it starts"
        raise QueryError(f"the window {window!r} {what}.", hint="give START:END.")
    return start_ns, end_ns


def moment_in(text: str) -> int | None:
    """A time from the start of a trace, in ns, with its unit; None for any other text."""
    found = _MOMENT.fullmatch(text)
    return None if found is None else _nanoseconds(*found.groups())


def _nanoseconds(whole: str, part: str | None, unit: str | None) -> int:
    """A number of units in ns."""
    size = TIME_UNITS[(unit or "ns").replace("µ", "u")]
    digits = (part or ".").removeprefix(".").ljust(9, "0")
    return int(re.sub("[_,]", "", whole)) * size + int(digits) * size // 10**9


def numbered_steps(names: Sequence[str], number: str) -> list[int]:
    """Positions of the steps that have a number."""
    return [at for at, name in enumerate(names) if step_number(name) == int(number)]


def warn_of_others(window: str, n_matching: int, taken: str, *, stacklevel: int) -> None:
    """Warn that several ranges match, and which one was taken."""
    if n_matching > 1:
        warnings.warn(
            f"{n_matching:,} ranges match {window!r}; this is the first, {taken}. Name another "
            "to see it.",
            AmbiguousWindowWarning,
            stacklevel=stacklevel + 1,
        )


def bounds_of(window: object) -> tuple[int, int]:
    """Bounds in ns of a window that is a pair of numbers."""
    pair = pair_of(window, hint=_HINT)
    if not all(abs(one) <= _LAST_NS for one in pair):
        raise QueryError(f"{window!r} does not fit into 64 bits.", hint=_HINT)
    return int(pair[0]), int(pair[1])


def _step_rows(dag: Dag, window: str) -> I64:
    """Events of the steps that a word names; several where a number is not unique."""
    steps = find_steps(dag.events)
    rows = steps["event"].to_numpy(np.int64)
    if window == MEDIAN and len(rows):
        found = steady_steps(dag)
        if not found.is_steady.any():
            raise QueryError(
                f"there is no median step: fewer than {FEWEST_ALIKE} are typical.",
                hint=f"name a step, or use {FIRST} or {LAST}; steady_state shows how they differ.",
            )
        return found.parts.step[[found.usual]]
    if window in (FIRST, MEDIAN):
        return rows[:1]
    return rows[-1:] if window == LAST else rows[numbered_steps(steps["name"].tolist(), window)]


def _at_times(dag: Dag, times: tuple[int, int], text: str) -> Window:
    """Window between two times from the start of a trace, which it must not leave altogether."""
    span = dag.span
    if not 0 <= times[0] < max(span.dur_ns, 1):
        where = "after the end" if times[0] > 0 else "before the start"
        raise QueryError(
            f"the window {text!r} begins {where} of the trace, which is "
            f"{human_duration(span.dur_ns)} long.",
            hint="times count from its start: give START:END within it.",
        )
    return Window(span.start_ns + times[0], min(span.start_ns + times[1], span.end_ns), text)


def find_window(
    dag: Dag,
    window: str | re.Pattern[str] | tuple[int, int],
    *,
    on: WindowClock = "host",
    instance: int | None = None,
) -> Window:
    """Window that a name, a pattern, a word or a pair of times means.

    `window`: name of a host range (``"ProfilerStep#5"``), a glob or regex; a step by its number
    (``"5"``), ``"first"``, ``"last"`` or ``"median"`` (the representative one); times from the
    start of the trace (``"10ms:20ms"``); ``"trace"`` for all of it; or ``(start_ns, end_ns)`` on
    the trace's clock. `on`: the host range itself, or the span of the device work launched in it.
    `instance`: which of several matching ranges, in order of time; negative from the end. By
    default the first, with an `AmbiguousWindowWarning` if there are more.
    """
    text = getattr(window, "pattern", window)
    if isinstance(window, tuple) or not isinstance(text, str):
        start_ns, end_ns = bounds_of(window)
        return Window(start_ns, end_ns, f"[{start_ns}, {end_ns})")
    if window == WHOLE:
        return dag.span
    is_word = isinstance(window, str) and not is_annotation(dag, window)
    times = times_in(text) if is_word else None
    if times is not None:
        return _at_times(dag, times, text)
    of_steps = is_word and is_step_word(text)
    rows = _step_rows(dag, text) if of_steps else named_ranges(dag, window)
    found = instance_window(dag, rows, text, on=on, instance=0 if instance is None else instance)
    if instance is None:
        warn_of_others(text, len(rows), found.name, stacklevel=3)
    return found


_N_SIMILAR = 3
"""Chosen: names that a hint suggests."""


def find_event(
    dag: Dag, window: Window, what: str | re.Pattern[str] | int, *, instance: int | None = None
) -> int:
    """Event of a window that a name, glob, regex or row means, in order of time.

    `what`: name, glob or regex; a number, also as text, is a row of the event table, in any window.
    `instance`: which of several; negative from the end. By default the first, with a warning.
    """
    events = dag.events
    in_graph = events.is_device | events.is_host
    if not isinstance(what, str | re.Pattern) or (isinstance(what, str) and what.isdecimal()):
        row = int(what)
        if not 0 <= row < len(events):
            raise QueryError(
                f"there is no event {row:,}: the trace has {len(events):,}.",
                hint="graph.events has the rows; a name or a glob also finds an event.",
            )
        if not in_graph[row]:
            raise QueryError(
                f"event {row:,} ({events.names([row])[0]}) is context, not in the graph.",
                hint="name an operator, a call of the device's API, or device work.",
            )
        return row
    text = getattr(what, "pattern", what)
    inside = events_in(dag, window)
    rows = inside[in_graph[inside]]
    found = rows[name_mask(dag, what)[rows]]
    if not len(found):
        names = np.unique(events.name[rows])
        similar = get_close_matches(text, events.symbols.array[names].tolist(), _N_SIMILAR, 0.4)
        raise QueryError(
            f"no event of {window.name} is called {text!r}.",
            hint=f"similar: {', '.join(similar)}." if similar else "use a glob: '*gemm*'.",
        )
    found = found[np.lexsort((events.tiebreak[found], events.ts_ns[found]))]
    if not -len(found) <= (instance or 0) < len(found):
        raise QueryError(
            f"there is no instance {instance} of {text!r}: {window.name} has {len(found):,}.",
            hint="instance=0 is the first, -1 the last.",
        )
    event = int(found[instance or 0])
    if instance is None and len(found) > 1:
        warnings.warn(
            f"{len(found):,} events match {text!r}; this is the first, "
            f"{human_duration(int(events.ts_ns[event]) - dag.span.start_ns)} after the start of "
            "the trace. Give an instance to see another.",
            AmbiguousWindowWarning,
            stacklevel=3,
        )
    return event


def next_work(dag: Dag, ts_ns: int, device: int | None = None) -> int:
    """Device work that runs at a time, else the next to start: what an idle device waits for.

    `device`: of any device by default.
    """
    events = dag.events
    rows = np.flatnonzero(events.is_device & (events.end_ns > ts_ns))
    if device is not None:
        rows = rows[events.device[rows] == device]
    if not len(rows):
        known = np.unique(events.device[events.is_device]).tolist()
        where = "the device" if device is None else f"device {device}"
        at = human_duration(ts_ns - dag.span.start_ns)
        raise QueryError(
            f"{where} runs nothing from {at} after the start of the trace on.",
            hint=f"the trace has work of {', '.join(f'device {one}' for one in known)}."
            if known
            else "the trace has no device work; name a host event.",
        )
    return int(rows[np.lexsort((events.tiebreak[rows], events.ts_ns[rows]))[0]])
