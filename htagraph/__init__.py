"""htagraph: a graph-centric critical path and dependency analyzer for PyTorch traces."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from htagraph import errors
from htagraph.comparison import GraphDiff, diff
from htagraph.compiler.classes import ClassRule
from htagraph.graph import TraceGraph
from htagraph.job.job import Job
from htagraph.job.loading import load_job
from htagraph.job.path import JobPath
from htagraph.model.kinds import Bound, EdgeKind, EventKind, KernelClass
from htagraph.path import CriticalPath
from htagraph.readers.captures import discover
from htagraph.report.job_summary import JobSummary
from htagraph.report.summary import Summary
from htagraph.selection import Selection, collective, hop, kernel, launch, op
from htagraph.trace import Trace, load

if TYPE_CHECKING:
    from htagraph import synth
    from htagraph.report import plots
    from htagraph.report.page import write_page

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
    "discover",
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


def __getattr__(name: str) -> object:
    """A name that few need: what it stands for is imported when it is asked for."""
    match name:
        case "synth":
            return import_module("htagraph.synth")
        case "plots":
            return import_module("htagraph.report.plots")
        case "write_page":
            return import_module("htagraph.report.page").write_page
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All public names."""
    return __all__
