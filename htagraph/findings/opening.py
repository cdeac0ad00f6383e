"""The opening of a window in which the device still works off what was launched before the capture.

Nothing in the capture bounds that time. Where it is long, a report is on what follows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.model.kinds import Bound
from htagraph.model.units import human_duration
from htagraph.model.window import Window
from htagraph.path import CriticalPath

__all__ = ["LONG_OPENING", "Opening", "find_opening"]

LONG_OPENING = 0.2
"""Share of a window above which its opening is left out of a report by default."""

_REST = "the part from the first device work on"


class Opening(NamedTuple):
    """Work from before the capture at the start of a window, and what follows.

    Parameters
    ----------
    dur_ns : int, unit=ns
        Time in which the device works off what was launched before the capture.
    rest : Window
        From the first device work that the capture explains to the window's end.
    origin_ns : int, unit=ns
        Start of the trace, from which a ``--window`` counts.
    """

    dur_ns: int
    rest: Window
    origin_ns: int

    @property
    def option(self) -> str:
        """The part that follows, as the command line names it."""
        return f"-w {self.rest.start_ns - self.origin_ns}:{self.rest.end_ns - self.origin_ns}"

    @property
    def sentence(self) -> str:
        """What the window opens with."""
        return (
            "the device still worked off what was launched before the capture for "
            f"{human_duration(self.dur_ns)}"
        )


def find_opening(path: CriticalPath) -> Opening | None:
    """Opening of a window, where it is long.

    Returns
    -------
    Opening or None
        None where a fifth of the window or less was launched before the capture, or nothing
        follows.

    Examples
    --------
    >>> import htagraph as hg
    >>> trace = hg.Trace.from_events(hg.synth.timeline('''
    ...     cpu 1    |[launch >a]
    ...     stream 7 |                    [old ][k <a    ]
    ... '''))
    >>> find_opening(trace.compile().critical_path()).option
    '-w 20000:36000'
    """
    before = np.flatnonzero(path.bounds == Bound.LAUNCHED_BEFORE_CAPTURE)
    waited_ns = int(path.durations_ns[before].sum())
    if waited_ns <= LONG_OPENING * path.dur_ns:
        return None
    start_ns = path.start_ns + int(path.durations_ns[: before[-1] + 1].sum())
    if start_ns >= path.window.end_ns:
        return None
    rest = Window(start_ns, path.window.end_ns, _REST)
    return Opening(waited_ns, rest, path.dag.span.start_ns)
