"""CUDA graphs: each recorded twice, as it is captured and as it is replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.profiler import record_function

import htagraph as hg
from tests.gpu.machine import Machine
from tests.gpu.pairs import captured_graph, network
from tests.gpu.recording import record_block, record_steps

_BATCHES = (32, 512)
_WIDTH, _DEPTH, _N_STEPS = 1024, 8, 4


def run_graphs(machine: Machine, out: Path) -> dict[str, Any]:
    """Record the capture of a graph and its replays, for two sizes of a batch."""
    if not machine.is_gpu:
        return {"rows": []}
    model = network(machine, _WIDTH, _DEPTH).to(machine.dtype)
    rows = []
    for n in _BATCHES:
        x = torch.randn(n, _WIDTH, device=machine.device, dtype=machine.dtype)

        def step(x: torch.Tensor = x) -> None:
            with torch.no_grad():
                torch.softmax(model(x), -1)

        captured: list[torch.cuda.CUDAGraph] = []

        def capture(step=step, captured=captured, n=n) -> None:
            with record_function(f"capture of {n} rows"):
                captured.append(captured_graph(step))

        during = record_block(machine, out, f"graph-{n}-capture", capture)
        (graph,) = captured
        name = f"graph-{n}-replay"
        replays = record_steps(machine, out, name, graph.replay, n_steps=_N_STEPS)
        rows.append(
            {
                "rows": n,
                "capture": during.name,
                "replay": replays.name,
                "n_products": _N_STEPS * _DEPTH,
                "gflop": _N_STEPS * _DEPTH * 2 * n * _WIDTH**2 / 1e9,
            }
        )
    for row, other in zip(rows, reversed(rows), strict=True):
        row["joined"] = _joined(out / row["replay"], out / row["capture"])
        row["with_other"] = _joined(out / row["replay"], out / other["capture"])
    return {"rows": rows}


def _joined(replay: Path, capture: Path) -> str:
    """What htagraph says of a replay with a capture next to it."""
    try:
        return str(hg.load(replay, beside=[capture]).attached.iloc[0]["detail"])
    except hg.errors.HTAGraphError as error:
        return str(error)
