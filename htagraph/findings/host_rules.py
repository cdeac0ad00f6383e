"""What to try about work of the host, and about a late rank: a rule a row."""

from __future__ import annotations

import re
from collections.abc import Mapping

from htagraph.findings.seen import Rule
from htagraph.model.kinds import Bound, Cause

__all__ = ["HOST_RULES", "SLOW_DEVICE"]

_LONG_CODE_NS = 1_000_000
"""Code between two operators that takes longer is not about calling them."""
_LONG_OP_NS = 5_000_000
"""A call or operator that takes longer is not about launching."""
_LESS_CODE = "make it cheaper, do it less often, or beside the steps (another thread or process)."

_LOADS = re.compile(r"(?i)(^|[^a-z])load(ing)?([^a-z]|$)")

SLOW_DEVICE = (
    "compare this kernel across ranks: more work on this rank, or a slower device (clocks, heat)."
)
"""What to try where a rank's kernels take longer than those of others."""

HOST_RULES: Mapping[Cause, tuple[Rule, ...]] = {
    Cause.DATA_LOADING: (
        Rule(
            "batches are made in the main process, within the step: let workers make them "
            "(num_workers, persistent_workers=True), or decode cheaper.",
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
        Rule(
            "fewer, larger operators{tips}, and less Python between them.",
            lambda it: it.run.is_pytorch,
        ),
        Rule("fewer, larger kernels{tips}, and less code between them."),
    ),
    Cause.WAITING_FOR_WORK: (
        Rule(
            "on a server this is the time between requests: raise the load, or report on the time "
            "from one request to its answer (-w START:END)."
        ),
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
            lambda it: it.calls(_LOADS),
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
    Cause.CPU_OPERATORS: (
        Rule(
            "make the largest cheaper, or call it less often. Of a function that waits (a file, a "
            "socket, another process), the trace does not say for what.",
            lambda it: it.run.is_plain,
        ),
        Rule("less work in the largest first{tips}."),
    ),
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
"""The first rule of a cause that applies says what to try; the last one always does."""
