"""Time under annotations as the profiler projected them onto the device."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from htagraph.explain.annotated_time import RangesOfWork, annotated_time
from htagraph.lookup.clipping import device_work
from htagraph.lookup.naming import innermost_at
from htagraph.model.answers import DEVICE_ANNOTATION_BREAKDOWN
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window

__all__ = ["device_annotation_breakdown"]


def device_annotation_breakdown(
    dag: Dag, window: Window, *, name: str | re.Pattern[str] = "*"
) -> pd.DataFrame:
    """Annotations as they were projected onto the device (``gpu_user_annotation``), by name.

    Parameters
    ----------
    name : str or re.Pattern, default="*"
        Name, glob or regex of annotations.

    Returns
    -------
    DataFrame, schema `answers.DEVICE_ANNOTATION_BREAKDOWN`
        Ranges are those on the device: from the first to the last work launched in the annotation,
        on one stream. Their device work is what begins on that stream inside them. Empty where the
        trace has none.
    """
    events, work = dag.events, device_work(dag, window)
    ranges = np.flatnonzero(events.kind == EventKind.DEVICE_ANNOTATION)
    lane = events.lane[work.event].astype(np.int64)
    own, parent = innermost_at(dag, ranges, lane, events.ts_ns[work.event])
    return annotated_time(
        dag,
        window,
        RangesOfWork(work, own, parent),
        kind=EventKind.DEVICE_ANNOTATION,
        name=name,
        schema=DEVICE_ANNOTATION_BREAKDOWN,
    )
