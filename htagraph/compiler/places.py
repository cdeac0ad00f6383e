"""Places: where in a program a piece of device work is, the same in every step."""

from __future__ import annotations

import numpy as np

from htagraph.compiler.structure import Structure
from htagraph.model.arrays import I64


def work_places(structure: Structure) -> I64:
    """Number of each device event's stream and name, -1 for other events; shape (n_events,)."""
    device, n_names = structure.queue, len(structure.events.symbols)
    out = np.full(len(structure.events), -1, dtype=np.int64)
    keys = structure.queue_id[device].astype(np.int64) * n_names + structure.events.name[device]
    out[device] = np.unique(keys, return_inverse=True)[1]
    return out


def work_label(structure: Structure, event: int) -> str:
    """Name and stream of a piece of device work, as a person reads them."""
    events = structure.events
    return f"{events.symbols.texts[events.name[event]]} ({stream_label(structure, event)})"


def stream_label(structure: Structure, event: int) -> str:
    """Stream of a piece of device work, as a person reads it."""
    return f"stream {structure.events.stream[event]}"
