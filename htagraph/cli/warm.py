"""`htagraph warm`: all native code compiled in advance, for an image or a shared folder."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from htagraph.arrays.clocks import follow
from htagraph.arrays.code_cache import at_home
from htagraph.arrays.passes import PASSES
from htagraph.arrays.sequences import Timed, align
from htagraph.cli import options
from htagraph.cli.console import output, shown_progress
from htagraph.errors import HTAGraphError
from htagraph.job.job import JOB_QUESTIONS
from htagraph.job.loading import load_job
from htagraph.model.kinds import Cause
from htagraph.model.progress import begin_stage
from htagraph.queries.questions import QUESTIONS
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.json_document import json_document
from htagraph.reports.summary import Summary
from htagraph.run.trace import load
from htagraph.synth.demo_traces import demo_trace

_MANY = 12_000
"""Chosen: more names than the initial size of a symbol table."""


def warm(*, quiet: options.Quiet = False) -> None:
    """Compile all native code now, so that the first trace is as fast as the second.

    Meant for container images. Takes seconds with a released wheel, half a minute in a checkout;
    code that is already compiled is skipped.
    """
    started = time.perf_counter()
    with (
        TemporaryDirectory() as folder,
        at_home() as place,
        shown_progress(quiet=quiet),
    ):
        begin_stage("Compiling the readers")
        load(_broken_trace())
        begin_stage("Compiling the analysis of a rank")
        _ask_a_rank(Path(folder))
        begin_stage("Compiling the analysis of a job")
        _ask_a_job()
    n_passes = sum(len(forms) for forms in PASSES.values())
    seconds = time.perf_counter() - started
    where = f"kept in {place}" if place else "not kept: no folder for them can be written"
    output().print(
        f"{n_passes} functions ready after {seconds:.1f} s, {where}", markup=False, soft_wrap=True
    )


def _broken_trace() -> bytes:
    """A damaged trace, with more names and bytes than one piece of a file has."""
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"{k:0200}", "pid": 1, "tid": 1, "ts": k, "dur": 1}
        for k in range(_MANY)
    ]
    halves = [{"ph": ph, "name": "half", "pid": 1, "tid": 2, "ts": 1} for ph in "BE"]
    good = json.dumps({"traceEvents": halves + events}).encode()
    return good.replace(b'"dur": 1}', b'"dur": 0x1}', 1) + b", {nothing"


def _ask_a_rank(folder: Path) -> None:
    """Answer all questions about a rank of the demo."""
    trace = load(demo_trace("dataloader"))
    graph = trace.compile()
    for question in QUESTIONS:
        with suppress(HTAGraphError, TypeError):  # it needs an option
            graph.ask(question)
    _ = graph.select(kind="kernel").ancestors() & graph.select(kind="op").descendants()
    path = graph.critical_path()
    _ = path.outline
    path.to_perfetto(folder / "critical.pftrace")
    path.trials.next_causes(Cause.DATA_LOADING)  # in the demo no two causes run side by side
    load(folder / "critical.pftrace")
    load(demo_trace("dataloader"), window="first", cache=folder)
    follow(*np.zeros((3, 2), dtype=np.int64))  # the clocks of the demo do not drift
    summary = Summary(trace, graph)
    json_document(summary)
    _ = summary.first_changes


def _ask_a_job() -> None:
    """Answer all questions about the job of the demo."""
    job = load_job(demo_trace("job"))
    for question in JOB_QUESTIONS:
        with suppress(HTAGraphError, TypeError):
            job.ask(question)
    json_document(JobSummary(job, "a job"))
    once, both = np.zeros(1, dtype=np.int64), np.ones(1, dtype=bool)
    one = Timed(once, once, once, once, both, both)
    align(one, one, 1, 1)  # the ranks of the demo do not differ
