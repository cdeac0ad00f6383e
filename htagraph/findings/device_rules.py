"""What to try about work of devices, and about waits for it: a rule a row."""

from __future__ import annotations

import re
from collections.abc import Mapping

from htagraph.findings.seen import Rule
from htagraph.model.collective_names import HOST_COLLECTIVE, LIBRARIES
from htagraph.model.kinds import Cause

__all__ = ["DEVICE_RULES"]

_SHORT_NS = 3_000
"""A copy or fill that takes less costs by its number, not by its bytes."""
_FILL = re.compile(r"(?i)memset|fillbuffer")
_WITHIN = re.compile(r"DtoD|DeviceToDevice|Device -> Device")
_BETWEEN = re.compile(r"PtoP|(?i:peer)")
_TO_HOST = re.compile(r"DtoH|DeviceToHost|Device -> (Host|Pageable|Pinned)")
_READS_NUMBER = re.compile(r"^aten::(item|_local_scalar_dense|is_nonzero|equal)$")
_READS_SHAPE = re.compile(r"^aten::(nonzero|masked_select|_?unique\w*|repeat_interleave|index)$")

DEVICE_RULES: Mapping[Cause, tuple[Rule, ...]] = {
    Cause.COMPUTE: (
        Rule(
            "most of the device is empty meanwhile, as its kernels have fewer blocks than it has "
            "multiprocessors: larger batches, fewer and larger kernels, or independent ones side "
            "by side (streams, branches of a CUDA graph).",
            lambda it: it.run.has_small_grids and it.run.api == "cuda",
        ),
        Rule(
            "most of the device is empty meanwhile, as its kernels have fewer blocks than it has "
            "multiprocessors: larger batches, fewer and larger kernels, or independent ones side "
            "by side.",
            lambda it: it.run.has_small_grids,
        ),
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
            lambda it: it.calls(_FILL),
        ),
        Rule(
            "these copies go from device to device: put them on a stream of their own while "
            "the devices compute, or make fewer and larger ones.",
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
            "each takes a microsecond or two, so that their number is what costs: copy many at "
            "once, or create the values where they are used.",
            lambda it: it.mean_ns < _SHORT_NS,
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
    Cause.FULL_QUEUE: (
        Rule(
            "the host runs so far ahead that launches block: do its other work (data, logging) "
            "before the launches{tips}."
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
    Cause.LAUNCHED_BEFORE_CAPTURE: (
        Rule(
            "start the capture at the beginning of a step, after torch.cuda.synchronize().",
            lambda it: it.run.api in {"cuda", "hip"},
        ),
        Rule("start the capture at the beginning of a step, when the device is idle."),
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
}
"""The first rule of a cause that applies says what to try; the last one always does."""
