"""Whether replayed work is bound by launches or by its graphs, in one sentence."""

from __future__ import annotations

from htagraph.explain.replay_time import ReplayTime
from htagraph.model.units import human_count

__all__ = ["replay_bound", "replays_in_words"]

_COSTS = 0.05
"""Share of the window that is worth saying what it is lost to."""
_MOST = 0.5

_MEANING = {
    "launch": "Launch-bound: the host launches the next graph too late.",
    "graph": "Graph-bound: what costs is inside the replays, in the gaps between short nodes.",
    "kernels": "Graph-bound: what costs is inside the replays, and there the kernels themselves.",
    "": "Neither late launches nor gaps between nodes cost most.",
}


def replay_bound(found: ReplayTime) -> str:
    """What replayed work is bound by.

    Parameters
    ----------
    found : ReplayTime

    Returns
    -------
    {"launch", "graph", "kernels", ""}
        Late launches, gaps between nodes, or the kernels; empty where none of them is.
    """
    lost_ns = max(found.late_ns, found.gap_ns)
    if lost_ns > _COSTS * found.window_ns:
        return "launch" if found.late_ns >= found.gap_ns else "graph"
    return "kernels" if found.inside_ns > _MOST * found.window_ns else ""


def replays_in_words(found: ReplayTime) -> str:
    """What replayed work is bound by, with the times that say so; empty without replays.

    Parameters
    ----------
    found : ReplayTime

    Examples
    --------
    >>> print(replays_in_words(ReplayTime(3, 1_000, 600, 30, 300, 290)))
    3 replays of captured graphs take 60.0% of the window; ... Launch-bound: ...
    """
    if not found.n_replays or not found.window_ns:
        return ""
    gap = found.gap_ns / max(found.inside_ns, 1)
    return (
        f"{human_count(found.n_replays, 'replay')} of captured graphs take "
        f"{found.inside_ns / found.window_ns:.1%} of the window; inside them the device is busy "
        f"for {1 - gap:.1%} and idle between nodes for {gap:.1%}; outside them it is idle for "
        f"{found.idle_ns / found.window_ns:.1%} of the window, "
        f"{found.late_ns / found.window_ns:.1%} before the host calls the next launch. "
        f"{_MEANING[replay_bound(found)]}"
    )
