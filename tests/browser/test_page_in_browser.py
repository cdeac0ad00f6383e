"""The page in a browser: every section renders, with the numbers of the JSON and the frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import htagraph as hg
from htagraph.model.kinds import bound_in_words
from htagraph.reports.json_document import json_document
from htagraph.reports.page import write_page
from htagraph.reports.summary import Summary
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SECTIONS = [
    "path",
    "help",
    "numbers",
    "steps",
    "devices",
    "communication",
    "kernels",
    "launches",
    "quality",
]
N_FIGURES = 11


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
    """Open a page, unfold all of it, and scroll through it until every figure is drawn."""
    tab.page.goto(file.as_uri())
    tab.page.evaluate("all('details').forEach((fold) => { fold.open = true; })")
    for name in tab.page.evaluate("boxes.map((box) => box.dataset.figure)"):
        box = f"document.querySelector('[data-figure={name}]')"
        # Not Playwright's own scrolling, which waits until nothing moves: figures above are still
        # being drawn.
        tab.page.evaluate(f"{box}.scrollIntoView({{behavior: 'instant'}})")
        tab.until(f"{box}.dataset.drawn === 'yes'")


def sections(tab: Any) -> list[str]:
    """Names of the sections of a page, open and folded, as they follow each other."""
    found = tab.page.query_selector_all("main > section, main > details.section")
    return [part.get_attribute("id") for part in found]


def cards(tab: Any) -> list[tuple[list[str], int]]:
    """Causes and cost of each card."""
    found = tab.page.query_selector_all(".card")
    return [
        (one.get_attribute("data-causes").split(", "), int(one.get_attribute("data-value")))
        for one in found
    ]


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
    assert sections(tab) == SECTIONS
    figures = tab.page.query_selector_all("[data-figure]")
    assert all(figure.query_selector("svg.main-svg g.trace") for figure in figures)
    assert len(figures) == N_FIGURES
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
    assert told == [True] * N_FIGURES


def test_cards_are_those_of_the_json(tab: Any, file: Path, summary: Summary) -> None:
    """Causes and costs, to the nanosecond, and the share as it reads."""
    show(tab, file)
    items = [one for one in json_document(summary)["verdict"]["items"] if one["is_card"]]
    assert cards(tab) == [(item["causes"], item["cost_ns"]) for item in items]
    assert [item["causes"] for item in items] == [["communication"], ["GPU compute"]]
    shares = [one.inner_text() for one in tab.page.query_selector_all(".cost strong")]
    assert shares == [f"{item['cost_ns'] / summary.path.dur_ns:.0%}" for item in items]


def test_the_path_by_bound_is_that_of_the_json_and_adds_up(
    tab: Any, file: Path, summary: Summary
) -> None:
    """Sum of the table == the window."""
    show(tab, file)
    told = [int(value) for value in column(tab, "path-bounds", "dur")]
    assert told == [
        group["dur_ns"] for group in json_document(summary)["critical_path"]["by_bound"]
    ]
    assert sum(told) == summary.path.dur_ns


def test_tables_are_the_answers(tab: Any, file: Path, summary: Summary) -> None:
    """One number column of each panel equals the frame that the question returns."""
    show(tab, file)
    graph = summary.graph
    assert column(tab, "temporal-breakdown", "compute share") == [
        str(v) for v in graph.temporal_breakdown()["compute_share"]
    ]
    idle = graph.idle_time()["idle_ns"].sort_values(ascending=False)
    assert column(tab, "idle-time", "idle") == [str(v) for v in idle]
    assert column(tab, "overlap", "exposed") == [str(v) for v in graph.overlap()["exposed_ns"]]
    assert column(tab, "top-kernels", "sum") == [
        str(v) for v in graph.kernel_breakdown(by="name")["sum_ns"]
    ]
    assert column(tab, "path-by-step", "dur") == [str(v) for v in summary.by_step["dur_ns"]]
    good = zip(column(tab, "checks", "check"), column(tab, "checks", "good"), strict=True)
    quality = graph.quality().set_index("check")["n_good"]
    assert dict(good) == {str(check).replace("_", " "): str(n) for check, n in quality.items()}


def test_bars_are_as_long_as_the_answers(tab: Any, file: Path, summary: Summary) -> None:
    """What plotly drew, read back from the drawing: the share of each bound over all steps."""
    show(tab, file)
    drawn = tab.page.evaluate(
        "document.querySelector('[data-figure=path-by-step]')._fullData"
        ".map((bar) => [bar.name, [...bar.x]])"
    )
    bounds = summary.by_bound["dur_ns"]
    assert [name for name, _ in drawn] == [bound_in_words(name) for name in bounds.index]
    assert [len(of_steps) for _, of_steps in drawn] == [len(summary.by_step)] * len(bounds)
    assert [round(sum(of_steps) * 1e6) for _, of_steps in drawn] == bounds.tolist()


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
