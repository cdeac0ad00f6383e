"""What a device is: its name and its limits, as profilers write them down."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DeviceProperties"]


@dataclass(frozen=True)
class DeviceProperties:
    """A device that a file describes; 0 and ``""`` where the file does not say.

    Parameters
    ----------
    device : int
        Its number, as in ``EventTable.device``.
    name : str
        ``NVIDIA H100 80GB HBM3``.
    n_sms : int
        Streaming multiprocessors (compute units).
    warp_size : int
        Threads of a warp (wavefront).
    threads_per_sm, blocks_per_sm, registers_per_sm, shared_memory_per_sm : int
        The most that one multiprocessor holds at once; shared memory in bytes.
    memory_bytes : int
    compute_major, compute_minor : int
        Compute capability; -1 where the file does not say.
    """

    device: int
    name: str = ""
    n_sms: int = 0
    warp_size: int = 0
    threads_per_sm: int = 0
    blocks_per_sm: int = 0
    registers_per_sm: int = 0
    shared_memory_per_sm: int = 0
    memory_bytes: int = 0
    compute_major: int = -1
    compute_minor: int = -1
