"""The page of a job in a browser: every section renders, with the numbers of the JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from htagraph.job.loading import load_job
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.json_document import job_document
from htagraph.reports.page import write_page
from tests.browser.test_page_in_browser import cards, column, sections, show
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SECTIONS = [
    "path",
    "help",
    "late",
    "numbers",
    "devices",
    "steps",
    "communication",
    "kernels",
    "launches",
    "quality",
]
RANKS, LATE = 8, 5
N_FIGURES = 13
MAX_BYTES = 8_000_000


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> JobSummary:
    """Eight ranks in tensor-parallel pairs, one of them late."""
    folder = tmp_path_factory.mktemp("job")
    job = training_job(
        ranks=RANKS, tensor=2, straggler=LATE, delay_ns=20_000_000, max_offset_ns=2_000_000
    )
    simulate_job(job).write(folder)
    return JobSummary(load_job(folder), "job")


@pytest.fixture(scope="module")
def file(summary: JobSummary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(
        tmp_path_factory.mktemp("page") / "report.html", summary, perfetto_file="job.pftrace"
    )


@pytest.mark.parametrize("tab", ["light", "dark"], indirect=True)
def test_every_section_renders_without_a_complaint_or_the_network(tab: Any, file: Path) -> None:
    """All figures are drawn; the page requests nothing from the network."""
    show(tab, file)

    assert sections(tab) == SECTIONS
    figures = tab.page.query_selector_all("[data-figure]")
    assert len(figures) == N_FIGURES
    assert all(
        figure.query_selector("svg.main-svg g.trace, svg.main-svg g.hm") for figure in figures
    )
    assert tab.complaints == []
    assert {request.partition(":")[0] for request in tab.requests} <= {"file", "data", "blob"}


def test_cards_are_those_of_the_json(tab: Any, file: Path, summary: JobSummary) -> None:
    """The late rank first, by its number; causes and costs to the nanosecond."""
    show(tab, file)
    items = [one for one in job_document(summary)["verdict"]["items"] if one["is_card"]]

    assert cards(tab) == [(item["causes"], item["cost_ns"]) for item in items]
    assert cards(tab)[0][0] == [f"late rank {LATE}"]
    assert f"Rank {LATE} is late" in tab.page.inner_text(".lead")


def test_tables_are_the_answers(tab: Any, file: Path, summary: JobSummary) -> None:
    """One number column of each panel equals the frame that the job answers with."""
    show(tab, file)
    path, job = summary.path, summary.job

    assert sum(int(value) for value in column(tab, "path-bounds", "dur")) == path.dur_ns
    assert column(tab, "path-ranks", "dur") == [str(v) for v in summary.by_rank["dur_ns"]]
    assert column(tab, "stragglers", "caused wait, all ranks") == [
        str(v) for v in summary.stragglers["caused_wait_ns"]
    ]
    assert column(tab, "temporal-breakdown", "compute share") == [
        str(v) for v in job.temporal_breakdown()["compute_share"]
    ]
    assert column(tab, "overlap", "exposed") == [str(v) for v in job.overlap()["exposed_ns"]]
    assert column(tab, "clocks", "offset") == [str(v) for v in job.clocks["offset_ns"]]
    assert (
        sum(int(v) for v in column(tab, "top-kernels", "sum"))
        == job.kernel_breakdown()["sum_ns"].sum()
    )


def test_bars_are_on_the_rank_that_the_path_is_on(
    tab: Any, file: Path, summary: JobSummary
) -> None:
    """What plotly drew, read back from the drawing: the time of the path in each row."""
    show(tab, file)
    drawn = tab.page.evaluate(
        "document.querySelector('[data-figure=job-path]')._fullData.flatMap((bars) => "
        "[...bars.y].map((row, at) => [row, bars.x[at]]))"
    )
    sums: dict[int, float] = {}
    for row, length in drawn:
        sums[row] = sums.get(row, 0.0) + length
    shares = summary.by_rank["share"].sort_index()

    assert [sums[row] / sum(sums.values()) for row in sorted(sums)] == pytest.approx(
        shares.tolist(), abs=0.01
    )


def test_the_page_of_eight_ranks_is_small(file: Path) -> None:
    """Under 8 MB."""
    assert file.stat().st_size < MAX_BYTES
