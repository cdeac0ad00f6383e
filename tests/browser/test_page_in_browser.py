"""The page in a browser: every section renders, with the numbers of the JSON and the frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import htagraph as hg
from htagraph.reports.json_document import json_document
from htagraph.reports.page import write_page
from htagraph.reports.summary import Summary
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SECTIONS = ["path", "help", "steps", "devices", "communication", "kernels", "launches", "quality"]


@pytest.fixture(scope="module")
def summary() -> Summary:
    """Three steps that wait for their all-reduces."""
    rank = simulate(training_rank(fault="exposed_allreduce"))
    trace = hg.Trace.from_events(rank.events)
    return Summary(trace, trace.compile())


@pytest.fixture(scope="module")
def file(summary: Summary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(
        tmp_path_factory.mktemp("page") / "report.html", summary, perfetto_file="critical.pftrace"
    )


def show(tab: Any, file: Path) -> None:
    """Open a page and scroll through it until every figure is drawn."""
    tab.page.goto(file.as_uri())
    for name in tab.page.evaluate("boxes.map((box) => box.dataset.figure)"):
        box = f"document.querySelector('[data-figure={name}]')"
        # Not Playwright's own scrolling, which waits until nothing moves: figures above are still
        # being drawn.
        tab.page.evaluate(f"{box}.scrollIntoView({{behavior: 'instant'}})")
        tab.until(f"{box}.dataset.drawn === 'yes'")


def column(tab: Any, panel: str, name: str) -> list[str]:
    """The exact values of a column of the table behind a panel."""
    values: list[str] = tab.page.evaluate(
        """([panel, name]) => {
            const table = document.querySelector(`#${panel} table`);
            const heads = [...table.tHead.rows[0].cells];
            const at = heads.findIndex((head) => head.textContent === name);
            const cells = [...table.tBodies[0].rows].map((row) => row.cells[at]);
            return cells.map((cell) => cell.dataset.value ?? cell.textContent);
        }""",
        [panel, name],
    )
    return values


BUTTONS = {"Download plot as a PNG", "Zoom", "Pan", "Reset axes"}


def test_no_button_of_a_figure_sends_anything(tab: Any, file: Path) -> None:
    """Save, zoom, pan, reset: "Share chart…" of Plotly would upload the names in the trace."""
    show(tab, file)
    titles = tab.page.evaluate(
        "[...document.querySelectorAll('.modebar-btn')].map((button) => button.dataset.title)"
    )
    assert set(titles) <= BUTTONS
    assert "Zoom" in titles


@pytest.mark.parametrize("tab", ["light", "dark"], indirect=True)
def test_every_section_renders_without_a_complaint_or_the_network(tab: Any, file: Path) -> None:
    """All figures are drawn; the page requests nothing from the network."""
    show(tab, file)
    assert [part.get_attribute("id") for part in tab.page.query_selector_all("section")] == SECTIONS
    figures = tab.page.query_selector_all("[data-figure]")
    assert all(figure.query_selector("svg.main-svg g.trace") for figure in figures)
    assert len(figures) == 17
    assert tab.complaints == []
    # Drawings are blobs at most; images and files of others would be http.
    assert {request.partition(":")[0] for request in tab.requests} <= {"file", "data", "blob"}


def test_each_drawing_is_an_image_that_says_what_it_shows(tab: Any, file: Path) -> None:
    """For screen readers: its fact, which is the title; not each tick of its axes."""
    show(tab, file)
    told = tab.page.evaluate(
        """[...document.querySelectorAll("[data-figure]")].map((figure) => {
            const [image, ...layers] = figure.querySelectorAll("svg.main-svg");
            const fact = figure.closest("article").querySelector("h3").textContent;
            const isAlone = layers.every((layer) => layer.ariaHidden === "true");
            return image.role === "img" && image.ariaLabel === fact && isAlone;
        })"""
    )
    assert told == [True] * 17


def test_findings_are_those_of_the_json(tab: Any, file: Path, summary: Summary) -> None:
    """Cause and attributed time of the cards, to the nanosecond, and the share as it reads."""
    show(tab, file)
    cards = tab.page.query_selector_all(".card")
    told = [
        (card.get_attribute("data-cause"), int(card.get_attribute("data-value"))) for card in cards
    ]
    items = json_document(summary)["findings"]["items"]
    assert told == [(item["cause"], item["dur_ns"]) for item in items[: len(told)]]
    assert told[0][0] == "communication"
    shares = [card.query_selector(".attributed strong").inner_text() for card in cards]
    assert shares == [f"{item['share']:.1%}" for item in items[: len(told)]]


def test_the_path_by_bound_is_that_of_the_json_and_adds_up(
    tab: Any, file: Path, summary: Summary
) -> None:
    """Sum of the table == the window."""
    show(tab, file)
    told = [int(value) for value in column(tab, "critical-path", "dur")]
    assert told == [
        group["dur_ns"] for group in json_document(summary)["critical_path"]["by_bound"]
    ]
    assert sum(told) == summary.path.dur_ns


def test_tables_are_the_answers(tab: Any, file: Path, summary: Summary) -> None:
    """One number column of each panel equals the frame that the question returns."""
    show(tab, file)
    graph = summary.graph
    assert column(tab, "temporal-breakdown", "compute") == [
        str(v) for v in graph.temporal_breakdown()["compute_ns"]
    ]
    assert column(tab, "idle-time", "idle") == [str(v) for v in graph.idle_time()["idle_ns"]]
    assert column(tab, "overlap", "exposed") == [str(v) for v in graph.overlap()["exposed_ns"]]
    assert column(tab, "kernel-classes", "sum") == [
        str(v) for v in graph.kernel_breakdown()["sum_ns"]
    ]
    assert column(tab, "path-by-step", "dur") == [str(v) for v in summary.by_step["dur_ns"]]
    assert column(tab, "checks", "good") == [str(v) for v in graph.quality()["n_good"]]


def test_bars_are_as_long_as_the_answers(tab: Any, file: Path, summary: Summary) -> None:
    """What plotly drew, read back from the drawing: shares of the path by bound, in percent."""
    show(tab, file)
    drawn = tab.page.evaluate(
        "document.querySelector('[data-figure=critical-path]')._fullData"
        ".map((bar) => [bar.name, bar.x[0]])"
    )
    shares = summary.by_bound["share"]
    assert [name for name, _ in drawn] == [name.replace("_", " ") for name in shares.index]
    assert [share for _, share in drawn] == [share * 100 for share in shares]


def test_the_button_turns_the_page_and_its_figures_dark(tab: Any, file: Path) -> None:
    """Text of figures has the color of the text of the page, in both."""
    show(tab, file)
    colors = (
        "[getComputedStyle(document.body).color, "
        "document.querySelector('[data-figure]')._fullLayout.font.color]"
    )
    before = tab.page.evaluate(colors)
    tab.page.click("#theme")
    after = tab.page.evaluate(colors)
    assert before[0] == before[1]
    assert after[0] == after[1]
    assert before != after


def test_a_click_on_a_head_sorts_by_exact_values(tab: Any, file: Path, summary: Summary) -> None:
    """9 us before 10 us: texts would sort the other way."""
    show(tab, file)
    tab.page.click("#path-names th:has-text('segments')")
    told = [int(value) for value in column(tab, "path-names", "segments")]
    assert told == sorted(summary.by_name["n_segments"].tolist(), reverse=True)


def test_names_that_are_markup_stay_text(tab: Any, tmp_path: Path) -> None:
    """A kernel may have any name: none of it is executed or lost in tables, cards or figures."""
    evil = "<img src=x onerror=window.hacked=1></script><b>k</b>&lt;i"
    drawing = """
    cpu 1    |{ProfilerStep#0          }
    cpu 1    | [aten::a [launch >a]] [sync @*        ]
    stream 7 |             [kern <a              ]
    """
    trace = hg.Trace.from_events(hg.synth.timeline(drawing, names={"kern": evil, "aten::a": evil}))
    show(tab, write_page(tmp_path / "report.html", Summary(trace, trace.compile())))
    assert tab.page.evaluate("window.hacked") is None
    assert tab.page.query_selector_all("img") == []
    assert evil in column(tab, "path-names", "name")
    tick = tab.page.query_selector("[data-figure=top-kernels] .ytick text").text_content()
    assert tick.startswith("<img src=x onerror")
    assert tab.complaints == []


def test_the_figures_are_the_ones_in_the_file(file: Path) -> None:
    """What the browser reads is JSON whose figures have data."""
    text = file.read_text()
    content = text.partition('<script id="figures" type="application/json">')[2].partition(
        "</script>"
    )[0]
    assert all(figure["data"] for figure in json.loads(content).values())
