"""Time of each device: compute, exposed communication, exposed copies, idle."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.intervals import sum_by_code
from htagraph.lookup.device_states import CLASSES, device_states, devices_of, runs
from htagraph.model.answers import TEMPORAL_BREAKDOWN
from htagraph.model.dag import Dag
from htagraph.model.window import Window

_PARTS = ("idle", *(member.label for member in CLASSES))


def temporal_breakdown(dag: Dag, window: Window) -> pd.DataFrame:
    """Time of each device by what it does; the parts tile the window.

    Concurrent classes count as compute before communication before memory, so communication and
    memory are exposed time, without any compute.

    ::

        stream 7   |   [gemm     ]        [copy]
        stream 9   |         [nccl   ]
        counts as  | i [compute  ][n ][i  ][m  ]

    Returns
    -------
    DataFrame, schema `answers.TEMPORAL_BREAKDOWN`
        One row per device that has work in the trace.

    Examples
    --------
    >>> from htagraph.compiler.passes import compile_events
    >>> from htagraph.synth import timeline
    >>> dag = compile_events(timeline('''
    ...     stream 7 |[gemm  ]      [Memcpy]
    ...     stream 9 |    [ncclK  ]
    ... '''))
    >>> found = temporal_breakdown(dag, dag.span)
    >>> found[["idle_ns", "compute_ns", "communication_ns", "memory_ns"]]
       idle_ns  compute_ns  communication_ns  memory_ns
    0     1000        8000              5000       8000
    """
    devices, found = devices_of(dag), device_states(dag, window)
    part = np.select([runs(found, member) for member in CLASSES], [1, 2, 3], default=0)
    code = np.searchsorted(devices, found.group) * len(_PARTS) + part
    time = sum_by_code(code, found.dur, len(devices) * len(_PARTS)).reshape(
        len(devices), len(_PARTS)
    )
    shares = time / max(window.dur_ns, 1)
    return TEMPORAL_BREAKDOWN.frame(
        {"device": devices, "window_ns": np.full(len(devices), window.dur_ns)}
        | {f"{name}_ns": time[:, column] for column, name in enumerate(_PARTS)}
        | {f"{name}_share": shares[:, column] for column, name in enumerate(_PARTS)}
    )
