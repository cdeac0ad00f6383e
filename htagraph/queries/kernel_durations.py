"""Kernels, copies and fills one by one, each with what launched it."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from htagraph.lookup.attribution import innermost
from htagraph.lookup.clipping import device_work
from htagraph.lookup.naming import modules_at, names_or_empty, op_names
from htagraph.model.answers import KERNEL_DURATIONS
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind, KernelClass
from htagraph.model.schema import categorical
from htagraph.model.window import Window


def kernel_durations(
    dag: Dag, window: Window, *, name: str | re.Pattern[str] = "*"
) -> pd.DataFrame:
    """Kernels, copies and fills that overlap the window, with what launched each, by start.

    Durations are not clipped to the window.
    """
    events = dag.events
    rows = device_work(dag, window).event
    rows = rows[events.named(events.symbols.named(name))[rows]]
    keys = (events.stream, events.device, events.end_ns, events.ts_ns)
    rows = rows[np.lexsort([key[rows] for key in keys])]
    calls = dag.unrolled
    module = modules_at(calls, calls.launch[rows].astype(np.int64))
    return KERNEL_DURATIONS.frame(
        {
            "event": rows,
            "name": events.names(rows),
            "class": categorical(dag.classification.kernel_class[rows], KernelClass.labels()),
            "op": op_names(dag, rows),
            "annotation": names_or_empty(dag, innermost(dag, rows, (EventKind.ANNOTATION,))),
            "module": names_or_empty(calls, module),
            "device": events.device[rows],
            "stream": events.stream[rows],
            "ts_ns": events.ts_ns[rows],
            "dur_ns": events.dur_ns[rows],
        }
    )
