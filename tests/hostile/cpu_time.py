"""CPU time of this process for some work, for comparisons on a machine that may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object]) -> float:
    """The least of three times: code is compiled by then, and what else runs counts least."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)
