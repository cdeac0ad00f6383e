"""How full a device is over time: multiprocessors with a block, and filled warp slots.

Profilers do not record it; it is estimated from the waves of kernels (`kernel_waves`). Concurrent
kernels add up, to the whole device at most. Empty parts are charged to the kernels that run then:
multiprocessors without a block in equal parts, warp slots by the room that each leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from htagraph.arrays.codes import take
from htagraph.errors import GraphError
from htagraph.lookup.launch_geometry import (
    KernelWaves,
    LaunchGeometry,
    Limit,
    geometry_devices,
    kernel_waves,
    launch_geometry,
)
from htagraph.lookup.queues import devices_of
from htagraph.lookup.windowed import Clipped, clipped
from htagraph.model.arrays import F64, I8, I32, I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.devices import DeviceProperties
from htagraph.model.kinds import EventKind, KernelClass, SlotUse
from htagraph.model.names import NCU, TENSOR_CORE_KERNELS
from htagraph.model.window import Window


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
