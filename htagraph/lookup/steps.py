"""Steps of a trace: all, those in a window, and the step at a time.

Host ranges by their names, and their windows.
"""

from __future__ import annotations

import re
from typing import SupportsIndex, get_args

import numpy as np
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.errors import QueryError, WindowNotFoundError
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.events import EventTable
from htagraph.model.frames import STEPS
from htagraph.model.kinds import EventKind
from htagraph.model.names import STEP_MARKERS, without_step_number
from htagraph.model.window import Window, WindowClock


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
    """Row of the step at each time, -1 for none; of steps that overlap, the last begun."""
    start_ns = steps["start_ns"].to_numpy(np.int64)
    return last_begun(start_ns, start_ns + steps["dur_ns"].to_numpy(np.int64), ts_ns)


def last_begun(start_ns: I64, end_ns: I64, ts_ns: I64) -> I64:
    """The same of ranges given by their bounds."""
    last = np.searchsorted(start_ns, ts_ns, side="right")
    last -= 1
    last[ts_ns >= gather(end_ns, last, 0)] = -1
    return last


def without_numbers(names: pd.Series[str]) -> pd.Series[str]:
    """Names without the numbers of the profiler's steps."""
    return names.map({name: without_step_number(name) for name in names.unique()})


def is_annotation(dag: Dag, name: str) -> bool:
    """Whether an annotation of the host is really called so."""
    events, code = dag.events, dag.events.symbols.code(name)
    return code >= 0 and bool(np.any((events.name == code) & (events.kind == EventKind.ANNOTATION)))


def named_ranges(dag: Dag, name: str | re.Pattern[str]) -> I64:
    """Host ranges with a name, else those that match it, in order of time.

    Operators count only if no annotation matches.
    """
    events = dag.events
    code = events.symbols.code(name) if isinstance(name, str) else -1
    same = events.name == code if code >= 0 else np.zeros(len(events), dtype=bool)
    matching = events.named(events.symbols.named(name))
    for wanted in (same, matching):
        for kind in (EventKind.ANNOTATION, EventKind.OP):
            rows = np.flatnonzero(wanted & (events.kind == kind))
            if len(rows):
                return rows[np.lexsort((-events.dur_ns[rows], events.ts_ns[rows]))]
    return np.empty(0, dtype=np.int64)


def _device_window(dag: Dag, event: int) -> Window:
    """Span of the device work launched in a host range."""
    events = dag.events
    name = events.symbols.texts[events.name[event]]
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
    is_step = bool((step_events(events)[0] == event).any())
    times = int(events.ts_ns[event]), int(events.end_ns[event])
    return Window(*times, name, anchor=2 * event + 1, n_steps=int(is_step))


def instance_window(
    dag: Dag, rows: I64, wanted: str, *, on: WindowClock = "host", instance: int = 0
) -> Window:
    """Window of one of several host ranges, in order of time; see `find_window`.

    `wanted` is their name, for messages.
    """
    if on not in get_args(WindowClock):
        raise QueryError(
            f"there is no clock {on!r}.", hint=f"one of {', '.join(get_args(WindowClock))}."
        )
    if not isinstance(instance, SupportsIndex):
        raise QueryError(
            f"instance={instance!r} is not an integer.", hint="instance=0 is the first."
        )
    if not -len(rows) <= instance < len(rows):
        steps = find_steps(dag.events)["name"].tolist()
        if len(rows):
            raise WindowNotFoundError(f"{wanted}, instance {instance} of {len(rows)}", steps)
        raise WindowNotFoundError(wanted, steps, similar=_range_names(dag))
    event = int(rows[instance])
    return _device_window(dag, event) if on == "device" else range_window(dag, event)


def _range_names(dag: Dag) -> list[str]:
    """Names of all host ranges, annotations first."""
    events = dag.events
    codes = [
        np.unique(events.name[events.kind == kind]) for kind in (EventKind.ANNOTATION, EventKind.OP)
    ]
    return [events.symbols.texts[code] for code in np.concatenate(codes).tolist()]
