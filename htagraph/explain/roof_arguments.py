"""What is drawn of the roofline on each kernel and operator: rates, share of the roof, limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from htagraph.algorithms.gather import gather
from htagraph.lookup.launch_geometry import geometry_devices
from htagraph.lookup.operator_roofs import Limit, operator_roofs
from htagraph.model.arrays import I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import DEVICE_KINDS, among
from htagraph.operators.peaks import peaks_of

_NS = 1e9


def roof_arguments(dag: Dag) -> Mapping[str, tuple[I64, npt.NDArray[Any]]]:
    """Arguments of operators with a model and of their device work, by name: events and values.

    All kernels of a call have the values of the call. Empty, at no cost, if the peaks of no device
    are known.
    """
    if not any(map(peaks_of, geometry_devices(dag).values())):
        return {}
    events = dag.events
    work = np.flatnonzero(among(events.kind, DEVICE_KINDS))
    roofs = operator_roofs(dag, work, events.dur_ns[work])
    if not roofs.has_peaks:
        return {}
    calls = roofs.work
    call = np.full(len(events), -1, dtype=np.int64)
    # Operators of a capture are not in the trace, only the kernels of their replays are.
    is_here = calls.event < len(events)
    call[calls.event[is_here]] = np.flatnonzero(is_here)
    call[work] = calls.call
    rows = np.flatnonzero(call >= 0)
    seconds = np.maximum(roofs.device_ns, 1) / _NS
    n_bytes = np.where(calls.host_bytes >= 0, calls.host_bytes, calls.of_calls("bytes_low"))
    tflops, gigabytes = calls.of_calls("flops") / seconds / 1e12, n_bytes / seconds / 1e9
    share = roofs.roof_ns / np.maximum(roofs.device_ns, 1)
    limit = np.array(Limit.labels(), dtype=object)[roofs.limit]
    judged = rows[gather(roofs.limit, call[rows]) != Limit.UNKNOWN]
    multiplies = rows[gather(tflops, call[rows]) > 0]
    return {
        "roof_tflops_per_s": (multiplies, np.round(tflops[call[multiplies]], 1)),
        "roof_gb_per_s": (rows, np.round(gigabytes[call[rows]], 1)),
        "roof_share": (judged, np.round(share[call[judged]], 3)),
        "roof_limit": (judged, limit[call[judged]]),
    }
