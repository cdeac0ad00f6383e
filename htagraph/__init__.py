"""htagraph: a graph-centric critical path and dependency analyzer for PyTorch traces."""

from __future__ import annotations

from htagraph import errors, synth
from htagraph.comparison import GraphDiff, diff
from htagraph.compiler.classes import ClassRule
from htagraph.graph import TraceGraph
from htagraph.job.job import Job
from htagraph.job.loading import load_job
from htagraph.job.path import JobPath
from htagraph.model.kinds import Bound, EdgeKind, EventKind, KernelClass
from htagraph.path import CriticalPath
from htagraph.report import plots
from htagraph.report.job_summary import JobSummary
from htagraph.report.page import write_page
from htagraph.report.summary import Summary
from htagraph.selection import Selection, collective, hop, kernel, launch, op
from htagraph.trace import Trace, load

__all__ = [
    "Bound",
    "ClassRule",
    "CriticalPath",
    "EdgeKind",
    "EventKind",
    "GraphDiff",
    "Job",
    "JobPath",
    "JobSummary",
    "KernelClass",
    "Selection",
    "Summary",
    "Trace",
    "TraceGraph",
    "collective",
    "diff",
    "errors",
    "hop",
    "kernel",
    "launch",
    "load",
    "load_job",
    "op",
    "plots",
    "synth",
    "write_page",
]
