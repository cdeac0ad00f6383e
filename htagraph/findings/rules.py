"""What to try, rule by rule: when each applies, and what it says.

Advice on a cause has up to four parts: what to find out first, the sentence of the first rule of
`ADVICE` that applies, within it the `TIPS` that apply, and a remark. The last rule of a cause has
no condition. No rule speaks of what the trace shows to be done already, or leaves unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from htagraph.findings.context import Context
from htagraph.findings.verdict import Evidence
from htagraph.model.collective_names import HOST_COLLECTIVE, LIBRARIES, operation_of
from htagraph.model.kinds import Bound, Cause

__all__ = ["ADVICE", "FIRST", "REMARKS", "SLOW_DEVICE", "TIPS", "Rule", "Seen", "advice_on"]

_SHORT_NS = 3_000
"""A copy or fill that takes less costs by its number, not by its bytes."""
_LONG_CODE_NS = 1_000_000
"""Code between two operators that takes longer is not about calling them."""
_LONG_OP_NS = 5_000_000
"""A call or operator that takes longer is not about launching."""

_FILL = re.compile(r"(?i)memset|fillbuffer")
_WITHIN = re.compile(r"DtoD|DeviceToDevice|Device -> Device")
_BETWEEN = re.compile(r"PtoP|(?i:peer)")
_TO_HOST = re.compile(r"DtoH|DeviceToHost|Device -> (Host|Pageable|Pinned)")
_TELLS_OPERATION = re.compile(r"^(nccl|gloo|mpi|ucc|c10d|_c10d_functional):|^record_param_comms")
_READS_NUMBER = re.compile(r"^aten::(item|_local_scalar_dense|is_nonzero|equal)$")
_READS_SHAPE = re.compile(r"^aten::(nonzero|masked_select|_?unique\w*|repeat_interleave|index)$")


@dataclass(frozen=True)
class Seen:
    """What a rule looks at: the context of the window, and what one finding is made of.

    Parameters
    ----------
    cause : Cause
    run : Context
    most : Evidence
        Its largest contributor.
    bound : str
        Bound of most of it.
    around : str
        Operator or annotation around most of it, where there is one.
    unread_stacks : bool
        The file has Python stacks that were not read.
    """

    cause: Cause
    run: Context
    most: Evidence
    bound: str
    around: str = ""
    unread_stacks: bool = False

    @property
    def mean_ns(self) -> float:
        """Mean time of the largest contributor, each time."""
        return self.most.dur_ns / max(self.most.n_segments, 1)

    @property
    def is_code(self) -> bool:
        """Whether most is code between operators that is not known."""
        return not self.most.frame and (
            self.cause is Cause.HOST_CODE or self.most.bound == Bound.PYTHON_GAP.label
        )

    @property
    def operation(self) -> str:
        """What most communication does: a kernel that only sends and receives may do several."""
        around = operation_of(self.around) if _TELLS_OPERATION.search(self.around) else ""
        alone = operation_of(self.most.name)
        return around or (alone if alone != "send_recv" else "")

    def reads(self, pattern: re.Pattern[str]) -> bool:
        """Whether what most waits for is such an operator."""
        return any(pattern.search(name) for name in (self.most.op, self.most.name))

    def calls(self, pattern: str) -> bool:
        """Whether the largest contributor has such a name."""
        return re.search(pattern, self.most.name) is not None


def _always(seen: Seen) -> bool:
    """Whatever is seen."""
    del seen
    return True


@dataclass(frozen=True)
class Rule:
    """Something to try, and when that makes sense.

    Parameters
    ----------
    says : str
        A sentence, with ``{tips}`` where tips go; a tip is a part of a sentence.
    when : callable, optional
        By default always.
    """

    says: str
    when: Callable[[Seen], bool] = _always


_LESS_CODE = "make it cheaper, do it less often, or beside the steps (another thread or process)."

SLOW_DEVICE = (
    "compare this kernel across ranks: more work on this rank, or a slower device (clocks, heat)."
)
"""What to try where a rank's kernels take longer than those of others."""

