"""The opening of a window, in which the device still runs work from before the profile.

Nothing in the capture bounds that time. If it is long, a report covers what follows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.model.kinds import Bound
from htagraph.model.units import human_duration
from htagraph.model.window import Window
from htagraph.path import CriticalPath

__all__ = ["LATER", "LONG_OPENING", "Opening", "find_opening", "rest_after_opening"]

LONG_OPENING = 0.2
"""Share of a window above which a report leaves out its opening by default.

Chosen. Pinned by `test_opening.py::test_an_opening_is_long_from_a_fifth_on`.
"""

LATER = "the part after work from before the profile"


class Opening(NamedTuple):
    """Work from before the profile at the start of a window, and what follows.

    Parameters
    ----------
    dur_ns : int, unit=ns
        Time in which the device runs work from before the profile.
    rest : Window
        From the first device work that the capture explains to the window's end.
    origin_ns : int, unit=ns
        Start of the trace, from which ``--window`` counts.
    """

    dur_ns: int
    rest: Window
    origin_ns: int

    @property
    def option(self) -> str:
        """The option of the command line for the part that follows."""
        return f"-w {self.rest.start_ns - self.origin_ns}:{self.rest.end_ns - self.origin_ns}"

    @property
    def sentence(self) -> str:
        """The opening in words."""
        ran = human_duration(self.dur_ns)
        return f"the device still ran work from before the profile for {ran}"


def find_opening(path: CriticalPath) -> Opening | None:
    """Opening of a window; None if it is a fifth of it or less, or nothing follows.

    Examples
    --------
    >>> import htagraph as hg
    >>> trace = hg.Trace.from_events(hg.synth.timeline('''
    ...     cpu 1    |[launch >a]
    ...     stream 7 |                    [old ][k <a    ]
    ... '''))
    >>> find_opening(trace.compile().critical_path()).option
    '-w 26000:36000'
    """
    waited_ns = int(path.durations_ns[path.bounds == Bound.WORK_FROM_BEFORE_THE_PROFILE].sum())
    if waited_ns <= LONG_OPENING * path.dur_ns:
        return None
    rest = rest_after_opening(path)
    return None if rest is None else Opening(waited_ns, rest, path.dag.span.start_ns)


def rest_after_opening(path: CriticalPath) -> Window | None:
    """What follows the opening of a window, however short that is; None for nothing."""
    before = np.flatnonzero(path.bounds == Bound.WORK_FROM_BEFORE_THE_PROFILE)
    if not len(before):
        return None
    start_ns = path.start_ns + int(path.durations_ns[: before[-1] + 1].sum())
    return Window(start_ns, path.window.end_ns, LATER) if start_ns < path.window.end_ns else None
