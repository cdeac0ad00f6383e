"""What htagraph's own recording leaves on a device: steps, work, and records of waits."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import torch

import htagraph as hg
from tests.gpu.machine import Machine
from tests.gpu.pairs import network

_N_STEPS = 3


def run_handling(machine: Machine, out: Path) -> dict[str, Any]:
    """Record some steps that wait for a number with `hg.profile`, and count what is there."""
    model = network(machine, machine.size(1024, 128), 4)
    x = torch.randn(256, machine.size(1024, 128), device=machine.device)
    with hg.profile(out / "profile", skip=3, steps=_N_STEPS, report=False) as profiler:
        for _ in range(3 + _N_STEPS):
            model(x).square().mean().item()
            profiler.step()
    for thread in threading.enumerate():
        if thread.name == "htagraph-capture":
            thread.join()
    (written,) = (out / "profile").glob("*.pt.trace.json.gz")
    file = written.replace(out / "profile.pt.trace.json.gz")
    (out / "profile").rmdir()
    trace = hg.load(file)
    kinds = trace.events["kind"].value_counts()
    row = {
        "steps": len(trace.steps),
        "items": int((trace.events["name"] == "aten::item").sum()),
        "kernels": int(kinds.get("kernel", 0)),
        "waits recorded": int(kinds.get("sync", 0)),
        "unknown_waits": float(trace.compile().critical_path().unknown_share),
    }
    return {"rows": [row], "capture": file.name}
