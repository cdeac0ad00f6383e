"""htagraph: a graph-centric critical path and dependency analyzer for PyTorch traces."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers, which read no tables: `as` makes a name public
    from htagraph import errors as errors
    from htagraph import synth as synth
    from htagraph.capture.handler import handler as handler
    from htagraph.capture.profile import profile as profile
    from htagraph.comparison.diff import diff as diff
    from htagraph.comparison.diff import run_profile as run_profile
    from htagraph.comparison.graph_diff import GraphDiff as GraphDiff
    from htagraph.comparison.run_diff import RunDiff as RunDiff
    from htagraph.comparison.run_profile import RunProfile as RunProfile
    from htagraph.comparison.scenario import Scenario as Scenario
    from htagraph.comparison.scenario import what_if as what_if
    from htagraph.compiler.classes import ClassRule as ClassRule
    from htagraph.findings.path import CriticalPath as CriticalPath
    from htagraph.job.dumps import Dumps as Dumps
    from htagraph.job.dumps import load_dumps as load_dumps
    from htagraph.job.job import Job as Job
    from htagraph.job.loading import load_job as load_job
    from htagraph.job.path import JobPath as JobPath
    from htagraph.job.path import JobWhy as JobWhy
    from htagraph.job.scenario import JobScenario as JobScenario
    from htagraph.model.kinds import Bound as Bound
    from htagraph.model.kinds import EdgeKind as EdgeKind
    from htagraph.model.kinds import EventKind as EventKind
    from htagraph.model.kinds import KernelClass as KernelClass
    from htagraph.operators.peaks import device_peaks as device_peaks
    from htagraph.readers.captures import discover as discover
    from htagraph.replay.changes import bandwidth as bandwidth
    from htagraph.replay.changes import equalise as equalise
    from htagraph.replay.changes import insert as insert
    from htagraph.replay.changes import no_wait as no_wait
    from htagraph.replay.changes import remove as remove
    from htagraph.replay.changes import reweigh as reweigh
    from htagraph.replay.changes import scale as scale
    from htagraph.replay.changes import without as without
    from htagraph.replay.device_changes import allow_tf32 as allow_tf32
    from htagraph.replay.device_changes import at_roof as at_roof
    from htagraph.replay.device_changes import fuse as fuse
    from htagraph.replay.device_changes import overlap as overlap
    from htagraph.replay.draft import code as code
    from htagraph.replay.host_changes import graphed as graphed
    from htagraph.replay.host_changes import prefetch as prefetch
    from htagraph.reports import plots as plots
    from htagraph.reports.history import History as History
    from htagraph.reports.history import history as history
    from htagraph.reports.job_summary import JobSummary as JobSummary
    from htagraph.reports.kept_runs import KeptRun as KeptRun
    from htagraph.reports.kept_runs import KeptRuns as KeptRuns
    from htagraph.reports.kept_runs import scalars as scalars
    from htagraph.reports.page import write_page as write_page
    from htagraph.reports.report import Report as Report
    from htagraph.reports.report import report as report
    from htagraph.reports.summary import Summary as Summary
    from htagraph.run.compiled import load_graph as load_graph
    from htagraph.run.graph import TraceGraph as TraceGraph
    from htagraph.run.matches import Matches as Matches
    from htagraph.run.selection import Selection as Selection
    from htagraph.run.selection import collective as collective
    from htagraph.run.selection import hop as hop
    from htagraph.run.selection import kernel as kernel
    from htagraph.run.selection import launch as launch
    from htagraph.run.selection import op as op
    from htagraph.run.stepwise import Stepwise as Stepwise
    from htagraph.run.stepwise import stepwise_verdict as stepwise_verdict
    from htagraph.run.trace import Trace as Trace
    from htagraph.run.trace import load as load
    from htagraph.run.why import Why as Why
    from htagraph.synth.demo_traces import demo_trace as demo_trace

__version__ = "0.1.0.dev0"

_NAMES = {
    "capture.handler": "handler",
    "capture.profile": "profile",
    "comparison.diff": "diff run_profile",
    "comparison.graph_diff": "GraphDiff",
    "comparison.run_diff": "RunDiff",
    "comparison.run_profile": "RunProfile",
    "comparison.scenario": "Scenario what_if",
    "compiler.classes": "ClassRule",
    "findings.path": "CriticalPath",
    "job.dumps": "Dumps load_dumps",
    "job.job": "Job",
    "job.loading": "load_job",
    "job.path": "JobPath JobWhy",
    "job.scenario": "JobScenario",
    "model.kinds": "Bound EdgeKind EventKind KernelClass",
    "operators.peaks": "device_peaks",
    "readers.captures": "discover",
    "replay.changes": "bandwidth equalise insert no_wait remove reweigh scale without",
    "replay.device_changes": "allow_tf32 at_roof fuse overlap",
    "replay.draft": "code",
    "replay.host_changes": "graphed prefetch",
    "reports.history": "History history",
    "reports.job_summary": "JobSummary",
    "reports.kept_runs": "KeptRun KeptRuns scalars",
    "reports.page": "write_page",
    "reports.report": "Report report",
    "reports.summary": "Summary",
    "run.compiled": "load_graph",
    "run.graph": "TraceGraph",
    "run.matches": "Matches",
    "run.selection": "Selection collective hop kernel launch op",
    "run.stepwise": "Stepwise stepwise_verdict",
    "run.trace": "Trace load",
    "run.why": "Why",
    "synth.demo_traces": "demo_trace",
}
"""Public names by the module that they come from."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
_ROOMS = {"errors": "errors", "plots": "reports.plots", "synth": "synth"}
__all__ = sorted((*_HOMES, *_ROOMS))  # noqa: PLE0605  type checkers have the imports above


def __getattr__(name: str) -> object:
    """A public name, imported when first asked for: the command starts, and stops, at once."""
    if name in _ROOMS:
        value: object = import_module(f"htagraph.{_ROOMS[name]}")
    elif name in _HOMES:
        value = getattr(import_module(f"htagraph.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names."""
    return __all__
