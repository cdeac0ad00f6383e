"""Kernels, copies and fills one by one."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from htagraph.lookup.clipping import device_work
from htagraph.lookup.naming import op_names
from htagraph.model.answers import KERNEL_DURATIONS
from htagraph.model.dag import Dag
from htagraph.model.kinds import KernelClass
from htagraph.model.schema import categorical
from htagraph.model.symbols import compile_pattern
from htagraph.model.window import Window

__all__ = ["kernel_durations"]


def kernel_durations(
    dag: Dag, window: Window, *, name: str | re.Pattern[str] = "*"
) -> pd.DataFrame:
    """Kernels, copies and fills that overlap the window, one by one, in order of time.

    Parameters
    ----------
    name : str or re.Pattern, default="*"
        Glob or regex of their names.

    Returns
    -------
    DataFrame, schema `answers.KERNEL_DURATIONS`
        Durations are whole, also of what crosses a bound of the window.
    """
    events = dag.events
    rows = device_work(dag, window).event
    rows = rows[events.named(events.symbols.mask(compile_pattern(name)))[rows]]
    rows = rows[
        np.lexsort(
            (events.stream[rows], events.device[rows], events.end_ns[rows], events.ts_ns[rows])
        )
    ]
    return KERNEL_DURATIONS.frame(
        {
            "event": rows,
            "name": events.names(rows),
            "class": categorical(dag.classification.kernel_class[rows], KernelClass.labels()),
            "op": op_names(dag, rows),
            "device": events.device[rows],
            "stream": events.stream[rows],
            "ts_ns": events.ts_ns[rows],
            "dur_ns": events.dur_ns[rows],
        }
    )
