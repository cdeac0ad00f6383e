"""What is no longer used is freed at once: graphs are large, and Python looks for cycles late."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import htagraph as hg
from htagraph.errors import HTAGraphError
from htagraph.job.job import JOB_QUESTIONS, Job
from htagraph.queries.questions import QUESTIONS
from htagraph.run.graph import TraceGraph


@pytest.fixture(autouse=True)
def _without_collector() -> Iterator[None]:
    """Cycles stay while these tests run."""
    gc.disable()
    yield
    gc.enable()


def _asked(of: TraceGraph | Job, questions: tuple[str, ...]) -> None:
    for question in questions:
        with suppress(HTAGraphError, TypeError):  # it needs an option
            of.ask(question)


@pytest.mark.parametrize(
    "use",
    [
        lambda graph: _asked(graph, tuple(QUESTIONS)),
        lambda graph: graph.critical_path().segments,
        lambda graph: graph.verdict(),
        lambda graph: graph.window("first").opportunities(),
    ],
    ids=["questions", "path", "verdict", "opportunities"],
)
def test_a_graph_is_freed_after_its_last_use(use: Callable[[TraceGraph], object]) -> None:
    graph = hg.load(hg.demo_trace("dataloader")).compile()
    left = weakref.ref(graph.dag)
    use(graph)
    del graph

    assert left() is None


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "use",
    [
        lambda job: _asked(job, JOB_QUESTIONS),
        lambda job: job.verdict(),
        lambda job: hg.JobSummary(job).opportunities,
    ],
    ids=["questions", "verdict", "summary"],
)
def test_a_job_is_freed_after_its_last_use(use: Callable[[Job], object]) -> None:
    job = hg.load_job(hg.demo_trace("job"))
    left = weakref.ref(job.timeline)
    use(job)
    del job

    assert left() is None
