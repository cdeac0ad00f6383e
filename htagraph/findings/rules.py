"""What to try about a cause: a sentence, chosen by rules from what the trace shows.

Advice has up to four parts: what to find out first, the sentence of the first rule that applies
with the tips that apply, and a remark. The last rule of a cause has no condition. No rule advises
what is already done, or what the trace cannot show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from htagraph.findings.context import Context
from htagraph.findings.device_rules import DEVICE_RULES
from htagraph.findings.host_rules import HOST_RULES
from htagraph.findings.seen import Rule, Seen
from htagraph.model.kinds import Cause
from htagraph.replay.changes import Change

__all__ = ["ADVICE", "FIRST", "REMARKS", "TIPS", "advice_on"]

ADVICE: Mapping[Cause, tuple[Rule, ...]] = {**DEVICE_RULES, **HOST_RULES}
"""What to try about each cause: the first rule that applies."""

_LARGER_BATCHES = Rule("larger batches")
_COMPILE = Rule("torch.compile", lambda it: it.run.is_eager)
_GRAPHS = Rule("CUDA graphs", lambda it: it.run.api == "cuda" and not it.run.is_replayed)
_HIP_GRAPHS = Rule("HIP graphs", lambda it: it.run.api == "hip" and not it.run.is_replayed)

TIPS: Mapping[Cause, tuple[Rule, ...]] = {
    Cause.COMPUTE: (
        Rule("lower precision", lambda it: it.run.precision == "full"),
        Rule("fused operators by torch.compile", lambda it: it.run.is_eager),
        Rule("compile the rest", lambda it: it.run.is_partly_compiled),
        Rule('mode="max-autotune"', lambda it: it.run.is_compiled and not it.run.is_replayed),
        Rule("better shapes"),
    ),
    Cause.FULL_QUEUE: (Rule("fewer and larger kernels"), _GRAPHS, _HIP_GRAPHS),
    Cause.ALLOCATION: (
        Rule(
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            lambda it: it.run.api == "cuda" and it.run.is_pytorch,
        ),
        Rule(
            "cudaMallocAsync pools memory",
            lambda it: it.run.api == "cuda" and not it.run.is_pytorch,
        ),
    ),
    Cause.CPU_WORK: (
        _COMPILE,
        _GRAPHS,
        _HIP_GRAPHS,
        Rule("fused optimizers", lambda it: it.run.optimizer == "single"),
        _LARGER_BATCHES,
    ),
    Cause.GAPS_BETWEEN_KERNELS: (_COMPILE, _GRAPHS, _HIP_GRAPHS),
    Cause.OPTIMIZER: (Rule("a compiled step", lambda it: it.run.is_eager),),
    Cause.CPU_OPERATORS: (
        _COMPILE,
        Rule("torch.set_num_threads", lambda it: not it.run.shares_cores),
        Rule("pin each rank to its own cores", lambda it: it.run.shares_cores),
    ),
    Cause.SMALL_OPERATORS: (
        _COMPILE,
        _LARGER_BATCHES,
        Rule("whole tensors instead of loops"),
    ),
}
"""Parts of the sentence: all that apply, in brackets."""

FIRST: tuple[Rule, ...] = (
    Rule(
        "find which code this is in the Python stacks of the trace (htagraph report --stacks); "
        "then ",
        lambda it: it.unread_stacks,
    ),
    Rule(
        "find which code this is (torch.profiler.record_function around its parts); then ",
        lambda it: it.run.has_stacks,
    ),
    Rule(
        "find which code this is (let the tracer record more of it); then ",
        lambda it: it.run.is_plain,
    ),
    Rule(
        "find which code this is (NVTX ranges around its parts); then ",
        lambda it: not it.run.is_pytorch,
    ),
    Rule(
        "find which code this is (with_stack=True, or torch.profiler.record_function around its "
        "parts); then "
    ),
)
"""What to do first about unknown code."""

REMARKS: Mapping[Cause, tuple[Rule, ...]] = {
    Cause.COMMUNICATION: (
        Rule(
            " Waiting for a late rank looks the same: report on all ranks together.",
            lambda it: not it.run.has_others,
        ),
    ),
}
"""A remark at the end."""

_UNNAMED = (Cause.HOST_CODE, Cause.CPU_WORK, Cause.LATE_RANK)


class Advice(NamedTuple):
    do: str
    why: str = ""
    change: Change | None = None


def recording_advice(run: Context) -> str:
    return "Record Python code to name it."


def advice_on(seen: Seen) -> Advice:
    """What to try about a cause."""
    asks = seen.cause in _UNNAMED and seen.is_code
    asks &= seen.cause is not Cause.CPU_WORK or seen.run.has_device
    first = next(rule.says for rule in FIRST if rule.when(seen)) if asks else ""
    says = next(rule.says for rule in ADVICE[seen.cause] if rule.when(seen))
    tips = ", ".join(rule.says for rule in TIPS.get(seen.cause, ()) if rule.when(seen))
    remarks = "".join(rule.says for rule in REMARKS.get(seen.cause, ()) if rule.when(seen))
    says = says.replace("{compute}", seen.run.compute)
    return Advice(first + says.replace("{tips}", f" ({tips})" if tips else "") + remarks)
