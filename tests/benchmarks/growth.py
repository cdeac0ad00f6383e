"""Work of questions on traces of one, two, four and eight times the events, counted.

``python -m tests.benchmarks.growth`` prints it. Counts are those of `tests.benchmarks.work`.
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.benchmarks.work import count_bytes, count_instructions, counted, price_ns

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


@contextmanager
def retimings_counted() -> Iterator[list[int]]:
    """Count how often a block re-times a graph."""
    from htagraph.replay import rehearsal

    plain, counts = rehearsal.retime, [0]

    def retime(*arguments: Any, **named: Any) -> Any:
        counts[0] += 1
        return plain(*arguments, **named)

    rehearsal.retime = retime
    try:
        yield counts
    finally:
        rehearsal.retime = plain


def growth() -> dict[str, list[int]]:
    """The work of each question at each size, and how often each re-times the graph."""
    import htagraph as hg
    from htagraph.reports.json_document import json_document

    found: dict[str, list[int]] = defaultdict(list)
    for size in SIZES:
        trace = hg.load(crowded(size, names=50))
        graph = trace.compile()
        many = hg.load(crowded(size, names=size, threads=4, streams=4)).compile()
        of_four = hg.load(crowded(size, names=size // 4, threads=4, streams=4)).compile()
        asked = {
            "opportunities": graph.opportunities,
            "verdict": graph.verdict,
            "report": lambda trace=trace, graph=graph: json_document(hg.Summary(trace, graph), {}),
            "cost": many.cost,
            "cost_of_four": of_four.cost,
        }
        for name, ask in asked.items():
            with retimings_counted() as n_retimings:
                ask()  # imports and compiles
            _, counts = counted(ask)
            found[name].append(price_ns(counts))
            found[f"re-timings of {name}"].append(n_retimings[0])
    return found


if __name__ == "__main__":
    count_instructions()
    count_bytes()
    print(json.dumps(growth()), flush=True)
    os._exit(0)
