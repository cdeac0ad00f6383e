"""What a device is: its name and its limits, as profilers write them down."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DeviceProperties"]

_MOST_BLOCKS = 32
"""Blocks that a multiprocessor holds at once, the most of any so far."""
_FEWER_BLOCKS = {
    (3, None): 16,
    (7, 5): 16,
    (8, 6): 16,
    (8, 7): 16,
    (8, 9): 24,
    (11, None): 24,
    (12, None): 24,
}
"""By compute capability, where they are fewer: the technical specifications of NVIDIA's CUDA
programming guide. No profiler of PyTorch writes them down."""
_NVIDIA_WARP = 32
_RESERVES_SHARED = 8
"""Major compute capability from which shared memory is also reserved for the system."""


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

    @property
    def is_nvidia(self) -> bool:
        """Whether its warps are those of NVIDIA, by whose rules its resources are given out."""
        return self.warp_size == _NVIDIA_WARP

    @property
    def warps_per_sm(self) -> int:
        """The most warps that one multiprocessor holds at once; 0 where that is not known."""
        return self.threads_per_sm // self.warp_size if self.warp_size else 0

    @property
    def most_blocks_per_sm(self) -> int:
        """The most blocks that one holds: as the file says, else by the compute capability.

        Examples
        --------
        >>> DeviceProperties(0, warp_size=32, compute_major=8, compute_minor=9).most_blocks_per_sm
        24
        """
        if self.blocks_per_sm or not self.is_nvidia:
            return self.blocks_per_sm or _MOST_BLOCKS
        of_all = _FEWER_BLOCKS.get((self.compute_major, None), _MOST_BLOCKS)
        return _FEWER_BLOCKS.get((self.compute_major, self.compute_minor), of_all)

    @property
    def shared_memory_reserved(self) -> int:
        """Bytes of shared memory that the system takes of each block's share, from 8.0 on."""
        return 1_024 if self.is_nvidia and self.compute_major >= _RESERVES_SHARED else 0

    @property
    def shared_memory_granularity(self) -> int:
        """Bytes by which shared memory is given out."""
        return 128 if self.compute_major >= _RESERVES_SHARED else 256
