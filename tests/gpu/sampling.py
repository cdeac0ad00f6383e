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
"""Between samples: nvidia-smi is slow below 50 ms."""


def command(file: Path) -> list[str]:
    """The call that appends samples to a file until it is ended."""
    query = [f"--query-gpu={_FIELDS}", "--format=csv", f"--loop-ms={_EVERY_MS}"]
    return ["nvidia-smi", *query, f"--filename={file}"]


@contextmanager
def sampled(out: Path) -> Iterator[Path | None]:
    """The log of all GPUs during a block; None where there is no nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        yield None
        return
    file = out / "nvidia-smi.csv"
    # Times of a log are local; those of a trace are not.
    running = subprocess.Popen(
        command(file),
        env={**os.environ, "TZ": "UTC"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield file
    finally:
        running.terminate()
        running.wait()
