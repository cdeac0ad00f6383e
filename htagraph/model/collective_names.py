"""Names of collectives: kernels of communication libraries, and the operations that names say.

A new communication library is one line in `COMMUNICATION_KERNELS`, tried in order. Libraries that
record nothing of their collectives but the names of kernels are in `LIBRARIES`.
"""

from __future__ import annotations

import re

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

HOST_VIEW = re.compile(r"^aten::(as_strided|view|slice|narrow|split|select)$")
"""Operators that look at a result without its values, right before what uses it."""

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
    "expert parallel kernel": (
        r"\bdeep_ep::|\bdpsk::ep::|::ep::(intra|inter)node|\bEp(Dispatch|Combine)\w*Kernel"
    ),
    "nvshmem kernel": r"nvshmem|roc_?shmem",
    "custom all-reduce kernel": (
        r"cross_device_reduce|quick_?reduce|(?i:(one|two)_?shot_?all_?reduce)|multimem_|lamport"
        r"|msccl|userbuffers"
    ),
    "collective in the name": rf"(?i){_SAYS_COLLECTIVE}|\bsend_?recv|oneccl|\bhccl",
}
"""Pattern of the kernels that communicate, by the rule's name."""

LIBRARIES = {
    library: re.compile(COMMUNICATION_KERNELS[f"{library} kernel"])
    for library in ("expert parallel", "nvshmem", "custom all-reduce")
}
"""Pattern of the kernels of libraries that record nothing of their collectives, tried in order."""

MAY_BE_HALVES = re.compile(r"internode_ll::|low_latency")
"""Kernels that send and receive in one, or in two launches of one name."""

_LIBRARY_OPERATIONS = {
    "": r"layout|transfer_rma|signal",
    "notify": r"notify",
    "barrier": r"barrier|sync_?all|clean_low_latency",
    "dispatch": r"dispatch",
    "combine": r"combine",
    "all_to_all": _OPERATIONS["all_to_all"],
    "all_gather": rf"{_OPERATIONS['all_gather']}|fcollect",
    "reduce_scatter": _OPERATIONS["reduce_scatter"],
    "all_reduce": (
        rf"{_OPERATIONS['all_reduce']}|cross_device_reduce|quick_?reduce|multimem_one_shot"
    ),
}
"""Pattern of each operation in lower-case names of library kernels; the first that fits counts."""

_RANKS_IN_NAME = re.compile(
    r"(?:::intranode::\w{1,99}|cross_device_reduce_\w{1,99})<"
    r"(?:[A-Za-z_][\w:]{0,99}, {0,9})?(?:\(int\))?(\d{1,9})[,>]"
)


def operation_of(name: str) -> str:
    """The operation that the name of a collective, annotation or kernel says, or ""."""
    lowered = name.lower()
    return next((op for op, pattern in _OPERATIONS.items() if re.search(pattern, lowered)), "")


def library_operation(name: str) -> str:
    """The operation that the name of a kernel of one of the `LIBRARIES` says, or "".

    Only the name of the function counts: what is in its angle brackets and parentheses does not.
    """
    function = re.split(r"[<(]", name.replace("(anonymous namespace)", ""), maxsplit=1)[0].lower()
    fits = (op for op, pattern in _LIBRARY_OPERATIONS.items() if re.search(pattern, function))
    return next(fits, "")


def ranks_in_name(name: str) -> int:
    """How many ranks the name of a library kernel says that it is for, or 0."""
    found = _RANKS_IN_NAME.search(name)
    return int(found[1]) if found else 0


RENDEZVOUS = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"),
    *("notify", "dispatch", "combine"),
)
"""Operations in which every rank waits for every other."""

ONE_SIDED = ("dispatch", "combine", "all_to_all", "all_gather")
"""Operations whose members, in a kernel of a library, end each on its own. Each waits until all
others have started, and ends when its own part has come.
"""

FROM_ROOT = ("broadcast", "scatter")
"""Operations in which the others wait for one rank, the root."""

TO_ROOT = ("reduce", "gather")
"""Operations in which the root waits for the others."""

POINT_TO_POINT = ("send", "recv")
"""Operations between two ranks."""
