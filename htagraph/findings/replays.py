"""Whether captured graphs are bound by their launches or by their work, in one sentence."""

from __future__ import annotations

from htagraph.explain.replay_time import ReplayTime

_COSTS = 0.05
"""Share of the window above which lost time is named.

Chosen. Pinned by `test_replays.py::test_lost_time_is_named_from_a_twentieth_on`.
"""

_MOST = 0.5
"""More than this share is most of the window. Pinned by the same test."""

_MEANING = {
    "launch": "Launch-bound: the host launches the next graph too late.",
    "graph": "Graph-bound: time is lost inside the replays, in gaps between short nodes.",
    "kernels": "Graph-bound: most time is spent inside the replays, in the kernels themselves.",
    "": "Neither late launches nor the graphs are the main cost.",
}


def replay_bound(found: ReplayTime) -> str:
    """What limits captured graphs: late launches, gaps between nodes, the kernels, or neither.

    Returns
    -------
    {"launch", "graph", "kernels", ""}
    """
    lost_ns = max(found.late_ns, found.gap_ns)
    if lost_ns > _COSTS * found.window_ns:
        return "launch" if found.late_ns >= found.gap_ns else "graph"
    return "kernels" if found.inside_ns > _MOST * found.window_ns else ""


def replays_in_words(found: ReplayTime) -> str:
    """What limits captured graphs, with the times that show it; empty without replays.

    Examples
    --------
    >>> print(replays_in_words(ReplayTime(3, 1_000, 600, 30, 300, 290)))
    Launch-bound: the host launches the next graph too late. Replays of captured graphs (3) take
    60.0% of the window: the device is busy for 95.0% of that and idle between nodes for 5.0%.
    Between replays it is idle for 30.0% of the window, for 29.0% before the host calls the next
    launch.
    """
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
