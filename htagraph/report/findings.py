"""What bounds a run: the causes that claim the critical path, ranked, with evidence and what to try first."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from htagraph.model.kinds import Bound
from htagraph.model.units import human_count, human_duration
from htagraph.path import CriticalPath
from htagraph.queries.quality import UNEXPLAINED_LIMIT
from htagraph.report.claims import Cause, claims
from htagraph.writers.labels import name_label

__all__ = ["Evidence", "Finding", "Verdict", "find_bounds"]

_N_EVIDENCE = 3
_WAITS = (Cause.HOST_WAIT, Cause.BLOCKING_COPY, Cause.FULL_QUEUE)

_TITLES = {
    Cause.COMPUTE: "GPU computation",
    Cause.COMMUNICATION: "Communication that nothing hides",
    Cause.COPIES: "Copies and fills on the device",
    Cause.BLOCKING_COPY: "Copies that block the host",
    Cause.HOST_WAIT: "Host waits for the device, and what they delay",
    Cause.FULL_QUEUE: "A full launch queue, and what it delays",
    Cause.DATA_LOADING: "Data loading",
    Cause.ALLOCATION: "Device memory allocation",
    Cause.FIRST_USE: "First use: contexts, modules, libraries",
    Cause.HOST: "The host cannot feed the device",
    Cause.DEVICE_GAPS: "Gaps between queued device work",
    Cause.CARRY_OVER: "Work from before the capture",
}
_TO_TRY = {
    Cause.COMPUTE: "the device is busy, as it should be: shorten its kernels (lower precision, fused or compiled operators, "
    "better shapes), largest first.",
    Cause.COMMUNICATION: "start it earlier or hide it behind computation (bucket size, prefetch, separate stream); a wait for "
    "a late rank looks the same on one rank, so compare the ranks.",
    Cause.COPIES: "copy from pinned memory with non_blocking=True on a stream of its own, while the device computes.",
    Cause.BLOCKING_COPY: "pin the host memory and copy with non_blocking=True; keep .item(), .cpu() and .tolist() out of the step.",
    Cause.HOST_WAIT: "remove the synchronization from the step (.item(), .cpu(), torch.cuda.synchronize(), shapes that "
    "depend on data), or do it once every n steps.",
    Cause.FULL_QUEUE: "the host runs so far ahead that launches block: let it do its other work (data, logging) before it "
    "launches, use fewer and larger kernels, or CUDA graphs.",
    Cause.DATA_LOADING: "more DataLoader workers, persistent_workers=True, a larger prefetch_factor, cheaper decoding.",
    Cause.ALLOCATION: "allocate before the loop and keep what is allocated: check for cache flushes (empty_cache) and "
    "fragmentation (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True).",
    Cause.FIRST_USE: "this happens once: let the profiler skip the first steps (schedule(wait=1, warmup=1, active=3)).",
    Cause.HOST: "fewer, larger operators: torch.compile, CUDA graphs, fused optimizers, larger batches; less Python between them.",
    Cause.DEVICE_GAPS: "many short kernels: fuse them or replay them as a CUDA graph.",
    Cause.CARRY_OVER: "begin the capture at the start of a step, after torch.cuda.synchronize().",
}
_UNRECORDED = (
    "find out which code this is (with_stack=True, or name its parts with torch.profiler.record_function); then "
)
_HOST_ONLY = "the trace has no device work; profile with ProfilerActivity.CUDA to see what the host keeps waiting."


@dataclass(frozen=True)
class Evidence:
    """One contributor to a finding.

    Parameters
    ----------
    name : str
        What ran, or the call that waited.
    op : str
        Innermost operator or annotation around most of it.
    label : str
        What a person reads.
    dur_ns : int, unit=ns
        Its part of the claim.
    bound : str
        What most of it went to.
    n_segments : int
    """

    name: str
    op: str
    label: str
    dur_ns: int
    bound: str
    n_segments: int


@dataclass(frozen=True)
class Finding:
    """A cause that claims part of a critical path.

    Parameters
    ----------
    cause : str
        Label of the `Cause`, for programs.
    title : str
        What it is, for people.
    dur_ns : int, unit=ns
        Claimed time; the claims of all findings and the unexplained time add up to the window.
    share : float
        Of the window.
    n_segments : int
    longest_ns : int, unit=ns
        Start of the longest claimed segment: where to look.
    parts : tuple of (str, int)
        Bounds that the claim is made of, with their time in ns; largest first.
    evidence : tuple of Evidence
        Largest contributors.
    to_try : str
        What may help.
    """

    cause: str
    title: str
    dur_ns: int
    share: float
    n_segments: int
    longest_ns: int
    parts: tuple[tuple[str, int], ...]
    evidence: tuple[Evidence, ...]
    to_try: str

    @property
    def sentence(self) -> str:
        """The finding as one line of a report."""
        return f"{self.title}: {self.share:.1%} of the time ({human_duration(self.dur_ns)})"

    @property
    def evidence_sentence(self) -> str:
        """The largest contributors as one line."""
        items = (f"{item.label} {human_duration(item.dur_ns)}" for item in self.evidence)
        return f"{', '.join(items)}; {human_count(self.n_segments, 'segment')} in all"


@dataclass(frozen=True)
class Verdict:
    """What bounds a window, or why that cannot be said.

    Parameters
    ----------
    findings : tuple of Finding
        Largest first; empty if the verdict is withheld.
    withheld : str
        Why there is no verdict; empty if there is one.
    """

    findings: tuple[Finding, ...]
    withheld: str = ""


def find_bounds(path: CriticalPath) -> Verdict:
    """Return what bounds a window: causes with disjoint claims on its critical path, the largest first.

    Parameters
    ----------
    path : CriticalPath

    Returns
    -------
    Verdict
        Withheld where too much of the path is unexplained to tell.

    Examples
    --------
    >>> import htagraph as hg
    >>> rank = hg.synth.simulate(hg.synth.training_rank(fault="dataloader"))
    >>> path = hg.Trace.from_events(rank.events).compile().critical_path()
    >>> find_bounds(path).findings[0].cause
    'data loading'
    """
    if not path.dur_ns:
        return Verdict((), "nothing was recorded in this window.")
    if path.unexplained_share > UNEXPLAINED_LIMIT:
        return Verdict(
            (),
            f"{path.unexplained_share:.0%} of the critical path is unexplained (limit {UNEXPLAINED_LIMIT:.0%}), "
            "so what bounds the run is not established; the checks below say what is missing and how to record it.",
        )
    has_device = bool(path.dag.events.is_device.any())
    by_cause = claims(path).groupby("cause", sort=False)
    found = (_finding(Cause(str(cause)), part, path.dur_ns, has_device=has_device) for cause, part in by_cause)
    known = (finding for finding in found if finding is not None)
    return Verdict(tuple(sorted(known, key=lambda finding: -finding.dur_ns)))


def _finding(cause: Cause, part: pd.DataFrame, window_ns: int, *, has_device: bool) -> Finding | None:
    """Return the finding of one cause; the unexplained is none."""
    if cause is Cause.UNEXPLAINED:
        return None
    title, to_try = _TITLES[cause], _TO_TRY[cause]
    if cause is Cause.HOST and not has_device:
        title, to_try = "The host", _HOST_ONLY
    bounds = part.groupby("bound", sort=False)["dur_ns"].sum().sort_values(ascending=False, kind="stable")
    dur_ns = int(part["dur_ns"].sum())
    if cause is Cause.HOST and has_device and bounds.index[0] == Bound.PYTHON_GAP.label:
        to_try = _UNRECORDED + to_try
    return Finding(
        cause=cause.value,
        title=title,
        dur_ns=dur_ns,
        share=dur_ns / window_ns,
        n_segments=len(part),
        longest_ns=int(part["start_ns"].to_numpy()[part["dur_ns"].to_numpy().argmax()]),
        parts=tuple(zip(bounds.index.astype(str), bounds.tolist(), strict=True)),
        evidence=_evidence(cause, part),
        to_try=to_try,
    )


def _evidence(cause: Cause, part: pd.DataFrame) -> tuple[Evidence, ...]:
    """Return the names that contribute most to a claim; waits by where they happen, too."""
    longest_first: pd.DataFrame = part.sort_values("dur_ns", ascending=False, kind="stable")
    names = longest_first.groupby(["name", "op"] if cause in _WAITS else ["name"], sort=False).agg(
        dur_ns=("dur_ns", "sum"), within=("op", "first"), bound=("bound", "first"), n=("dur_ns", "size")
    )
    top = names.sort_values("dur_ns", ascending=False, kind="stable").head(_N_EVIDENCE)
    columns = (top[column].tolist() for column in ("within", "dur_ns", "bound", "n"))
    return tuple(
        Evidence(name, op, _label(cause, name, op, bound), dur_ns, bound, n)
        for name, op, dur_ns, bound, n in zip(top.index.get_level_values("name").astype(str), *columns, strict=True)
    )


def _label(cause: Cause, name: str, op: str, bound: str) -> str:
    """Return what a person reads: the name, where a wait is, or what stands for code that was not recorded."""
    if cause in _WAITS:
        return name_label(name) + (f" in {name_label(op)}" if op not in ("", name) else "")
    if bound == Bound.PYTHON_GAP.label:
        return "unrecorded code" + ("" if name.startswith("(") else f" in {name_label(name)}")
    return name_label(name)
