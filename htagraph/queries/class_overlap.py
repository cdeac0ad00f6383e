"""Time in which classes of work run concurrently on each device."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.intervals import sum_by_code
from htagraph.lookup.device_states import CLASSES, device_states, devices_of
from htagraph.model.answers import CLASS_OVERLAP
from htagraph.model.dag import Dag
from htagraph.model.window import Window


def class_overlap(dag: Dag, window: Window) -> pd.DataFrame:
    """Time of each device by the set of classes that run concurrently; it adds up to the window.

    ::

        stream 7 |[gemm  ]
        stream 9 |    [nccl  ]          compute 4, compute + communication 4, communication 4

    Returns
    -------
    DataFrame, schema `answers.CLASS_OVERLAP`
        Largest first within a device.
    """
    found = device_states(dag, window)
    n_masks = 1 << (len(CLASSES) + 1)
    # A dense table, since devices and masks are few.
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
    """Classes of a mask as text."""
    return " + ".join(member.label for member in CLASSES if mask >> int(member) & 1) or "idle"
