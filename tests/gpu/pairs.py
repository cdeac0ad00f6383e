"""Six repairs: what each saves without a profiler, and what its capture before predicts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import htagraph as hg
from htagraph.replay.changes import Change
from htagraph.run.graph import TraceGraph
from tests.gpu.machine import Machine
from tests.gpu.recording import Step, record_steps
from tests.gpu.traffic import traffic

_N_MEASURED = 20
_LOADING_S, _N_WORKERS = 0.02, 2
_N_PARAMETERS = 32
_BATCH_FACTOR = 4


class Pair(NamedTuple):
    """A program before and after a repair, and the change that stands for it."""

    name: str
    before: Step
    after: Step
    changes: Callable[[TraceGraph], list[Change]]


def pairs(machine: Machine) -> Iterator[Callable[[Machine], Pair]]:
    """The pairs that this device can run, each made when it is asked for."""
    yield items
    yield workers
    yield fused_optimizer
    yield larger_batch
    if machine.is_gpu:
        yield pinned_copies
        yield cuda_graph


def network(machine: Machine, width: int, depth: int) -> nn.Module:
    """Layers of one width."""
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers).to(machine.device)


def items(machine: Machine) -> Pair:
    """``.item()`` of each micro-batch's loss, against none."""
    width = machine.size(1024, 128)
    model = network(machine, width, 4)
    x = torch.randn(machine.size(512, 64), width, device=machine.device)

    def step(*, reads: bool) -> None:
        model.zero_grad()
        for _ in range(3):
            loss = model(x).square().mean()
            if reads:
                loss.item()
            loss.backward()

    return Pair(
        "`.item()` each step",
        lambda: step(reads=True),
        lambda: step(reads=False),
        lambda _: [hg.remove("aten::item")],
    )


def pinned_copies(machine: Machine) -> Pair:
    """Batches copied from pageable memory, against pinned memory without waiting."""
    width = 1024
    model = network(machine, width, 6)
    device = torch.empty(8192, width, device=machine.device)
    pageable = torch.randn(8192, width)
    pinned = pageable.pin_memory()

    def step(batch: torch.Tensor, *, non_blocking: bool) -> None:
        with torch.no_grad():
            for _ in range(4):
                device.copy_(batch, non_blocking=non_blocking)
                model(device)

    ratio = machine.ms(lambda: device.copy_(pinned), 5) / machine.ms(
        lambda: device.copy_(pageable), 5
    )
    return Pair(
        "pageable to pinned copies",
        lambda: step(pageable, non_blocking=False),
        lambda: step(pinned, non_blocking=True),
        lambda graph: [
            hg.scale(graph.select(kind="memcpy", name="Memcpy HtoD*"), by=ratio),
            hg.no_wait("aten::copy_"),
        ],
    )


class Slow(Dataset):
    """Batches that take time to load."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, at: int) -> torch.Tensor:
        time.sleep(_LOADING_S)
        return torch.full((self.rows, self.columns), float(at))


def workers(machine: Machine) -> Pair:
    """Batches loaded in the training process, against two other processes."""
    width, rows = machine.size(1024, 256), machine.size(512, 256)  # small: workers share memory
    model = network(machine, width, machine.size(12, 6))

    def program(n: int) -> Step:
        batches = iter(DataLoader(Slow(rows, width), batch_size=None, num_workers=n))

        def step() -> None:
            model.zero_grad()
            model(next(batches).to(machine.device)).square().mean().backward()

        return step

    # Two batches are loaded at once, so that one takes half as long; and during the step.
    changes = [hg.scale("enumerate(DataLoader)*", by=1 / _N_WORKERS), hg.prefetch()]
    name = f"data loader with {_N_WORKERS} workers"
    return Pair(name, program(0), program(_N_WORKERS), lambda _: changes)


def cuda_graph(machine: Machine) -> Pair:
    """Many small kernels launched one by one, against one graph."""
    model = network(machine, 256, 60)
    x = torch.randn(32, 256, device=machine.device)

    def eager() -> None:
        with torch.no_grad():
            model(x)

    captured = captured_graph(eager)
    return Pair("as a CUDA graph", eager, captured.replay, lambda _: [hg.graphed()])


def captured_graph(step: Step) -> torch.cuda.CUDAGraph:
    """A CUDA graph of a step, warmed up on a stream of its own as PyTorch asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # A profiler may have threads of its own, which must not end the capture.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        step()
    return graph


