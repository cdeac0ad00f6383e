"""How many blocks of a kernel fit on a multiprocessor at once, and what limits them.

The rules of NVIDIA's occupancy calculator (``cuda_occupancy.h`` of the CUDA toolkit,
``cudaOccMaxActiveBlocksPerMultiprocessor``): warps, registers (allocated to warps in units of 256,
from four equal parts), shared memory (in units of 128 or 256 bytes, with what the system reserves),
and blocks. What a profiler did not record limits nothing.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import NamedTuple

import numpy as np

from htagraph.model.arrays import I64
from htagraph.model.devices import DeviceProperties

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


class Residency(NamedTuple):
    """How many blocks of each kernel fit on one multiprocessor at once.

    Parameters
    ----------
    blocks : ndarray of shape (n,), dtype=int64
        At least one, as each has run.
    limit : ndarray of shape (n,), dtype=int64
        Codes of `Limit`; ties go to the first.
    """

    blocks: I64
    limit: I64


def _up_to(values: I64, unit: int) -> I64:
    """Values rounded up to multiples of a unit."""
    return -(-values // unit) * unit


def residency(
    device: DeviceProperties, threads: I64, registers: I64, shared_memory: I64
) -> Residency:
    """How many blocks of some kernels fit on one multiprocessor of a device at once.

    Parameters
    ----------
    threads : ndarray of shape (n,), dtype=int64
        Of a block.
    registers : ndarray of shape (n,), dtype=int64
        Of a thread; 0 or less for unknown.
    shared_memory : ndarray of shape (n,), dtype=int64, unit=byte
        Of a block, static and dynamic; less than 0 for unknown.

    Examples
    --------
    A multiprocessor of an A100 has room for 64 warps, but registers for only 32 of this kernel.

    >>> a100 = DeviceProperties(0, "A100", 108, 32, 2_048, 0, 65_536, 167_936, 0, 8, 0)
    >>> fit = residency(a100, np.array([256]), np.array([64]), np.array([0]))
    >>> int(fit.blocks[0]), Limit(int(fit.limit[0])).name
    (4, 'REGISTERS')
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
    return Residency(np.maximum(blocks, 1), limit)
