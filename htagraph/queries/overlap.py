"""How much communication is hidden behind compute."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.intervals import sum_by_code
from htagraph.lookup.device_states import device_states, devices_of, runs
from htagraph.model.answers import OVERLAP
from htagraph.model.dag import Dag
from htagraph.model.kinds import KernelClass
from htagraph.model.window import Window


def overlap(dag: Dag, window: Window) -> pd.DataFrame:
    """Time in which each device computes, communicates, or does both.

    Returns
    -------
    DataFrame, schema `answers.OVERLAP`
        One row per device that has work in the trace.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     stream 7 |[gemm  ]
    ...     stream 9 |    [ncclK  ]
    ... '''))
    >>> overlap(dag, dag.span)[["compute_ns", "communication_ns", "overlap_ns", "exposed_ns"]]
       compute_ns  communication_ns  overlap_ns  exposed_ns
    0        8000              9000        4000        5000
    """
    devices, found = devices_of(dag), device_states(dag, window)
    code = np.searchsorted(devices, found.group)
    computes = runs(found, KernelClass.COMPUTE)
    communicates = runs(found, KernelClass.COMMUNICATION)
    compute, communication, both = (
        sum_by_code(code[rows], found.dur[rows], len(devices))
        for rows in (computes, communicates, computes & communicates)
    )
    share = np.full(len(devices), np.nan)
    np.divide(both, communication, out=share, where=communication > 0)
    return OVERLAP.frame(
        {
            "device": devices,
            "compute_ns": compute,
            "communication_ns": communication,
            "overlap_ns": both,
            "exposed_ns": communication - both,
            "overlap_share": share,
        }
    )
