"""What a device is: its name and limits, as profilers record them."""

from __future__ import annotations

from dataclasses import dataclass

MOST_THREADS_PER_SM = 2_048
"""Threads that a multiprocessor runs at once, the most of any so far."""
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
"""Threads of a warp on every NVIDIA device."""
_RESERVES_SHARED = 8
"""Major compute capability from which shared memory is also reserved for the system."""


@dataclass(frozen=True)
class DeviceProperties:
    """A device described in a file; 0 and ``""`` for what is not recorded."""

    device: int  # Its number, as in ``EventTable.device``
    name: str = ""
    n_sms: int = 0  # Streaming multiprocessors (compute units)
    warp_size: int = 0  # Threads of a warp (wavefront)
    # threads_per_sm, blocks_per_sm, registers_per_sm, shared_memory_per_sm: limits of one
    # multiprocessor; shared memory in bytes
    threads_per_sm: int = 0
    blocks_per_sm: int = 0
    registers_per_sm: int = 0
    shared_memory_per_sm: int = 0
    memory_bytes: int = 0
    # compute_major, compute_minor: compute capability; -1 if not recorded
    compute_major: int = -1
    compute_minor: int = -1

    @property
    def is_nvidia(self) -> bool:
        """Whether it is an NVIDIA device, by its warp size."""
        return self.warp_size == _NVIDIA_WARP

    @property
    def warps_per_sm(self) -> int:
        """Most warps on one multiprocessor at once; 0 if not known."""
        return self.threads_per_sm // self.warp_size if self.warp_size else 0

    @property
    def most_blocks_per_sm(self) -> int:
        """Most blocks on one at once: as recorded, else by compute capability."""
        if self.blocks_per_sm or not self.is_nvidia:
            return self.blocks_per_sm or _MOST_BLOCKS
        of_all = _FEWER_BLOCKS.get((self.compute_major, None), _MOST_BLOCKS)
        return _FEWER_BLOCKS.get((self.compute_major, self.compute_minor), of_all)

    @property
    def shared_memory_reserved(self) -> int:
        """Bytes of each block's shared memory that the system reserves, from 8.0 on."""
        return 1_024 if self.is_nvidia and self.compute_major >= _RESERVES_SHARED else 0

    @property
    def shared_memory_granularity(self) -> int:
        """Allocation unit of shared memory, in bytes."""
        return 128 if self.compute_major >= _RESERVES_SHARED else 256
