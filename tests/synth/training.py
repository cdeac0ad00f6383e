"""Training programs: the steps of a model on one rank or many, with planted faults.

A step loads a batch, copies it to the device, runs forward over the layers, backward on the
autograd thread with all-reduces of gradients on a stream of their own, and the optimizer. Names are
those of PyTorch, durations those of real traces; each is drawn within a few percent
around its base.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

from htagraph.errors import QueryError, one_of
from tests.synth.layout import Layout
from tests.synth.program import (
    Action,
    Annotation,
    Clock,
    Collective,
    Group,
    HandOver,
    JobProgram,
    Launch,
    Machine,
    Op,
    Program,
    Record,
    Spend,
    StreamWait,
    Synchronize,
    Work,
)

Fault = Literal[
    "none",
    "dataloader",
    "sync_in_loop",
    "small_kernels",
    "exposed_allreduce",
    "synchronous_copy",
    "full_queue",
    "recompile",
]
"""Faults to plant in a rank: the step is then bound by the fault."""

Delay = Literal["python", "op", "data_loading", "kernel"]
"""Why a straggler is late: unrecorded host time, a slow operator, data loader, or kernels."""

_COMPUTE, _COMMUNICATION, _PIPELINE = 7, 20, 24
_OF_EIGHT = Group("0", tuple(range(8)))
_SPREAD = 0.04
_READS_PER_LAYER = 10
_GEMM = "ampere_sgemm_128x64_nn"
_POINTWISE = (
    "void at::native::vectorized_elementwise_kernel"
    "<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
_OPTIMIZER = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel"
    "<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, "
    "at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4> >"
)
_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
_COMPILES = "_compile.compile_inner (dynamo_timed)"
_LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def training_rank(
    *, steps: int = 3, layers: int = 6, fault: Fault = "none", accumulate: int = 1, seed: int = 0
) -> Program:
    """The program of rank 0 of eight that train a model; the other seven are not simulated."""
    _check_fault(fault)
    source = random.Random(seed)  # noqa: S311 - no secret
    builder = _Step(layers=layers, fault=fault, random=source, accumulate=accumulate)
    return Program(
        builder.run(steps), world_size=len(_OF_EIGHT.ranks), groups=(_OF_EIGHT,), seed=seed
    )


def training_job(
    *,
    ranks: int = 4,
    steps: int = 3,
    layers: int = 6,
    fault: Fault = "none",
    tensor: int = 1,
    pipeline: int = 1,
    micro_batches: int = 1,
    slow_stage: int = -1,
    accumulate: int = 1,
    straggler: int = -1,
    delay: Delay = "python",
    delay_ns: int = 2_000_000,
    max_offset_ns: int = 0,
    max_drift_ppb: int = 0,
    jitter_ns: int = 0,
    seed: int = 0,
) -> JobProgram:
    """The programs of the ranks of a job: data, tensor and pipeline parallel.

    Ranks are numbered as in Megatron: tensor-parallel neighbors first, then data parallel, then
    pipeline stages.
    """
    _check_fault(fault)
    if ranks % (tensor * pipeline):
        raise QueryError(
            f"{ranks} ranks cannot be {tensor} x {pipeline}.",
            hint="tensor * pipeline divides ranks.",
        )
    if not -1 <= straggler < ranks:
        raise QueryError(
            f"there is no rank {straggler}.",
            hint=f"ranks are 0 to {ranks - 1}; -1 for no straggler.",
        )
    source = random.Random(seed)  # noqa: S311 - no secret
    programs = []
    for rank in range(ranks):
        layout = Layout(rank, ranks, tensor, pipeline)
        late = {delay: delay_ns} if rank == straggler else {}
        durations = random.Random(seed * 7_919 + rank)  # noqa: S311 - no secret
        builder = _Step(
            layers, durations, fault, layout, late, accumulate,
            micro_batches=micro_batches, is_slow=layout.stage == slow_stage,
        )  # fmt: skip
        programs.append(
            Program(
                builder.run(steps), Machine(jitter_ns=jitter_ns), rank, ranks, device=rank % 8,
                groups=layout.groups, seed=seed + rank,
            )
        )  # fmt: skip
    others = (
        Clock(
            source.randint(-max_offset_ns, max_offset_ns),
            source.randint(-max_drift_ppb, max_drift_ppb),
        )
        for _ in range(1, ranks)
    )
    return JobProgram(tuple(programs), (Clock(), *others), straggler)


def _check_fault(fault: str) -> None:
    """Raise if there is no such fault."""
    if fault not in get_args(Fault):
        raise QueryError(f"{fault!r} is no fault.", hint=one_of(fault, get_args(Fault)))


@dataclass
class _Step:
    """The builder of the actions of a rank's steps."""

    layers: int
    random: random.Random
    fault: Fault = "none"
    layout: Layout = field(default_factory=Layout)
    late: dict[Delay, int] = field(default_factory=dict)
    accumulate: int = 1
    n_sequences: int = 0
    updates: bool = True
    micro_batches: int = 1
    is_slow: bool = False

    def run(self, steps: int) -> tuple[Action, ...]:
        """A warm-up, the steps, and the wait for the device at the end."""
        warm = Work("warm_up_kernel", self._ns(40_000))
        pair = (Launch(warm), Launch(warm), Spend(self._ns(150_000)), Launch(warm))
        body = [
            Annotation(f"ProfilerStep#{number}", tuple(self._step(number)))
            for number in range(steps)
        ]
        return (Op("aten::warm_up", pair), Synchronize(), *body, Synchronize())

    def _ns(self, base_time_ns: float) -> int:
        """A duration around a base; odd, so that two are hardly ever equal."""
        return int(base_time_ns * self.random.uniform(1 - _SPREAD, 1 + _SPREAD)) | 1

    @property
    def _kernel_scale(self) -> float:
        """Scale of kernel durations; small where the host is to be the bottleneck."""
        return {"sync_in_loop": 0.15, "small_kernels": 0.04, "dataloader": 0.5}.get(self.fault, 1.0)

    def _step(self, number: int) -> Iterator[Action]:
        """The actions of one step."""
        self.updates = number % self.accumulate == 0
        loading_ns = 1_100 * 1_000 * self.layers if self.fault == "dataloader" else 60_000
        yield Spend(self._ns(12_000))
        if "python" in self.late:
            yield Spend(self.late["python"])
        if "op" in self.late:
            yield Op("aten::unique_consecutive", (Spend(self.late["op"]),))
        yield Annotation(_LOADER, (Spend(self._ns(loading_ns) + self.late.get("data_loading", 0)),))
        yield Spend(self._ns(18_000))
        yield self._batch_copy()
        if self.fault == "full_queue":
            yield from self._flood()
        ahead = min(self.layout.pipeline - self.layout.stage - 1, self.micro_batches - 1)
        begun: list[int] = []
        for at in range(self.micro_batches + ahead):
            if at < self.micro_batches:
                begun.append(self.n_sequences)
                yield from self._forward(compiles=self.fault == "recompile" and number == 1)
            if at >= ahead:
                is_last = at == self.micro_batches + ahead - 1
                backward = self._backward(begun.pop(0), reduces=self.updates and is_last)
                yield HandOver(tuple(backward), wake_ns=self._ns(24_000))
                yield Spend(self._ns(30_000))
        if self.updates:
            yield from self._optimizer()
        yield Spend(self._ns(17_000_000 if self.fault == "full_queue" else 20_000))

    def _forward(self, *, compiles: bool) -> Iterator[Action]:
        """The forward of a micro-batch, between a receive and a send."""
        yield from self._from_neighbor(self.layout.rank - self.layout.per_stage)
        if compiles:
            yield self._op(_COMPILES, Spend(self._ns(8_000_000 * self.layers)))
        for _ in range(self.layers):
            yield from self._forward_layer()
        yield from self._to_neighbor(self.layout.rank + self.layout.per_stage)
        yield self._pointwise("aten::cross_entropy_loss", 21_000)
        yield Spend(self._ns(15_000))

    def _op(self, name: str, *body: Action, sequence: int = -1) -> Op:
        """An operator with host time of its own before and after its body."""
        return Op(name, (Spend(self._ns(5_000)), *body, Spend(self._ns(2_500))), sequence=sequence)

    def _kernel(self, name: str, base_time_ns: float, *, blocks: int = 528) -> Launch:
        """The launch of a kernel; a straggler's may be slow."""
        slow_ns = self.late.get("kernel", 0) // self.layers if name == _GEMM else 0
        scale = self._kernel_scale * (2.0 if self.is_slow else 1.0)
        dur_ns = self._ns(max(base_time_ns * scale, 1_600) + slow_ns)
        return Launch(Work(name, dur_ns, n_blocks=blocks, n_threads=128), _COMPUTE, self._ns(4_500))

    def _pointwise(self, name: str, base_time_ns: float, *, sequence: int = -1) -> Op:
        """An operator with one elementwise kernel."""
        return self._op(
            name, self._kernel(_POINTWISE, base_time_ns, blocks=2_048), sequence=sequence
        )

    def _next_sequence(self) -> int:
        """A new sequence number."""
        self.n_sequences += 1
        return self.n_sequences

    def _batch_copy(self) -> Action:
        """The copy of the batch to the device."""
        blocks = self.fault == "synchronous_copy"
        size = 192 << 20 if blocks else int((12 << 20) * self._kernel_scale)
        name = f"Memcpy HtoD ({'Pageable' if blocks else 'Pinned'} -> Device)"
        copy = Work(name, self._ns(size / (6 if blocks else 25)), n_bytes=size)
        launch = Launch(copy, _COMPUTE, self._ns(9_000), is_blocking=blocks)
        return self._op("aten::to", self._op("aten::_to_copy", self._op("aten::copy_", launch)))

    def _forward_layer(self) -> Iterator[Action]:
        """The operators of one layer, and the additions of a fault."""
        matmul = self._op("aten::addmm", self._kernel(_GEMM, 180_000))
        yield self._op("aten::linear", matmul, sequence=self._next_sequence())
        yield from self._tensor_reduce()
        yield Spend(self._ns(9_000))
        yield self._pointwise("aten::relu", 24_000, sequence=self._next_sequence())
        yield Spend(self._ns(11_000))
        if self.fault == "small_kernels":
            yield from (self._pointwise("aten::add_", 1_600) for _ in range(40))
        if self.fault == "sync_in_loop":
            yield from (self._item() for _ in range(_READS_PER_LAYER))

    def _flood(self) -> Iterator[Action]:
        """One long kernel, and behind it more launches than the queue holds.

        The host stands still until the long kernel has ended; everything after that is late.
        """
        yield self._op(
            "aten::scaled_dot_product_attention", self._kernel("flash_fwd_kernel", 20_000_000)
        )
        for _ in range(1_500):
            yield Op(
                "aten::add_",
                (Spend(801), Launch(Work(_POINTWISE, self._ns(1_600)), _COMPUTE, 2_503)),
            )

    def _item(self) -> Action:
        """A read of one number from the device: a tiny synchronous copy, a wait for its stream."""
        work = Work("Memcpy DtoH (Device -> Pageable)", self._ns(1_400), n_bytes=4)
        copy = Launch(work, _COMPUTE, is_blocking=True)
        return self._op(
            "aten::item", self._op("aten::_local_scalar_dense", copy, Synchronize(stream=_COMPUTE))
        )

    def _backward(self, first: int, *, reduces: bool) -> Iterator[Action]:
        """The autograd thread: layers in reverse, gradients of each reduced while the next run."""
        yield from self._from_neighbor(self.layout.rank + self.layout.per_stage)
        for sequence in range(first + 2 * self.layers, first, -2):
            yield self._backward_op(
                "Relu", sequence, self._kernel(_POINTWISE, 26_000, blocks=2_048)
            )
            gemms = (
                self._kernel(_GEMM, 185_000),
                Spend(self._ns(6_000)),
                self._kernel(_GEMM, 190_000),
            )
            yield self._backward_op("Addmm", sequence - 1, *gemms)
            yield from self._tensor_reduce()
            if reduces and self.fault != "exposed_allreduce":
                yield from self._gradient_reduce(110_000)
        if reduces and self.fault == "exposed_allreduce":
            yield from self._gradient_reduce(1_100_000 * self.layers)
        yield from self._to_neighbor(self.layout.rank - self.layout.per_stage)

    def _backward_op(self, name: str, sequence: int, *body: Action) -> Action:
        """A backward operator as the autograd engine runs it."""
        inner = Op(
            f"{name}Backward0",
            (Spend(self._ns(5_000)), *body, Spend(self._ns(2_000))),
            sequence,
            True,
        )
        return Op(
            f"autograd::engine::evaluate_function: {name}Backward0", (Spend(self._ns(3_000)), inner)
        )

    def _communicate(self, collective: Collective, stream: int) -> Iterator[Action]:
        """A collective on a stream of its own, after all compute so far."""
        order = (Record("ready", _COMPUTE), StreamWait("ready", stream))
        launch = Launch(collective, stream, self._ns(6_000), call="cudaLaunchKernelExC")
        inner = Op(
            "record_param_comms",
            (Spend(self._ns(4_000)), *order, launch, Record(f"done{stream}", stream)),
        )
        yield self._op(f"c10d::{collective.operation}_", inner)

    def _gradient_reduce(self, transfer_ns: float) -> Iterator[Action]:
        """An all-reduce of gradients among the ranks that hold the same parameters."""
        group = self.layout.data_group if self.layout.n_ranks > 1 else _OF_EIGHT
        if len(group.ranks) > 1:
            reduce = Collective(
                _ALL_REDUCE, self._ns(transfer_ns * self._kernel_scale), group, n_elements=6_553_600
            )
            yield from self._communicate(reduce, _COMMUNICATION)

    def _tensor_reduce(self) -> Iterator[Action]:
        """An all-reduce of activations that the next operator has to wait for."""
        if self.layout.tensor > 1:
            reduce = Collective(
                _ALL_REDUCE, self._ns(45_000), self.layout.tensor_group, n_elements=1_048_576
            )
            yield from self._communicate(reduce, _COMMUNICATION)
            yield StreamWait(f"done{_COMMUNICATION}", _COMPUTE)

    def _to_neighbor(self, receiver: int) -> Iterator[Action]:
        """The send of activations or gradients to another pipeline stage."""
        if 0 <= receiver < self.layout.n_ranks and self.layout.pipeline > 1:
            yield from self._exchange("send", self.layout.rank, receiver)

    def _from_neighbor(self, sender: int) -> Iterator[Action]:
        """The receive from another pipeline stage; compute waits for it."""
        if 0 <= sender < self.layout.n_ranks and self.layout.pipeline > 1:
            yield from self._exchange("recv", sender, self.layout.rank)
            yield StreamWait(f"done{_PIPELINE}", _COMPUTE)

    def _exchange(self, operation: str, sender: int, receiver: int) -> Iterator[Action]:
        """One side of a point-to-point transfer."""
        group = self.layout.pair(sender, receiver)
        yield from self._communicate(
            Collective(_SEND_RECV, self._ns(35_000), group, operation, 1_048_576, root=sender),
            _PIPELINE,
        )

    def _optimizer(self) -> Iterator[Action]:
        """The optimizer's step, after all gradients are reduced."""
        if self.layout.n_ranks == 1 or len(self.layout.data_group.ranks) > 1:
            yield StreamWait(f"done{_COMMUNICATION}", _COMPUTE)
        update = self._op("aten::_fused_adamw_", self._kernel(_OPTIMIZER, 90_000))
        yield Annotation(
            "Optimizer.step#AdamW.step", (Spend(self._ns(35_000)), update, Spend(self._ns(8_000)))
        )
