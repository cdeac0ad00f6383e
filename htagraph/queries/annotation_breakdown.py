"""Time under host annotations, and the device work launched in them."""

from __future__ import annotations

import re

import pandas as pd

from htagraph.explain.annotated_time import RangesOfWork, annotated_time
from htagraph.lookup.attribution import innermost
from htagraph.lookup.clipping import device_work
from htagraph.model.answers import ANNOTATION_BREAKDOWN
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window

__all__ = ["annotation_breakdown"]


def annotation_breakdown(
    dag: Dag, window: Window, *, name: str | re.Pattern[str] = "*"
) -> pd.DataFrame:
    """Annotated host ranges by name, with the device work launched in them.

    ::

        cpu 1    | {## forward ##  [launch >a]   }
        stream 7 |                        [gemm <a        ]     of ## forward ##, whenever it runs

    Parameters
    ----------
    window : Window
        Host times and device times are those inside it.
    name : str or re.Pattern, default="*"
        Name, glob or regex of annotations.

    Returns
    -------
    DataFrame, schema `answers.ANNOTATION_BREAKDOWN`
        Most device time first. ``self_device_ns`` adds up, over all annotations, to the device time
        launched in any.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     cpu 1    |{forward [launch >a]}{backward }
    ...     stream 7 |             [gemm <a          ]
    ... '''))
    >>> found = annotation_breakdown(dag, dag.span)
    >>> found[["name", "n_ranges", "sum_ns", "n_kernels", "device_ns"]]
           name  n_ranges  sum_ns  n_kernels  device_ns
    0   forward         1   21000          1      19000
    1  backward         1   11000          0          0
    """
    work = device_work(dag, window)
    own = innermost(dag, work.event, (EventKind.ANNOTATION,))
    return annotated_time(
        dag,
        window,
        RangesOfWork(work, own, dag.parent),
        kind=EventKind.ANNOTATION,
        name=name,
        schema=ANNOTATION_BREAKDOWN,
    )
