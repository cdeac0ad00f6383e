"""The doctor: what a trace records, which answers are weaker for what it lacks, and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from htagraph.graph import TraceGraph
from htagraph.lookup.plain_traces import NO_DEVICE_WORK, is_plain
from htagraph.model.categories import FORWARD_BACKWARD
from htagraph.model.kinds import EventKind, KernelClass
from htagraph.model.recording import STACKS
from htagraph.model.rules import Rule
from htagraph.model.units import human_count
from htagraph.trace import Trace

__all__ = ["Diagnosis", "examine"]

_NSIGHT = "Nsight Systems"
_WITH_NSIGHT = {
    "rank": "export with --include-json true (NCCL says it), or put rank<N> into the file name",
    "repairs": "export the report again, with the nsys that recorded it or a newer one",
    "steps": 'torch.cuda.nvtx.range("ProfilerStep#1"), or an NVTX range of that name, around each',
    "device work": "nsys profile --trace cuda,nvtx, on a machine that has the device",
    "synchronization records": "nsys profile --trace cuda,nvtx records them",
    "launches": "begin the capture before the work that it is about",
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
    n : int
        How many there are.
    is_enough : bool
        Whether answers can stand on it.
    found_by : str
        Evidence, where there are several kinds: ``profiler step``, ``serving marker``.
    consequence : str
        Which answers are weaker if not; empty where it is enough.
    advice : str
        How to record it; empty where it is enough.
    """

    subject: str
    n: int
    is_enough: bool
    found_by: str = ""
    consequence: str = ""
    advice: str = ""


def examine(trace: Trace, graph: TraceGraph) -> tuple[Diagnosis, ...]:
    """The diagnoses of a trace, one per subject that it records or lacks.

    Parameters
    ----------
    graph : TraceGraph
        The graph of the trace.

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
    """Return whether the file says which rank it is."""
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
    """Return whether the file is whole."""
    n_repairs = sum(repair.n for repair in trace.recording.repairs)
    return Diagnosis(
        "repairs",
        n_repairs,
        n_repairs == 0,
        consequence="what was left out is missing from every answer",
        advice="`htagraph repair` writes a valid file; a newer PyTorch writes fewer broken ones",
    )


def _events(trace: Trace, graph: TraceGraph) -> Iterator[Diagnosis]:
    """Yield which kinds of events there are."""
    n_of_kind = np.bincount(graph.dag.events.kind, minlength=len(EventKind))
    found_by = trace.steps["found_by"].unique()
    yield _present(
        "steps",
        len(trace.steps),
        "no answer per step; windows must be named by time",
        "call profiler.step()",
        found_by=str(found_by[0]) if len(found_by) else "",
    )
    yield _present(
        "device work",
        int(graph.dag.events.is_device.sum()),
        "host answers only",
        "capture with ProfilerActivity.CUDA (or XPU, MTIA), on a machine that has the device",
    )
    yield _present(
        "synchronization records",
        int(n_of_kind[EventKind.SYNC]),
        "waits between streams and of the host follow from API calls, and may be missed",
        "profile(experimental_config="
        "torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True))",
    )
    yield _present(
        "Python stacks",
        int(n_of_kind[EventKind.PYTHON]) + trace.skipped.get(STACKS, 0),
        "host time cannot be named by source line",
        "profile(with_stack=True); they make a file several times larger",
    )
    yield _present(
        "device annotations",
        int(n_of_kind[EventKind.DEVICE_ANNOTATION]),
        "device work is named by kernels and operators only",
        "name parts with torch.profiler.record_function",
    )


def _plain(trace: Trace, graph: TraceGraph) -> Iterator[Diagnosis]:
    """Yield what a trace of functions records."""
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
        "no answer per step; windows must be named by time, or by a slice",
        'slices named "ProfilerStep#1", "ProfilerStep#2" … are taken as steps',
    )
    yield _present(
        "handoffs between threads",
        int((graph.dag.edges.rule == Rule.RECORDED_FLOW).sum()),
        "the path stays on the thread that ends last: what it waited for there is not known",
        "flow events (ph s, f) from what sends to what receives",
        is_needed=len(np.unique(events.lane[events.is_host])) > 1,
    )


def _links(graph: TraceGraph) -> Iterator[Diagnosis]:
    """Yield how well events are linked."""
    dag = graph.dag
    events = dag.events
    n_device = int(events.is_device.sum())
    n_launched = int((dag.launch[events.is_device] >= 0).sum())
    yield Diagnosis(
        "launches",
        n_launched,
        n_launched == n_device,
        consequence=f"{human_count(n_device - n_launched, 'device event')} without a known launch, "
        "enqueued before the capture",
        advice="a longer warmup in torch.profiler.schedule leaves fewer",
    )
    communicates = dag.classification.kernel_class[events.kind == EventKind.KERNEL]
    has_collectives = bool((communicates == KernelClass.COMMUNICATION).any())
    yield _present(
        "collective metadata",
        _n_values(graph, "collective"),
        "collectives of several ranks are matched by order, not by group and sequence number",
        "capture with PyTorch 2.4 or newer, ProfilerActivity.CPU included",
        is_needed=has_collectives,
    )
    yield _present(
        "forward-backward flows",
        int((events.flows.category == events.symbols.code(FORWARD_BACKWARD)).sum()),
        "hand-overs between forward and backward threads are inferred",
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
    """The diagnosis of what must be there at all."""
    return Diagnosis(subject, n, n > 0 or not is_needed, found_by, consequence, advice)


def _n_values(graph: TraceGraph, column: str) -> int:
    """The number of events that have a value in a sparse column."""
    found = graph.dag.events.columns.get(column)
    return 0 if found is None else len(found.event)
