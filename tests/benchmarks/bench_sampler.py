"""What sampling costs a profiled run: step time and file size, next to ``with_stack=True``.

Run ``python -m tests.benchmarks.bench_sampler`` where torch is; of htagraph it needs only the
sampler. Three workloads, each recorded plain, sampled and with stacks in turn, in another order in
each block. Ratios are of recordings of one block, so that what else the machine does cancels out;
a step counts while the main thread has a core (wall minus run delay, on Linux).
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from htagraph.capture.sampler import Sampler

MODES = ("plain", "sampled", "with_stack")
WARM_UP = 5  # Steps before anything is measured
FEWEST = 8  # Blocks
LARGEST = 5_000_000  # Bytes of a plain trace: with stacks it is many times as large, and slow
MOST_STEPS = 100
FIRST = 2  # Steps of a recording that are not measured: the profiler sets up
SLOWEST = 10  # One step in so many is not measured: another program had the core

Step = Callable[[], None]


def small_operators(device: str) -> Step:
    """A deep, narrow network: the host launches many small operators."""
    layers = [layer for _ in range(24) for layer in (nn.Linear(64, 64), nn.GELU())]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    data = torch.randn(32, 64, device=device)

    def step() -> None:
        model(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def large_operators(device: str) -> Step:
    """A wide transformer layer: few operators that take long, without the GIL."""
    width = 256 if device == "cpu" else 2048
    model = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True).to(device)
    data = torch.randn(8, 128, width, device=device)

    def step() -> None:
        model(data).square().mean().backward()

    return step


def python_code(device: str) -> Step:
    """Preparing data in Python, which holds the GIL, then a small network."""
    model = nn.Linear(256, 256).to(device)
    words = [f"word{number % 97}" for number in range(1000)]

    def token(word: str) -> int:
        return sum(map(ord, word)) % 256

    def step() -> None:
        counts = [0.0] * 256
        for word in words:
            counts[token(word * 4)] += 1.0
        model(torch.tensor(counts, device=device)).sum().backward()

    return step


WORKLOADS = {
    "small operators": small_operators,
    "large operators": large_operators,
    "Python code": python_code,
}


def waited_ns() -> int:
    """How long this thread was ready and had no core, since it began."""
    return int(
        Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()[1]
    )


def recorded(step: Step, mode: str, n_steps: int, file: Path) -> tuple[float, int, float]:
    """Seconds a step of a recording, compressed bytes of its file, and samples a second."""
    sampler = Sampler() if mode == "sampled" else None
    activities = [ProfilerActivity.CPU]
    on_gpu = torch.cuda.is_initialized()
    if on_gpu:
        activities.append(ProfilerActivity.CUDA)
    gc.collect()  # Else what the recording before left is collected in a sampled one, 30 ms
    with profile(activities=activities, with_stack=mode == "with_stack") as profiler:
        if sampler is not None:
            sampler.start()
        clock = [time.perf_counter_ns() - waited_ns()]
        for _ in range(FIRST + n_steps):
            step()
            if on_gpu:
                torch.cuda.synchronize()
            clock.append(time.perf_counter_ns() - waited_ns())
        took = (clock[-1] - clock[0]) / 1e9
        if sampler is not None:
            sampler.stop()
    profiler.export_chrome_trace(str(file))
    if sampler is not None:
        sampler.write_into(file)
    packed = len(zlib.compress(file.read_bytes(), 1))
    steps = sorted(end - start for start, end in pairwise(clock[FIRST:]))
    steps = steps[: -(n_steps // SLOWEST) or None]
    rate = sampler.n_samples / took if sampler is not None else 0.0
    return statistics.mean(steps) / 1e9, packed, rate


def n_steps_of(step: Step, seconds: float, file: Path) -> int:
    """How many steps take about so long, and do not write too much."""
    for _ in range(WARM_UP):
        step()
    took, _, _ = recorded(step, "plain", WARM_UP, file)
    fits = LARGEST * WARM_UP // file.stat().st_size
    return max(min(round(seconds / took), fits, MOST_STEPS), 3)


def spread(values: list[float]) -> str:
    """Median and quartiles, in percent above 1."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{100 * (middle - 1):+6.1f}% ({100 * (low - 1):+.1f} to {100 * (high - 1):+.1f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=150, help="how long it may take")
    parser.add_argument("--blocks", type=int, default=FEWEST)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    n_blocks, end = max(asked.blocks, FEWEST), time.monotonic()
    # Recording is about a fifth of it: the rest is writing traces, most of those with stacks.
    seconds = asked.seconds / (5 * len(WORKLOADS) * n_blocks * len(MODES))
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, {asked.device}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        for number, (name, made) in enumerate(WORKLOADS.items(), start=1):
            end += asked.seconds / len(WORKLOADS)
            step = made(asked.device)
            n_steps = n_steps_of(step, seconds, file)
            found: dict[str, list[tuple[float, int, float]]] = {mode: [] for mode in MODES}
            for block in range(n_blocks):
                if time.monotonic() > end and block >= 2:
                    break
                turn = (block + number) % len(MODES)
                for mode in (*MODES[turn:], *MODES[:turn]):
                    found[mode].append(recorded(step, mode, n_steps, file))
            plain = found["plain"]
            step_ms = 1e3 * statistics.median(one[0] for one in plain)
            print(f"{name}: {len(plain)} blocks of {n_steps} steps of {step_ms:.2f} ms")
            for mode in MODES[1:]:
                pairs = list(zip(found[mode], plain, strict=True))
                time_of = spread([one[0] / other[0] for one, other in pairs])
                size = statistics.median(one[1] / other[1] for one, other in pairs)
                rate = statistics.median(one[2] for one in found[mode])
                often = f", {rate:.0f} samples a second" if rate else ""
                print(f"  {mode:<10} step {time_of}  file x {size:.2f}{often}", flush=True)


if __name__ == "__main__":
    main()
