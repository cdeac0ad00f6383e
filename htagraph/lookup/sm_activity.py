"""The launch geometry of kernels, and from it how full a device is over time.

A kernel of more blocks than fit on the device at once runs in waves. All its blocks are taken to
last equally long, and spread over as many multiprocessors as there are::

    kernel   [wave 1   ][wave 2   ][last wave]     22 blocks on 4 multiprocessors, 2 fit on each
    blocks    8          8          6

How many fit follows NVIDIA's occupancy calculator (``cuda_occupancy.h`` of the CUDA toolkit):
warps, registers (allocated to warps in units of 256, from four equal parts), shared memory (in
units of 128 or 256 bytes, with what the system reserves), and blocks. What a profiler did not
record limits nothing.

Profilers do not record how full a device is; it is estimated from the waves. Concurrent kernels add
up, to the whole device at most. Empty parts are charged to the kernels that run then:
multiprocessors without a block in equal parts, warp slots by the room that each leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, unique
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.arrays.codes import take
from htagraph.errors import GraphError
from htagraph.lookup.queues import devices_of
from htagraph.lookup.windowed import Clipped, clipped
from htagraph.model.arrays import F64, I8, I32, I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.devices import MOST_THREADS_PER_SM, DeviceProperties
from htagraph.model.kinds import EventKind, KernelClass, SlotUse
from htagraph.model.names import NCU, TENSOR_CORE_KERNELS
from htagraph.model.window import Window

_REGISTER_UNIT = 256
"""Registers are allocated to warps in multiples of this (``cuda_occupancy.h``)."""
_PARTS = 4
"""Parts of a multiprocessor with registers of their own (``cuda_occupancy.h``); a P100 has two."""
_P100 = (6, 0)
_NO_LIMIT = np.iinfo(np.int64).max


@unique
class Limit(IntEnum):
    """What keeps more blocks from fitting."""

    BLOCK_SIZE = 0  #: warps of whole blocks, or the number of blocks
    REGISTERS = 1
    SHARED_MEMORY = 2


def _up_to(values: I64, unit: int) -> I64:
    """Values rounded up to multiples of a unit."""
    return -(-values // unit) * unit


def residency(
    device: DeviceProperties, threads: I64, registers: I64, shared_memory: I64
) -> tuple[I64, I64]:
    """How many blocks of some kernels fit on one multiprocessor at once, and their `Limit`.

    `threads`: of a block. `registers`: of a thread; 0 or less for unknown. `shared_memory`: of a
    block, static and dynamic; less than 0 for unknown. At least one block fits, as each has run.
    """
    warps = -(-np.maximum(threads, 1) // device.warp_size)
    by_warps = np.minimum(device.warps_per_sm // warps, device.most_blocks_per_sm)
    by_registers = np.full(len(threads), _NO_LIMIT)
    known = registers > 0
    if device.registers_per_sm and known.any():
        capability = (device.compute_major, device.compute_minor)
        n_parts = _PARTS // 2 if capability == _P100 else _PARTS
        most = device.registers_per_sm // device.warp_size + 1  # more fit neither
        of_warp = _up_to(np.minimum(registers[known], most) * device.warp_size, _REGISTER_UNIT)
        in_part = (device.registers_per_sm // n_parts) // of_warp
        by_registers[known] = in_part * n_parts // warps[known]
    by_shared = np.full(len(threads), _NO_LIMIT)
    of_block = np.minimum(shared_memory, device.shared_memory_per_sm + 1)  # more fits neither
    taken = np.where(of_block >= 0, of_block + device.shared_memory_reserved, 0)
    taken = _up_to(taken, device.shared_memory_granularity)
    if device.shared_memory_per_sm and taken.any():
        by_shared[taken > 0] = device.shared_memory_per_sm // taken[taken > 0]
    fits = np.stack([by_warps, by_registers, by_shared])
    limit = fits.argmin(axis=0)
    blocks = np.take_along_axis(fits, limit[None], axis=0)[0]
    return np.maximum(blocks, 1), limit


_AXES = ("x", "y", "z")
_IN_THREADS = r"^hip(Ext|Hcc)ModuleLaunchKernel"
"""HIP calls that take their grid in threads, not in blocks."""
_USUAL_WARP = 32
"""Threads of a warp of a GPU that the trace does not describe: those of NVIDIA
(test_bandwidths has a block whose last warp is not full)."""


class LaunchGeometry(NamedTuple):
    """How kernels occupy their device."""

    # Blocks of the grid; 0 where they, or the multiprocessors of the device, are unknown
    n_blocks: I64
    warps: I64  # Warps of a block; 0 where other limits are unknown
    resident: I64  # Blocks that fit on one multiprocessor at once
    limit: I64  # What keeps more from fitting, codes of `Limit`

    @property
    def is_known(self) -> Bools:
        """Whether the blocks of each kernel and the size of its device are known."""
        return self.n_blocks > 0

    def n_full_waves(self, n_sms: int) -> I64:
        """Waves of each kernel that fill the device before the last one, which may not."""
        return np.maximum(self.n_blocks - 1, 0) // (n_sms * self.resident)


def _recorded(dag: Dag, kernels: I64, name: str) -> I64:
    """A column of some kernels, or of the calls that launched them, -1 where neither has it."""
    dense = dag.events.column(name)
    launch = dag.launch[kernels]
    of_call = np.where(launch >= 0, dense[launch], -1)
    return np.where(dense[kernels] >= 0, dense[kernels], of_call).astype(np.int64)


def _product(dag: Dag, kernels: I64, what: str) -> I64:
    """Blocks of a grid, or threads of a block; 0 or less where they were not recorded."""
    first, *others = (_recorded(dag, kernels, f"{what}_{axis}") for axis in _AXES)
    size: I64 = np.prod(np.maximum(others, 1), axis=0) * first
    return size


def geometry_devices(dag: Dag) -> Mapping[int, DeviceProperties]:
    """Devices whose number of multiprocessors is known, by their number.

    If all devices that the trace describes are the same, so are the others. A trace that describes
    none may still record the blocks per multiprocessor of each kernel.
    """
    events = dag.events
    described = {one.device: one for one in events.devices if one.n_sms and one.threads_per_sm}
    alike = {replace(one, device=0) for one in described.values()}
    found: dict[int, DeviceProperties] = {}
    for device in devices_of(dag).tolist():
        if device in described:
            found[device] = described[device]
        elif len(alike) == 1:
            found[device] = replace(next(iter(alike)), device=device)
        elif not described and (n_sms := _sms_by_kernels(dag, device)):
            found[device] = DeviceProperties(device, n_sms=n_sms)
    return found


def _sms_by_kernels(dag: Dag, device: int) -> int:
    """Multiprocessors of a device, as its kernels imply; 0 if unknown."""
    column = dag.events.columns.get("blocks_per_sm")
    if column is None:
        return 0
    mine = (dag.events.device[column.event] == device) & (column.value > 0)
    blocks = _product(dag, column.event[mine], "grid")
    n_sms = np.rint(blocks / column.value[mine])
    return int(np.median(n_sms)) if len(n_sms) else 0


def launch_geometry(dag: Dag, kernels: I64, device: DeviceProperties | None) -> LaunchGeometry:
    """How kernels of one device occupy it; `device` is None if it is unknown.

    A device whose limits are unknown is taken to hold 2,048 threads: this gives the waves of a
    kernel, but no warps. Nor are there warps where registers were not recorded.
    """
    if device is None:
        nothing = np.zeros(len(kernels), dtype=np.int64)
        return LaunchGeometry(nothing, nothing, nothing + 1, nothing)
    blocks, threads = _product(dag, kernels, "grid"), _product(dag, kernels, "block")
    in_threads = np.append(dag.events.searched(_IN_THREADS), False)
    blocks = np.where(in_threads[dag.launch[kernels]], -(-blocks // np.maximum(threads, 1)), blocks)
    known = (blocks > 0) & (threads > 0)
    blocks, threads = np.where(known, blocks, 0), np.where(known, threads, 1)
    registers = _recorded(dag, kernels, "registers")
    shared_memory = _recorded(dag, kernels, "shared_memory")
    is_described, limits = device.threads_per_sm > 0 and device.warp_size > 0, device
    if not is_described:
        limits = replace(device, threads_per_sm=MOST_THREADS_PER_SM, warp_size=_USUAL_WARP)
    resident, limit = residency(limits, threads, registers, shared_memory)
    warps = -(-threads // limits.warp_size)
    has_warps = (blocks > 0) & (registers >= 0) & is_described
    return LaunchGeometry(blocks, np.where(has_warps, warps, 0), resident, limit)


class KernelWaves(NamedTuple):
    """The full waves of each kernel, as one stretch, and its last wave."""

    kernel: I64  # Position among the kernels
    # start, end: in ns
    start: F64
    end: F64
    # sms, blocks: multiprocessors with a block of the kernel, and blocks on them at once; 0 if
    # unknown
    sms: I64
    blocks: I64
    is_tail: Bools  # The last wave of several


def kernel_waves(
    start: F64, end: F64, geometry: LaunchGeometry, n_sms: int, length: float
) -> KernelWaves:
    """Waves of whole kernels, cut at the bounds of a window from 0 to `length`.

    `n_sms` is 0 if unknown.
    """
    n_full = geometry.n_full_waves(n_sms) if n_sms else np.zeros(len(start), dtype=np.int64)
    split = start + (end - start) * n_full / (n_full + 1)
    fits = n_sms * geometry.resident
    left = geometry.n_blocks - n_full * fits
    has_full = np.flatnonzero(n_full > 0)
    kernel = np.concatenate([has_full, np.arange(len(start))])
    from_ns = np.concatenate([start[has_full], split])
    to_ns = np.concatenate([split[has_full], end])
    return KernelWaves(
        kernel,
        np.clip(from_ns, 0, length),
        np.clip(to_ns, 0, length),
        np.concatenate([np.full(len(has_full), n_sms), np.minimum(left, n_sms)]),
        np.concatenate([fits[has_full], left]),
        np.concatenate([np.zeros(len(has_full), dtype=bool), n_full > 0]),
    )


class RunningSums:
    """Sums over what runs at once, as steps over time, and their integrals: a sweep line."""

    def __init__(self, start: F64, end: F64) -> None:
        both = np.concatenate([start, end])
        self._order = np.argsort(both, kind="stable")
        self.time = both[self._order]
        """Instants at which something starts or ends, ascending."""
        self._place = np.empty(len(both), dtype=np.int64)
        self._place[self._order] = np.arange(len(both))

    def of(self, values: I64) -> I64:
        """Sum of the values of what runs, from each instant to the next."""
        steps = np.concatenate([values, -values])[self._order]
        total: I64 = np.cumsum(steps)[:-1]
        return total

    def integral(self, level: npt.NDArray[np.number | np.bool_]) -> F64:
        """Integral, up to each instant, of what has a value from each instant to the next."""
        return np.concatenate([[0.0], np.cumsum(level * np.diff(self.time))])[: len(self.time)]

    def over_each(self, integral: F64) -> F64:
        """Part of an integral that lies in each interval."""
        first, last = np.split(self._place, 2)
        return integral[last] - integral[first]


_LIMITED_BY = np.array([SlotUse[limit.name] for limit in Limit])
_WITHIN_DEVICE = r"DtoD|DeviceToDevice|Device -> Device"
_MEASURED = f"{NCU}sm__warps_active.avg.pct_of_peak_sustained_active"
_PERCENT = 100
"""A unit: the percent that are all."""
_MILLION = 1_000_000
"""Parts of a percent that are told apart. Only the rounding of a value depends on it."""
_ROUNDING = 1e-6
"""Share by which sums of float64 over many stretches may differ; more is a defect of htagraph,
which is reported. Far above rounding, far below any use that a reader would see."""

SlotShares = tuple[I32, I8, F64]
"""Use of warp slots while kernels run: position among the kernels, code of `SlotUse`, and time of
the whole device, which adds up to the time in which any kernel runs."""

Curve = tuple[F64, F64]
"""Instants from the start of a window, and an integral up to each."""


@dataclass(frozen=True)
class SmActivity:
    """How full one device is in a window."""

    device: int
    n_sms: int  # Multiprocessors; 0 if unknown
    window: Window
    kernels: Clipped  # Kernels in the window, in order of time
    geometry: LaunchGeometry
    # Each returns a curve, which is made anew: all of them take much memory
    curves: Mapping[str, Callable[[], Curve]]
    _full: _Fullness

    def within(self, start_ns: I64, end_ns: I64, *names: str) -> dict[str, F64]:
        """Sums over some ranges of the window, in ns of the whole device; by default all.

        ``busy``: any kernel runs. ``communication``: only communication kernels do. ``known``: any
        kernel runs, and the grid of each is known. ``sms``: of that, multiprocessors with a block.
        ``counted``: the same, while the warps of each kernel are known. ``warps``: of that, filled
        warp slots. ``small``, ``tail``: of the known time, multiprocessors that small grids and
        last waves leave without a block. ``copying``: copies from or to the host, or another
        device. ``computing``, ``tensor``: sums of the times of compute kernels, and of those on
        tensor cores. ``measured``: the same of kernels whose occupancy Nsight Compute measured;
        ``measured_warps``: weighted by it.
        """
        at = [(times - self.window.start_ns).astype(np.float64) for times in (start_ns, end_ns)]
        found = {}
        for name in names or self.curves:
            time, upto = self.curves[name]()
            first, last = (np.interp(one, time, upto) if len(time) else 0 * one for one in at)
            found[name] = last - first
        return found

    def whole(self, *names: str) -> dict[str, float]:
        """The sums of `within` over all of the window."""
        bounds = np.array([self.window.start_ns, self.window.end_ns])
        found = self.within(bounds[:1], bounds[1:], *names)
        return {name: float(one[0]) for name, one in found.items()}

    @property
    def active(self) -> Curve:
        """Instants, and the share of multiprocessors with a block from each to the next."""
        return self._full.sums.time, np.append(self._full.active, 0.0)

    @property
    def slots(self) -> SlotShares:
        """Use of warp slots while kernels run."""
        return self._full.slots()


def sm_activity(dag: Dag, window: Window) -> Iterator[SmActivity]:
    """Yield how full each device is in a window."""
    described, tie = geometry_devices(dag), dag.events.tiebreak
    for device in devices_of(dag).tolist():
        yield _of_device(dag, window, device, described.get(device), tie)


def _of_device(
    dag: Dag, window: Window, device: int, properties: DeviceProperties | None, tie: I64
) -> SmActivity:
    """How full a device is in a window."""
    events = dag.events
    mine = events.device == device
    kernels = np.flatnonzero(mine & (events.kind == EventKind.KERNEL))
    found = clipped(dag, kernels, window)
    # In order of time: sums must not depend on the order in the file.
    found = found.take(np.lexsort((tie[found.event], events.ts_ns[found.event])))
    geometry = launch_geometry(dag, found.event, properties)
    begin, end = events.ts_ns[found.event], events.end_ns[found.event]
    n_sms = properties.n_sms if properties else 0
    waves = kernel_waves(
        (begin - window.start_ns).astype(np.float64),
        (end - window.start_ns).astype(np.float64),
        geometry,
        n_sms,
        float(window.dur_ns),
    )
    classes = dag.classification.kernel_class[found.event]
    full = _Fullness(waves, geometry, classes == KernelClass.COMMUNICATION, properties)
    computes = classes == KernelClass.COMPUTE

    def on_tensor_cores() -> Curve:
        named = events.searched(TENSOR_CORE_KERNELS)
        return full.count(computes & named[found.event])

    def copying() -> Curve:
        copies = mine & (events.kind == EventKind.MEMCPY)
        copies &= ~events.searched(_WITHIN_DEVICE)
        found = clipped(dag, np.flatnonzero(copies), window)
        bounds = (times - window.start_ns for times in (found.start_ns, found.end_ns))
        sums = RunningSums(*(times.astype(np.float64) for times in bounds))
        n_running = sums.of(np.ones(len(found.event), dtype=np.int64))
        return sums.time, sums.integral(n_running > 0)

    curves: dict[str, Callable[[], Curve]] = {
        **full.curves,
        "computing": lambda: full.count(computes),
        "tensor": on_tensor_cores,
        **_measured(dag, found.event, full, waves.kernel),
        "copying": copying,
    }
    return SmActivity(device, n_sms, window, found, geometry, curves, full)


def _measured(
    dag: Dag, kernels: I64, full: _Fullness, of_wave: I64
) -> dict[str, Callable[[], Curve]]:
    """Times of kernels with a measured occupancy, and the same weighted by it, as curves."""
    column = dag.events.columns.get(_MEASURED)
    value = np.full(len(kernels), np.nan)
    if column is not None:
        value = column.dense(len(dag.events), np.nan)[kernels].astype(np.float64)
    has = np.isfinite(value)

    def weighted() -> Curve:
        # Whole millionths of a percent: running sums of floats would not return to exactly 0.
        parts = np.rint(np.where(has, value, 0) * _MILLION).astype(np.int64)[of_wave]
        return full.curve(full.sums.of(parts) / (_MILLION * _PERCENT))

    return {"measured": lambda: full.count(has), "measured_warps": weighted}


class _Fullness:
    """What runs on a device from one instant to the next, and how full the device is."""

    def __init__(
        self,
        waves: KernelWaves,
        geometry: LaunchGeometry,
        communicates: Bools,
        device: DeviceProperties | None,
    ) -> None:
        of = take(geometry, waves.kernel)
        self.waves, self.geometry = waves, of
        self.sums = sums = RunningSums(waves.start, waves.end)
        self.n_sms = max(device.n_sms, 1) if device else 1
        self.sm_warps = max(device.warps_per_sm, 1) if device else 1
        self.is_communication = communicates[waves.kernel]
        self.is_known, self.has_warps = of.is_known, of.warps > 0
        self.n_all = sums.of(np.ones(len(of.warps), dtype=np.int64))
        self.n_communicate = sums.of(self.is_communication.astype(np.int64))
        self.known = (self.n_all > 0) & (sums.of((~self.is_known).astype(np.int64)) == 0)

    @cached_property
    def active(self) -> F64:
        """Share of multiprocessors with a block."""
        return np.minimum(self.sums.of(self.waves.sms), self.n_sms) / self.n_sms

    @cached_property
    def warps(self) -> I64:
        """Filled warp slots of each wave."""
        return self.waves.blocks * self.geometry.warps

    @cached_property
    def used(self) -> F64:
        """Share of filled warp slots."""
        slots = self.n_sms * self.sm_warps
        return np.minimum(self.sums.of(self.warps), slots) / slots

    @cached_property
    def counted(self) -> Bools:
        """Whether the warps of all kernels that run are known."""
        counted: Bools = self.known & (self.sums.of((~self.has_warps).astype(np.int64)) == 0)
        return counted

    def curve(self, level: npt.NDArray[np.number | np.bool_]) -> Curve:
        """Integral of what has a value from each instant to the next."""
        return self.sums.time, self.sums.integral(level)

    def count(self, kernels: Bools) -> Curve:
        """Integral of the number of some kernels that run."""
        return self.curve(self.sums.of(kernels.astype(np.int64)[self.waves.kernel]))

    @property
    def curves(self) -> dict[str, Callable[[], Curve]]:
        """The integrals of `SmActivity.within`."""
        return {
            "busy": lambda: self.curve(self.n_all > 0),
            "communication": lambda: self.curve((self.n_communicate > 0) & (self.n_others == 0)),
            "known": lambda: self.curve(self.known),
            "sms": lambda: self.curve(np.where(self.known, self.active, 0)),
            "counted": lambda: self.curve(np.where(self.counted, self.active, 0)),
            "warps": lambda: self.curve(np.where(self.counted, self.used, 0)),
            "small": lambda: self._left_by(
                ~self.waves.is_tail & (self.waves.sms < self.n_sms) & ~self.is_communication
            ),
            "tail": lambda: self._left_by(self.waves.is_tail & ~self.is_communication),
        }

    @property
    def n_others(self) -> I64:
        """Number of kernels that run and do not communicate."""
        return self.n_all - self.n_communicate

    def _left_by(self, waves: Bools) -> Curve:
        """Integral of multiprocessors without a block, the part of some of the waves that run."""
        others = self.n_others
        free = np.where(self.known & (others > 0), 1 - self.active, 0) / np.maximum(others, 1)
        return self.curve(free * self.sums.of(waves.astype(np.int64)))

    def _charged(self, level: F64, mine: Bools, weights: I64 | None = None) -> F64:
        """A level over time, divided among the stretches of some kind that run then."""
        weights = mine.astype(np.int64) if weights is None else np.where(mine, weights, 0)
        total = self.sums.of(weights)
        each = np.where(total > 0, level, 0) / np.maximum(total, 1)
        return weights * self.sums.over_each(self.sums.integral(each))

    def slots(self) -> SlotShares:
        """Use of warp slots while kernels run; checked to add up."""
        waves, n = self.waves, len(self.waves.kernel)
        alone = self.n_all == self.n_communicate
        free = np.where(self.known, 1 - self.active, 0)
        others = self._charged(np.where(alone, 0, free), ~self.is_communication)
        communication = self._charged(np.where(alone, free, 0), self.is_communication)
        empty = np.where(self.counted, self.active - self.used, 0)
        left = np.where(self.has_warps, waves.sms * self.sm_warps - self.warps, 0)
        room = self._charged(empty, np.ones(n, dtype=bool), left)
        by_limit = waves.sms * (self.sm_warps - self.geometry.resident * self.geometry.warps)
        limited = room * by_limit / np.maximum(left, 1)
        used = np.where(self.counted, self.used, 0)
        unknown = np.where((self.n_all > 0) & ~self.known, 1.0, 0.0)
        uncounted = np.where(self.known & ~self.counted, self.active, 0)
        communicating = np.full(n, SlotUse.COMMUNICATION)

        def use(otherwise: npt.ArrayLike) -> I64:
            return np.where(self.is_communication, communicating, otherwise)

        tail, small = SlotUse.TAIL_WAVE, SlotUse.SMALL_GRID
        parts = (
            (others, np.where(waves.is_tail, tail, small)),
            (communication, communicating),
            (limited, use(_LIMITED_BY[self.geometry.limit])),
            (room - limited, use(np.where(waves.is_tail, tail, SlotUse.FEW_BLOCKS))),
            (self._charged(used, self.has_warps, self.warps), np.full(n, SlotUse.USED)),
            (self._charged(unknown, ~self.is_known), np.full(n, SlotUse.NOT_RECORDED)),
            (self._charged(uncounted, ~self.has_warps), np.full(n, SlotUse.NOT_RECORDED)),
        )
        time_ns = np.concatenate([part_ns for part_ns, _ in parts])
        busy_ns = float(self.curve(self.n_all > 0)[1][-1]) if n else 0.0
        if abs(float(time_ns.sum()) - busy_ns) > _ROUNDING * max(busy_ns, 1.0):
            raise GraphError(f"uses of warp slots do not add up to {busy_ns:,.0f} ns.")
        kernel = np.tile(waves.kernel.astype(np.int32), len(parts))
        return kernel, np.concatenate([codes.astype(np.int8) for _, codes in parts]), time_ns
