"""`diff`: two runs, whatever they are given as, and what changed between them."""

from __future__ import annotations

from typing import overload

from htagraph.comparison.graph_diff import GraphDiff
from htagraph.comparison.job_profiling import job_profile
from htagraph.comparison.profiling import graph_profile
from htagraph.comparison.run_diff import RunDiff
from htagraph.comparison.run_profile import RunProfile
from htagraph.errors import QueryError
from htagraph.job.job import Job
from htagraph.run.graph import TraceGraph
from htagraph.run.trace import Trace


def run_profile(run: Trace | TraceGraph | Job | RunProfile, *, name: str = "") -> RunProfile:
    """The profile of a run: all that a comparison needs, to keep with `RunProfile.save`.

    Parameters
    ----------
    run : Trace, TraceGraph, Job or RunProfile
    name : str
        By default that of its file.

    Returns
    -------
    RunProfile

    Examples
    --------
    >>> import htagraph as hg
    >>> run_profile(hg.load(hg.demo_trace("none")), name="rank 0")
    RunProfile(rank 0, 3 compared of 3 steps, 4.42 ms each)
    """
    match run:
        case RunProfile():
            return run
        case Job():
            return job_profile(run, name=name or "job")
        case Trace():
            return graph_profile(run.compile(), name=name, world_size=run.world_size)
        case TraceGraph():
            return graph_profile(run, name=name)
    raise QueryError(  # callers without a type checker
        f"{run!r} is not a run.", hint="hg.load(FILE) reads one, hg.load_job(FOLDER) a job."
    )


@overload
def diff(before: TraceGraph, after: TraceGraph) -> GraphDiff: ...


@overload
def diff(before: Trace, after: Trace) -> GraphDiff: ...


@overload
def diff(before: Job | RunProfile, after: Trace | TraceGraph | Job | RunProfile) -> RunDiff: ...


@overload
def diff(before: Trace | TraceGraph, after: Job | RunProfile) -> RunDiff: ...


def diff(
    before: Trace | TraceGraph | Job | RunProfile, after: Trace | TraceGraph | Job | RunProfile
) -> GraphDiff | RunDiff:
    """Compare two runs: traces, graphs or windows of them, jobs, stored baselines.

    Parameters
    ----------
    before, after : Trace, TraceGraph, Job or RunProfile

    Returns
    -------
    GraphDiff or RunDiff
        For two traces or graphs a `GraphDiff`, which compares their whole windows, and has the
        comparison of their steps as `runs`. For anything else that comparison, a `RunDiff`.

    Examples
    --------
    >>> from htagraph import Trace, synth
    >>> slow, fast = (
    ...     Trace.from_events(synth.timeline(drawing)).compile()
    ...     for drawing in ("cpu 1 |[aten::mm      ][aten::relu]", "cpu 1 |[aten::mm][aten::relu]")
    ... )
    >>> diff(slow, fast).critical_path(by="name")["delta_ns"].to_dict()
    {'aten::mm': -6000, 'aten::relu': 0}
    """
    if isinstance(before, Trace) and isinstance(after, Trace):
        before, after = before.compile(), after.compile()
    if isinstance(before, TraceGraph) and isinstance(after, TraceGraph):
        return GraphDiff(before, after)
    return RunDiff(run_profile(before), run_profile(after))
