"""The operator calls that device work belongs to, what they have to do, and their roofs.

A roof is the least time that the device needs for the work.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from htagraph.arrays.ancestors import nearest
from htagraph.arrays.codes import gather
from htagraph.lookup.attribution import host_of
from htagraph.lookup.samples import device_clocks
from htagraph.lookup.sm_activity import geometry_devices
from htagraph.model.arrays import F64, I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.events import LIST_COLUMNS
from htagraph.model.kinds import EventKind
from htagraph.model.names import FP32_KERNELS, TENSOR_CORE_KERNELS
from htagraph.operators.attention import PAGED
from htagraph.operators.call import Call, Lengths
from htagraph.operators.peaks import DevicePeaks, peaks_of
from htagraph.operators.work import Work, registered, work_of

_SUMS = r"\(sq(\d{1,9})sk(\d{1,9})sqsq(\d{1,17})sqsk(\d{1,17})\)"
_LENGTHS = re.compile(rf"_context_\d+{_SUMS}_generation_\d+{_SUMS}")
"""Name of the range around a step of vLLM or SGLang: sums over prompts, and over decoded tokens."""

_BETWEEN_HOST_AND_DEVICE = r"(?i)memcpy (HtoD|DtoH|host to device|device to host)"


class OperatorWork(NamedTuple):
    """Calls with a model, and the device work that belongs to each."""

    # Of shape (n_work,). For each piece of device work, the row of its call below; -1 for work
    # without a model.
    call: I64
    # Of shape (n_calls,). The operator of each call, an event of `Dag.unrolled`: each replay of a
    # graph calls the operators of its capture again.
    event: I64
    # Of shape (n_calls,). Row of `works`: calls of one operator with the same inputs are of one
    # kind.
    kind: I64
    works: tuple[Work, ...]
    # Of shape (n_calls,). Bytes of its copies between host and device, if its work is nothing else:
    # the link between them is the limit. -1 for all other calls.
    host_bytes: I64

    def of_calls(self, field: str) -> npt.NDArray[Any]:
        """A field of `Work` for each call."""
        return np.array([getattr(work, field) for work in self.works])[self.kind]


def call_of(dag: Dag, event: int) -> Call | None:
    """The inputs of an operator as recorded; None if its shapes were not.

    `event`: of `Dag.unrolled`.
    """
    events, lists = dag.unrolled.events, list[list[Any]]()
    for name in LIST_COLUMNS:
        column = events.columns.get(name)
        at = np.searchsorted(column.event, event) if column else 0
        found = column is not None and at < len(column.event) and column.event[at] == event
        lists.append(_decoded(events.lists.texts[column.value[at]]) if column and found else [])
    dims, types, strides, values = lists
    if not types:
        return None
    return Call(events.symbols.texts[events.name[event]], dims, types, strides, values)


def _decoded(text: str) -> list[Any]:
    """A list as the file has it."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return []
    return found if isinstance(found, list) else []


def operator_work(dag: Dag, work: I64) -> OperatorWork:
    """Join device work with the innermost operator around its launch that has a model.

    All kernels of a call belong to it: parts of a split product, fills, changes of layout. A
    wrapper whose inner operator has a model of the same family has none itself. Operators of a
    capture are called once in each replay.
    """
    recorded_launch, n_recorded = dag.launch[work].astype(np.int64), len(dag.events)
    recorded_dag, dag = dag, dag.unrolled
    events = dag.events
    modelled = np.array([registered(name) is not None for name in events.symbols.texts], dtype=bool)
    is_modelled = (events.kind == EventKind.OP) & modelled[events.name]
    recorded = np.zeros(len(events), dtype=bool)
    if (types := events.columns.get("arg_types")) is not None:
        recorded[types.event] = True
    is_modelled &= recorded
    owner = nearest(dag.parent, host_of(dag, work), is_modelled)
    replay = np.where(owner >= n_recorded, 1 + recorded_launch, 0)
    keys, call = np.unique(replay * (len(events) + 1) + owner + 1, return_inverse=True)
    event = keys % (len(events) + 1) - 1
    has_call = event >= 0
    launch = keys // (len(events) + 1) - 1
    step = _steps(recorded_dag, np.where(launch >= 0, launch, event)[has_call])
    kind, works = _kinds(dag, event[has_call], step)
    families = np.array([work.family if work else -1 for work in works] + [-1])
    of_event = np.full(len(events), -1, dtype=np.int64)
    of_event[event[has_call]] = families[kind]
    # A wrapper of the same family would count the work of its inner operator again.
    outer = nearest(dag.parent, dag.parent[event[has_call]].astype(np.int64), of_event >= 0)
    is_again = np.zeros(len(events), dtype=bool)
    same = (outer >= 0) & (gather(of_event, outer) == families[kind])
    is_again[outer[same]] = True
    good = (families[kind] >= 0) & ~is_again[event[has_call]]
    number = np.full(len(event), -1, dtype=np.int64)
    number[np.flatnonzero(has_call)[good]] = np.arange(good.sum())
    known = np.flatnonzero(families[:-1] >= 0)
    place = np.full(len(works) + 1, -1, dtype=np.int64)
    place[known] = np.arange(len(known))
    of_work = number[call.reshape(-1)]
    is_copy = events.searched(_BETWEEN_HOST_AND_DEVICE)[work]
    n_calls, joined = int(good.sum()), of_work >= 0
    n_others = np.bincount(of_work[joined & ~is_copy], minlength=n_calls)
    n_bytes = np.maximum(events.column("bytes")[work], 0)
    copied = np.bincount(of_work[joined], weights=n_bytes[joined], minlength=n_calls)
    return OperatorWork(
        of_work,
        event[has_call][good],
        place[kind[good]],
        tuple(work for work in works if work is not None),
        np.where(n_others == 0, copied, -1).astype(np.int64),
    )


