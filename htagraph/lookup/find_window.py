"""From what a person calls a window to its bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from numbers import Real
from typing import SupportsIndex, get_args

import numpy as np
import numpy.typing as npt

from htagraph.errors import QueryError, WindowNotFoundError
from htagraph.lookup.steps import find_steps
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.symbols import compile_pattern
from htagraph.model.window import Window, WindowClock

__all__ = ["WHOLE", "find_window", "named_ranges", "range_window"]

WHOLE = "trace"
"""What the command line calls the window that is the whole trace."""

_HINT = "give the name of a step or range, a regex, or (start_ns, end_ns) in nanoseconds."
_PAIR = 2
_FIRST_NS, _LAST_NS = -(2**62), 2**62
"""Times beyond these could not be subtracted from each other in 64 bits."""


def named_ranges(dag: Dag, name: str | re.Pattern[str]) -> npt.NDArray[np.int64]:
    """Host ranges with a name, else those that match it, in order of time.

    Annotations come before operators.
    """
    events = dag.events
    code = events.symbols.code(name) if isinstance(name, str) else -1
    same = events.name == code if code >= 0 else np.zeros(len(events), dtype=bool)
    matching = events.named(events.symbols.mask(compile_pattern(name)))
    for wanted in (same, matching):
        for kind in (EventKind.ANNOTATION, EventKind.OP):
            rows = np.flatnonzero(wanted & (events.kind == kind))
            if len(rows):
                return rows[np.lexsort((-events.dur_ns[rows], events.ts_ns[rows]))]
    return np.empty(0, dtype=np.int64)


def _times(window: object) -> tuple[int, int]:
    """Bounds of a window in ns.

    Raises
    ------
    QueryError
        If it is no pair of numbers, or they are too large.
    """
    pair = [*window] if isinstance(window, Iterable) else []
    if len(pair) != _PAIR or not all(isinstance(one, Real) for one in pair):
        raise QueryError(f"{window!r} is no window.", hint=_HINT)
    if not all(_FIRST_NS <= one <= _LAST_NS for one in pair):
        raise QueryError(f"{window!r} is outside of what 64 bits can say.", hint=_HINT)
    return int(pair[0]), int(pair[1])


def _device_window(dag: Dag, event: int, name: str) -> Window:
    """Span of the device work launched in a host range."""
    events = dag.events
    device = np.flatnonzero(events.is_device & (dag.launch >= 0))
    launched = events.ts_ns[dag.launch[device]]
    device = device[(launched >= events.ts_ns[event]) & (launched < events.end_ns[event])]
    if not len(device):
        raise WindowNotFoundError(
            f"{name} on the device", [], where="this trace: nothing was launched in it"
        )
    last = int(device[np.argmax(events.end_ns[device])])
    return Window(
        int(events.ts_ns[device].min()),
        int(events.end_ns[last]),
        f"{name} (device)",
        anchor=2 * last + 1,
    )


def range_window(dag: Dag, event: int) -> Window:
    """Window of a host range: from its start to its end, which is the window's anchor."""
    events = dag.events
    name = events.symbols.texts[events.name[event]]
    return Window(int(events.ts_ns[event]), int(events.end_ns[event]), name, anchor=2 * event + 1)


def find_window(
    dag: Dag,
    window: str | re.Pattern[str] | tuple[int, int],
    *,
    on: WindowClock = "host",
    instance: int = 0,
) -> Window:
    """Window that a name, a pattern or a pair of times stands for.

    Parameters
    ----------
    dag : Dag
    window : str, re.Pattern or (int, int)
        Name of a host range (``"ProfilerStep#5"``), a glob or regex, or ``(start_ns, end_ns)``.
    on : {"host", "device"}
        The host range itself, or the span of the device work launched in it.
    instance : int, default=0
        Which of several ranges of this name, in order of time; negative from the end.

    Returns
    -------
    Window

    Raises
    ------
    WindowNotFoundError
        If nothing has this name, or there are not as many; the hint lists the steps.
    QueryError
        If this is no window, its times are in the wrong order, or the pattern is no regular
        expression.
    """
    text = getattr(window, "pattern", window)
    if isinstance(window, tuple) or not isinstance(text, str):
        start_ns, end_ns = _times(window)
        return Window(start_ns, end_ns, f"[{start_ns}, {end_ns})")
    if on not in get_args(WindowClock):
        raise QueryError(
            f"no clock is called {on!r}.", hint=f"one of {', '.join(get_args(WindowClock))}."
        )
    rows = named_ranges(dag, window)
    if not isinstance(instance, SupportsIndex):
        raise QueryError(f"{instance!r} is no position.", hint="instance=0 is the first.")
    if not -len(rows) <= instance < len(rows):
        wanted = text if not len(rows) else f"{text}, instance {instance} of {len(rows)}"
        raise WindowNotFoundError(wanted, find_steps(dag.events)["name"].tolist())
    event = int(rows[instance])
    if on == "device":
        return _device_window(dag, event, dag.events.symbols.texts[dag.events.name[event]])
    return range_window(dag, event)
