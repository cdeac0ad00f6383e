"""Whether a trace shows too little of a run to be judged."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from htagraph.model.damage import Damage, DamageKind
from htagraph.model.kinds import Bound
from htagraph.model.units import human_count, human_duration

_FEW_EVENTS = 100
"""Below this number of events on all threads, a trace is not the profile of a step. Chosen: a step
of a small model has several hundred. Pinned with `_LEAST_SHARE` by `test_too_little.py`.
"""

_LEAST_SHARE = 0.01
"""Share of the path in operators, functions, ranges and calls below which nothing is known of it.

Chosen: of what else there is, not even the neighbours are known.
"""


def too_little(attributed_time: pd.DataFrame, n_events: int, *, has_device: bool) -> str:
    """Why a path cannot be judged, and what to capture; empty if it can.

    It cannot if there is no device work, hardly an event in the whole trace, and nothing recorded
    on the path.
    """
    if has_device or n_events >= _FEW_EVENTS or not len(attributed_time):
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
        "ProfilerActivity.CPU and the device's activity (ProfilerActivity.CUDA), and "
        "with_stack=True for Python code."
    )


def before_the_device(damage: Iterable[Damage], *, has_device: bool, uses_device: bool) -> str:
    """Why a cut file without device work cannot be judged, and what to do; empty if it can.

    It cannot if the process used a device: a profiler writes device work last.
    """
    is_cut = any(one.kind == DamageKind.CUT_FILE for one in damage)
    if has_device or not uses_device or not is_cut:
        return ""
    return (
        "the file is cut off and ends before the device begins, so what the device did is unknown. "
        "Copy the whole file, or capture again, and wait until it is written."
    )
