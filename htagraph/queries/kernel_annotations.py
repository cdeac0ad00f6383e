"""Where each kernel, copy and fill was launched from: annotation, operator and module."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.lookup.attribution import innermost
from htagraph.lookup.clipping import device_work
from htagraph.lookup.naming import MODULE, frames_at, names_or_empty
from htagraph.model.answers import KERNEL_ANNOTATIONS
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window

__all__ = ["kernel_annotations"]


def kernel_annotations(dag: Dag, window: Window) -> pd.DataFrame:
    """Kernels, copies and fills, each with the annotation, operator and module that launched it.

    Returns
    -------
    DataFrame, schema `answers.KERNEL_ANNOTATIONS`
        In order of time.
    """
    events, work = dag.events, device_work(dag, window)
    work = work.take(np.lexsort((events.stream[work.event], work.end_ns, work.start_ns)))
    launch = dag.launch[work.event]
    lane = gather(events.lane.astype(np.int64), launch)
    called = gather(events.ts_ns, launch, 0)
    return KERNEL_ANNOTATIONS.frame(
        {
            "event": work.event,
            "name": events.names(work.event),
            "dur_ns": work.dur_ns,
            "annotation": names_or_empty(dag, innermost(dag, work.event, (EventKind.ANNOTATION,))),
            "op": names_or_empty(dag, innermost(dag, work.event, (EventKind.OP,))),
            "module": names_or_empty(dag, frames_at(dag, lane, called, MODULE)),
        }
    )
