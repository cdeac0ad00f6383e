"""Host calls of the capture of CUDA and HIP graphs, which a replay does not run again."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from htagraph.model.arrays import I8, I32, I64
from htagraph.model.frozen import brief, empty, freeze

CAPTURED_LAUNCH = "captured_launch"
"""Sparse column of replayed device work: the row of `CapturedCalls` that launched it."""

CAPTURED_DTYPES: dict[str, type[np.generic]] = {
    "ts_ns": np.int64,
    "dur_ns": np.int64,
    "kind": np.int8,
    "name": np.int32,
    "lane": np.int32,
    "parent": np.int32,
    "arg_dims": np.int32,
    "arg_types": np.int32,
    "arg_strides": np.int32,
    "arg_values": np.int32,
    "sequence": np.int64,
    "fwd_thread": np.int64,
}
"""The columns."""


@brief
@dataclass(frozen=True)
class CapturedCalls:
    """Launches that were captured, the operators around them, and the frames of modules.

    Rows follow those of the `EventTable` that holds them: call ``i`` is event ``n_events + i`` of
    `Dag.unrolled`.

    Parameters
    ----------
    ts_ns, dur_ns : ndarray of shape (n,), dtype=int64, unit=ns
        On the clock of the capture, which may be another run.
    kind : ndarray of shape (n,), dtype=int8
        Codes of `EventKind`: operators, API calls and Python frames.
    name : ndarray of shape (n,), dtype=int32
        Codes of the events' symbols.
    lane : ndarray of shape (n,), dtype=int32
        Number of the thread among those of the captures.
    parent : ndarray of shape (n,), dtype=int32
        Row of the innermost operator around each operator and launch, -1 for none.
    arg_dims, arg_types, arg_strides, arg_values : ndarray of shape (n,), dtype=int32
        Codes of the events' lists, -1 for none.
    sequence, fwd_thread : ndarray of shape (n,), dtype=int64
        As the columns of events, -1 for none.
    """

    ts_ns: I64 = field(default_factory=empty(np.int64))
    dur_ns: I64 = field(default_factory=empty(np.int64))
    kind: I8 = field(default_factory=empty(np.int8))
    name: I32 = field(default_factory=empty(np.int32))
    lane: I32 = field(default_factory=empty(np.int32))
    parent: I32 = field(default_factory=empty(np.int32))
    arg_dims: I32 = field(default_factory=empty(np.int32))
    arg_types: I32 = field(default_factory=empty(np.int32))
    arg_strides: I32 = field(default_factory=empty(np.int32))
    arg_values: I32 = field(default_factory=empty(np.int32))
    sequence: I64 = field(default_factory=empty(np.int64))
    fwd_thread: I64 = field(default_factory=empty(np.int64))

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        freeze(self)

    def __len__(self) -> int:
        """Number of calls."""
        return len(self.ts_ns)