def _steps(dag: Dag, calls: I64) -> I64:
    """Name of the step of a serving engine around each call, -1 for none with lengths."""
    events = dag.events
    named = events.searched(_LENGTHS) & (events.kind == EventKind.ANNOTATION)
    if not named.any():
        return np.full(len(calls), -1, dtype=np.int64)
    return gather(events.name.astype(np.int64), nearest(dag.parent, calls, named))


def _kinds(dag: Dag, calls: I64, step: I64) -> tuple[I64, list[Work | None]]:
    """The kind of each call, by operator and inputs, and what a call of each kind has to do.

    Attention with pages has the summed lengths of its step.
    """
    events = dag.events
    is_paged = events.named(events.symbols.mask(PAGED.__contains__))[calls]
    step = np.where(is_paged, step, -1)
    columns = [events.name[calls].astype(np.int64), step]
    for name in LIST_COLUMNS:
        column = events.columns.get(name)
        values = np.full(len(calls), -1, dtype=np.int64)
        if column is not None and len(column.event):
            at = np.minimum(np.searchsorted(column.event, calls), len(column.event) - 1)
            found = column.event[at] == calls
            values[found] = column.value[at[found]]
        columns.append(values)
    _, first, kind = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
    works: list[Work | None] = []
    for row in first.tolist():
        call = call_of(dag, int(calls[row]))
        if call and step[row] >= 0:
            found = _LENGTHS.search(events.symbols.texts[int(step[row])])
            sums = [int(one) for one in found.groups()] if found else [0] * 8
            sums = [a + b for a, b in zip(sums[:4], sums[4:], strict=True)]
            call = replace(call, lengths=Lengths(*sums) if found else None)
        works.append(work_of(call) if call else None)
    return kind.reshape(-1).astype(np.int64), works


_NS = 1e9
_FP32 = "fp32"
_FEWEST_KERNELS = 100
"""Kernels from which their shortest durations show what a launch takes on the device. Chosen."""
_MOST_OPEN = 2
"""Most bytes over least bytes of a call with a roof: of fused kernels, which may read and write.
Types of tensors in lists are not recorded, so that their bytes are open by 8: a roof would be a
guess. Pinned by test_roofline.
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
    FP32 = 6  #: the peak of FP32, on CUDA cores

    @staticmethod
    def labels() -> tuple[str, ...]:
        """Their names, by code."""
        return ("compute", "memory", "launch", "host link", "cache", "unknown", "FP32 compute")


class OperatorRoofs(NamedTuple):
    """Calls with a model, the time of their device work, and the least time that it needs."""

    work: OperatorWork
    device_ns: I64  # Of shape (n_calls,)
    # Of shape (n_calls,). At most `device_ns`: work that fits in the cache may be faster than
    # memory. If it is not known, `device_ns`, so that nothing is gained.
    roof_ns: F64
    limit: I64  # Of shape (n_calls,). Codes of `Limit`.
    compute_ns: F64  # Of shape (n_calls,). Time of its operations at the dense peak.
    memory_ns: F64  # Of shape (n_calls,). Time of its compulsory bytes at memory bandwidth.
    # Of shape (n_calls,). `device_ns`, or of a product that runs in FP32 because TF32 is not
    # allowed: its time at the same share of the peak of TF32.
    tf32_ns: F64
    has_peaks: bool  # Whether the peaks of all devices are known; else there are no roofs
    peaks: tuple[DevicePeaks, ...]  # Of the known devices, each once


def operator_roofs(dag: Dag, work: I64, dur_ns: I64, *, at_clock: bool = True) -> OperatorRoofs:
    """Calls that device work belongs to, and their roofs.

    `work`: events of device work. `dur_ns`: its time in the window. `at_clock`: at the clocks that
    were sampled, if any, not at those of the data sheet.
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
    in_fp32, on_tensor_cores = _pipes(dag, work, found)
    limits, faster = np.zeros((len(Limit), n)), np.ones(n)
    for number, one in known.items():
        rows = np.flatnonzero(device == number)
        limits[:, rows] = _limits(found, rows, in_fp32[rows] & ~on_tensor_cores[rows], one)
        faster[rows] = one.flops_per_s("tf32") / max(one.flops_per_s("fp32"), 1.0)
    limits[Limit.LAUNCH] = _shortest_ns(dag)
    is_copy = found.host_bytes >= 0
    limits[:, is_copy] *= np.isin(np.arange(len(Limit)), (Limit.HOST_LINK, Limit.LAUNCH))[:, None]
    limit, roof_ns = limits.argmax(axis=0), limits.max(axis=0)
    is_most = found.of_calls("flops_high") > 0
    limit[(roof_ns > device_ns) & (limit == Limit.MEMORY) & ~is_most] = Limit.CACHE
    is_open = found.of_calls("bytes_high") > _MOST_OPEN * found.of_calls("bytes_low")
    is_open &= ~np.isin(limit, (Limit.COMPUTE, Limit.FP32)) & ~is_most
    is_open[is_copy] = found.host_bytes[is_copy] == 0
    limit[roof_ns == 0] = Limit.LAUNCH
    limit[is_open] = Limit.UNKNOWN
    roof_ns[is_open] = device_ns[is_open]
    is_slow = (faster > 1) & in_fp32 & _without_tf32(found, on_tensor_cores)
    least_ns = np.maximum(limits[Limit.MEMORY], limits[Limit.LAUNCH])
    tf32_ns = np.maximum(device_ns / np.maximum(faster, 1.0), np.minimum(least_ns, device_ns))
    return OperatorRoofs(
        found,
        device_ns.astype(np.int64),
        np.minimum(roof_ns, device_ns),
        limit,
        np.maximum(limits[Limit.COMPUTE], limits[Limit.FP32])
        * found.of_calls("flops")
        / np.maximum(found.of_calls("roof_flops"), 1),
        limits[Limit.MEMORY],
        np.where(is_slow, tf32_ns, device_ns),
        has_peaks,
        tuple({one.name: one for one in known.values()}.values()),
    )