def fused_optimizer(machine: Machine) -> Pair:
    """Adam on lists of tensors, against one pass over all of them: its bytes are the change.

    Roots are new tensors, whose pages cost a CPU far more than their bytes: one pass has none.
    """
    n = machine.size(1 << 21, 1 << 19)

    def program(**options: bool) -> Step:
        parameters = [
            nn.Parameter(torch.randn(n, device=machine.device)) for _ in range(_N_PARAMETERS)
        ]
        for one in parameters:
            one.grad = torch.randn_like(one)
        optimizer = torch.optim.Adam(parameters, **options)
        optimizer.step()
        return optimizer.step

    before, after = program(foreach=True), program(fused=True)
    n_before, n_after = traffic(before), traffic(after)
    of_roots = 2 * _N_PARAMETERS * n * torch.float32.itemsize

    def changes(graph: TraceGraph) -> list[Change]:
        if not machine.is_gpu:
            ratio = n_after / (n_before - of_roots)
            return [hg.remove("aten::_foreach_sqrt"), hg.scale("Optimizer.step#*", by=ratio)]
        ratio = n_after / n_before
        kernels = graph.select(kind="kernel", name="*multi_tensor_apply*")
        return [hg.scale(kernels, by=ratio), hg.fuse(kernels)]

    return Pair("foreach to fused Adam", before, after, changes)


def larger_batch(machine: Machine) -> Pair:
    """A batch, against one four times as large: all work on rows takes four times as long."""
    width = machine.size(2048, 256)
    model = network(machine, width, 6)
    n = machine.size(2048, 256)

    def program(rows: int) -> Step:
        x = torch.randn(rows, width, device=machine.device)

        def step() -> None:
            model.zero_grad()
            model(x).square().mean().backward()

        return step

    def changes(graph: TraceGraph) -> list[Change]:
        work = graph.select(kind="kernel") if machine.is_gpu else "aten::*"
        return [hg.scale(work, by=_BATCH_FACTOR)]

    return Pair(f"batch {_BATCH_FACTOR} times as large", program(n), program(4 * n), changes)


def measured(machine: Machine, step: Step) -> dict[str, float]:
    """A step without a profiler: the median, and the range of nine in ten."""
    machine.step_ms(step, 4)
    found = sorted(machine.step_ms(step, _N_MEASURED))
    edge = len(found) // 20
    return {"ms": statistics.median(found), "low": found[edge], "high": found[-1 - edge]}


def predicted(graph: TraceGraph, changes: list[Change], before_ms: float) -> dict[str, Any]:
    """What the capture before predicts: medians over its steps, with the ends of the intervals.

    A profiler slows the host, so that the capture says which share of the measured step is left.
    """
    steps = [
        hg.what_if(graph.window(name), *changes) for name in graph.step_times()["name"].tolist()
    ]
    recorded_ns = statistics.median(one.before.dur_ns for one in steps)
    found: dict[str, Any] = {
        "change": ", ".join(map(str, changes)),
        "recorded_ms": recorded_ns / 1e6,
        "withheld": next((one.withheld for one in steps if one.withheld), ""),
    }
    if found["withheld"]:
        return found
    for key, end in (("ms", "expected_ns"), ("low", "high_ns"), ("high", "low_ns")):
        left = [1 - getattr(one.saves_ns, end) / one.before.dur_ns for one in steps]
        found[key] = statistics.median(left) * before_ms
    return found


def _predicted(graph: TraceGraph, pair: Pair, before_ms: float) -> dict[str, Any]:
    """The prediction, or why there is none: the other pairs must not end with it."""
    try:
        return predicted(graph, pair.changes(graph), before_ms)
    except hg.errors.HTAGraphError as error:
        return {"change": "-", "recorded_ms": 0.0, "withheld": str(error)}


def run_pairs(machine: Machine, out: Path) -> dict[str, Any]:
    """Measure all pairs, then record them: a profiler that ran once may slow what follows."""
    made = [make(machine) for make in pairs(machine)]
    rows = []
    for pair in made:
        before, after = measured(machine, pair.before), measured(machine, pair.after)
        rows.append({"pair": pair.name, "before": before, "after": after})
    for pair, row in zip(made, rows, strict=True):
        name = pair.name.replace("`", "").replace(".", "").replace(" ", "_").replace("()", "")
        file = record_steps(machine, out, f"{name}-before", pair.before)
        row["capture"] = file.name
        graph = hg.load(file).compile()
        row["predicted"] = _predicted(graph, pair, row["before"]["ms"])
        row["capture_after"] = record_steps(machine, out, f"{name}-after", pair.after).name
    return {"rows": rows}
