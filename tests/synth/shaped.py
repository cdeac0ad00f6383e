"""Random programs by what limits them: by the host, the device, both, waits, a full queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.synth.draw import Draw
from tests.synth.program import (
    Action,
    Annotation,
    Collective,
    Group,
    HandOver,
    Launch,
    Machine,
    Op,
    Program,
    Record,
    Spend,
    StreamWait,
    Synchronize,
)

SHAPES = ("host-bound", "device-bound", "balanced", "streams", "waits in a loop", "full queue")
"""What limits a program, or what it is full of."""

_PACES = {
    "host-bound": (0.1, 0.6),
    "device-bound": (1.5, 5.0),
    "balanced": (0.9, 1.15),
    "full queue": (0.05, 0.2),
}
"""Device time per host time; of other shapes any."""

_LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
GEMM, NORM, _GELU = "ampere_sgemm_128x64_nn", "vectorized_layer_norm_kernel", "gelu_kernel"
_ADAM, _FLASH = "multi_tensor_apply_kernel_adamw", "flash_fwd_kernel"
_OPS = (("aten::addmm", GEMM), ("aten::native_layer_norm", NORM), ("aten::gelu", _GELU))
_CHAIN = ("mul", "add", "sigmoid", "sub", "div")
_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_ENGINE = "autograd::engine::evaluate_function"
_OF_EIGHT = Group("0", tuple(range(8)))
_COMPUTE, _COMMUNICATION = 7, 20
_OP_US = 16
"""Host time of an operator, about."""
GRID_NS = 20
"""Of durations: twentieths of them are exact."""


@dataclass(frozen=True)
class _Layer:
    """Durations of one layer, about which those of each step are drawn."""

    ops: tuple[tuple[str, str, int, int], ...]
    reduce_ns: int
    reads: int


class Shaped:
    """The parts of one program: durations are drawn once, and those of each step about them."""

    def __init__(self, draw: Draw, shape: str, planted: str) -> None:
        self.draw, self.shape, self.planted = draw, shape, planted
        self.pace = draw.random.uniform(*_PACES.get(shape, (0.2, 2.5)))
        chain = _CHAIN[: draw.random.randint(2, 5)] if planted == "chain" else ()
        self.chain = tuple(f"vectorized_elementwise_kernel_{name}" for name in chain)
        self.latency_ns = draw.ns(5, 10)
        self.has_streams = shape == "streams" or planted == "collectives"
        self.layers = [self._layer() for _ in range(draw.random.randint(2, 6))]
        self.is_waited = planted == "waits" or draw.chance(0.4)
        n_ops = len(self.layers) * (len(_OPS) + len(chain) + 1)
        step_us = n_ops * _OP_US * max(self.pace, 1)
        self.load_ns = draw.ns(20, 80)
        if planted == "loader":
            self.load_ns = draw.ns(0.3 * step_us, 3 * step_us)
        self.copy_ns = draw.ns(5, 40)
        if planted == "synchronous copy":
            self.copy_ns = draw.ns(0.1 * step_us, step_us)
        self.has_backward = planted != "graph" and draw.chance(0.5)
        self.n_flood = draw.random.randint(1_450, 1_650) if shape == "full queue" else 0

    def _layer(self) -> _Layer:
        """Durations of a layer."""
        draw = self.draw
        names = [*_OPS, *((f"aten::{name.rpartition('_')[2]}", name) for name in self.chain)]
        ops = tuple(
            (op, kernel, draw.ns(5, 14), draw.ns(_OP_US * self.pace / 2, _OP_US * self.pace * 2))
            for op, kernel in names
        )
        reads = draw.random.randint(1, 3) if self.shape == "waits in a loop" else 0
        if self.planted == "items" and not reads:
            reads = 1
        transfer_ns = draw.ns(_OP_US * self.pace, 6 * _OP_US * self.pace)
        return _Layer(ops, self.latency_ns + transfer_ns, reads)

    def op(self, name: str, launch: Action, host_ns: int) -> Op:
        """An operator with one launch."""
        return Op(name, (self.draw.spend(host_ns), launch, self.draw.spend(1_800)))

    def layer(self, layer: _Layer) -> Iterator[Action]:
        """Yield the actions of a layer."""
        draw = self.draw
        for op, kernel, host_ns, dur in layer.ops:
            yield self.op(op, draw.launch(kernel, dur), host_ns)
            if draw.chance(0.3) and kernel not in self.chain:
                yield draw.spend(4_000)
        if self.has_streams:
            yield from self.reduced(layer.reduce_ns)
        for _ in range(layer.reads):
            yield self.read()
            yield draw.spend(6_000)

    def reduced(self, dur: int) -> Iterator[Action]:
        """Yield an all-reduce beside the compute stream, which may wait for it."""
        draw = self.draw
        waits_ns = draw.ns(1, 60) if draw.chance(0.3) else 0
        reduce = Collective(_REDUCE, draw.about(dur), _OF_EIGHT, alone_ns=waits_ns)
        body = (
            Record("computed", _COMPUTE),
            StreamWait("computed", _COMMUNICATION),
            Launch(reduce, _COMMUNICATION, cost_ns=draw.about(5_500)),
            Record("reduced", _COMMUNICATION),
        )
        yield Op("c10d::allreduce_", (draw.spend(5_000), *body))
        if draw.chance(0.5):
            yield StreamWait("reduced", _COMPUTE)

    def read(self) -> Op:
        """A number read from the device."""
        copy = self.draw.launch("Memcpy DtoH (Device -> Pageable)", 1_400)
        wait = (replace(copy, is_blocking=True), Synchronize(stream=_COMPUTE))
        inner = Op("aten::_local_scalar_dense", (self.draw.spend(3_000), *wait))
        return Op("aten::item", (self.draw.spend(2_000), inner))

    def copy(self) -> Op:
        """The copy of a batch to the device."""
        blocks = self.planted == "synchronous copy"
        name = f"Memcpy HtoD ({'Pageable' if blocks else 'Pinned'} -> Device)"
        launch = replace(self.draw.launch(name, self.copy_ns), is_blocking=blocks)
        return self.op("aten::copy_", launch, 5_000)

    def flood(self) -> Iterator[Action]:
        """Yield a long kernel, and behind it more launches than the queue holds."""
        draw = self.draw
        yield self.op("aten::sdpa", draw.launch(_FLASH, draw.ns(8_000, 15_000)), 9_000)
        for _ in range(self.n_flood):
            launch = replace(draw.launch("fill_kernel", 1_600), cost_ns=draw.about(2_500))
            yield Op("aten::fill_", (Spend(800), launch))

    def handed_over(self, actions: Sequence[Action]) -> HandOver:
        """The actions on the autograd thread, as its engine runs them."""
        body = tuple(
            Op(
                f"{_ENGINE}: {action.name.rpartition(':')[2].title()}Backward0",
                (Spend(1_000), action),
            )
            if isinstance(action, Op)
            else action
            for action in actions
        )
        return HandOver(body, wake_ns=self.draw.ns(10, 30), thread_name="pt_autograd_0")

    def step(self, number: int) -> Annotation:
        """A step."""
        draw, half = self.draw, len(self.layers) // 2
        parts = [tuple(self.layer(layer)) for layer in self.layers]
        forward = [action for part in parts[:half] for action in part]
        backward = tuple(action for part in parts[half:] for action in part)
        handed = (self.handed_over(backward),) if self.has_backward else backward
        adam = self.op("aten::_fused_adamw_", draw.launch(_ADAM, int(4e4 * self.pace)), 12_000)
        return Annotation(
            f"ProfilerStep#{number}",
            (
                draw.spend(9_000),
                Annotation(_LOADER, (draw.spend(self.load_ns),)),
                draw.spend(12_000),
                self.copy(),
                *(self.flood() if number == 0 and self.n_flood else ()),
                *forward,
                draw.spend(15_000),
                *handed,
                StreamWait("reduced", _COMPUTE),
                draw.spend(10_000),
                Annotation("Optimizer.step#AdamW.step", (draw.spend(9_000), adam)),
                *((Synchronize(),) if self.is_waited else ()),
            ),
        )

    def program(self, seed: int) -> Program:
        """The whole program: a warm-up, two to four steps, and a wait for the device."""
        draw = self.draw
        warm = Op("aten::warm_up", (draw.launch("warm_up_kernel", 20_000),)), draw.spend(90_000)
        steps = [self.step(number) for number in range(draw.random.randint(2, 4))]
        return Program(
            (*warm, *steps, Synchronize()),
            Machine(
                launch_latency_ns=draw.ns(4, 10),
                stream_gap_ns=draw.ns(0.4, 1.5),
                stream_wait_ns=draw.ns(0.3, 1.5),
                sync_return_ns=draw.ns(1, 4),
            ),
            world_size=len(_OF_EIGHT.ranks),
            groups=(_OF_EIGHT,),
            sync_records=draw.chance(0.3),
            sync_calls=draw.chance(0.7),
            seed=seed,
        )


def shaped_program(shape: str, seed: int) -> Program:
    """A random program of a shape, the same for the same seed."""
    return Shaped(Draw.of(f"{shape} {seed}", grid_ns=GRID_NS), shape, "").program(seed)
