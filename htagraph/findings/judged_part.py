"""The part of a window that can be judged, where too much of the whole is unexplained."""

from __future__ import annotations

import numpy as np

from htagraph.model.kinds import Cause
from htagraph.model.window import Window
from htagraph.path import CriticalPath

__all__ = ["judged_part"]

_MIN_SHARE = 0.1
"""Part of the window that is worth a report of its own."""


def judged_part(path: CriticalPath, limit: float) -> Window | None:
    """Longest part of a window whose own critical path is unexplained by half a limit at most.

    Parameters
    ----------
    limit : float
        Share of unexplained time above which a window is not judged.

    Returns
    -------
    Window or None
        None if no such part is a tenth of the window.
    """
    time = path.attributed_time.sort_values("start_ns", kind="stable")
    dur_ns = time["dur_ns"].to_numpy()
    unknown_ns = np.where(time["cause"] == Cause.UNEXPLAINED, dur_ns, 0)
    # A part is good enough if what is unexplained in it, less its allowance, is not above zero.
    excess = np.append(0.0, np.cumsum(unknown_ns - limit / 2 * dur_ns))
    highest = np.maximum.accumulate(excess)
    first = np.searchsorted(highest, excess)
    times = path.window.start_ns + np.append(0, np.cumsum(dur_ns))
    last = int(np.argmax(times - times[first]))
    start_ns, end_ns = int(times[first[last]]), int(times[last])
    if end_ns - start_ns < max(1, _MIN_SHARE * path.dur_ns):
        return None
    part = Window(start_ns, end_ns, f"[{start_ns}, {end_ns})")
    # The path of a part is its own: it may run elsewhere than that of the whole.
    found = CriticalPath(path.dag, part, path.rank, path.origin)
    known = found.attributed_time
    unknown = int(known.loc[known["cause"] == Cause.UNEXPLAINED, "dur_ns"].sum())
    return part if unknown <= limit * part.dur_ns else None
