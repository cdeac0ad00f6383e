"""Whether the code that was planted is named, and what a run is shorter by without it.

Run ``python -m tests.benchmarks.bench_functions FOLDER [CASE ...]`` where torch is (CPU, Linux).
Each case is a real PyTorch training run with a cause planted, recorded in turn with it and without
it, `ROUNDS` times, by ``hg.profile`` as it is; once without the sampler; once with stacks. Then the
table: whether the first screen names it in each mode; what the recording predicts that is saved
(``hg.remove`` of the function, and its gradients; of a cause that is no function, its cost); what
the recordings without it are shorter by, a step; and the same where nothing is recorded. Times
count while the main thread had a core (wall minus run delay), as other programs run, too.
"""

from __future__ import annotations

import asyncio
import gc
import http.client
import http.server
import json
import math
import multiprocessing
import os
import queue
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import htagraph as hg
from tests.benchmarks.bench_sampler import waited_ns

ROUNDS, STEPS, SKIP = 6, 8, 2
MODES = ("with.0", "no_sampler", "stacks")  # Folders that are looked at
CLOSE = 0.15
ON: set[str] = set()  # What is planted now
WORDS = [f"word{number % 997}" for number in range(30000)]
SCRATCH = Path(tempfile.mkdtemp())


def naive_attention(q: Any, k: Any, v: Any) -> Any:
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    weights = (scores - scores.max(-1, keepdim=True).values).exp()
    weights = weights / weights.sum(-1, keepdim=True)
    out = torch.zeros_like(q)
    for head in range(q.shape[1]):
        out[:, head] = torch.bmm(weights[:, head], v[:, head])
    return out


def gelu_by_hand(x: Any) -> Any:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        """Attention, then two linear layers."""
        b, n, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = naive_attention(q, k, v) if "naive_attention" in ON else v
        x = x + self.out(y.transpose(1, 2).reshape(b, n, w))
        h = self.up(self.norm2(x))
        h = gelu_by_hand(h) if "gelu_by_hand" in ON else h
        return x + self.down(h)


class Model(nn.Module):
    """Layers."""

    def __init__(self, width: int = 96, depth: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, 6) for _ in range(depth))

    def forward(self, x: Any) -> Any:
        """One after the other."""
        for block in self.blocks:
            again = "recomputation" in ON
            x = checkpoint(block, x, use_reentrant=False) if again else block(x)
        return x


# Before a step


def tokenize_text() -> None:
    sum(hash(word) % 1024 for word in WORDS * 2)


def regex_clean() -> None:
    [re.sub(r"(\w+)d(\d+)", r"\2\1", word) for word in WORDS[:9000]]


def sort_rows() -> None:
    sorted(range(120000), key=lambda number: -number % 977)


def big_json() -> None:
    json.dumps([{"id": number, "box": [1, 2, 3]} for number in range(4000)])


def augment_images() -> None:
    images = np.random.default_rng(0).random((16, 128, 128))
    np.sort(np.flip(images, 2) * 0.5, axis=2).sum()


def one_hot_loop() -> None:
    out = torch.zeros(400, 64)
    for number in range(400):
        out[number, number % 64] = 1.0


POOL = ThreadPoolExecutor(2)


def extract_features(number: int) -> int:
    time.sleep(0.015)
    return number


def pool_features() -> None:
    [one.result() for one in [POOL.submit(extract_features, number) for number in range(2)]]


BATCHES: queue.Queue[int] = queue.Queue(1)


def decode_batch() -> None:
    time.sleep(0.060)


def feed() -> None:
    while True:
        if "take_batch" in ON:
            decode_batch()
            BATCHES.put(1)
        else:
            time.sleep(0.002)


def take_batch() -> None:
    BATCHES.get()


LOCK, HELD = threading.Lock(), threading.Event()


def flush_log() -> None:
    while True:
        if "wait_for_lock" in ON:
            with LOCK:
                HELD.set()
                time.sleep(0.02)
        time.sleep(0.001)


