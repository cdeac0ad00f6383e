"""The doctor: what a trace has, what it lacks, which answers are weaker for it, and how to capture it better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from htagraph.model.kinds import EventKind
from htagraph.readers.kineto.categories import STACKS
from htagraph.readers.kineto.reader import KinetoTrace

__all__ = ["Finding", "examined"]

_COMMUNICATION = ("nccl*", "rccl*", "*deep_ep*")


@dataclass(frozen=True)
class Finding:
    """One thing that a trace should have.

    Parameters
    ----------
    subject : str
        ``steps``, ``launches``, ``collective metadata`` …
    n : int
        How many there are.
    is_enough : bool
        Whether answers can stand on it.
    consequence : str
        Which answers are weaker if not; empty where it is enough.
    advice : str
        How to capture it; empty where it is enough.
    """

    subject: str
    n: int
    is_enough: bool
    consequence: str = ""
    advice: str = ""


def examined(trace: KinetoTrace) -> tuple[Finding, ...]:
    """Return what a trace has and lacks, one finding per subject.

    Examples
    --------
    >>> from htagraph.readers.kineto import read_kineto
    >>> trace = read_kineto(b'[{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]')
    >>> [finding.subject for finding in examined(trace) if not finding.is_enough][:3]
    ['rank', 'steps', 'device events']
    """
    return tuple(
        finding if not finding.is_enough else Finding(finding.subject, finding.n, is_enough=True)
        for finding in (*_origin(trace), *_content(trace), *_links(trace))
    )


def _origin(trace: KinetoTrace) -> Iterator[Finding]:
    """Yield what is known about where the trace comes from."""
    yield Finding(
        "rank",
        trace.rank,
        trace.rank_source == "distributedInfo",
        f"the rank is taken from the {trace.rank_source}; ranks of a job may be mixed up",
        "initialise torch.distributed before the profiler, or put rank<N> into the file name",
    )
    n_repairs = sum(repair.n for repair in trace.repairs)
    yield Finding(
        "repairs",
        n_repairs,
        n_repairs == 0,
        "what was left out is missing from every answer",
        "`htagraph repair` writes a valid file; a newer PyTorch writes fewer broken ones",
    )


def _content(trace: KinetoTrace) -> Iterator[Finding]:
    """Yield which kinds of events there are."""
    events = trace.events
    n_kind = np.bincount(events.kind, minlength=len(EventKind))
    is_step = events.named(events.symbols.mask(lambda text: text.startswith("ProfilerStep#")))
    n_steps = int((is_step & (events.kind == EventKind.ANNOTATION)).sum())
    yield Finding(
        "steps",
        n_steps,
        n_steps > 0,
        "no answer per step; windows must be named by time",
        "call profiler.step()",
    )
    n_device = int(events.is_device.sum())
    yield Finding(
        "device events",
        n_device,
        n_device > 0,
        "host answers only",
        "capture with ProfilerActivity.CUDA (or XPU, MTIA), on a machine that has the device",
    )
    n_sync = int(n_kind[EventKind.SYNC])
    yield Finding(
        "synchronization records",
        n_sync,
        n_sync > 0,
        "waits between streams and of the host follow from API calls, and may be missed",
        "set experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)",
    )
    n_stacks = int(n_kind[EventKind.PYTHON]) + trace.skipped.get(STACKS, 0)
    yield Finding(
        "Python stacks",
        n_stacks,
        n_stacks > 0,
        "host time cannot be named by source line",
        "capture with with_stack=True",
    )


def _links(trace: KinetoTrace) -> Iterator[Finding]:
    """Yield how well events are linked."""
    events = trace.events
    launched = events.is_device & np.isin(
        events.correlation,
        events.correlation[(events.kind == EventKind.RUNTIME) & (events.correlation >= 0)],
    )
    n_device, n_launched = int(events.is_device.sum()), int(launched.sum())
    yield Finding(
        "launches",
        n_launched,
        n_launched == n_device,
        f"{n_device - n_launched:,} device events have no known launch; they were enqueued before the capture",
        "a longer warmup in torch.profiler.schedule leaves fewer",
    )
    is_communication = np.zeros(len(events), dtype=bool)
    for pattern in _COMMUNICATION:
        is_communication[events.is_device] |= np.isin(
            events.name[events.is_device], events.symbols.matching(pattern)
        )
    n_communication = int(is_communication.sum())
    named = events.columns.get("collective")
    n_named = 0 if named is None else len(named.event)
    yield Finding(
        "collective metadata",
        n_named,
        n_named > 0 or n_communication == 0,
        "collectives of several ranks are matched by order, not by group and sequence number",
        "capture with PyTorch 2.4 or newer, ProfilerActivity.CPU included",
    )
    flows = events.flows
    n_flows = int((flows.category == events.symbols.code("fwdbwd")).sum()) if len(flows) else 0
    n_backward = (
        int(events.columns["fwd_thread"].event.size) if "fwd_thread" in events.columns else 0
    )
    yield Finding(
        "forward-backward flows",
        n_flows,
        n_flows > 0 or n_backward == 0,
        "hand-overs between forward and backward threads are inferred",
        "capture both forward and backward in one step",
    )
