"""Samples of power, clocks and utilisation while programs run, as nvidia-smi writes them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FIELDS = (
    "timestamp,index,name,utilization.gpu,utilization.memory,power.draw,clocks.sm,clocks.mem,"
    "memory.used"
)
_EVERY_MS = 100
"""Between samples. Chosen: NVML renews power and utilisation about as often."""


@contextmanager
def sampled(out: Path) -> Iterator[Path | None]:
    """The log of all GPUs during a block; None where there is no nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        yield None
        return
    query = [f"--query-gpu={_FIELDS}", "--format=csv", f"--loop-ms={_EVERY_MS}"]
    with (out / "nvidia-smi.csv").open("w") as file:
        # It writes local times; those of a trace are not.
        zone = {**os.environ, "TZ": "UTC"}
        running = subprocess.Popen(
            ["nvidia-smi", *query], env=zone, stdout=file, stderr=subprocess.DEVNULL
        )
        try:
            yield Path(file.name)
        finally:
            running.terminate()
            running.wait()
