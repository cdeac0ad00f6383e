"""Steps of a trace: all, those in a window, and the step at a time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.model.arrays import I64
from htagraph.model.events import EventTable
from htagraph.model.frames import STEPS
from htagraph.model.kinds import EventKind
from htagraph.model.step_markers import STEP_MARKERS, without_step_number
from htagraph.model.window import Window


def find_steps(events: EventTable) -> pd.DataFrame:
    """Steps of a trace, in order of time.

    Steps are host ranges with a ``step_num`` (JAX's ``StepTraceAnnotation``); else those named
    ``ProfilerStep#n``; else the markers of serving engines (vLLM ``execute_…``, SGLang
    ``step[…]``), see column `found_by`. Empty if nothing marks steps.
    """
    rows, found_by = step_events(events)
    if not len(rows):
        return STEPS.empty()
    return STEPS.frame(
        {
            "step": np.arange(len(rows)),
            "name": events.names(rows),
            "start_ns": events.ts_ns[rows],
            "dur_ns": events.dur_ns[rows],
            "event": rows,
            "found_by": pd.Categorical([found_by] * len(rows)),
        }
    )


def step_events(events: EventTable) -> tuple[I64, str]:
    """Events that are steps, in order of time, and what marks them; without pandas."""
    annotations = np.flatnonzero(events.kind == EventKind.ANNOTATION)
    if not len(annotations):
        return annotations, ""
    found = {"step number": events.column("step_num")[annotations] >= 0} | {
        found_by: events.symbols.searched(marker)[events.name[annotations]]
        for found_by, marker in STEP_MARKERS.items()
    }
    found_by = next((by for by, is_step in found.items() if is_step.any()), "")
    rows = annotations[found[found_by]] if found_by else annotations[:0]
    return rows[np.lexsort((events.end_ns[rows], events.ts_ns[rows]))], found_by


def steps_in(events: EventTable, window: Window) -> pd.DataFrame:
    """Steps that overlap a window, whole; see `find_steps`."""
    steps = find_steps(events)
    inside = steps["start_ns"] < window.end_ns
    inside &= steps["start_ns"] + steps["dur_ns"] > window.start_ns
    return steps[inside]


def step_at(steps: pd.DataFrame, ts_ns: I64) -> I64:
    """Row of the step at each time, -1 for none; of steps that overlap, the last begun.

    Examples
    --------
    >>> steps = pd.DataFrame({"start_ns": [10, 20], "dur_ns": [15, 5]})
    >>> step_at(steps, np.array([0, 12, 22, 25])).tolist()
    [-1, 0, 1, -1]
    """
    start_ns = steps["start_ns"].to_numpy(np.int64)
    return last_begun(start_ns, start_ns + steps["dur_ns"].to_numpy(np.int64), ts_ns)


def last_begun(start_ns: I64, end_ns: I64, ts_ns: I64) -> I64:
    """The same of ranges given by their bounds."""
    last = np.searchsorted(start_ns, ts_ns, side="right")
    last -= 1
    last[ts_ns >= gather(end_ns, last, 0)] = -1
    return last


def without_numbers(names: pd.Series[str]) -> pd.Series[str]:
    """Names without the numbers of the profiler's steps.

    Examples
    --------
    >>> without_numbers(pd.Series(["ProfilerStep#12", "aten::mm"])).tolist()
    ['ProfilerStep', 'aten::mm']
    """
    return names.map({name: without_step_number(name) for name in names.unique()})
