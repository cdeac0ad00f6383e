"""Drawn kernels with grids, on a device of four small multiprocessors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from htagraph.compiler.passes import compile_events
from htagraph.model.dag import Dag
from htagraph.model.devices import DeviceProperties
from htagraph.synth import timeline

FOUR_SMS = DeviceProperties(
    0, "drawn", n_sms=4, warp_size=32, threads_per_sm=512, registers_per_sm=16_384,
    shared_memory_per_sm=65_536, compute_major=7, compute_minor=0,
)  # fmt: skip
"""Each multiprocessor holds 16 warps, which may have 32 registers a thread."""


def gridded(
    drawing: str,
    *,
    names: Mapping[str, str] | None = None,
    registers: int = 32,
    shared_memory: int = 0,
    **grids: tuple[int, int],
) -> Dag:
    """Graph of a drawing whose kernels have grids: blocks, and threads of a block."""
    columns = {
        "grid_x": {name: blocks for name, (blocks, _) in grids.items()},
        "block_x": {name: threads for name, (_, threads) in grids.items()},
        "registers": dict.fromkeys(grids, registers),
        "shared_memory": dict.fromkeys(grids, shared_memory),
    }
    events = timeline(drawing, names=names, columns=columns)
    return compile_events(replace(events, devices=(FOUR_SMS,)))
