"""What to try about host work, and about a late rank: one rule per row."""

from __future__ import annotations

import re
from collections.abc import Mapping

from htagraph.findings.seen import Rule
from htagraph.model.kinds import Bound, Cause

__all__ = ["CHECK_HOST", "HOST_RULES", "SLOW_DEVICE"]

_LONG_CODE_NS = 1_000_000
"""Untraced code between two operators that takes longer does more than call them.

Chosen, as `_LONG_OP_NS`. Both are pinned by
`test_rules.py::test_a_threshold_of_advice_is_where_it_is_stated`.
"""

_LONG_OP_NS = 5_000_000
"""A call or operator that takes longer does more than launch."""

_LESS_CODE = "make it cheaper, run it less often, or move it to another thread or process."

_WAIT_OR_CODE = Rule(
    "if it waits for the other thread, make what that one runs cheaper, or give it the work "
    f"earlier; else {_LESS_CODE}",
    lambda it: it.is_code and it.is_accompanied,
)

_LOADS = re.compile(r"(?i)(^|[^a-z])load(ing)?([^a-z]|$)")

SLOW_DEVICE = (
    "compare this kernel across ranks: this rank has more work, or a slower device (clocks, heat)."
)
"""Advice if a rank's kernels take longer than those of others."""

CHECK_HOST = (
    "check this machine: other processes, clocks and heat of its devices, storage, network; or run "
    "without it."
)
"""Advice if all ranks of a host are late."""

