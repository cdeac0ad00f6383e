"""Speed-up curves: what a window saves as something takes less and less of its time.

After the virtual speed-ups of Coz (Curtsinger and Berger, 2015), which slows a running program;
here, a recorded one is replayed. A bend shows where something else becomes the bottleneck.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from htagraph.algorithms.retime import DROPPED, retime
from htagraph.model.frames import SPEED_UPS
from htagraph.model.progress import counted
from htagraph.replay.assumptions import Reading
from htagraph.replay.changes import Scale
from htagraph.replay.draft import Draft
from htagraph.replay.rehearsal import Rehearsal

__all__ = ["speed_ups"]

_LESS = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 1.0])
"""Points of a curve: the share of its time that a target no longer takes; none of it first, which
saves nothing. Chosen: test_curves."""


def speed_ups(rehearsal: Rehearsal, targets: Sequence[str]) -> pd.DataFrame:
    """The `frames.SPEED_UPS` of each target: names of kernels, operators or calls.

    Raises
    ------
    QueryError
        If a target is not in the trace.
    """
    saved = np.array(
        [
            [_saved_ns(rehearsal, target, reading) for reading in rehearsal.readings]
            for target in counted("curve", targets)
        ],
        dtype=np.int64,
    ).reshape(len(targets), len(rehearsal.readings), len(_LESS))
    error_ns = np.where(saved.any(axis=1), rehearsal.run_to_run_ns, 0)
    low, high = saved.min(axis=1) - error_ns, saved.max(axis=1) + error_ns
    found = {"saves": saved[:, 0], "low": low, "high": high}
    window_ns = max(rehearsal.window.dur_ns, 1)
    return SPEED_UPS.frame(
        {
            "target": np.repeat(np.array(targets, dtype=object), len(_LESS)),
            "less_share": np.tile(_LESS, len(targets)),
            **{f"{which}_ns": times.ravel() for which, times in found.items()},
            **{f"{which}_share": times.ravel() / window_ns for which, times in found.items()},
        }
    )


def _saved_ns(rehearsal: Rehearsal, target: str, reading: Reading) -> list[int]:
    """Time saved at each point, under one reading."""
    # The target is found once, at no time; the lags of all points are in between.
    draft, replay = Draft(rehearsal.dag, reading), reading.replay
    Scale(target, 0.0).apply(draft)
    scaled = np.flatnonzero((replay.lag_ns != draft.lag_ns) & (replay.lag_ns != DROPPED))
    full, weight_ns = replay.lag_ns[scaled], draft.weight_ns
    saved = [0]
    for less in _LESS[1:]:
        lag_ns = np.rint(full * (1 - less)).astype(np.int64)
        weight_ns[scaled] = lag_ns + draft.extra_ns[scaled]
        times_ns = retime(replay.offsets, replay.tail, weight_ns, draft.release_ns)
        saved.append(rehearsal.window.dur_ns - rehearsal.dur_ns(times_ns))
    return saved
