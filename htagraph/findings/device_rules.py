"""What to do about device work, and about waits for it: one rule per row."""

from __future__ import annotations

import re
from collections.abc import Mapping

from htagraph.findings.context import Rule, Seen
from htagraph.model.collective_names import HOST_COLLECTIVE, LIBRARIES
from htagraph.model.kinds import Cause, KernelClass
from htagraph.replay.changes import Change
from htagraph.replay.collective_changes import bandwidth
from htagraph.replay.device_changes import allow_tf32, at_roof, overlap
from htagraph.replay.draft import of_class
from htagraph.replay.host_changes import graphed

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


DEVICE_RULES: Mapping[Cause, tuple[Rule, ...]] = {
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
}
"""By cause: advice is the first rule that applies; the last one always does."""