def _pipes(dag: Dag, work: I64, found: OperatorWork) -> tuple[Bools, Bools]:
    """Whether a kernel of each call multiplies in full FP32, and whether one is faster, by name."""
    symbols, joined = dag.events.symbols, found.call >= 0
    full = dag.events.named(symbols.searched(FP32_KERNELS))[work]
    fast = dag.events.named(symbols.searched(TENSOR_CORE_KERNELS))[work] & ~full
    in_fp32, on_tensor_cores = (
        np.bincount(found.call[one & joined], minlength=len(found.event)) > 0
        for one in (full, fast)
    )
    return in_fp32, on_tensor_cores


def _without_tf32(found: OperatorWork, on_tensor_cores: Bools) -> Bools:
    """Whether each call is a product of fp32 of a family that never runs as TF32.

    One that does shows that TF32 is allowed: the library prefers CUDA cores for the others.
    """
    family = found.of_calls("family")
    is_full = np.array([one.dtype == _FP32 and one.flops > 0 for one in found.works], dtype=bool)
    is_full = is_full[found.kind]
    return is_full & ~np.isin(family, family[is_full & on_tensor_cores]) & ~on_tensor_cores


def _limits(found: OperatorWork, rows: I64, in_fp32: Bools, peaks: DevicePeaks) -> F64:
    """The least time by each limit, of some calls of one device: products may run in FP32."""
    has_tf32 = peaks.flops_per_s("tf32") > 0
    types = ["tf32" if work.dtype == _FP32 else work.dtype for work in found.works]
    kind = found.kind[rows]
    if not has_tf32:
        in_fp32 = in_fp32 | np.array([one == "tf32" for one in types], dtype=bool)[kind]
    out = np.zeros((len(Limit), len(rows)))
    flops, per_s = found.of_calls("roof_flops")[rows], [peaks.flops_per_s(one) for one in types]
    for limit, chosen, peak in (
        (Limit.COMPUTE, ~in_fp32, np.array(per_s)[kind]),
        (Limit.FP32, in_fp32, np.full(len(rows), peaks.flops_per_s(_FP32))),
    ):
        known = chosen & (peak > 0)
        out[limit, known] = flops[known] / peak[known] * _NS
    out[Limit.MEMORY] = found.of_calls("roof_bytes")[rows] / peaks.bytes_per_s * _NS
    copied = np.maximum(found.host_bytes[rows], 0)
    out[Limit.HOST_LINK] = copied / peaks.host_bytes_per_s * _NS
    return out


def _shortest_ns(dag: Dag) -> float:
    """What a kernel with nothing to do takes, as the shortest kernels of the trace show."""
    kernels = dag.events.dur_ns[dag.events.kind == EventKind.KERNEL]
    if len(kernels) < _FEWEST_KERNELS:
        return 0.0
    return float(np.percentile(kernels, _SHORTEST_PERCENTILE, method="lower"))
