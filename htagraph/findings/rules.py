"""What to do about a cause: advice chosen by rules from what the trace shows.

The first rule of a cause that applies is its advice; the last has no condition. No rule advises
what is already done, or what the trace cannot show. What the recording lacks is no advice on a
cause: it is said once, by `recording_advice`.
"""

from __future__ import annotations

from collections.abc import Mapping

from htagraph.findings.device_rules import DEVICE_RULES
from htagraph.findings.host_rules import HOST_RULES
from htagraph.findings.seen import Advice, Rule, Seen
from htagraph.model.kinds import Bound, Cause

ADVICE: Mapping[Cause, tuple[Rule, ...]] = {**DEVICE_RULES, **HOST_RULES}
"""What to do about each cause: the first rule that applies."""


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
        "Record Python code to name it: profile(with_stack=True), or "
        "torch.profiler.record_function around its parts.",
        when=_is_unnamed,
    ),
)
"""What to record, or to read, to know what a finding is made of: the first rule that applies."""


def advice_on(seen: Seen) -> Advice:
    """What to do about a cause."""
    return next(rule for rule in ADVICE[seen.cause] if rule.when(seen)).advice(seen)


def recording_advice(seen: Seen) -> str:
    """What the recording of a finding lacks, and the setting to change; empty for nothing."""
    return next((rule.do for rule in RECORDING if rule.when(seen)), "")
