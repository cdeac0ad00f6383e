"""The default window of a trace: what every answer is about unless another window is asked for.

::

    |  opening  | half step | step 0 |  step 1  |  step 2  |  step 3  | half step |
                                     '------- the default window ------'

Left out are work from before the profile, if it is long; what is around the longest part without
lost records, if much is lost; half steps at either end; and the first step of the trace, if it is
unlike three others. Without two whole steps that are at least half of the rest, it is the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from htagraph.explain.critical_path import path_segments
from htagraph.explain.segments import Segments
from htagraph.lookup.damage import WHOLE_PART, part_to_judge
from htagraph.lookup.done_steps import DoneSteps, done_steps
from htagraph.lookup.find_window import WHOLE
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound
from htagraph.model.names import step_number
from htagraph.model.rules import Rule
from htagraph.model.units import human_duration
from htagraph.model.window import Window

LONG_OPENING = 0.2
"""Share of a window above which its opening with work from before the profile is left out. Chosen:
test_default_window."""

LATER = "the part after work from before the profile"

SAID_FROM = 0.01
"""Share of a window from which on what is left out at its ends is said. Chosen:
test_default_window."""


def default_window(dag: Dag) -> tuple[Window, tuple[str, ...]]:
    """The default window of a trace, and what of the trace it leaves out, in order of time."""
    rest, said = dag.span, []
    if may_open_long(dag):
        path = path_segments(dag, [rest])
        opening_ns = int(path.dur_ns[path.bound == Bound.WORK_FROM_BEFORE_THE_PROFILE].sum())
        found = rest_after_opening(path, rest) if is_long(opening_ns, rest.dur_ns) else None
        if found is not None:
            said.append(opening_in_words(found.start_ns - rest.start_ns))
            rest = found
    if (part := part_to_judge(dag, rest)) is not None:
        said.append(f"{human_duration(rest.dur_ns - part.dur_ns)} around {WHOLE_PART}")
        rest = part
    steps = done_steps(dag)
    some = steps.of_window(rest.start_ns, rest.end_ns)
    if some is None:
        return rest, tuple(said)
    ends = ends_in_words(steps, some, (rest.start_ns, rest.end_ns))
    return steps.window(some), (*said, *ends)


def ends_in_words(steps: DoneSteps, some: slice, rest: tuple[int, int]) -> list[str]:
    """What is left out of a window before some steps and after them."""
    first, (start_ns, end_ns) = int(steps.inside(*rest).argmax()), rest
    before_ns = int(steps.start_ns[first]) - start_ns
    after_ns = end_ns - int(steps.end_ns[some.stop - 1])
    least_ns = SAID_FROM * (end_ns - start_ns)
    said = [f"{human_duration(before_ns)} before the first step"] if before_ns >= least_ns else []
    if some.start > first:
        name = step_in_words(str(steps.names[first]))
        more = some.start - 1 - first
        others = f" and {more:,} more" if more else ""
        said.append(f"{name}{others}, the first of the trace")
    if after_ns >= least_ns:
        said.append(f"{human_duration(after_ns)} after the last step")
    return said


def step_in_words(name: str) -> str:
    """A step by its number, if it has one."""
    number = step_number(name)
    return f"step {number}" if number >= 0 else name


def opening_in_words(opening_ns: int) -> str:
    """An opening that is left out."""
    return f"{human_duration(opening_ns)} of work from before the profile"


def left_out_in_words(parts: Sequence[str]) -> str:
    """The sentence on what is left out, and how to see it; empty for nothing."""
    if not parts:
        return ""
    *others, last = parts
    listed = f"{', '.join(others)} and {last}" if others else last
    return f"Left out: {listed} (-w {WHOLE}: all)."


def may_open_long(dag: Dag) -> bool:
    """Whether work from before the profile may limit the trace for long at first.

    Told from times alone, since a path takes longer. Not where no launch is recorded at all.
    """
    events, edges, is_linked = dag.events, dag.edges, dag.launch >= 0
    if not is_linked.any():
        return False
    unlinked = np.flatnonzero(events.is_device & ~is_linked)
    first = edges.head[edges.rule == Rule.FIRST_DEVICE_WORK]
    begin_ns, host_ns = dag.span.start_ns, events.ts_ns[events.is_host]
    last_ns = events.node_ts_ns[np.append(2 * unlinked + 1, first)].max(initial=begin_ns)
    if len(unlinked) and len(host_ns):  # until the host begins, nothing else is recorded
        last_ns = max(last_ns, host_ns.min())
    return is_long(int(last_ns) - begin_ns, dag.span.dur_ns)


def is_long(opening_ns: int, window_ns: int) -> bool:
    """Whether the opening of a window is left out by default."""
    return opening_ns > LONG_OPENING * window_ns


def rest_after_opening(path: Segments, window: Window) -> Window | None:
    """What follows the opening of a window, however short that is; None for nothing."""
    before = np.flatnonzero(path.bound == Bound.WORK_FROM_BEFORE_THE_PROFILE)
    if not len(before):
        return None
    start_ns = int(path.start_ns[before[-1]] + path.dur_ns[before[-1]])
    return Window(start_ns, window.end_ns, LATER) if start_ns < window.end_ns else None
