"""The launch geometry of kernels: their blocks, how many fit at once, and in how many waves.

A kernel of more blocks than fit on the device at once runs in waves. All its blocks are taken to
last equally long, and spread over as many multiprocessors as there are::

    kernel   [wave 1   ][wave 2   ][last wave]     22 blocks on 4 multiprocessors, 2 fit on each
    blocks    8          8          6

How many fit follows NVIDIA's occupancy calculator (``cuda_occupancy.h`` of the CUDA toolkit):
warps, registers (allocated to warps in units of 256, from four equal parts), shared memory (in
units of 128 or 256 bytes, with what the system reserves), and blocks. What a profiler did not
record limits nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum, unique
from typing import NamedTuple

import numpy as np

from htagraph.lookup.queues import devices_of
from htagraph.model.arrays import F64, I64, Bools
from htagraph.model.dag import Dag
from htagraph.model.devices import MOST_THREADS_PER_SM, DeviceProperties

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
