"""What to do about a cause: advice chosen by rules from what the trace shows.

The first rule of a cause that applies is its advice; the last has no condition. No rule advises
what is already done, or what the trace cannot show. What the recording lacks is no advice on a
cause: it is said once, by `recording_advice`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from htagraph.findings.context import Rule, Seen
from htagraph.findings.verdict import Fix
from htagraph.model.collective_names import HOST_COLLECTIVE, LIBRARIES
from htagraph.model.kinds import Bound, Cause, KernelClass
from htagraph.replay.changes import Change, bandwidth
from htagraph.replay.device_changes import allow_tf32, at_roof, overlap
from htagraph.replay.draft import of_class
from htagraph.replay.host_changes import graphed, prefetch

_SHORT_NS = 3_000
"""Copies and fills that take less cost by their number, not by their bytes. Chosen: a few bytes
take a GPU 1 to 2 us. Pinned by test_rules.
"""
_FILL = re.compile(r"(?i)memset|fillbuffer")
_WITHIN = re.compile(r"DtoD|DeviceToDevice|Device -> Device")
_BETWEEN = re.compile(r"PtoP|(?i:peer)")
_TO_HOST = re.compile(r"DtoH|DeviceToHost|Device -> (Host|Pageable|Pinned)")
_READS_NUMBER = re.compile(r"^aten::(item|_local_scalar_dense|is_nonzero|equal)$")
_READS_SHAPE = re.compile(r"^aten::(nonzero|masked_select|_?unique\w*|repeat_interleave|index)$")

_FREES = r"Free|Unmap|Unregister"
_RETRIED = "An operator asked for memory, and the allocator freed what it kept to allocate again."

_START = "Start with the largest kernel"
_GAPS = "Gaps between kernels are launch latency of the device."


def _on_host(it: Seen) -> bool:
    """Whether a backend of the host runs the collectives."""
    return HOST_COLLECTIVE.search(it.most.name) is not None


def _overlapped(it: Seen) -> Change | None:
    """All communication of the device overlaps with compute."""
    return None if _on_host(it) else overlap(of_class(KernelClass.COMMUNICATION))


def _halved(it: Seen) -> Change | None:
    """Collectives move half the bytes; those of the host are known only where ranks meet."""
    return None if _on_host(it) and not it.run.shares_cores else bandwidth(2)


def _aside(it: Seen) -> Change:
    """All copies of the device are on a stream of their own."""
    del it
    return overlap(of_class(KernelClass.MEMORY))


_LONG_CODE_NS = 1_000_000
"""Untraced code between two operators that takes longer does more than call them. Chosen, as
`_LONG_OP_NS`. Both are pinned by test_rules.
"""
_LONG_OP_NS = 5_000_000
"""A call or operator that takes longer does more than launch."""
_MOST_WORKERS = 8
"""Workers that a rank has cores for: if data needs more, it must be cheaper to load. Chosen. Pinned
by test_rules.
"""

_LOADS = re.compile(r"(?i)(^|[^a-z])load(ing)?([^a-z]|$)")
_PROFILE_LATER = "schedule(wait=3, warmup=2, active=2, repeat=1)"
_FEWER = "Use fewer, larger operators"

CHECK_HOST = Fix(
    "Check this machine: other processes, clocks and heat of its devices, storage, network; or run "
    "without it."
)
"""Advice if all ranks of a host are late."""

_LESS_CODE = Rule("Make it cheaper, run it less often, or move it to another thread or process.")
_WAIT_OR_CODE = Rule(
    "Make what the other thread runs cheaper, or start it earlier, if this waits for it; else make "
    "this code cheaper.",
    "While this thread ran code or waited, another one ran operators.",
    lambda it: it.is_code and " while thread " in it.most.label,
)


def _prefetched(workers: int, n_batches: int) -> Change | None:
    """So many workers load ahead; None if they would load all batches at once."""
    return prefetch(workers) if workers < n_batches else None


def _within_step(it: Seen) -> bool:
    """Whether the step itself loads its batches."""
    return it.run.loading == "in process" or (it.run.loading == "" and it.run.is_pytorch)


ADVICE: Mapping[Cause, tuple[Rule, ...]] = {
    Cause.COMPUTE: (
        Rule(
            "Use larger batches, fewer and larger kernels, or run independent kernels at the same "
            "time, on several streams.",
            "Most SMs are empty: the kernels have fewer blocks than the device has SMs.",
            lambda it: it.run.has_small_grids,
        ),
        Rule(
            'Allow TF32: torch.set_float32_matmul_precision("high"), and for convolutions '
            "torch.backends.cudnn.allow_tf32 = True.",
            "Products of fp32 run on CUDA cores, not on tensor cores.",
            lambda it: it.run.compute.wants_tf32 and it.run.api == "cuda",
            lambda _: allow_tf32(),
        ),
        Rule(
            "Speed up {it.operator}: it runs at {it.run.compute.roof_share:.0%} of "
            "{it.run.compute.limit}.",
            "Of all operators, this one would save most at the roof of the device.",
            lambda it: bool(it.operator),
            lambda it: at_roof(it.run.compute.operator),
        ),
        Rule(
            "Make operators fewer or smaller: they run at {it.run.compute.roof_share:.0%} of their "
            "roofs.",
            "At the roof of the device, all of them would save next to nothing.",
            lambda it: it.run.compute.roof_share > 0,
        ),
        Rule(
            "Use bf16/fp16 (torch.autocast) or torch.compile; start with the largest kernel.",
            "Most of the compute is in full precision, and no kernels are fused.",
            lambda it: it.run.precision == "full" and it.run.is_eager,
        ),
        Rule(
            "Use lower precision (bf16, fp16); start with the largest kernel.",
            "Most of the compute is in full precision.",
            lambda it: it.run.precision == "full",
        ),
        Rule(
            f"{_START}; torch.compile fuses the small ones.",
            "No kernels are fused.",
            lambda it: it.run.is_eager,
        ),
        Rule(
            f'{_START}, and compile the rest: TORCH_LOGS="graph_breaks" says what is left out.',
            "Only a part of the work is compiled.",
            lambda it: it.run.is_partly_compiled,
        ),
        Rule(
            f'{_START}: torch.compile(mode="max-autotune") tries several versions of it.',
            when=lambda it: it.run.is_compiled and not it.run.is_replayed,
        ),
        Rule(f"{_START} (shapes, autotuning)."),
    ),
    Cause.COMMUNICATION: (
        Rule(
            "Use the nccl backend, or overlap these collectives with compute (async_op=True).",
            "The collectives run on the host although the data is on a device.",
            lambda it: it.run.has_device and _on_host(it),
        ),
        Rule(
            "Send half the bytes: lower precision, or compression.",
            "Compute overlaps most of the communication already.",
            lambda it: it.run.is_overlapped,
            _halved,
        ),
        Rule(
            "Overlap dispatch and combine with shared experts or a second micro-batch.",
            "Experts wait for their tokens.",
            lambda it: LIBRARIES["expert parallel"].search(it.most.name) is not None,
            _overlapped,
        ),
        Rule(
            "Start the embedding exchange one batch ahead (torchrec TrainPipelineSparseDist).",
            "Ranks exchange rows of embeddings.",
            lambda it: it.operation == "all_to_all" and it.run.embeds,
            _overlapped,
        ),
        Rule(
            "Start the all-to-all before work that does not need its result (async_op=True).",
            "Each rank waits for data from all others.",
            lambda it: it.operation == "all_to_all",
            _overlapped,
        ),
        Rule(
            "Prefetch parameters earlier: forward_prefetch=True, backward_prefetch=BACKWARD_PRE "
            "(with fully_shard: set_modules_to_forward_prefetch).",
            "Parameters are gathered, and gradients scattered, only when they are needed.",
            lambda it: it.operation in {"all_gather", "reduce_scatter"} and it.run.is_sharded,
            _overlapped,
        ),
        Rule(
            "Send half the bytes: bf16_compress_hook of DistributedDataParallel.",
            "Gradients are reduced during backward, but nothing overlaps the last bucket.",
            lambda it: it.operation == "all_reduce" and it.run.is_data_parallel and it.run.trains,
            _halved,
        ),
        Rule(
            "Use more micro-batches or an interleaved schedule, and stages of equal length.",
            "Pipeline stages wait for each other.",
            lambda it: it.operation in {"send", "recv", "send_recv"},
        ),
        Rule(
            "Start collectives earlier (async_op=True), so that compute overlaps them.",
            change=_overlapped,
        ),
    ),
    Cause.COPIES: (
        Rule(
            "Skip fills of memory that is overwritten anyway: torch.empty, not torch.zeros.",
            "These are memsets; library calls bring their own with each operator.",
            lambda it: it.calls(_FILL),
        ),
        Rule(
            "Copy between devices on a side stream while they compute.",
            "These copies go from device to device.",
            lambda it: it.calls(_BETWEEN),
            _aside,
        ),
        Rule(
            "Make fewer copies: torch.cat, .contiguous(), .clone(), changes of type or layout.",
            "These copies stay on the device.",
            lambda it: it.calls(_WITHIN),
        ),
        Rule(
            "Batch these copies, or create the values where they are used.",
            "Each takes a microsecond or two, so their number is the cost.",
            lambda it: it.mean_ns < _SHORT_NS,
        ),
        Rule(
            "Copy results to the host on a side stream, during the next step.",
            when=lambda it: it.calls(_TO_HOST),
            change=_aside,
        ),
        Rule(
            "Copy the next batch on a side stream during this step.",
            "The host memory is pinned already.",
            lambda it: it.calls("Pinned"),
            _aside,
        ),
        Rule(
            "Pin the host memory (pin_memory=True), and copy with non_blocking=True on a side "
            "stream during compute.",
            "The host memory is pageable.",
            lambda it: it.calls("Pageable"),
            _aside,
        ),
        Rule("Copy on a side stream while the device computes.", change=_aside),
    ),
    Cause.SYNCHRONOUS_COPIES: (
        Rule(
            "Create these values on the device and keep them there, or batch the copies.",
            "The copies take microseconds, but the host waits for all work before them.",
            lambda it: bool(it.run.blocking_copy) and it.run.blocking_copy_ns < _SHORT_NS,
        ),
        Rule(
            "Copy results with non_blocking=True and read them after the next step, or copy less "
            "often.",
            "Results are copied to the host within the step.",
            lambda it: _TO_HOST.search(it.run.blocking_copy) is not None,
        ),
        Rule(
            "Copy with non_blocking=True, so that the host continues.",
            "The host memory is pinned already.",
            lambda it: "Pinned" in it.run.blocking_copy,
        ),
        Rule(
            "Pin the host memory (DataLoader(pin_memory=True)) and copy with non_blocking=True.",
            "The host memory is pageable, so that the host waits for each copy.",
            lambda it: "Pageable" in it.run.blocking_copy,
        ),
        Rule("Copy with non_blocking=True, which needs pinned host memory, or copy less often."),
    ),
    Cause.GAPS_BETWEEN_KERNELS: (
        Rule(
            "Use fewer, longer kernels.",
            "The gaps are inside captured graphs.",
            lambda it: it.run.is_replayed,
        ),
        Rule(
            'Close the gaps: torch.compile(mode="reduce-overhead") captures each step as a '
            "{it.run.graph}.",
            _GAPS,
            lambda it: bool(it.run.graph) and it.run.is_pytorch,
            lambda _: graphed(),
        ),
        Rule(
            "Close the gaps: capture each step as a {it.run.graph}.",
            _GAPS,
            lambda it: bool(it.run.graph),
            lambda _: graphed(),
        ),
        Rule("Use fewer, longer kernels.", _GAPS),
    ),
    Cause.WAITING_FOR_SMS: (
        Rule(
            "Give the waiting work a high-priority stream (torch.cuda.Stream(priority=-1)), launch "
            "it earlier, or shorten the kernel that fills the device.",
            "A kernel of another stream fills the device.",
        ),
    ),
    Cause.FULL_QUEUE: (
        Rule(
            "Move other work of the host (data, logging) before the launches, or launch fewer and "
            "larger kernels.",
            "The host runs so far ahead that launches block.",
        ),
    ),
    Cause.ALLOCATION: (
        Rule(
            "Allocate pinned host memory once, before the loop, and reuse it.",
            when=lambda it: it.calls(r"Host"),
        ),
        Rule(
            "Use a smaller batch, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against "
            "fragmentation: the device ran out of memory{it.when_out_of_memory}.",
            _RETRIED,
            lambda it: it.is_out_of_memory and it.calls("Free") and it.run.api == "cuda",
        ),
        Rule(
            "Use a smaller batch, or recompute activations: the device ran out of memory"
            "{it.when_out_of_memory}.",
            _RETRIED,
            lambda it: it.is_out_of_memory,
        ),
        Rule(
            "Check whether {it.freeing} frees memory in every step: libraries do when they are set "
            "up.",
            "Memory is freed inside an operator, and the trace does not say why.",
            lambda it: it.calls(_FREES) and bool(it.freeing),
        ),
        Rule(
            "Remove torch.cuda.empty_cache(), and set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation.",
            "Memory is freed, only to be allocated again.",
            lambda it: it.calls(_FREES) and it.run.api == "cuda" and it.run.is_pytorch,
        ),
        Rule(
            "Keep memory in place of freeing it, and check for fragmentation.",
            "Memory is freed, only to be allocated again.",
            lambda it: it.calls(_FREES),
        ),
        Rule(
            "Allocate before the loop and reuse the memory, or set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
            when=lambda it: it.run.api == "cuda" and it.run.is_pytorch,
        ),
        Rule(
            "Allocate before the loop and reuse the memory, or let cudaMallocAsync pool it.",
            when=lambda it: it.run.api == "cuda",
        ),
        Rule("Allocate before the loop, and reuse the memory."),
    ),
    Cause.ONE_TIME_SETUP: (
        Rule(
            "Skip the first steps when profiling: schedule(wait=3, warmup=2, active=2, repeat=1).",
            "This happens once.",
        ),
    ),
    Cause.UNRECORDED_WAIT: (
        Rule(
            "Move this wait out of the step, or wait later, or every n steps only.",
            "What it waits for is not in the trace.",
        ),
    ),
    Cause.GPU_SYNCHRONIZATION: (
        Rule(
            "Keep numbers on the device, and read them (.item(), float(), if on a tensor) every n "
            "steps only.",
            "The host reads numbers from the device, and waits for all work before them.",
            lambda it: it.reads(_READS_NUMBER),
        ),
        Rule(
            "Use torch.where and fixed shapes, or compute all such shapes at once.",
            "Shapes depend on values (nonzero, boolean masks), so the host waits for them.",
            lambda it: it.reads(_READS_SHAPE),
        ),
        Rule(
            "Move torch.cuda.synchronize() out of the step, or call it every n steps only.",
            "The host waits for the whole device.",
            lambda it: it.calls(r"^(cuda|hip)DeviceSynchronize"),
        ),
        Rule("Move the synchronization out of the step, or do it later, or every n steps only."),
    ),
    Cause.DATA_LOADING: (
        Rule(
            "Load batches in workers: DataLoader(num_workers={it.n_workers}, "
            "persistent_workers=True).",
            "Batches are loaded in the main process, within the step.",
            lambda it: _within_step(it) and it.n_workers <= _MOST_WORKERS,
            lambda it: _prefetched(it.n_workers, it.run.n_batches),
        ),
        Rule(
            "Make loading cheaper: decode and transform less, or store what is computed; workers "
            "alone would not keep up.",
            f"More than {_MOST_WORKERS} workers would be needed.",
            _within_step,
        ),
        Rule(
            "Move this work to the dataset or to collate_fn, which run in the workers.",
            "Workers load, but the main process works on each batch.",
            lambda it: it.run.loading == "after workers",
        ),
        Rule(
            "Use fewer and larger tensors in a batch, or smaller types, or pin parts of a batch.",
            "The thread that pins memory is the bottleneck.",
            lambda it: it.run.loading == "pinned by a thread",
        ),
        Rule(
            "Add workers (num_workers) while cores are free, make decoding cheaper, or raise "
            "prefetch_factor if batches differ.",
            "The main process waits for its workers. If they are idle, the transfer between "
            "processes is slow: use fewer and larger tensors in a batch.",
            lambda it: it.run.loading == "by workers" and it.calls("DataLoaderIter"),
        ),
        Rule(
            "Prepare the next batch during the step, in another thread or process.",
            change=lambda it: _prefetched(1, it.run.n_batches),
        ),
    ),
    Cause.CPU_WORK: (
        _WAIT_OR_CODE,
        Rule(
            _LESS_CODE.do,
            "Untraced code that takes milliseconds does more than call operators.",
            lambda it: it.most.bound == Bound.UNTRACED_CODE.label and it.mean_ns > _LONG_CODE_NS,
        ),
        Rule(
            "Move it before the steps, or run it less often.",
            "A call that takes milliseconds does more than launch (CPU work, set-up, memory).",
            lambda it: it.most.bound == Bound.HOST.label and it.mean_ns > _LONG_OP_NS,
        ),
        Rule(
            "Use larger or fewer graphs, larger batches, and less Python between graphs.",
            "Most of the work is captured in graphs, and what is left is between them.",
            lambda it: it.run.is_replayed,
        ),
        Rule(
            'Find graph breaks and recompilations (TORCH_LOGS="graph_breaks,recompiles"), then use '
            'mode="reduce-overhead" ({it.run.graph}s).',
            "Most of the work is compiled, but not captured in graphs.",
            lambda it: it.run.is_compiled and bool(it.run.graph),
            lambda _: graphed(),
        ),
        Rule(
            'Find graph breaks and recompilations (TORCH_LOGS="graph_breaks,recompiles"), and run '
            "less Python between compiled regions.",
            "Most of the work is compiled.",
            lambda it: it.run.is_compiled,
        ),
        Rule(
            'Compile the rest: TORCH_LOGS="graph_breaks" says what torch.compile leaves out.',
            "torch.compile covers only a part of the work.",
            lambda it: it.run.is_partly_compiled,
        ),
        Rule(
            'Launch less: torch.compile(mode="reduce-overhead") captures each step as a '
            "{it.run.graph}.",
            "The device waits for operators that the host launches one by one.",
            lambda it: bool(it.run.graph) and it.run.is_eager,
            lambda _: graphed(),
        ),
        Rule(
            "Launch less: capture each step as a {it.run.graph}.",
            "The device waits for kernels that the host launches one by one.",
            lambda it: bool(it.run.graph),
            lambda _: graphed(),
        ),
        Rule(
            f"{_FEWER} (torch.compile, larger batches), and run less Python between them.",
            when=lambda it: it.run.is_eager,
        ),
        Rule("Use fewer, larger kernels, and less code between them."),
    ),
    Cause.WAITING_FOR_WORK: (
        Rule(
            "Raise the load, or report on one request (-w START:END).",
            "On a server this is the time between requests.",
        ),
    ),
    Cause.OPTIMIZER: (
        Rule(
            "Use fewer and larger parameters, or step every n batches while gradients accumulate.",
            "The update is fused already.",
            lambda it: it.run.optimizer == "fused",
        ),
        Rule("Update all parameters in one call (fused=True)."),
    ),
    Cause.COMPILATION: (
        Rule(
            "Compile before the recorded steps, and skip the first when profiling: "
            f"{_PROFILE_LATER}.",
            "This happens once.",
        ),
    ),
    Cause.RECOMPILATION: (
        Rule(
            'Find what changed (TORCH_LOGS="recompiles"); mark shapes with '
            "torch._dynamo.mark_dynamic, or pad to a few sizes; pass tensors in place of numbers.",
            "It was compiled before.",
        ),
    ),
    Cause.AUTOTUNING: (
        Rule(
            "Skip the first steps when profiling; if it recurs, pad shapes to a few sizes or set "
            "torch.backends.cudnn.benchmark=False.",
            "Kernels are benchmarked once per shape.",
        ),
    ),
    Cause.CHECKPOINTING: (
        Rule(
            "Load it before the steps, onto the device that uses it, with mmap=True.",
            when=lambda it: it.calls(_LOADS),
        ),
        Rule("Save asynchronously (torch.distributed.checkpoint.async_save), less often, or less."),
    ),
    Cause.GARBAGE_COLLECTION: (
        Rule(
            "Call gc.freeze() after set-up, then gc.disable() and gc.collect() every n steps; or "
            "create fewer reference cycles."
        ),
    ),
    Cause.RECOMPUTATION: (
        Rule(
            "Checkpoint fewer modules, or only cheap operators, if memory allows.",
            "Activation checkpointing runs the forward pass again: this is its time, what it "
            "saves in memory is not recorded.",
        ),
    ),
    Cause.ANOMALY_DETECTION: (
        Rule(
            "Turn it off: torch.autograd.set_detect_anomaly(False).",
            "It formats the stack in each operator, and searches each gradient for NaN.",
        ),
    ),
    Cause.CPU_OPERATORS: (
        Rule(
            "Make the largest function cheaper, or call it less often.",
            "If a function waits (for a file, a socket, another process), the trace does not say "
            "for what.",
            lambda it: it.run.is_plain,
        ),
        Rule(
            "Start with the largest (torch.compile), and pin each rank to its own cores.",
            "Ranks share the cores of a machine.",
            lambda it: it.run.shares_cores and it.run.is_eager,
        ),
        Rule(
            "Start with the largest, and pin each rank to its own cores.",
            "Ranks share the cores of a machine.",
            lambda it: it.run.shares_cores,
        ),
        Rule(
            "Start with the largest (torch.compile, torch.set_num_threads).",
            when=lambda it: it.run.is_eager,
        ),
        Rule("Start with the largest (torch.set_num_threads)."),
    ),
    Cause.SMALL_OPERATORS: (
        Rule(
            f"{_FEWER} (torch.compile, larger batches, whole tensors in place of loops).",
            when=lambda it: it.run.is_eager,
        ),
        Rule(f"{_FEWER} (larger batches, whole tensors in place of loops)."),
    ),
    Cause.HOST_CODE: (_WAIT_OR_CODE, _LESS_CODE),
    Cause.PYTHON_WAITS: (
        Rule(
            "Make {it.awaited} cheaper, start it earlier, or run more of it at a time.",
            "It is what another thread runs for most of the wait.",
            lambda it: bool(it.awaited),
        ),
        Rule(
            "Wait for what it is about (an event, a queue), not for a time.",
            "It sleeps; without, the run continues as soon as it can.",
            lambda it: it.most.label.endswith(" sleeps"),
        ),
        Rule(
            "Send it from another thread, send less often, or overlap the answer with the next "
            "step.",
            "Most of it waits for an answer from another program.",
            lambda it: it.waits("for a server", "for a socket or pipe"),
        ),
        Rule(
            "Start the process before the steps, and keep it running.",
            when=lambda it: it.waits("for another process"),
        ),
        Rule(
            "Find what its coroutines await (a timeout, a queue): suspended ones are on no stack.",
            when=lambda it: it.waits("for the event loop"),
        ),
        Rule(
            "Make the code that holds the lock shorter, or copy what it protects.",
            when=lambda it: it.waits("for a lock"),
        ),
        Rule(
            "Move it to another thread, or read and write less often, in larger parts.",
            when=lambda it: it.waits("for a file"),
        ),
        Rule("Start what it waits for earlier, or do other work until it is done."),
    ),
    Cause.PIPELINE: (
        Rule(
            "Compare it with its peers: move layers between stages, pack samples into equal "
            "micro-batches, check the rank."
        ),
    ),
    Cause.LATE_RANK: (
        Rule(
            "Compare its Python code there with that of the other ranks.",
            when=lambda it: it.bound == Bound.UNTRACED_CODE.label,
        ),
        Rule(
            "Check this rank's data: shards, storage, time per batch.",
            when=lambda it: it.bound == Bound.DATA_LOADING.label,
        ),
        Rule(
            "Compare this operator across ranks: process placement on cores, a slow node, or more "
            "work.",
            when=lambda it: it.bound == Bound.HOST.label,
        ),
        Rule(
            "Compare this kernel across ranks: this rank has more work, or a slower device "
            "(clocks, heat).",
            when=lambda it: it.bound == Bound.COMPUTE.label,
        ),
        Rule(
            "Check the group it waits in first: the cause may be on a rank without a trace.",
            when=lambda it: it.bound == Bound.COMMUNICATION.label and not it.run.has_others,
        ),
        Rule(
            "Compare the kernels that fill this rank's device with those of the other ranks.",
            when=lambda it: it.bound == Bound.WAITING_FOR_SMS.label,
        ),
        Rule(
            "Find what this rank waits for on its own device.",
            when=lambda it: it.bound == Bound.SYNC.label,
        ),
        Rule("Compare what this rank does there with the other ranks."),
    ),
    Cause.EXPERT_IMBALANCE: (
        Rule(
            "Balance the router (auxiliary loss, capacity), or duplicate the busiest experts.",
            "job.experts() has the tokens of each rank.",
        ),
    ),
}
"""What to do about each cause: the first rule that applies; the last one always does."""


def _is_unnamed(seen: Seen) -> bool:
    """Whether most of it is code that the trace does not name."""
    return seen.is_code and seen.cause in (Cause.HOST_CODE, Cause.CPU_WORK, Cause.LATE_RANK)


RECORDING: tuple[Rule, ...] = (
    Rule(
        "Record the work of the device, to see what the CPU delays: "
        "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]).",
        when=lambda it: it.cause is Cause.CPU_WORK and not it.run.has_device,
    ),
    Rule(
        "Record what the host waits for: enable_cuda_sync_events=True, and start the profile "
        "before that work is launched.",
        when=lambda it: it.cause is Cause.UNRECORDED_WAIT,
    ),
    Rule(
        "Record what is missing: htagraph info names each gap and the setting that fills it.",
        when=lambda it: it.most.bound == Bound.UNKNOWN_WAITS.label,
    ),
    Rule(
        "Read the Python stacks of the trace to name the code: htagraph report --stacks.",
        when=lambda it: _is_unnamed(it) and it.unread_stacks,
    ),
    Rule(
        "Put torch.profiler.record_function around parts of the code to name them.",
        when=lambda it: _is_unnamed(it) and it.run.has_stacks,
    ),
    Rule(
        "Let the tracer record shorter functions to name the code between those it has.",
        when=lambda it: _is_unnamed(it) and it.run.is_plain,
    ),
    Rule(
        "Put NVTX ranges around parts of the code to name them.",
        when=lambda it: _is_unnamed(it) and not it.run.is_pytorch,
    ),
    Rule(
        "Record Python code to name it: with htagraph.profile or htagraph.handler, or "
        "torch.profiler.record_function around its parts.",
        when=_is_unnamed,
    ),
)
"""What to record, or to read, to know what a finding is made of: the first rule that applies."""


def advice_on(seen: Seen) -> Fix:
    """What to do about a cause."""
    return next(rule for rule in ADVICE[seen.cause] if rule.when(seen)).advice(seen)


def recording_advice(seen: Seen) -> str:
    """What the recording of a finding lacks, and the setting to change; empty for nothing."""
    return next((rule.do for rule in RECORDING if rule.when(seen)), "")