def wait_for_lock() -> None:
    HELD.clear()
    HELD.wait()
    with LOCK:
        pass


async def call_model() -> None:
    await asyncio.sleep(0.012)


async def gather_requests() -> None:
    await asyncio.gather(*[call_model() for _ in range(3)])


def ask_services() -> None:
    asyncio.run(gather_requests())


def run_tool() -> None:
    subprocess.run(["sleep", "0.012"], check=True)


def answer(pipe: Any) -> None:
    while True:
        pipe.recv()
        time.sleep(0.015)
        pipe.send(1)


HERE, THERE = multiprocessing.Pipe()


def ask_worker() -> None:
    HERE.send(1)
    HERE.recv()


def poll_ready() -> None:
    end = time.perf_counter() + 0.012
    while time.perf_counter() < end:
        time.sleep(0.001)


def ping(sent: Any) -> None:
    for number in range(200):
        sent.append(number)
        time.sleep(0.00005)


def two_threads() -> None:
    """Hand a list to a thread, and wait for it."""
    sent: list[int] = []
    thread = threading.Thread(target=ping, args=(sent,))
    thread.start()
    thread.join()


# After a step


class Tracker(http.server.BaseHTTPRequestHandler):
    """A server that takes its time."""

    def do_POST(self) -> None:
        """Answer."""
        time.sleep(0.010)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


SERVER = http.server.HTTPServer(("127.0.0.1", 0), Tracker)


def http_tracker(*_: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", SERVER.server_port)
    connection.request("POST", "/", b"{}")
    connection.getresponse().read()
    connection.close()


def push_metrics(_: Any, loss: Any) -> None:
    loss.item()
    time.sleep(0.012)


def save_checkpoint(model: Any, _: Any) -> None:
    torch.save(model.state_dict(), SCRATCH / "checkpoint.pt")
    with (SCRATCH / "checkpoint.pt").open("r+b") as file:
        os.fsync(file.fileno())


def clip_by_hand(model: Any, _: Any) -> None:
    total = sum(float(p.grad.norm()) ** 2 for p in model.parameters())
    for p in model.parameters():
        p.grad.mul_(min(1.0, 1.0 / (total**0.5 + 1e-6)))


BEFORE: tuple[Callable[[], None], ...] = (
    tokenize_text, regex_clean, sort_rows, big_json, augment_images, one_hot_loop, pool_features,
    take_batch, wait_for_lock, ask_services, run_tool, ask_worker, poll_ready, two_threads,
)  # fmt: skip
AFTER: tuple[Callable[[Any, Any], None], ...] = (
    http_tracker, push_metrics, save_checkpoint, clip_by_hand,
)  # fmt: skip
FIRST = {"recomputation": "Recomputation", "anomaly_detection": "Anomaly detection"}
"""What the screen calls those that are no function."""

DIFFERENTIATED = ["naive_attention", "gelu_by_hand"]
"""Functions with gradients, which go, too; the screen says these apart."""

CASES = [*DIFFERENTIATED, *FIRST, *(of.__name__ for of in (*BEFORE, *AFTER))]


class Training:
    """A model that is trained step by step."""

    def __init__(self) -> None:
        self.model = Model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4, foreach=True)
        self.data = torch.randn(4, 64, 96)

    def step(self) -> None:
        """One step, with what is planted."""
        for of in BEFORE:
            if of.__name__ in ON:
                of()
        with torch.autograd.set_detect_anomaly("anomaly_detection" in ON):
            loss = self.model(self.data).square().mean()
            loss.backward()
        for of in AFTER:
            if of.__name__ in ON:
                of(self.model, loss)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def steps_ms(self, then: Callable[[], None] = lambda: None) -> float:
        """Median of what a step takes, while it has a core."""
        took = []
        for _ in range(SKIP + STEPS):
            began = time.perf_counter_ns() - waited_ns()
            self.step()
            took.append((time.perf_counter_ns() - waited_ns() - began) / 1e6)
            then()
        return statistics.median(took[SKIP:])

    def recorded_ms(self, folder: Path, **options: Any) -> float:
        """The same while it is recorded."""
        with hg.profile(folder, skip=SKIP, steps=STEPS, report=False, **options) as profiler:
            return self.steps_ms(profiler.step)


