"""The figure of a pipeline: boxes, numbers, and an outline around what the step waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from htagraph import JobSummary, load_job
from htagraph.model.job_answers import PIPELINE_SCHEDULE
from htagraph.reports import plots
from htagraph.reports.page.document import write_page
from tests.job.drawn_pipelines import drawn
from tests.real_traces import CAPTURES

pytest.importorskip("plotly")


def test_a_box_is_an_action_and_critical_ones_have_outlines() -> None:
    """Two actions of stage 0 may come later, all others hold up the step."""
    schedule = drawn(2, 2, lambda _, phase, __: 10.0 if phase == "F" else 20.0).timetable()
    figure = plots.pipeline_schedule(schedule)
    forward, backward, waited_for = figure.data
    assert (
        figure.layout.title.text
        == "Stages do nothing for micro-batches in 33% of a pipeline of 90.0 ms"
    )
    assert list(figure.layout.yaxis.ticktext) == ["stage 0 (rank 0)", "stage 1 (rank 1)"]
    boxes = zip(forward.y, forward.base, forward.text, strict=True)
    assert sorted(boxes) == [(0, 0, "0"), (0, 10, "1"), (1, 10, "0"), (1, 40, "1")]
    assert sorted(backward.y) == [0, 0, 1, 1]
    outlines = zip(waited_for.y, waited_for.base, strict=True)
    assert sorted(outlines) == [(0, 0), (0, 70), (1, 10), (1, 20), (1, 40), (1, 50)]


def test_ranks_that_are_no_pipeline_have_no_figure() -> None:
    """It says so."""
    figure = plots.pipeline_schedule(PIPELINE_SCHEDULE.empty())
    assert figure.layout.title.text == "The ranks are no pipeline"


@pytest.mark.parametrize(
    ("name", "has"), [("pipelines/pp2_1f1b_slow", True), ("jobs/ddp_2", False)]
)
def test_a_page_has_a_section_on_its_pipeline(tmp_path: Path, name: str, *, has: bool) -> None:
    """And none if the job is no pipeline."""
    page = write_page(tmp_path / "page.html", JobSummary(load_job(CAPTURES / name)))
    assert ("<h2>Pipeline</h2>" in page.read_text()) == has
