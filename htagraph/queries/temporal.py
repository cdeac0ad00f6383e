"""What each device does with its time: compute, exposed communication, exposed copies, nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.intervals import sum_by_code
from htagraph.lookup.device_states import CLASSES, device_states, devices_of, runs
from htagraph.model.answers import CLASS_OVERLAP, TEMPORAL_BREAKDOWN
from htagraph.model.dag import Dag
from htagraph.model.window import Window

__all__ = ["class_overlap", "temporal_breakdown"]

_PARTS = ("idle", *(member.label for member in CLASSES))


def temporal_breakdown(dag: Dag, window: Window) -> pd.DataFrame:
    """Return the time of each device by what it does; the parts tile the window.

    Where several classes run at once, compute comes before communication before memory: what is
    counted as communication or memory is exposed, nothing computes meanwhile.

    ::

        stream 7   |   [gemm     ]        [copy]
        stream 9   |         [nccl   ]
        counts as  | i [compute  ][n ][i  ][m  ]

    Parameters
    ----------
    dag : Dag
    window : Window

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
    >>> temporal_breakdown(dag, dag.span)[["idle_ns", "compute_ns", "communication_ns", "memory_ns"]]
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


def class_overlap(dag: Dag, window: Window) -> pd.DataFrame:
    """Return how long which classes of work run at once on each device; the rows of a device add up to the window.

    Parameters
    ----------
    dag : Dag
    window : Window

    Returns
    -------
    DataFrame, schema `answers.CLASS_OVERLAP`
        Largest first within a device.
    """
    found = device_states(dag, window)
    n_masks = 1 << (len(CLASSES) + 1)
    # Devices are few, and so are masks: a dense table of both.
    devices = devices_of(dag)
    time = sum_by_code(
        np.searchsorted(devices, found.group) * n_masks + found.mask,
        found.dur,
        len(devices) * n_masks,
    )
    device, mask = np.divmod(np.flatnonzero(time), n_masks)
    time = time[time > 0]
    order = np.lexsort((mask, -time, device))
    names = np.array([_mask_name(value) for value in range(n_masks)], dtype=object)
    return CLASS_OVERLAP.frame(
        {
            "device": devices[device[order]],
            "classes": names[mask[order]],
            "dur_ns": time[order],
            "share": time[order] / max(window.dur_ns, 1),
        }
    )


def _mask_name(mask: int) -> str:
    """Return the classes of a mask as text."""
    return " + ".join(member.label for member in CLASSES if mask >> int(member) & 1) or "idle"