def screen(file: Path) -> str:
    told = subprocess.run(
        [sys.executable, "-m", "htagraph", "report", "--no-files", file],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return told.stdout.split("Next:")[0].replace("\n   ", " ")


def predicted_ms(file: Path, case: str) -> float:
    graph = hg.load(file).compile()
    n_steps = max(graph.critical_path().n_steps, 1)
    if case in FIRST:
        found = [one for one in graph.verdict().items if FIRST[case] in str(one)]
        return sum(one.cost_ns for one in found) / 1e6 / n_steps
    found = graph.functions()
    frame = found[found["function"] == case]["frame"]
    if not len(frame):
        return math.nan
    saves = hg.what_if(graph, hg.remove(frame.iloc[0])).saves_ns
    assert saves is not None
    gradients_ns = found["backward_ns"][found["function"] == case].iloc[0] * (
        case in DIFFERENTIATED
    )
    return (saves.expected_ns + gradients_ns) / 1e6 / n_steps


def recorded(training: Training, case: str, folder: Path) -> tuple[float, float, float]:
    """Record a case in all modes; a step with it, and what is saved: recorded, and free."""
    steps, saved, free = [], [], []
    for number in range(ROUNDS):
        took = {}
        for planted in (True, False):
            ON.clear()
            ON.update([case] if planted else [])
            at = folder / f"{'with' if planted else 'without'}.{number}"
            took[planted] = training.steps_ms(), training.recorded_ms(at)
        free.append(took[True][0] - took[False][0])
        saved.append(took[True][1] - took[False][1])
        steps.append(took[True][1])
    ON.add(case)
    training.recorded_ms(folder / "no_sampler", sample_ms=0)
    training.recorded_ms(folder / "stacks", with_stack=True)
    ON.clear()
    return statistics.median(steps), statistics.median(saved), statistics.median(free)


def main() -> None:
    """Record all cases, then judge and print."""
    folder, cases = Path(sys.argv[1]), sys.argv[2:] or CASES
    torch.set_num_threads(1)
    torch.manual_seed(0)
    multiprocessing.Process(target=answer, args=(THERE,), daemon=True).start()
    for target in (feed, flush_log, SERVER.serve_forever):
        threading.Thread(target=target, daemon=True).start()
    training = Training()
    training.step()
    gc.freeze()  # Else it takes 0.3 s in some step, because of all that is imported here
    found = {case: recorded(training, case, folder / case) for case in cases}
    print(
        "| case | sampled | without | stacks | step | predicted | measured | off | not recorded |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    n_named, n_close = dict.fromkeys(MODES, 0), 0
    for case, (step_ms, saved_ms, free_ms) in found.items():
        files = {one.name: next(one.glob("*.json*")) for one in (folder / case).iterdir()}
        named = {mode: FIRST.get(case, case) in screen(files[mode]) for mode in MODES}
        by = [predicted_ms(files[f"with.{number}"], case) for number in range(ROUNDS)]
        off = abs(statistics.median(by) / saved_ms - 1)
        said = " | ".join("named" if one else "no" for one in named.values())
        print(
            f"| {case} | {said} | {step_ms:.1f} | {statistics.median(by):.1f}"
            f" | {saved_ms:.1f} | {off:.0%} | {free_ms:.1f} |",
            flush=True,
        )
        n_close += off <= CLOSE
        for mode in MODES:
            n_named[mode] += named[mode]
    print(f"named {n_named}, within {CLOSE:.0%} {n_close}, of {len(found)}")


if __name__ == "__main__":
    main()