ADVICE: Mapping[Cause, tuple[Rule, ...]] = {
    Cause.COMPUTE: (
        Rule("the device is busy, as it should be: speed up its kernels, largest first{tips}."),
    ),
    Cause.COMMUNICATION: (
        Rule(
            "these collectives run on the host while the data is on a device: use the nccl "
            "backend, or overlap them with computation (async_op=True).",
            lambda it: it.run.has_device and HOST_COLLECTIVE.search(it.most.name) is not None,
        ),
        Rule(
            "experts wait for their tokens: run shared experts or another micro-batch meanwhile, "
            "and balance the load of experts.",
            lambda it: LIBRARIES["expert parallel"].search(it.most.name) is not None,
        ),
        Rule(
            "ranks exchange rows of embeddings: start it a batch ahead (a pipelined training "
            "loop), balance tables across ranks, send fewer bytes (lower precision on the wire).",
            lambda it: it.operation == "all_to_all" and it.run.embeds,
        ),
        Rule(
            "each rank waits for parts of all others: start it before work that does not need "
            "it, balance what ranks send (tokens, rows), send fewer bytes.",
            lambda it: it.operation == "all_to_all",
        ),
        Rule(
            "parameters are gathered, and gradients scattered, when they are needed: gather "
            "earlier (forward_prefetch=True, backward_prefetch=BACKWARD_PRE; with fully_shard "
            "set_modules_to_forward_prefetch), look at limit_all_gathers, wrap larger modules, or "
            "keep parameters after forward where memory allows.",
            lambda it: it.operation in {"all_gather", "reduce_scatter"} and it.run.is_sharded,
        ),
        Rule(
            "gradients are reduced while backward runs, the last of them alone: tune bucket_cap_mb "
            "of DistributedDataParallel, compress gradients (bf16_compress_hook), or reduce less "
            "often (no_sync() while gradients accumulate).",
            lambda it: it.operation == "all_reduce" and it.run.is_data_parallel and it.run.trains,
        ),
        Rule(
            "stages of a pipeline wait for each other: more micro-batches, an interleaved "
            "schedule, stages of equal length.",
            lambda it: it.operation in {"send", "recv", "send_recv"},
        ),
        Rule("start it earlier, overlap it with computation, or send fewer bytes."),
    ),
    Cause.COPIES: (
        Rule(
            "these are fills: leave out those of memory that is overwritten anyway (torch.empty "
            "in place of torch.zeros); those in library calls go with the operator.",
            lambda it: it.calls(_FILL.pattern),
        ),
        Rule(
            "these copies stay on the device: make fewer (torch.cat, .contiguous(), .clone(), "
            "changes of type or layout), or let torch.compile fuse them.",
            lambda it: it.calls(_WITHIN.pattern) and it.run.is_eager,
        ),
        Rule(
            "these copies stay on the device: make fewer (torch.cat, .contiguous(), .clone(), "
            "changes of type or layout).",
            lambda it: it.calls(_WITHIN.pattern),
        ),
        Rule(
            "each takes a microsecond or two, so that their number is what costs: copy many at "
            "once, or create the values where they are used.",
            lambda it: it.mean_ns < _SHORT_NS,
        ),
        Rule(
            "these copies go from device to device: put them on a stream of their own while "
            "the devices compute, or make fewer and larger ones.",
            lambda it: it.calls(_BETWEEN.pattern),
        ),
        Rule(
            "the host memory is pinned already: copy on a separate stream while the device "
            "computes (the next batch during this step), or copy fewer bytes.",
            lambda it: it.calls("Pinned"),
        ),
        Rule(
            "copy from pinned memory with non_blocking=True, on a separate stream, while the "
            "device computes.",
            lambda it: it.calls("Pageable"),
        ),
        Rule("copy on a separate stream while the device computes, or copy fewer bytes."),
    ),
    Cause.BLOCKING_COPY: (
        Rule(
            "the copies take microseconds, the host waits for the work before them: create such "
            "values on the device, keep them there, or copy many at once.",
            lambda it: bool(it.run.blocking_copy) and it.run.blocking_copy_ns < _SHORT_NS,
        ),
        Rule(
            "results are copied to the host in the step: do it less often, or with "
            "non_blocking=True, and use them after the next step (an event says when).",
            lambda it: _TO_HOST.search(it.run.blocking_copy) is not None,
        ),
        Rule(
            "the host memory is pinned already: copy with non_blocking=True, so that the host "
            "goes on.",
            lambda it: "Pinned" in it.run.blocking_copy,
        ),
        Rule(
            "pin the host memory (DataLoader(pin_memory=True)) and copy with non_blocking=True.",
            lambda it: "Pageable" in it.run.blocking_copy,
        ),
        Rule("copy with non_blocking=True, which takes pinned host memory, or less often."),
    ),
    Cause.HOST_WAIT: (
        Rule(
            "numbers are read off the device (.item(), float(), if on a tensor): keep them "
            "there, and read them every n steps.",
            lambda it: it.reads(_READS_NUMBER),
        ),
        Rule(
            "shapes depend on values (nonzero, masks as an index): use torch.where and fixed "
            "shapes, or find all of them at once.",
            lambda it: it.reads(_READS_SHAPE),
        ),
        Rule(
            "take the synchronization of the whole device (torch.cuda.synchronize()) out of the "
            "step, or synchronize only every n steps.",
            lambda it: it.calls(r"^(cuda|hip)DeviceSynchronize"),
        ),
        Rule("take the synchronization out of the step, do it later, or only every n steps."),
    ),
    Cause.UNRECORDED_WAIT: (
        Rule(
            "begin the capture before what it waits for is launched; then take the "
            "synchronization out of the step, or do it later.",
            lambda it: it.run.has_sync_records or (it.run.has_device and it.run.api != "cuda"),
        ),
        Rule(
            "record what it waits for: enable_cuda_sync_events=True, and a capture that begins "
            "before the work is launched; then remove the synchronization, or what it waits for.",
            lambda it: it.run.has_device,
        ),
        Rule(
            "record what it waits for: ProfilerActivity.CUDA, enable_cuda_sync_events=True, and a "
            "capture that begins before the work is launched; then remove the synchronization, or "
            "what it waits for."
        ),
    ),
    Cause.FULL_QUEUE: (
        Rule(
            "the host runs so far ahead that launches block: do its other work (data, logging) "
            "before the launches{tips}."
        ),
    ),
    Cause.DATA_LOADING: (
        Rule(
            "the batch is loaded in the main process, within the step: num_workers above 0 (with "
            "persistent_workers=True), cheaper decoding.",
            lambda it: it.run.loading == "in process",
        ),
        Rule(
            "workers load, but the main process works on each batch: do that in the dataset or in "
            "collate_fn, which run in the workers.",
            lambda it: it.run.loading == "after workers",
        ),
        Rule(
            "the thread that pins memory takes that long: fewer and larger tensors in a batch, "
            "smaller types, or batches that are pinned in parts.",
            lambda it: it.run.loading == "pinned by a thread",
        ),
        Rule(
            "the main process waits for its workers: cheaper decoding, more of them while cores "
            "are free, a larger prefetch_factor where batches differ; else handing over takes "
            "long (fewer and larger tensors in a batch).",
            lambda it: it.run.loading == "by workers" and it.calls("DataLoaderIter"),
        ),
        Rule(
            "prepare the next batch while the step runs (another process or thread), and cheaper."
        ),
    ),
    Cause.ALLOCATION: (
        Rule(
            "pinned host memory is allocated in the window: allocate it once, and reuse it.",
            lambda it: it.calls(r"HostAlloc|HostRegister|HostMalloc"),
        ),
        Rule(
            "memory is given back, to be allocated again: leave out torch.cuda.empty_cache(), and "
            "check for fragmentation{tips}.",
            lambda it: it.calls(r"Free|Unmap|Unregister"),
        ),
        Rule("allocate before the loop, and reuse the memory{tips}."),
    ),
    Cause.FIRST_USE: (
        Rule(
            "this happens once: skip the first steps when profiling (schedule(wait=3, warmup=2, "
            "active=2, repeat=1))."
        ),
    ),
    Cause.HOST: (
        Rule(
            "the trace has no device work, though the run used a device: profile with "
            "ProfilerActivity.CUDA to see what the host delays.",
            lambda it: not it.run.has_device,
        ),
        Rule(
            _LESS_CODE,
            lambda it: it.most.bound == Bound.PYTHON_GAP.label and it.mean_ns > _LONG_CODE_NS,
        ),
        Rule(
            "a call that takes milliseconds does more than launch (work on the CPU, set-up, "
            "memory): do it before the steps, or less often.",
            lambda it: it.most.bound == Bound.HOST.label and it.mean_ns > _LONG_OP_NS,
        ),
        Rule(
            "most of the work is replayed as a graph: what is left is between the graphs. Larger "
            "or fewer graphs, larger batches, and less Python between them.",
            lambda it: it.run.is_replayed,
        ),
        Rule(
            "most of the work is compiled: find graph breaks and recompilations with "
            'TORCH_LOGS="graph_breaks,recompiles"; then fewer, larger compiled parts{tips}, and '
            "less Python between them.",
            lambda it: it.run.is_compiled,
        ),
        Rule(
            "torch.compile covers only a part of the work: find graph breaks with "
            'TORCH_LOGS="graph_breaks", and compile the rest; else fewer, larger operators{tips}.',
            lambda it: it.run.is_partly_compiled,
        ),
        Rule("fewer, larger operators{tips}, and less Python between them."),
    ),
    Cause.DEVICE_GAPS: (
        Rule(
            "the gaps lie within replayed graphs: fewer, longer kernels.",
            lambda it: it.run.is_replayed,
        ),
        Rule("fewer, longer kernels{tips}."),
    ),
    Cause.DEVICE_FULL: (
        Rule(
            "a kernel of another stream fills the device: give the waiting work a stream of higher "
            "priority (torch.cuda.Stream(priority=-1)), launch it earlier, or make the kernel that "
            "fills the device shorter."
        ),
    ),
    Cause.WAITING_FOR_WORK: (
        Rule(
            "find out what gives these threads work: nothing that was recorded does.",
            lambda it: it.run.trains,
        ),
        Rule(
            "on a server this is the time between requests: raise the load, or report on the time "
            "from one request to its answer (-w START:END)."
        ),
    ),
    Cause.LAUNCHED_BEFORE_CAPTURE: (
        Rule(
            "start the capture at the beginning of a step, after torch.cuda.synchronize().",
            lambda it: it.run.api in {"cuda", "hip"},
        ),
        Rule("start the capture at the beginning of a step, when the device is idle."),
    ),
    Cause.OPTIMIZER: (
        Rule(
            "the update is fused already: fewer and larger parameters, or a step every n batches "
            "while gradients accumulate{tips}.",
            lambda it: it.run.optimizer == "fused",
        ),
        Rule(
            "the update is one call for each operation (foreach): make it one in all (fused=True), "
            "fewer and larger parameters{tips}.",
            lambda it: it.run.optimizer == "foreach",
        ),
        Rule("one call for all parameters (fused=True), fewer and larger parameters{tips}."),
    ),
    Cause.COMPILATION: (
        Rule(
            "this happens once: compile before the recorded steps, and skip the first when "
            "profiling (schedule(wait=3, warmup=2, active=2, repeat=1))."
        ),
    ),
    Cause.RECOMPILATION: (
        Rule(
            'it was compiled before: TORCH_LOGS="recompiles" says what changed. For shapes, '
            "torch._dynamo.mark_dynamic or padding to a few sizes; for Python values, tensors in "
            "their place."
        ),
    ),
    Cause.AUTOTUNING: (
        Rule(
            "kernels are tried out, once for each shape: skip the first steps when profiling; "
            "where it comes back, pad shapes to a few sizes, or do without "
            "(torch.backends.cudnn.benchmark=False, fewer configurations)."
        ),
    ),
    Cause.CHECKPOINTING: (
        Rule(
            "load it before the steps, onto the device that uses it, with mmap=True.",
            lambda it: re.search(r"(?i)\bload(ing)?\b", it.most.frame or it.most.name) is not None,
        ),
        Rule(
            "save less often, smaller, or beside the steps "
            "(torch.distributed.checkpoint.async_save)."
        ),
    ),
    Cause.GARBAGE_COLLECTION: (
        Rule(
            "gc.freeze() after set-up, gc.disable() and a collection every n steps, fewer objects "
            "that refer to each other."
        ),
    ),
    Cause.CPU_OPERATORS: (Rule("less work in the largest first{tips}."),),
    Cause.SHORT_OPERATORS: (Rule("fewer, larger operators{tips}, and less Python between them."),),
    Cause.HOST_CODE: (Rule(_LESS_CODE),),
    Cause.LATE_RANK: (
        Rule(
            "compare its Python code there with that of the other ranks.",
            lambda it: it.bound == Bound.PYTHON_GAP.label,
        ),
        Rule(
            "check this rank's data: shards, storage, how long its batches take.",
            lambda it: it.bound == Bound.DATA_LOADING.label,
        ),
        Rule(
            "compare this operator across ranks: process placement on cores, a slow node, more "
            "work.",
            lambda it: it.bound == Bound.HOST.label,
        ),
        Rule(
            SLOW_DEVICE,
            lambda it: it.bound == Bound.COMPUTE.label,
        ),
        Rule(
            "look first at the group it waits in: the cause may be on a rank without a trace.",
            lambda it: it.bound == Bound.COMMUNICATION.label and not it.run.has_others,
        ),
        Rule(
            "find out which kernels fill this rank's device, and how long they take on the other "
            "ranks.",
            lambda it: it.bound == Bound.DEVICE_FULL.label,
        ),
        Rule(
            "find out what this rank waits for on its own device.",
            lambda it: it.bound == Bound.SYNC.label,
        ),
        Rule(
            "what it does there is not recorded: this rank's quality checks say how to record it.",
            lambda it: it.bound == Bound.UNEXPLAINED.label,
        ),
        Rule("compare what this rank does there with the other ranks."),
    ),
}
"""What to try about each cause: the first rule that applies."""

