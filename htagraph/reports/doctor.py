"""The doctor: what a trace lacks, which answers suffer, and the remedy; what a capture costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from shlex import quote
from statistics import median_low

import numpy as np
import pandas as pd

from htagraph.arrays.codes import gather
from htagraph.lookup.programs import NO_DEVICE_WORK, is_plain
from htagraph.lookup.settings import Settings
from htagraph.lookup.steady_steps import FEWEST_ALIKE, steady_steps
from htagraph.lookup.steps import step_at
from htagraph.model.arrays import F64, I64
from htagraph.model.kinds import EventKind, KernelClass
from htagraph.model.names import FORWARD_BACKWARD
from htagraph.model.recording import SAMPLED, STACKS
from htagraph.model.rules import Rule
from htagraph.model.units import human_count, human_duration, human_size
from htagraph.readers.storage import n_bytes_of
from htagraph.run.graph import TraceGraph
from htagraph.run.trace import Trace

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
    """One thing that a trace should record."""

    subject: str  # ``steps``, ``launches``, ``collective metadata`` …
    n: int
    is_enough: bool  # Whether answers can rely on it
    found_by: str = ""  # Kind of evidence: ``profiler step``, ``serving marker``
    # consequence, advice: if it is not enough: which answers suffer, and how to record it
    consequence: str = ""
    advice: str = ""


def examine(trace: Trace, graph: TraceGraph) -> tuple[Diagnosis, ...]:
    """The diagnoses of a trace, one per subject."""
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
        "htagraph.profile or htagraph.handler sample them; with_stack=True records each call, in a "
        "file several times larger",
        found_by=_sampled_by(trace),
    )
    yield _present(
        "device annotations",
        int(n_of_kind[EventKind.DEVICE_ANNOTATION]),
        "device work has only names of kernels and operators",
        "name parts with torch.profiler.record_function",
    )


def _sampled_by(trace: Trace) -> str:
    """How often Python stacks were sampled, and why not to the end; empty if they were not."""
    events, about = trace.recording.events, trace.metadata.get("sampler")
    about = about if isinstance(about, dict) else {}
    is_sampled = bool((events.category == events.symbols.code(SAMPLED)).any())
    every = about.get("interval_ms")
    often = f"sampled every {every:g} ms" if isinstance(every, int | float) else "sampled"
    said = [often if is_sampled else "", str(about.get("note") or "")]
    return "; ".join(one for one in said if one)


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


_WORTH = 0.05
"""Share of a capture from which it is told what a category takes."""
_TO_COMPARE = FEWEST_ALIKE + 1
"""Steps to be recorded where runs are compared: the first of a trace is left out there."""


def capture_cost(trace: Trace, graph: TraceGraph) -> list[tuple[str, str]]:
    """What the capture of a trace costs, and what the next one can leave out: words by subject."""
    sizes, n_file_bytes = trace.sizes, n_bytes_of(trace.path) if trace.path else 0
    is_compressed = 0 < n_file_bytes < int(sizes["n_bytes"].sum())
    n_events = int(sizes["n_loaded"].sum() + sizes["n_skipped"].sum())
    n_bytes = int(sizes["n_bytes"].clip(lower=0).sum())
    on_disk = [f"{human_size(n_file_bytes)} on disk"] if n_file_bytes else []
    unpacked = [f"{human_size(n_bytes)} unpacked"] if is_compressed and n_bytes else []
    size = ", ".join([*on_disk, *unpacked, human_count(n_events, "event")])
    is_plain_text = n_file_bytes and not is_compressed and (sizes["n_bytes"] > 0).any()
    settings = Settings.of(graph.dag.events, graph.origin)
    lengths_ns = steady_steps(graph.dag).compared_ns
    slowed = settings.slowed_in_words(float(np.median(lengths_ns)) if len(lengths_ns) else 0.0)
    hint = ("compression", "none; torch.profiler compresses files named *.gz")

    def part(share: float) -> str:
        """A part of the capture; its bytes are approximate, as similar data compress better."""
        of = f" (about {human_size(round(share * n_file_bytes))})" if n_file_bytes else ""
        return f"{share:.1%} of the capture{of}"

    return [
        ("size", size),
        *_cost_of_steps(trace, graph, part),
        *_cost_of_categories(sizes, part),
        *([hint] if is_plain_text else []),
        ("profiler", _own_work_of_profiler(graph.profiler_overhead())),
        *([("recording", slowed)] if slowed else []),
    ]


def _cost_of_steps(
    trace: Trace, graph: TraceGraph, part: Callable[[float], str]
) -> Iterator[tuple[str, str]]:
    """Yield what a step takes, with the device work launched in it, and whether one would do."""
    steady, step = steady_steps(graph.dag), _steps_of(graph)
    n, inside = len(steady.parts.step), step >= 0
    if not n:
        return
    per_event = _bytes_per_event(trace, trace.sizes)
    weight = np.bincount(step[inside], weights=per_event[inside], minlength=n)
    shares = (weight / max(float(per_event.sum()), 1.0)).tolist()
    n_events = np.bincount(step[inside], minlength=n).tolist()
    lengths_ns = steady.compared_ns[steady.is_steady].tolist()
    # All steps but perhaps the first; not known of fewer than three.
    are_alike = bool(steady.is_steady.any() and steady.is_steady[1:].all())
    usual = f"{human_count(median_low(n_events), 'event')}, {part(median_low(shares))}"
    fewest, most, least, largest = min(n_events), max(n_events), min(shares), max(shares)
    range_ = f"{fewest:,} to {most:,} events, {least:.1%} to {largest:.1%} of the capture"
    outside = 1 - sum(shares)
    rest = f"; {outside:.1%} is outside steps" if outside >= _WORTH else ""
    yield "a step", f"{usual if are_alike or n == 1 else range_}{rest}"
    n_alike = len(lengths_ns)
    if are_alike:
        usual_ns = median_low(lengths_ns)
        away = max(abs(length_ns - usual_ns) for length_ns in lengths_ns) / usual_ns
        alike = f"{n}, {'all' if n_alike == n else 'all but the first'} typical"
        each = f"({human_duration(usual_ns)} each, up to {away:.1%} more or less)"
        saved = f"one is enough and saves {part(sum(shares) - median_low(shares))}"
        enough = f"; {_TO_COMPARE} are enough to compare runs" if n > _TO_COMPARE else ""
        yield "steps", f"{alike} {each}: {saved}{enough}"
    elif n >= FEWEST_ALIKE:
        alike = f"{n_alike} of {n} typical" if n_alike else f"{n}, fewer than three of them typical"
        yield "steps", f"{alike}: one is not representative (`steady_state` says why)"
    elif n > 1:
        yield "steps", f"{n}: too few to tell whether one is enough"


def _cost_of_categories(
    sizes: pd.DataFrame, part: Callable[[float], str]
) -> Iterator[tuple[str, str]]:
    """Yield what takes much of the capture, and what is lost without."""
    kind, share = sizes["kind"], sizes["share"]
    lost = "with_stack=True; without them, host code has no lines and kernels no modules"
    for subject, is_of, what in (
        ("Python stacks", sizes["category"] == STACKS, lost),
        ("memory events", kind == EventKind.INSTANT.label, "profile_memory=True"),
    ):
        if share[is_of].sum() >= _WORTH:
            yield subject, f"{part(share[is_of].sum())}, due to {what}"
    flows = share[(kind == "flow") & (sizes["n_loaded"] == 0)].sum()
    if flows >= _WORTH:
        said = "they repeat correlation ids and are not read; no setting turns them off"
        yield "flows", f"{part(flows)}: {said}"


def _own_work_of_profiler(overhead: pd.DataFrame) -> str:
    """What the profiler recorded of its own work."""
    never = "the cost of recording each event never is"
    own = overhead[overhead["source"] == "profiler"]
    if not len(own):
        return f"none of its own work is recorded, and {never}: its overhead is unknown"
    recorded = f"{human_duration(int(own['sum_ns'].sum()))} of its own work is recorded"
    path_ns, most = int(own["path_ns"].sum()), own.iloc[0]
    if not path_ns:
        return f"{recorded}, none of it on the critical path; {never}"
    where = f"most in {most['inside']} ({most['name']})"
    too_long = f"times are at least {own['path_share'].sum():.1%} too long"
    on_path = f"{human_duration(path_ns)} of it on the critical path, {where}"
    return f"{recorded}, {on_path}: {too_long}; {never}"


def _bytes_per_event(trace: Trace, sizes: pd.DataFrame) -> F64:
    """Bytes of each loaded event, equal within a category; 1 where that is not known."""
    events = trace.recording.events
    known = sizes[(sizes["n_bytes"] > 0) & (sizes["n_loaded"] > 0)]
    mean = dict(zip(known["category"], known["n_bytes"] / known["n_loaded"], strict=True))
    of_symbol = np.array([mean.get(text, 1.0) for text in events.symbols.texts], dtype=np.float64)
    return of_symbol[events.category] if len(events) else np.zeros(0)


def _steps_of(graph: TraceGraph) -> I64:
    """Step in which each event begins, or was launched; the last one ends with its range."""
    events, steps, launch = graph.dag.events, graph.steps, graph.dag.launch
    start_ns = steps["start_ns"].to_numpy(np.int64)
    last_ns = int((steps["start_ns"] + steps["dur_ns"]).iloc[-1]) if len(steps) else 0
    periods = steps.assign(dur_ns=np.diff(np.append(start_ns, last_ns)))
    caller = np.where(events.is_device & (launch >= 0), launch, np.arange(len(events)))
    return np.asarray(step_at(periods, gather(events.ts_ns, caller)), dtype=np.int64)
