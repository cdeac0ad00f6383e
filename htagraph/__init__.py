"""htagraph: a graph-centric critical path and dependency analyzer for PyTorch traces."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from htagraph import errors, synth
    from htagraph.capture.handler import handler
    from htagraph.capture.profile import profile
    from htagraph.comparison.diff import diff, run_profile
    from htagraph.comparison.graph_diff import GraphDiff
    from htagraph.comparison.run_diff import RunDiff
    from htagraph.comparison.run_profile import RunProfile
    from htagraph.comparison.scenario import Scenario, what_if
    from htagraph.compiler.classes import ClassRule
    from htagraph.findings.path import CriticalPath
    from htagraph.job.dumps import Dumps, load_dumps
    from htagraph.job.job import Job
    from htagraph.job.loading import load_job
    from htagraph.job.path import JobPath
    from htagraph.job.scenario import JobScenario
    from htagraph.job.why import JobWhy
    from htagraph.model.kinds import Bound, EdgeKind, EventKind, KernelClass
    from htagraph.operators.peaks import device_peaks
    from htagraph.readers.captures import discover
    from htagraph.replay.changes import insert, no_wait, remove, reweigh, scale, without
    from htagraph.replay.collective_changes import bandwidth, equalise
    from htagraph.replay.device_changes import allow_tf32, at_roof, fuse, overlap
    from htagraph.replay.host_changes import graphed, prefetch
    from htagraph.replay.host_code import code
    from htagraph.reports import plots
    from htagraph.reports.job_summary import JobSummary
    from htagraph.reports.page import write_page
    from htagraph.reports.report import Report, report
    from htagraph.reports.summary import Summary
    from htagraph.run.compiled import load_graph
    from htagraph.run.graph import TraceGraph
    from htagraph.run.matches import Matches
    from htagraph.run.selection import Selection, collective, hop, kernel, launch, op
    from htagraph.run.stepwise import Stepwise, stepwise_verdict
    from htagraph.run.trace import Trace, load
    from htagraph.run.why import Why
    from htagraph.synth.demo_traces import demo_trace

__version__ = "0.1.0.dev0"

__all__ = [
    "Bound",
    "ClassRule",
    "CriticalPath",
    "Dumps",
    "EdgeKind",
    "EventKind",
    "GraphDiff",
    "Job",
    "JobPath",
    "JobScenario",
    "JobSummary",
    "JobWhy",
    "KernelClass",
    "Matches",
    "Report",
    "RunDiff",
    "RunProfile",
    "Scenario",
    "Selection",
    "Stepwise",
    "Summary",
    "Trace",
    "TraceGraph",
    "Why",
    "allow_tf32",
    "at_roof",
    "bandwidth",
    "code",
    "collective",
    "demo_trace",
    "device_peaks",
    "diff",
    "discover",
    "equalise",
    "errors",
    "fuse",
    "graphed",
    "handler",
    "hop",
    "insert",
    "kernel",
    "launch",
    "load",
    "load_dumps",
    "load_graph",
    "load_job",
    "no_wait",
    "op",
    "overlap",
    "plots",
    "prefetch",
    "profile",
    "remove",
    "report",
    "reweigh",
    "run_profile",
    "scale",
    "stepwise_verdict",
    "synth",
    "what_if",
    "without",
    "write_page",
]


_HOMES = {
    "Bound": "model.kinds",
    "ClassRule": "compiler.classes",
    "CriticalPath": "findings.path",
    "Dumps": "job.dumps",
    "EdgeKind": "model.kinds",
    "EventKind": "model.kinds",
    "GraphDiff": "comparison.graph_diff",
    "Job": "job.job",
    "JobPath": "job.path",
    "JobScenario": "job.scenario",
    "JobSummary": "reports.job_summary",
    "JobWhy": "job.why",
    "KernelClass": "model.kinds",
    "Matches": "run.matches",
    "Report": "reports.report",
    "RunDiff": "comparison.run_diff",
    "RunProfile": "comparison.run_profile",
    "Scenario": "comparison.scenario",
    "Selection": "run.selection",
    "Stepwise": "run.stepwise",
    "Summary": "reports.summary",
    "Trace": "run.trace",
    "TraceGraph": "run.graph",
    "Why": "run.why",
    "allow_tf32": "replay.device_changes",
    "at_roof": "replay.device_changes",
    "bandwidth": "replay.collective_changes",
    "code": "replay.host_code",
    "collective": "run.selection",
    "demo_trace": "synth.demo_traces",
    "device_peaks": "operators.peaks",
    "diff": "comparison.diff",
    "discover": "readers.captures",
    "equalise": "replay.collective_changes",
    "fuse": "replay.device_changes",
    "graphed": "replay.host_changes",
    "handler": "capture.handler",
    "hop": "run.selection",
    "insert": "replay.changes",
    "kernel": "run.selection",
    "launch": "run.selection",
    "load": "run.trace",
    "load_dumps": "job.dumps",
    "load_graph": "run.compiled",
    "load_job": "job.loading",
    "no_wait": "replay.changes",
    "op": "run.selection",
    "overlap": "replay.device_changes",
    "prefetch": "replay.host_changes",
    "profile": "capture.profile",
    "remove": "replay.changes",
    "report": "reports.report",
    "reweigh": "replay.changes",
    "run_profile": "comparison.diff",
    "scale": "replay.changes",
    "stepwise_verdict": "run.stepwise",
    "what_if": "comparison.scenario",
    "without": "replay.changes",
    "write_page": "reports.page",
}
_ROOMS = {"errors": "errors", "plots": "reports.plots", "synth": "synth"}


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