_LARGER_BATCHES = Rule("larger batches")
_COMPILE = Rule("torch.compile", lambda it: it.run.is_eager)
_GRAPHS = Rule("CUDA graphs", lambda it: it.run.api == "cuda" and not it.run.is_replayed)
_HIP_GRAPHS = Rule("HIP graphs", lambda it: it.run.api == "hip" and not it.run.is_replayed)

TIPS: Mapping[Cause, tuple[Rule, ...]] = {
    Cause.COMPUTE: (
        Rule("lower precision", lambda it: it.run.precision == "full"),
        Rule("fused operators as by torch.compile", lambda it: it.run.is_eager),
        Rule("compiling the rest", lambda it: it.run.is_partly_compiled),
        Rule('mode="max-autotune"', lambda it: it.run.is_compiled and not it.run.is_replayed),
        Rule("better shapes"),
    ),
    Cause.FULL_QUEUE: (Rule("fewer and larger kernels"), _GRAPHS, _HIP_GRAPHS),
    Cause.ALLOCATION: (
        Rule("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", lambda it: it.run.api == "cuda"),
    ),
    Cause.HOST: (
        _COMPILE,
        _GRAPHS,
        _HIP_GRAPHS,
        Rule("fused optimizers", lambda it: it.run.optimizer == "single"),
        _LARGER_BATCHES,
    ),
    Cause.DEVICE_GAPS: (_COMPILE, _GRAPHS, _HIP_GRAPHS),
    Cause.OPTIMIZER: (Rule("a compiled step", lambda it: it.run.is_eager),),
    Cause.CPU_OPERATORS: (
        _COMPILE,
        Rule("torch.set_num_threads", lambda it: not it.run.shares_cores),
        Rule("cores of its own for each rank", lambda it: it.run.shares_cores),
    ),
    Cause.SHORT_OPERATORS: (
        _COMPILE,
        _LARGER_BATCHES,
        Rule("whole tensors in place of loops"),
    ),
}
"""Parts of the sentence: all that apply, in brackets."""