HOST_RULES: Mapping[Cause, tuple[Rule, ...]] = {
    Cause.DATA_LOADING: (
        Rule(
            "batches are loaded in the main process, within the step: let workers load them "
            "(num_workers, persistent_workers=True), or make decoding cheaper.",
            lambda it: it.run.loading == "in process",
        ),
        Rule(
            "workers load, but the main process works on each batch: move that to the dataset or "
            "to collate_fn, which run in the workers.",
            lambda it: it.run.loading == "after workers",
        ),
        Rule(
            "the thread that pins memory is the bottleneck: use fewer and larger tensors in a "
            "batch, smaller types, or pin parts of a batch.",
            lambda it: it.run.loading == "pinned by a thread",
        ),
        Rule(
            "the main process waits for its workers: make decoding cheaper, add workers while "
            "cores are free, raise prefetch_factor if batches differ; else the transfer between "
            "processes is slow (use fewer and larger tensors in a batch).",
            lambda it: it.run.loading == "by workers" and it.calls("DataLoaderIter"),
        ),
        Rule("prepare the next batch during the step (in another process or thread), and cheaper."),
    ),
    Cause.CPU_WORK: (
        Rule(
            "the trace has no device work, although the run used a device: profile with "
            "ProfilerActivity.CUDA to see what the host delays.",
            lambda it: not it.run.has_device,
        ),
        _WAIT_OR_CODE,
        Rule(
            _LESS_CODE,
            lambda it: it.most.bound == Bound.UNTRACED_CODE.label and it.mean_ns > _LONG_CODE_NS,
        ),
        Rule(
            "a call that takes milliseconds does more than launch (CPU work, set-up, memory): move "
            "it before the steps, or run it less often.",
            lambda it: it.most.bound == Bound.HOST.label and it.mean_ns > _LONG_OP_NS,
        ),
        Rule(
            "most of the work is captured in graphs, and what is left is between them: use larger "
            "or fewer graphs, larger batches, and less Python between graphs.",
            lambda it: it.run.is_replayed,
        ),
        Rule(
            "most of the work is compiled: find graph breaks and recompilations with "
            'TORCH_LOGS="graph_breaks,recompiles"; then aim for fewer, larger compiled '
            "regions{tips}, and less Python between them.",
            lambda it: it.run.is_compiled,
        ),
        Rule(
            "torch.compile covers only a part of the work: find graph breaks with "
            'TORCH_LOGS="graph_breaks", and compile the rest; or use fewer, larger '
            "operators{tips}.",
            lambda it: it.run.is_partly_compiled,
        ),
        Rule(
            "use fewer, larger operators{tips}, and less Python between them.",
            lambda it: it.run.is_pytorch,
        ),
        Rule("use fewer, larger kernels{tips}, and less code between them."),
    ),
    Cause.WAITING_FOR_WORK: (
        Rule(
            "on a server this is the time between requests: raise the load, or report on one "
            "request (-w START:END)."
        ),
    ),
    Cause.OPTIMIZER: (
        Rule(
            "the update is already fused: use fewer and larger parameters, or step every n batches "
            "while gradients accumulate{tips}.",
            lambda it: it.run.optimizer == "fused",
        ),
        Rule(
            "the update takes one call per operation (foreach): make it one call (fused=True), or "
            "use fewer and larger parameters{tips}.",
            lambda it: it.run.optimizer == "foreach",
        ),
        Rule(
            "update all parameters in one call (fused=True), or use fewer and larger "
            "parameters{tips}."
        ),
    ),
    Cause.COMPILATION: (
        Rule(
            "this happens once: compile before the recorded steps, and skip the first steps when "
            "profiling (schedule(wait=3, warmup=2, active=2, repeat=1))."
        ),
    ),
    Cause.RECOMPILATION: (
        Rule(
            'it was compiled before: TORCH_LOGS="recompiles" shows what changed. For shapes, use '
            "torch._dynamo.mark_dynamic or pad to a few sizes; for Python values, pass tensors "
            "instead."
        ),
    ),
    Cause.AUTOTUNING: (
        Rule(
            "kernels are benchmarked once per shape: skip the first steps when profiling; if it "
            "recurs, pad shapes to a few sizes, or turn it off "
            "(torch.backends.cudnn.benchmark=False, fewer configurations)."
        ),
    ),
    Cause.CHECKPOINTING: (
        Rule(
            "load it before the steps, onto the device that uses it, with mmap=True.",
            lambda it: it.calls(_LOADS),
        ),
        Rule(
            "save less often, save less, or save asynchronously "
            "(torch.distributed.checkpoint.async_save)."
        ),
    ),
    Cause.GARBAGE_COLLECTION: (
        Rule(
            "call gc.freeze() after set-up, gc.disable() and gc.collect() every n steps, or create "
            "fewer reference cycles."
        ),
    ),
    Cause.CPU_OPERATORS: (
        Rule(
            "make the largest cheaper, or call it less often. If a function waits (for a file, a "
            "socket, another process), the trace does not say for what.",
            lambda it: it.run.is_plain,
        ),
        Rule("start with the largest{tips}."),
    ),
    Cause.SMALL_OPERATORS: (
        Rule("use fewer, larger operators{tips}, and less Python between them."),
    ),
    Cause.HOST_CODE: (_WAIT_OR_CODE, Rule(_LESS_CODE)),
    Cause.PIPELINE: (
        Rule(
            "compare it with its peers: move layers between stages, pack samples into equal "
            "micro-batches, check the rank."
        ),
    ),
    Cause.LATE_RANK: (
        Rule(
            "compare its Python code there with that of the other ranks.",
            lambda it: it.bound == Bound.UNTRACED_CODE.label,
        ),
        Rule(
            "check this rank's data: shards, storage, time per batch.",
            lambda it: it.bound == Bound.DATA_LOADING.label,
        ),
        Rule(
            "compare this operator across ranks: process placement on cores, a slow node, or more "
            "work.",
            lambda it: it.bound == Bound.HOST.label,
        ),
        Rule(
            SLOW_DEVICE,
            lambda it: it.bound == Bound.COMPUTE.label,
        ),
        Rule(
            "check the group it waits in first: the cause may be on a rank without a trace.",
            lambda it: it.bound == Bound.COMMUNICATION.label and not it.run.has_others,
        ),
        Rule(
            "find which kernels fill this rank's device, and how long they take on other ranks.",
            lambda it: it.bound == Bound.WAITING_FOR_SMS.label,
        ),
        Rule(
            "find what this rank waits for on its own device.",
            lambda it: it.bound == Bound.SYNC.label,
        ),
        Rule(
            "what it does there is not recorded: this rank's quality checks show how to record it.",
            lambda it: it.bound == Bound.UNKNOWN_WAITS.label,
        ),
        Rule("compare what this rank does there with the other ranks."),
    ),
    Cause.EXPERT_IMBALANCE: (
        Rule(
            "balance the router (auxiliary loss, bias of busy experts, capacity), place busy "
            "experts on different ranks, or duplicate the busiest: job.experts() has the tokens.",
        ),
    ),
}
"""By cause: advice is the first rule that applies; the last one always does."""
