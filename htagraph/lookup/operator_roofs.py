"""The roof of each operator call: the least time that its device needs for its work."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from htagraph.lookup.device_clocks import device_clocks
from htagraph.lookup.launch_geometry import geometry_devices
from htagraph.lookup.operator_work import OperatorWork, operator_work
from htagraph.model.arrays import F64, I64
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.operators.peaks import DevicePeaks, peaks_of

__all__ = ["Limit", "OperatorRoofs", "operator_roofs"]

_NS = 1e9
_FEWEST_KERNELS = 100
"""Kernels from which their shortest durations show what a launch takes on the device. Chosen."""
_MOST_OPEN = 2
"""Most bytes over least bytes of a call with a roof: of fused kernels, which may read and write.

Types of tensors in lists are not recorded, so that their bytes are open by 8: a roof would be a
guess. Pinned by `test_roofline.py::test_tensors_of_unknown_type_have_no_roof`.
"""
_SHORTEST_PERCENTILE = 1
"""Percentile of durations that a kernel with nothing to do takes: the shortest may be cut."""


class Limit(IntEnum):
    """What a call cannot be faster than."""

    COMPUTE = 0
    MEMORY = 1
    LAUNCH = 2
    HOST_LINK = 3
    CACHE = 4
    UNKNOWN = 5

    @staticmethod
    def labels() -> tuple[str, ...]:
        """Their names, by code."""
        return tuple(one.name.lower().replace("_", " ") for one in Limit)


class OperatorRoofs(NamedTuple):
    """Calls with a model, the time of their device work, and the least time that it needs.

    Parameters
    ----------
    device_ns : ndarray of shape (n_calls,), dtype=int64, unit=ns
    roof_ns : ndarray of shape (n_calls,), dtype=float64, unit=ns
        At most `device_ns`: work that fits in the cache may be faster than memory. If it is not
        known, `device_ns`, so that nothing is gained.
    limit : ndarray of shape (n_calls,), dtype=int64
        Codes of `Limit`.
    compute_ns : ndarray of shape (n_calls,), dtype=float64, unit=ns
        Time of its operations at the dense peak.
    memory_ns : ndarray of shape (n_calls,), dtype=float64, unit=ns
        Time of its compulsory bytes at memory bandwidth.
    has_peaks : bool
        Whether the peaks of all devices are known; else there are no roofs.
    peaks : tuple of DevicePeaks
        Of the known devices, each once.
    """

    work: OperatorWork
    device_ns: I64
    roof_ns: F64
    limit: I64
    compute_ns: F64
    memory_ns: F64
    has_peaks: bool
    peaks: tuple[DevicePeaks, ...]

    @property
    def excess_ns(self) -> F64:
        """Time beyond the roof."""
        return self.device_ns - self.roof_ns


def operator_roofs(dag: Dag, work: I64, dur_ns: I64, *, at_clock: bool = True) -> OperatorRoofs:
    """Calls that device work belongs to, and their roofs.

    Parameters
    ----------
    work : ndarray of shape (n,), dtype=int64
        Events of device work.
    dur_ns : ndarray of shape (n,), dtype=int64, unit=ns
        Its time in the window.
    at_clock : bool, default=True
        At the clocks that were sampled, if any, not at those of the data sheet.
    """
    found = operator_work(dag, work)
    n = len(found.event)
    joined = found.call >= 0
    device_ns = np.bincount(found.call[joined], weights=dur_ns[joined], minlength=n)
    peaks = {number: peaks_of(device) for number, device in geometry_devices(dag).items()}
    device = np.full(n, -1, dtype=np.int64)
    device[found.call[joined]] = dag.events.device[work[joined]]
    known = {number: one for number, one in peaks.items() if one is not None}
    if at_clock and len(dag.events.samples):
        known = {
            number: one.at_clocks(
                *device_clocks(dag, number, work[dag.events.device[work] == number])
            )
            for number, one in known.items()
        }
    has_peaks = n > 0 and bool(np.isin(device, list(known)).all())
    limits = np.zeros((len(Limit), n))
    for number, one in known.items():
        rows = np.flatnonzero(device == number)
        limits[:, rows] = _limits(found, rows, one)
    limits[Limit.LAUNCH] = _shortest_ns(dag)
    is_copy = found.host_bytes >= 0
    limits[:, is_copy] *= np.isin(np.arange(len(Limit)), (Limit.HOST_LINK, Limit.LAUNCH))[:, None]
    limit, roof_ns = limits.argmax(axis=0), limits.max(axis=0)
    is_most = found.of_calls("flops_high") > 0
    limit[(roof_ns > device_ns) & (limit == Limit.MEMORY) & ~is_most] = Limit.CACHE
    is_open = found.of_calls("bytes_high") > _MOST_OPEN * found.of_calls("bytes_low")
    is_open &= (limit != Limit.COMPUTE) & ~is_most
    is_open[is_copy] = found.host_bytes[is_copy] == 0
    limit[roof_ns == 0] = Limit.LAUNCH
    limit[is_open] = Limit.UNKNOWN
    roof_ns[is_open] = device_ns[is_open]
    return OperatorRoofs(
        found,
        device_ns.astype(np.int64),
        np.minimum(roof_ns, device_ns),
        limit,
        limits[Limit.COMPUTE]
        * found.of_calls("flops")
        / np.maximum(found.of_calls("roof_flops"), 1),
        limits[Limit.MEMORY],
        has_peaks,
        tuple({one.name: one for one in known.values()}.values()),
    )


def _limits(found: OperatorWork, rows: I64, peaks: DevicePeaks) -> F64:
    """The least time by each limit, of some calls of one device."""
    out = np.zeros((len(Limit), len(found.works)))
    for kind, work in enumerate(found.works):
        per_s = peaks.flops_per_s(work.dtype)
        out[Limit.COMPUTE, kind] = work.roof_flops / per_s * _NS if per_s else 0.0
        out[Limit.MEMORY, kind] = work.roof_bytes / peaks.bytes_per_s * _NS
    of_calls = out[:, found.kind[rows]]
    copied = np.maximum(found.host_bytes[rows], 0)
    of_calls[Limit.HOST_LINK] = copied / peaks.host_bytes_per_s * _NS
    return of_calls


def _shortest_ns(dag: Dag) -> float:
    """What a kernel with nothing to do takes, as the shortest kernels of the trace show."""
    kernels = dag.events.dur_ns[dag.events.kind == EventKind.KERNEL]
    if len(kernels) < _FEWEST_KERNELS:
        return 0.0
    return float(np.percentile(kernels, _SHORTEST_PERCENTILE, method="lower"))
