"""What rules of advice read: the kind of run that a window is of, and the contents of a finding.

What a trace does not show stays unknown, and gets no advice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, NamedTuple

import numpy as np

from htagraph.explain.default_window import step_in_words
from htagraph.findings.verdict import Evidence, Fix
from htagraph.lookup.attribution import under_pattern
from htagraph.lookup.memory_frees import FreesWithin, frees_within_operators
from htagraph.lookup.programs import (
    Loading,
    can_capture,
    compiled_share,
    find_loading,
    is_plain,
    is_pytorch,
    is_replayed,
    n_batches,
)
from htagraph.lookup.queues import READS, is_matched
from htagraph.lookup.sm_activity import sm_activity
from htagraph.lookup.windowed import device_work
from htagraph.model.arrays import Bools
from htagraph.model.collective_names import operation_of
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, Cause, EventKind, KernelClass
from htagraph.model.labels import name_label
from htagraph.model.names import step_number
from htagraph.model.window import Window
from htagraph.queries.communication import overlap
from htagraph.replay.changes import Change

Optimizer = Literal["", "single", "foreach", "fused"]
Precision = Literal["", "full", "low"]
Api = Literal["", "cuda", "hip"]

_MOST = 0.5
"""More than this share is most of something."""

_HARDLY_ANY = 0.05
"""Up to this share, compiled code or low precision counts as none. Chosen: test_rules."""

_TRAINS = re.compile(
    r"^autograd::engine::|[Bb]ackward\d*$|\b[Bb]ackward\b|^Optimizer\.(step|zero_grad)#"
)
_STEPS = re.compile(r"^Optimizer\.step#|^aten::_(fused|foreach)_")
_FOREACH = re.compile(r"multi_tensor_apply|^aten::_foreach_")
_FUSED = re.compile(r"^aten::_fused_(adam|sgd|adagrad|lamb)|Fused(Adam|SGD|Adagrad|Optimizer|Lamb)")
_DATA_PARALLEL = re.compile(r"^DistributedDataParallel\.forward|ddp\.reducer|^_DDPSink")
_SHARDED = re.compile(r"^FSDP::|^fsdp::|^FullyShardedDataParallel\.")
_EMBEDS = re.compile(r"split_embedding|embedding_bag|EmbeddingBagCollection|sparse_data_dist")
_API = {"cuda": re.compile(r"^cu(da)?[A-Z]"), "hip": re.compile(r"^hip[A-Z]")}

_LOW = re.compile(
    r"(?i:bf16|bfloat|fp16|fp8|fp4|e4m3|e5m2|e2m1|f16f16|(?<![a-z0-9])f16|::half\b|__half|\bhalf\b"
    r"|_half\b|hgemm|[_\b]h\d+(gemm|cudnn))|_(HHS|BBS|HSS|BSS|HB|BB)_|nvjet_[thq]s[thq]"
)
"""Names of kernels that compute with 16 bits or fewer."""
_FULL = re.compile(r"sgemm|scudnn|[sd]gemv|tf32|f32f32|_f32|[<, ]float[,> ]|[<, ]double[,> ]|_SB_")


class Light(NamedTuple):
    """The operator that most would be gained by at its roof; or that little is left to gain."""

    operator: str = ""  # With its shapes, as `at_roof` takes it; empty if none is worth naming
    # Share of the roof that it reaches; without an operator, that all of them reach; 0 if unknown
    roof_share: float = 0.0
    limit: str = ""  # The operator's roof, in words
    # TF32 for products that run in FP32 would save more, and is not allowed
    wants_tf32: bool = False


@dataclass(frozen=True)
class Context:
    """Facts of a window; flags say what was recorded or seen."""

    has_device: bool
    api: Api  # API of most calls, empty for another
    has_stacks: bool
    compiled_share: float  # Share of the work from code that torch.compile made
    is_replayed: bool  # Most device time is in captured graphs
    trains: bool  # A backward pass or an optimizer was seen
    optimizer: Optimizer  # How parameters are updated, empty if unknown
    precision: Precision  # Of most compute, by kernel names; empty if they do not tell
    loading: Loading  # Where a DataLoader spends its time, see `find_loading`
    is_data_parallel: bool
    is_sharded: bool
    embeds: bool
    blocking_copy: str  # Name of the copies that block the host longest, empty for none
    blocking_copy_ns: int  # Mean device time of one of them
    is_pytorch: bool
    is_plain: bool  # The trace has functions of a program, neither PyTorch nor a device
    # Share of the time of collectives in which the device computes as well
    overlapped_share: float = 0.0
    # While kernels compute, most SMs are empty, as there are fewer blocks than SMs
    has_small_grids: bool = False
    has_others: bool = False  # All ranks of the job are loaded
    shares_cores: bool = False  # Other ranks may run on the same machine
    can_capture: bool = False  # See `htagraph.lookup.programs.can_capture`
    n_batches: int = 0  # Batches that the window loads, see `htagraph.lookup.programs.n_batches`
    frees: frozenset[FreesWithin] = frozenset()  # Operators in which device memory is freed
    compute: Light = field(default_factory=Light)  # How far compute is from the roof of the device

    @property
    def is_compiled(self) -> bool:
        """Whether most of the work is compiled."""
        return self.compiled_share > _MOST

    @property
    def is_partly_compiled(self) -> bool:
        """Whether a part of the work is compiled, and not most of it."""
        return _HARDLY_ANY < self.compiled_share <= _MOST

    @property
    def is_overlapped(self) -> bool:
        """Whether compute hides most of the communication already."""
        return self.overlapped_share > _MOST

    @property
    def is_eager(self) -> bool:
        """Whether PyTorch runs hardly any compiled work; a captured graph may hide some."""
        return self.is_pytorch and self.compiled_share <= _HARDLY_ANY and not self.is_replayed

    @property
    def graph(self) -> str:
        """What a step that launches its work could be captured as; empty if nothing."""
        return f"{self.api.upper()} graph" if self.can_capture and self.api else ""

    @classmethod
    def of_job(cls, ranks: Sequence[Context], *, is_whole: bool = False) -> Context:
        """Facts of all ranks: one in which they differ is unknown, or does not hold."""
        first = ranks[0]
        shared = {
            one.name: getattr(first, one.name)
            if len({getattr(rank, one.name) for rank in ranks}) == 1
            else type(getattr(first, one.name))()
            for one in fields(cls)
        }
        anywhere = (
            "has_device",
            "has_stacks",
            "trains",
            "is_data_parallel",
            "is_sharded",
            "embeds",
        )
        shared |= {name: any(getattr(rank, name) for rank in ranks) for name in anywhere}
        slowest = max(ranks, key=lambda rank: rank.blocking_copy_ns)
        return replace(
            cls(**shared),
            compiled_share=min(rank.compiled_share for rank in ranks),
            overlapped_share=min(rank.overlapped_share for rank in ranks),
            n_batches=min(rank.n_batches for rank in ranks),
            blocking_copy=slowest.blocking_copy,
            blocking_copy_ns=slowest.blocking_copy_ns,
            frees=frozenset().union(*(rank.frees for rank in ranks)),
            has_others=is_whole,
            shares_cores=len(ranks) > 1,
        )


def find_context(dag: Dag, window: Window) -> Context:
    """Context of a window: device work is the window's, all else the whole trace's."""
    kind = dag.events.kind
    name, copy_ns = _blocking_copies(dag, window)
    return Context(
        has_device=bool(dag.events.is_device.any()),
        api=_api(dag),
        has_stacks=bool((kind == EventKind.PYTHON).any()),
        compiled_share=compiled_share(dag, window),
        is_replayed=is_replayed(dag, window),
        trains=_on_host(dag, _TRAINS).any().item(),
        optimizer=_optimizer(dag),
        precision=_precision(dag, window),
        loading=find_loading(dag),
        is_data_parallel=_on_host(dag, _DATA_PARALLEL).any().item(),
        is_sharded=_on_host(dag, _SHARDED).any().item(),
        embeds=_named(dag, _EMBEDS).any().item(),
        blocking_copy=name,
        blocking_copy_ns=copy_ns,
        is_pytorch=is_pytorch(dag.events),
        is_plain=is_plain(dag.events),
        overlapped_share=_overlapped_share(dag, window),
        has_small_grids=_has_small_grids(dag, window),
        can_capture=can_capture(dag, window),
        n_batches=n_batches(dag, window),
        frees=frees_within_operators(dag, window),
    )


def _named(dag: Dag, pattern: re.Pattern[str]) -> Bools:
    """Whether the name of each event of host or device matches."""
    named: Bools = dag.events.searched(pattern)
    return named & (dag.events.is_host | dag.events.is_device)


def _on_host(dag: Dag, pattern: re.Pattern[str]) -> Bools:
    """Whether each event is a host event whose name matches."""
    return _named(dag, pattern) & dag.events.is_host


def _api(dag: Dag) -> Api:
    """The API of most calls."""
    calls = dag.events.kind == EventKind.RUNTIME
    n = {api: int((calls & _named(dag, name)).sum()) for api, name in _API.items()}
    if not any(n.values()):
        return ""
    return "cuda" if n["cuda"] >= n["hip"] else "hip"


def _optimizer(dag: Dag) -> Optimizer:
    """How parameters are updated."""
    if _named(dag, _FUSED).any():
        return "fused"
    if _named(dag, _FOREACH).any():
        return "foreach"
    return "single" if _on_host(dag, _STEPS).any() else ""


def _precision(dag: Dag, window: Window) -> Precision:
    """Precision of most computation of a window, by the names of kernels."""
    work = device_work(dag, window)
    work = work.take(dag.classification.kernel_class[work.event] == KernelClass.COMPUTE)
    codes, which = np.unique(dag.events.name[work.event], return_inverse=True)
    by_name = np.bincount(which, weights=work.dur_ns, minlength=len(codes))
    names = [dag.events.symbols.texts[code] for code in codes]
    low = np.array([_LOW.search(name) is not None for name in names], dtype=bool)
    full = ~low & np.array([_FULL.search(name) is not None for name in names], dtype=bool)
    all_ns, low_ns, full_ns = by_name.sum(), by_name[low].sum(), by_name[full].sum()
    if low_ns > max(full_ns, _HARDLY_ANY * all_ns):
        return "low"
    return "full" if full_ns > _MOST * all_ns and low_ns < _HARDLY_ANY * all_ns else ""


def _overlapped_share(dag: Dag, window: Window) -> float:
    """Share of the time of collectives on devices in which the device computes as well."""
    found = overlap(dag, window)
    communication_ns = int(found["communication_ns"].sum())
    return int(found["overlap_ns"].sum()) / communication_ns if communication_ns else 0.0


def _has_small_grids(dag: Dag, window: Window) -> bool:
    """Whether small grids leave most SMs empty while kernels compute."""
    sums = ("busy", "communication", "small")
    found = [one.whole(*sums) for one in sm_activity(dag, window)]
    computing_ns = sum(one["busy"] - one["communication"] for one in found)
    return sum(one["small"] for one in found) > _MOST * computing_ns


def _blocking_copies(dag: Dag, window: Window) -> tuple[str, int]:
    """Name of the copies that block the host longest, and the mean device time of one."""
    events = dag.events
    work = device_work(dag, window).event
    work = work[(events.kind[work] == EventKind.MEMCPY) & (dag.launch[work] >= 0)]
    work = work[is_matched(dag)[dag.launch[work]] & ~under_pattern(dag, work, READS)]
    if not len(work):
        return "", 0
    codes, which = np.unique(events.name[work], return_inverse=True)
    held_ns = np.bincount(which, weights=events.dur_ns[dag.launch[work]])
    most = int(held_ns.argmax())
    return events.symbols.texts[codes[most]], int(events.dur_ns[work[which == most]].mean())


LENGTH = 165
"""Characters of advice at most: two lines of 88 columns, less their indent. A limit of the screen.
Pinned by test_rules.
"""
_OPERATOR = 88
"""Characters of an operator with its shapes in advice, which has 77 more at most."""

_TELLS_OPERATION = re.compile(r"^(nccl|gloo|mpi|ucc|c10d|_c10d_functional):|^record_param_comms")


@dataclass(frozen=True)
class Seen:
    """The facts that a rule reads: the context of the window, and the contents of one finding."""

    cause: Cause
    run: Context  # Of a trace with `Context.compute`, if compute is much of the path
    most: Evidence  # Its largest contributor
    bound: str  # Bound of most of it
    around: str = ""  # Operator or annotation around most of it; empty if none
    unread_stacks: bool = False  # The file has Python stacks that were not read
    # path_ns, cost_ns, window_ns: time of the path charged to the cause, what the window loses to
    # it (0 if unknown), and the length of the window
    path_ns: int = 0
    cost_ns: int = 0
    window_ns: int = 0

    @property
    def n_workers(self) -> int:
        """Workers that load all data in the time that the window takes without loading."""
        without_ns = max(self.window_ns - self.cost_ns, 1)
        return max(-(-self.path_ns // without_ns), 1)

    @property
    def operator(self) -> str:
        """The operator to speed up, with its shapes; empty if unknown."""
        return name_label(self.run.compute.operator, width=_OPERATOR)

    @property
    def _frees(self) -> tuple[FreesWithin, ...]:
        """Frees in the operator of its largest contributor, if that frees."""
        return tuple(one for one in self.run.frees if one.op == self.most.op)

    @property
    def freeing(self) -> str:
        """The operator in which its largest contributor is, if memory is freed there."""
        return name_label(self.most.op) if self._frees else ""

    @property
    def is_out_of_memory(self) -> bool:
        """Whether its largest contributor frees because an allocation failed."""
        return self.calls("Free|Unmap") and any(one.ran_out for one in self._frees)

    @property
    def when_out_of_memory(self) -> str:
        """In which steps an allocator was out of memory; empty if no step is known."""
        steps = {one.step for one in self.run.frees if one.ran_out and one.step}
        if not steps:
            return ""
        first = min(steps, key=lambda step: (step_number(step), step))
        more = f" and {len(steps) - 1} more" if len(steps) > 1 else ""
        return f" in {step_in_words(first)}{more}"

    @property
    def mean_ns(self) -> float:
        """Mean time of one occurrence of the largest contributor."""
        return self.most.dur_ns / max(self.most.n_segments, 1)

    @property
    def is_code(self) -> bool:
        """Whether most of it is unknown untraced code."""
        return not self.most.frame and (
            self.cause is Cause.HOST_CODE or self.most.bound == Bound.UNTRACED_CODE.label
        )

    @property
    def awaited(self) -> str:
        """The function of another thread that its largest contributor waits for; or empty."""
        return self.most.label.partition(", which runs ")[2]

    def waits(self, *what: str) -> bool:
        """Whether its largest contributor waits in one of some ways."""
        return self.most.label.partition(" waits ")[2] in what

    @property
    def operation(self) -> str:
        """The operation of most communication: a kernel that sends and receives may be several."""
        around = operation_of(self.around) if _TELLS_OPERATION.search(self.around) else ""
        alone = operation_of(self.most.name)
        return around or (alone if alone != "send_recv" else "")

    def reads(self, pattern: re.Pattern[str]) -> bool:
        """Whether most of it waits for such an operator."""
        return any(pattern.search(name) for name in (self.most.op, self.most.name))

    def calls(self, pattern: str | re.Pattern[str]) -> bool:
        """Whether the largest contributor has such a name."""
        return re.search(pattern, self.most.name) is not None


def _always(seen: Seen) -> bool:
    """Apply always."""
    del seen
    return True


@dataclass(frozen=True)
class Rule:
    """Something to do, why, when that makes sense, and the change to the run that it is."""

    do: str  # A sentence that begins with a verb; ``{it.n_workers}`` is a fact of `Seen`
    why: str = ""
    when: Callable[[Seen], bool] = _always  # By default always
    change: Callable[[Seen], Change | None] | None = None  # By default none

    def advice(self, seen: Seen) -> Fix:
        """What it says of a finding."""
        change = self.change(seen) if self.change is not None else None
        return Fix(self.do.format(it=seen), self.why, change)
