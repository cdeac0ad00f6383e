"""The doctor: what a trace records, which answers suffer from what it lacks, and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from shlex import quote

import numpy as np

from htagraph.graph import TraceGraph
from htagraph.lookup.plain_traces import NO_DEVICE_WORK, is_plain
from htagraph.model.categories import FORWARD_BACKWARD
from htagraph.model.kinds import EventKind, KernelClass
from htagraph.model.recording import STACKS
from htagraph.model.rules import Rule
from htagraph.model.units import human_count
from htagraph.trace import Trace

_NSIGHT = "Nsight Systems"
_WITH_NSIGHT = {
    "rank": "export with --include-json true (NCCL records it), or put rank<N> into the file name",
    "repairs": "export the report again, with the nsys that recorded it or a newer one",
    "steps": 'torch.cuda.nvtx.range("ProfilerStep#1"), or an NVTX range of that name, around each',
    "device work": "nsys profile --trace cuda,nvtx, on a machine that has the device",
    "synchronization records": "nsys profile --trace cuda,nvtx records them",
    "launches": "start the capture before the work of interest",
    "collective metadata": "only the PyTorch profiler records it",
}
"""How to record what an export of Nsight Systems lacks; what is not here, no export has."""


@dataclass(frozen=True)
class Diagnosis:
    """One thing that a trace should record.

    Parameters
    ----------
    subject : str
        ``steps``, ``launches``, ``collective metadata`` …
    is_enough : bool
        Whether answers can rely on it.
    found_by : str
        Kind of evidence: ``profiler step``, ``serving marker``.
    consequence, advice : str
        If it is not enough: which answers suffer, and how to record it.
    """

    subject: str
    n: int
    is_enough: bool
    found_by: str = ""
    consequence: str = ""
    advice: str = ""


def examine(trace: Trace, graph: TraceGraph) -> tuple[Diagnosis, ...]:
    """The diagnoses of a trace, one per subject.

    Examples
    --------
    >>> from htagraph import synth
    >>> trace = Trace.from_events(synth.timeline("cpu 1 |[aten::mm  ]"))
    >>> [one.subject for one in examine(trace, trace.compile()) if not one.is_enough][:3]
    ['rank', 'steps', 'device work']
    """
    if is_plain(graph.dag.events):
        seen = (_repairs(trace), *_plain(trace, graph))
    else:
        seen = (_rank(trace), _repairs(trace), *_events(trace, graph), *_links(graph))
    if _NSIGHT in str(trace.metadata.get("recorded by", "")):
        seen = tuple(
            replace(found, advice=_WITH_NSIGHT[found.subject])
            for found in seen
            if found.subject in _WITH_NSIGHT
        )
    return tuple(
        replace(found, consequence="", advice="") if found.is_enough else found for found in seen
    )


def _rank(trace: Trace) -> Diagnosis:
    """Whether the file records its rank."""
    is_recorded = trace.rank_source == "distributedInfo"
    return Diagnosis(
        "rank",
        int(is_recorded),
        is_recorded,
        trace.rank_source,
        "ranks of a job may be mixed up",
        "initialise torch.distributed before the profiler, or put rank<N> into the file name",
    )


def _repairs(trace: Trace) -> Diagnosis:
    """Whether the file is intact."""
    n_repairs = sum(repair.n for repair in trace.recording.repairs)
    file = quote(str(trace.path or "FILE"))
    return Diagnosis(
        "repairs",
        n_repairs,
        n_repairs == 0,
        consequence="what was left out is missing from every answer",
        advice=f"`htagraph repair {file} repaired.json.gz` writes a valid file; a newer PyTorch "
        "writes fewer broken ones",
    )


def _events(trace: Trace, graph: TraceGraph) -> Iterator[Diagnosis]:
    """Which kinds of events there are."""
    n_of_kind = np.bincount(graph.dag.events.kind, minlength=len(EventKind))
    found_by = trace.steps["found_by"].unique()
    yield _present(
        "steps",
        len(trace.steps),
        "no answers per step; windows must be given as times",
        "call profiler.step()",
        found_by=str(found_by[0]) if len(found_by) else "",
    )
    yield _present(
        "device work",
        int(graph.dag.events.is_device.sum()),
        "only answers about the host",
        "capture with ProfilerActivity.CUDA (or XPU, MTIA), on a machine that has the device",
    )
    yield _present(
        "synchronization records",
        int(n_of_kind[EventKind.SYNC]),
        "waits are derived from API calls; some may be missed",
        "profile(experimental_config="
        "torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True))",
    )
    yield _present(
        "Python stacks",
        int(n_of_kind[EventKind.PYTHON]) + trace.skipped.get(STACKS, 0),
        "host time has no source lines",
        "profile(with_stack=True); the file gets several times larger",
    )
    yield _present(
        "device annotations",
        int(n_of_kind[EventKind.DEVICE_ANNOTATION]),
        "device work has only names of kernels and operators",
        "name parts with torch.profiler.record_function",
    )


def _plain(trace: Trace, graph: TraceGraph) -> Iterator[Diagnosis]:
    """What a trace without device work records."""
    events = graph.dag.events
    yield _present(
        "device work",
        0,
        NO_DEVICE_WORK,
        "a profile by torch.profiler or Nsight Systems has device work",
    )
    yield _present(
        "steps",
        len(trace.steps),
        "no answers per step; windows must be given as times or slices",
        'slices named "ProfilerStep#1", "ProfilerStep#2" … are taken as steps',
    )
    yield _present(
        "waits for other threads",
        int((graph.dag.edges.rule == Rule.RECORDED_FLOW).sum()),
        "the path stays on the thread that ends last; what that thread waited for is unknown",
        "flow events (ph s, f) from sender to receiver",
        is_needed=len(np.unique(events.lane[events.is_host])) > 1,
    )


def _links(graph: TraceGraph) -> Iterator[Diagnosis]:
    """How well events are linked."""
    dag = graph.dag
    events = dag.events
    n_device = int(events.is_device.sum())
    n_launched = int((dag.launch[events.is_device] >= 0).sum())
    yield Diagnosis(
        "launches",
        n_launched,
        n_launched == n_device,
        consequence=f"{human_count(n_device - n_launched, 'device event')} without a known launch, "
        "work from before the profile",
        advice="a longer warmup in torch.profiler.schedule leaves fewer",
    )
    communicates = dag.classification.kernel_class[events.kind == EventKind.KERNEL]
    has_collectives = bool((communicates == KernelClass.COMMUNICATION).any())
    yield _present(
        "collective metadata",
        _n_values(graph, "collective"),
        "collectives are matched across ranks by order, not by group and sequence number",
        "capture with PyTorch 2.4 or newer and ProfilerActivity.CPU",
        is_needed=has_collectives,
    )
    yield _present(
        "forward-backward flows",
        int((events.flows.category == events.symbols.code(FORWARD_BACKWARD)).sum()),
        "that forward and backward threads wait for each other is inferred",
        "capture both forward and backward in one step",
        is_needed=_n_values(graph, "fwd_thread") > 0,
    )


def _present(
    subject: str,
    n: int,
    consequence: str,
    advice: str,
    *,
    found_by: str = "",
    is_needed: bool = True,
) -> Diagnosis:
    """The diagnosis of something that must exist at all."""
    return Diagnosis(subject, n, n > 0 or not is_needed, found_by, consequence, advice)


def _n_values(graph: TraceGraph, column: str) -> int:
    """Number of events with a value in a sparse column."""
    found = graph.dag.events.columns.get(column)
    return 0 if found is None else len(found.event)
