"""Names of collectives: kernels of communication libraries, and the operations that names say.

A new communication library is one line in `COMMUNICATION_KERNELS`, tried in order.
"""

from __future__ import annotations

import re

__all__ = [
    "COMMUNICATION_KERNELS",
    "HOST_CALL",
    "HOST_CALLER",
    "HOST_COLLECTIVE",
    "HOST_WAIT",
    "NCCL_ANNOTATION",
    "NCCL_KERNEL",
    "operation_of",
]

NCCL_KERNEL = re.compile(r"^(void )?nccl|^(void )?rccl|ncclDevKernel|ncclKernel")
"""Kernels of NCCL and RCCL, in which ranks wait for each other."""

NCCL_ANNOTATION = re.compile(r"^nccl:")
"""Host ranges that PyTorch puts around a collective: ``nccl:all_reduce``."""

HOST_COLLECTIVE = re.compile(r"^(gloo|mpi|ucc):")
"""Host ranges of backends that run on the host: such a range ends when the collective has ended."""

HOST_CALL = re.compile(r"^c10d::(send|monitored_barrier_)$")
"""Operators that are a collective themselves: a range inside begins after what it stands for."""

HOST_CALLER = re.compile(r"^c10d::(?!send|recv|monitored_barrier)")
"""Operators that give a collective to a backend, and return before it has ended."""

HOST_WAIT = re.compile(
    r"^_?c10d_functional::wait_tensor|::copy_bucket_to_grad$|^FSDP::all_gather_copy_out"
)
"""What waits for a collective: the operator that does, and those that use its result right after.
"""

_OPERATIONS = {
    "all_to_all": r"all_?to_?all",
    "reduce_scatter": r"reduce_?scatter",
    "all_reduce": r"all_?reduce",
    "all_gather": r"all_?gather",
    "broadcast": r"broadcast",
    "barrier": r"barrier",
    "gather": r"gather",
    "scatter": r"scatter",
    "reduce": r"reduce",
    "send_recv": r"send_?recv|coalesced",
    "send": r"send",
    "recv": r"recv",
}
"""Pattern of each operation in lower-case names; the first that fits counts."""

_SAYS_COLLECTIVE = "|".join(
    _OPERATIONS[name] for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
)

COMMUNICATION_KERNELS = {
    "nccl or rccl kernel": NCCL_KERNEL.pattern,
    "expert parallel kernel": r"\bdeep_ep::|\bdpsk::ep::|::ep::(intra|inter)node",
    "nvshmem kernel": r"nvshmem|roc_?shmem",
    "custom all-reduce kernel": (
        r"cross_device_reduce|quick_?reduce|(one|two)_?shot_?all_?reduce|multimem_|lamport|msccl"
        r"|userbuffers"
    ),
    "collective in the name": rf"(?i){_SAYS_COLLECTIVE}|\bsend_?recv|oneccl|\bhccl",
}
"""Pattern of the kernels that communicate, by the rule's name."""


def operation_of(name: str) -> str:
    """The operation that the name of a collective, annotation or kernel says, or "".

    Examples
    --------
    >>> operation_of("ncclDevKernel_AllReduce_Sum_f32_RING_LL"), operation_of("aten::mm")
    ('all_reduce', '')
    """
    lowered = name.lower()
    return next((op for op, pattern in _OPERATIONS.items() if re.search(pattern, lowered)), "")