FIRST: tuple[Rule, ...] = (
    Rule(
        "find out which code this is: read the Python stacks in the trace (htagraph report "
        "--stacks); then ",
        lambda it: it.unread_stacks,
    ),
    Rule(
        "find out which code this is (torch.profiler.record_function around its parts); then ",
        lambda it: it.run.has_stacks,
    ),
    Rule(
        "find out which code this is (with_stack=True, or torch.profiler.record_function around "
        "its parts); then "
    ),
)
"""What to do first about code that is not known."""

REMARKS: Mapping[Cause, tuple[Rule, ...]] = {
    Cause.COMMUNICATION: (
        Rule(
            " Waiting for a late rank looks the same: report on the traces of all ranks.",
            lambda it: not it.run.has_others,
        ),
    ),
}
"""What to know besides."""

_UNNAMED = (Cause.HOST_CODE, Cause.HOST, Cause.LATE_RANK)


def advice_on(seen: Seen) -> str:
    """What to try about a cause.

    Parameters
    ----------
    seen : Seen
    """
    asks = seen.cause in _UNNAMED and seen.is_code
    asks &= seen.cause is not Cause.HOST or seen.run.has_device
    first = next(rule.says for rule in FIRST if rule.when(seen)) if asks else ""
    says = next(rule.says for rule in ADVICE[seen.cause] if rule.when(seen))
    tips = ", ".join(rule.says for rule in TIPS.get(seen.cause, ()) if rule.when(seen))
    remarks = "".join(rule.says for rule in REMARKS.get(seen.cause, ()) if rule.when(seen))
    return first + says.replace("{tips}", f" ({tips})" if tips else "") + remarks
