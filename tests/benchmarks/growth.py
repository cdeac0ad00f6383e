"""Work of questions on traces of one, two, four and eight times the events, counted.

``python -m tests.benchmarks.growth`` prints it. Counts are those of `tests.benchmarks.work`, but
its memory handler cannot be used with pandas: the most memory at once counts instead of all bytes.
"""

from __future__ import annotations

import json
import random
import tracemalloc
from typing import Any

from tests.benchmarks.work import count_instructions, counted, price_ns

SIZES = (4_000, 8_000, 16_000, 32_000)
"""Events: at the first size, all streams run work."""
_THREADS, _STREAMS = 50, 500
_START_US = 1_700_000_000_000_000


def crowded(
    n_events: int, *, names: int, threads: int = _THREADS, streams: int = _STREAMS
) -> bytes:
    """Operators on many threads, which launch to many streams and wait for the device."""
    draw = random.Random(1)  # noqa: S311 - no secret
    rows: list[dict[str, Any]] = []
    now, free = [0.0] * threads, [0.0] * streams

    def event(cat: str, name: str, tid: int, ts: float, dur: float, **args: int) -> None:
        pid = 0 if cat == "kernel" else 1
        row = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "args": args}
        rows.append(row | {"ts": _START_US + ts, "dur": dur})

    while len(rows) < n_events:
        number, thread = len(rows), draw.randrange(threads)
        start, dur = now[thread] + draw.uniform(0, 5), draw.uniform(5, 25)
        now[thread] = start + dur
        event("cpu_op", f"op {number % names}", thread, start, dur)
        if draw.random() < 0.6:
            sync = "cudaDeviceSynchronize"
            event("cuda_runtime", sync, thread, start + 1, dur - 2, correlation=number)
            continue
        stream = draw.randrange(streams)
        began, took = max(free[stream], start + 5), draw.uniform(1, 40)
        free[stream] = began + took
        event("cuda_runtime", "cudaLaunchKernel", thread, start + 1, 3, correlation=number)
        at = {"correlation": number, "stream": stream}
        event("kernel", f"kernel {number % names}", stream, began, took, device=0, **at)
    return json.dumps(rows).encode()


def growth() -> dict[str, list[int]]:
    """The work of each question at each size."""
    import htagraph as hg

    found: dict[str, list[int]] = {"opportunities": [], "drag": [], "drag_of_four": []}
    for size in SIZES:
        graphs = {
            "opportunities": hg.load(crowded(size, names=50)).compile(),
            "drag": hg.load(crowded(size, names=size, threads=4, streams=4)).compile(),
            "drag_of_four": hg.load(crowded(size, names=size // 4, threads=4, streams=4)).compile(),
        }
        for name, graph in graphs.items():
            ask = getattr(graph, name.removesuffix("_of_four"))
            ask()  # imports and compiles
            _, counts = counted(ask)
            tracemalloc.start()
            ask()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            found[name].append(price_ns(counts | {"bytes": peak}))
    return found


if __name__ == "__main__":
    count_instructions()
    print(json.dumps(growth()))
