"""What to try about device work, and about waits for it: one rule per row."""

from __future__ import annotations

import re
from collections.abc import Mapping

from htagraph.findings.seen import Rule
from htagraph.model.collective_names import HOST_COLLECTIVE, LIBRARIES
from htagraph.model.kinds import Cause

__all__ = ["DEVICE_RULES"]

_SHORT_NS = 3_000
"""Copies and fills that take less cost by their number, not by their bytes.

Chosen: a few bytes take a GPU 1 to 2 us. Pinned by
`test_rules.py::test_a_threshold_of_advice_is_where_it_is_stated`.
"""
_FILL = re.compile(r"(?i)memset|fillbuffer")
_WITHIN = re.compile(r"DtoD|DeviceToDevice|Device -> Device")
_BETWEEN = re.compile(r"PtoP|(?i:peer)")
_TO_HOST = re.compile(r"DtoH|DeviceToHost|Device -> (Host|Pageable|Pinned)")
_READS_NUMBER = re.compile(r"^aten::(item|_local_scalar_dense|is_nonzero|equal)$")
_READS_SHAPE = re.compile(r"^aten::(nonzero|masked_select|_?unique\w*|repeat_interleave|index)$")

DEVICE_RULES: Mapping[Cause, tuple[Rule, ...]] = {
    Cause.COMPUTE: (
        Rule(
            "most of the device is empty, as its kernels have fewer blocks than it has SMs: use "
            "larger batches, fewer and larger kernels, or run independent kernels concurrently "
            "(streams, branches of a graph).",
            lambda it: it.run.has_small_grids,
        ),
        Rule("{compute}{tips}.", lambda it: bool(it.run.compute)),
        Rule("speed up its largest kernels first{tips}."),
    ),
    Cause.COMMUNICATION: (
        Rule(
            "these collectives run on the host although the data is on a device: use the nccl "
            "backend, or overlap them with compute (async_op=True).",
            lambda it: it.run.has_device and HOST_COLLECTIVE.search(it.most.name) is not None,
        ),
        Rule(
            "compute overlaps most of it already, and the path still runs through it: send fewer "
            "bytes (lower precision, compression), balance what ranks send, or use faster links.",
            lambda it: it.run.is_overlapped,
        ),
        Rule(
            "experts wait for their tokens: overlap this with shared experts or another "
            "micro-batch, and balance the load of experts.",
            lambda it: LIBRARIES["expert parallel"].search(it.most.name) is not None,
        ),
        Rule(
            "ranks exchange rows of embeddings: start this one batch ahead (a pipelined training "
            "loop), balance tables across ranks, send fewer bytes (quantized communication).",
            lambda it: it.operation == "all_to_all" and it.run.embeds,
        ),
        Rule(
            "each rank waits for data from all others: start this before work that does not need "
            "it, balance what ranks send (tokens, rows), send fewer bytes.",
            lambda it: it.operation == "all_to_all",
        ),
        Rule(
            "parameters are gathered, and gradients scattered, only when needed: prefetch earlier "
            "(forward_prefetch=True, backward_prefetch=BACKWARD_PRE; with fully_shard "
            "set_modules_to_forward_prefetch), check limit_all_gathers, wrap larger modules, or "
            "keep parameters after forward if memory allows.",
            lambda it: it.operation in {"all_gather", "reduce_scatter"} and it.run.is_sharded,
        ),
        Rule(
            "gradients are reduced during backward, but nothing overlaps the last bucket: tune "
            "bucket_cap_mb of DistributedDataParallel, compress gradients (bf16_compress_hook), or "
            "reduce less often (no_sync() while gradients accumulate).",
            lambda it: it.operation == "all_reduce" and it.run.is_data_parallel and it.run.trains,
        ),
        Rule(
            "pipeline stages wait for each other: use more micro-batches, an interleaved "
            "schedule, stages of equal length.",
            lambda it: it.operation in {"send", "recv", "send_recv"},
        ),
        Rule("start it earlier, overlap it with compute, or send fewer bytes."),
    ),
    Cause.COPIES: (
        Rule(
            "these are memsets: skip them for memory that is overwritten anyway (torch.empty "
            "instead of torch.zeros); library calls bring their own with each operator.",
            lambda it: it.calls(_FILL),
        ),
        Rule(
            "these copies go from device to device: put them on a separate stream while the "
            "devices compute, or make fewer and larger ones.",
            lambda it: it.calls(_BETWEEN),
        ),
        Rule(
            "these copies stay on the device: make fewer (torch.cat, .contiguous(), .clone(), "
            "changes of type or layout), or let torch.compile fuse them.",
            lambda it: it.calls(_WITHIN) and it.run.is_eager,
        ),
        Rule(
            "these copies stay on the device: make fewer (torch.cat, .contiguous(), .clone(), "
            "changes of type or layout).",
            lambda it: it.calls(_WITHIN),
        ),
        Rule(
            "each takes a microsecond or two, so their number is the cost: batch them, or create "
            "the values where they are used.",
            lambda it: it.mean_ns < _SHORT_NS,
        ),
        Rule(
            "the host memory is already pinned: copy on a separate stream while the device "
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
    Cause.SYNCHRONOUS_COPIES: (
        Rule(
            "the copies take microseconds, but the host waits for all work before them: create "
            "such values on the device, keep them there, or batch the copies.",
            lambda it: bool(it.run.blocking_copy) and it.run.blocking_copy_ns < _SHORT_NS,
        ),
        Rule(
            "results are copied to the host within the step: do it less often, or with "
            "non_blocking=True, and read them after the next step (synchronize on an event).",
            lambda it: _TO_HOST.search(it.run.blocking_copy) is not None,
        ),
        Rule(
            "the host memory is already pinned: copy with non_blocking=True, so that the host "
            "continues.",
            lambda it: "Pinned" in it.run.blocking_copy,
        ),
        Rule(
            "pin the host memory (DataLoader(pin_memory=True)) and copy with non_blocking=True.",
            lambda it: "Pageable" in it.run.blocking_copy,
        ),
        Rule("copy with non_blocking=True, which needs pinned host memory, or less often."),
    ),
    Cause.GAPS_BETWEEN_KERNELS: (
        Rule(
            "the gaps are inside captured graphs: use fewer, longer kernels.",
            lambda it: it.run.is_replayed,
        ),
        Rule("use fewer, longer kernels{tips}."),
    ),
    Cause.WAITING_FOR_SMS: (
        Rule(
            "a kernel of another stream fills the device: give the waiting work a high-priority "
            "stream (torch.cuda.Stream(priority=-1)), launch it earlier, or shorten the kernel "
            "that fills the device."
        ),
    ),
    Cause.FULL_QUEUE: (
        Rule(
            "the host runs so far ahead that launches block: move its other work (data, logging) "
            "before the launches{tips}."
        ),
    ),
    Cause.ALLOCATION: (
        Rule(
            "pinned host memory is allocated within the window: allocate it once, and reuse it.",
            lambda it: it.calls(r"HostAlloc|HostRegister|HostMalloc"),
        ),
        Rule(
            "memory is freed, only to be allocated again: remove torch.cuda.empty_cache(), and "
            "check for fragmentation{tips}.",
            lambda it: it.calls(r"Free|Unmap|Unregister"),
        ),
        Rule("allocate before the loop, and reuse the memory{tips}."),
    ),
    Cause.ONE_TIME_SETUP: (
        Rule(
            "this happens once: skip the first steps when profiling (schedule(wait=3, warmup=2, "
            "active=2, repeat=1))."
        ),
    ),
    Cause.UNRECORDED_WAIT: (
        Rule(
            "start the capture before the work that it waits for is launched; then move the "
            "synchronization out of the step, or do it later.",
            lambda it: it.run.has_sync_records or (it.run.has_device and it.run.api != "cuda"),
        ),
        Rule(
            "record what it waits for: set enable_cuda_sync_events=True, and start the capture "
            "before the work is launched; then remove the synchronization, or what it waits for.",
            lambda it: it.run.has_device,
        ),
        Rule(
            "record what it waits for: set ProfilerActivity.CUDA and enable_cuda_sync_events=True, "
            "and start the capture before the work is launched; then remove the synchronization, "
            "or what it waits for."
        ),
    ),
    Cause.GPU_SYNCHRONIZATION: (
        Rule(
            "numbers are read from the device (.item(), float(), if on a tensor): keep them "
            "there, and read them every n steps.",
            lambda it: it.reads(_READS_NUMBER),
        ),
        Rule(
            "shapes depend on values (nonzero, boolean masks): use torch.where and fixed shapes, "
            "or compute all such shapes at once.",
            lambda it: it.reads(_READS_SHAPE),
        ),
        Rule(
            "move the synchronization of the whole device (torch.cuda.synchronize()) out of the "
            "step, or synchronize only every n steps.",
            lambda it: it.calls(r"^(cuda|hip)DeviceSynchronize"),
        ),
        Rule("move the synchronization out of the step, do it later, or only every n steps."),
    ),
}
"""By cause: advice is the first rule that applies; the last one always does."""
