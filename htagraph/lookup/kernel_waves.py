"""Waves of kernels: stretches of a kernel's time in which as many of its blocks run.

A kernel of more blocks than fit on the device at once runs in waves. All its blocks are taken to
last equally long, so that it spends an equal part of its time on each wave. The blocks of a wave
are spread over as many multiprocessors as there are.

::

    kernel   [wave 1   ][wave 2   ][last wave]     22 blocks on 4 multiprocessors, 2 fit on each
    blocks    8          8          6
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from htagraph.lookup.launch_geometry import LaunchGeometry

__all__ = ["KernelWaves", "kernel_waves"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class KernelWaves(NamedTuple):
    """The waves of each kernel that fill the device, as one stretch, and its last wave.

    Parameters
    ----------
    kernel : ndarray of shape (n,), dtype=int64
        Position among the kernels.
    start, end : ndarray of shape (n,), dtype=float64, unit=ns
    sms, blocks : ndarray of shape (n,), dtype=int64
        Multiprocessors with a block of the kernel, and blocks on them at once; 0 for unknown.
    is_tail : ndarray of shape (n,), dtype=bool
        It is the last wave, and there are others.
    """

    kernel: I64
    start: F64
    end: F64
    sms: I64
    blocks: I64
    is_tail: Bools


def kernel_waves(
    start: F64, end: F64, geometry: LaunchGeometry, n_sms: int, length: float
) -> KernelWaves:
    """Waves of kernels, cut at the bounds of a window from 0 to its length.

    Parameters
    ----------
    start, end : ndarray of shape (n_kernels,), dtype=float64, unit=ns
        Of the whole kernels.
    n_sms : int
        Multiprocessors of the device; 0 for unknown.
    length : float, unit=ns
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
