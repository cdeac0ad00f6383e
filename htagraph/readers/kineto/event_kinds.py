"""Kinds of events by category, with old and new names, and event names that overrule the category.

A new category is one line in `KIND_OF_CATEGORY`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from htagraph.model.arrays import I8, I32, U8
from htagraph.model.kinds import EventKind
from htagraph.model.names import CRITICAL_PATH, FORWARD_BACKWARD, PROFILER_STEP
from htagraph.model.recording import SAMPLED, STACKS
from htagraph.model.symbols import SymbolTable

LAUNCH_FLOWS = ("ac2g", "async_cpu_to_gpu", "async_gpu", "async")
"""Categories of flow points that only repeat a correlation id."""

KIND_OF_CATEGORY = {
    "cpu_op": EventKind.OP,
    "Operator": EventKind.OP,
    "cuda_runtime": EventKind.RUNTIME,
    "cuda_driver": EventKind.RUNTIME,
    "Runtime": EventKind.RUNTIME,
    "hip_runtime": EventKind.RUNTIME,
    "hip_driver": EventKind.RUNTIME,
    "mtia_runtime": EventKind.RUNTIME,
    "xpu_runtime": EventKind.RUNTIME,
    "xpu_driver": EventKind.RUNTIME,
    "privateuse1_runtime": EventKind.RUNTIME,
    "privateuse1_driver": EventKind.RUNTIME,
    "glow_runtime": EventKind.RUNTIME,
    "hpu_op": EventKind.RUNTIME,  # despite the name, host runtime calls
    "kernel": EventKind.KERNEL,
    "Kernel": EventKind.KERNEL,
    "mtia_ccp_events": EventKind.KERNEL,
    "gpu_memcpy": EventKind.MEMCPY,
    "Memcpy": EventKind.MEMCPY,
    "gpu_memset": EventKind.MEMSET,
    "Memset": EventKind.MEMSET,
    "cuda_sync": EventKind.SYNC,
    "xpu_sync": EventKind.SYNC,
    "cuda_event": EventKind.SYNC,
    "graph_event_node": EventKind.SYNC,
    "graph_host_node": EventKind.SYNC,  # its stream waits for a host function
    "user_annotation": EventKind.ANNOTATION,
    "gpu_user_annotation": EventKind.DEVICE_ANNOTATION,
    "collective_comm": EventKind.DEVICE_ANNOTATION,
    STACKS: EventKind.PYTHON,
    SAMPLED: EventKind.PYTHON,
    "overhead": EventKind.OVERHEAD,
    "cpu_instant_event": EventKind.INSTANT,
    "cuda_profiler_range": EventKind.COUNTER_RANGE,
    "xpu_scope_profiler": EventKind.COUNTER_RANGE,
    "hardware_counters": EventKind.COUNTER,
    "mtia_counters": EventKind.COUNTER,
    "Trace": EventKind.SPAN,
}
"""Kind of each category; any other category is `EventKind.OTHER`."""

_KIND_OF_PHASE = {
    **dict.fromkeys("iInTp", EventKind.INSTANT),
    **dict.fromkeys("bS", EventKind.ASYNC),
    "C": EventKind.COUNTER,
}

_RUNTIME_PREFIXES = ("hip_", "privateuse1_")

_SYNC_RECORDS = frozenset(
    {
        "Stream Sync",
        "Stream Synchronize",
        "Stream Wait Event",
        "Event Sync",
        "Event Synchronize",
        "Context Sync",
        "Context Synchronize",
        "Device Sync",
        "event_wait",
    }
)
"""Names of the profiler's wait records, which some versions put among the kernels."""


def _kind_of(category: str) -> EventKind:
    is_runtime = category.startswith(_RUNTIME_PREFIXES)
    return KIND_OF_CATEGORY.get(category, EventKind.RUNTIME if is_runtime else EventKind.OTHER)


def is_plain(categories: Iterable[str]) -> bool:
    """Whether a file with these categories is no PyTorch profile: Kineto uses none of them."""
    of_kineto = (*LAUNCH_FLOWS, FORWARD_BACKWARD)
    return all(
        category not in of_kineto and _kind_of(category) == EventKind.OTHER
        for category in categories
    )


def event_kinds(
    symbols: SymbolTable,
    category: I32,
    name: I32,
    phase: U8,
    *,
    is_plain: bool = False,
) -> I8:
    """The kind of each event from its category and phase, and the names that overrule both.

    `is_plain`: whether the file is no PyTorch profile: its slices are operators.
    """
    kind_of_symbol = np.array([_kind_of(text) for text in symbols.texts], dtype=np.int8)
    kinds: I8 = kind_of_symbol[category] if len(symbols) else np.empty(0, dtype=np.int8)
    if is_plain:
        unknown = (kinds == EventKind.OTHER) & (category != symbols.code(CRITICAL_PATH))
        kinds[unknown] = EventKind.OP
    for character, kind in _KIND_OF_PHASE.items():
        kinds[phase == ord(character)] = kind
    if len(symbols):
        is_step = symbols.searched(PROFILER_STEP)[name]
        kinds[is_step & (kinds == EventKind.OP)] = EventKind.ANNOTATION
        is_wait = symbols.mask(_SYNC_RECORDS.__contains__)[name]
        kinds[is_wait & (kinds == EventKind.KERNEL)] = EventKind.SYNC
    return kinds
