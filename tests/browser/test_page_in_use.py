"""The page in use: a step is chosen, a segment opened, a table shown whole, all of it printed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import htagraph as hg
from htagraph.reports.page import write_page
from htagraph.reports.summary import Summary
from tests.browser.test_page_in_browser import column, show
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

pytest.importorskip("plotly")
pytestmark = [pytest.mark.browser, pytest.mark.slow]

TIMELINE = "[data-figure=critical-path-timeline]"


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder without a log."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def summary() -> Summary:
    """Three steps that wait for their all-reduces."""
    rank = simulate(training_rank(fault="exposed_allreduce", layers=8))
    trace = hg.Trace.from_events(rank.events)
    return Summary(trace, trace.compile())


@pytest.fixture(scope="module")
def file(summary: Summary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    return write_page(folder / "report.html", summary, perfetto_file="critical.pftrace")


@pytest.fixture
def served(file: Path) -> Iterator[str]:
    """The page as a server of its folder has it."""
    handler = partial(Quiet, directory=str(file.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/report.html"
        server.shutdown()


def told(tab: Any) -> dict[str, str]:
    """The text of the dialog for the open segment."""
    found: dict[str, str] = tab.page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#segment dt')]"
        ".map((term) => [term.textContent, term.nextSibling.textContent]))"
    )
    return found | {"name": tab.page.get_attribute("#segment-name", "title")}


def test_without_a_network_every_figure_on_top_leads_to_its_section(tab: Any, file: Path) -> None:
    """Seven figures, from the tables of the sections that they link to."""
    tab.page.context.set_offline(True)
    show(tab, file)
    links = tab.page.eval_on_selector_all(
        ".figures a", "(all) => all.map((a) => [a.hash, Number(a.dataset.value)])"
    )

    assert [link for link, _ in links] == [
        "#steps",
        "#devices",
        "#devices",
        "#devices",
        "#devices",
        "#path",
        "#help",
    ]
    assert all(tab.page.query_selector(link) for link, _ in links)
    assert links[3][1] == float(column(tab, "temporal-breakdown", "idle share")[0])
    assert links[4][1] == float(column(tab, "utilization", "SM activity")[0])
    table = zip(column(tab, "what-helps", "kind"), column(tab, "what-helps", "share"), strict=True)
    assert links[6][1] == next(float(share) for kind, share in table if kind != "without")


def test_a_click_on_a_bar_opens_its_segment(tab: Any, file: Path, summary: Summary) -> None:
    """The longest bar: name, bound, rule and the command that shows it in Perfetto."""
    show(tab, file)
    longest = summary.path.segments.sort_values("dur_ns").iloc[-1]
    bar = tab.page.evaluate_handle(
        """([selector, row]) => {
            const box = document.querySelector(selector);
            const trace = box.data.findIndex((bars) => bars.meta.includes(row));
            const at = box.data[trace].meta.indexOf(row);
            return box.querySelectorAll("g.trace.bars")[trace].querySelectorAll("path")[at];
        }""",
        [TIMELINE, int(longest.name)],
    ).as_element()
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    tab.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.page.wait_for_selector("#segment[open]")
    found = told(tab)

    assert found["name"] == longest["name"]
    assert found["rule"] == longest["rule"]
    assert found["bound"] == longest["bound"].replace("_", " ")
    start_ns = longest["start_ns"] - summary.path.origin_ns
    command = f"htagraph view critical.pftrace --at {start_ns}:{start_ns + longest['dur_ns']}"
    assert tab.page.inner_text("#segment .where code") == command
    assert tab.page.query_selector("#segment .where a") is None


def test_keys_open_a_segment_walk_along_the_path_and_close_it(tab: Any, file: Path) -> None:
    """Enter on a name, Enter on "later", Escape: the name has the focus again."""
    show(tab, file)
    tab.page.click("#critical-path-timeline summary")
    name = tab.page.locator("#critical-path-timeline .opens").first
    name.focus()
    tab.page.keyboard.press("Enter")
    first = told(tab)
    tab.page.focus("[data-go='1']")
    tab.page.keyboard.press("Enter")
    second = told(tab)
    tab.page.keyboard.press("Escape")

    assert first != second
    assert tab.page.query_selector("#segment[open]") is None
    assert name.evaluate("(button) => document.activeElement === button")


def test_the_server_of_the_trace_is_linked_at_the_time(
    tab: Any, served: str, summary: Summary
) -> None:
    """The address that `htagraph view` opens; no command, as nothing is to be typed."""
    tab.page.goto(served)
    tab.page.click("#critical-path-timeline summary")
    tab.page.locator("#critical-path-timeline .opens").first.click()
    longest = summary.path.segments.sort_values("dur_ns", ascending=False, kind="stable").iloc[0]
    start_ns = longest["start_ns"] - summary.path.origin_ns

    link = tab.page.get_attribute("#segment .where a", "href")
    assert link == f"/?ts={start_ns}&dur={longest['dur_ns']}"
    assert tab.page.query_selector("#segment .where code") is None
    assert {url for url in tab.requests if not url.startswith(("data:", "blob:"))} == {served}


def test_a_step_takes_the_place_of_the_window(tab: Any, file: Path, summary: Summary) -> None:
    """Its bounds add up to its time of the path, and the timeline shows it alone."""
    show(tab, file)
    name = summary.by_step["step"].iloc[1]
    tab.page.select_option("#step", value="1")
    step = tab.page.locator("article.step:visible")
    values = step.locator(".columns > .scroll td:nth-child(2)").evaluate_all(
        "(cells) => cells.map((cell) => Number(cell.dataset.value))"
    )

    assert step.locator("h3").inner_text().startswith(f"{name}: ")
    assert sum(values) == summary.by_step["dur_ns"].iloc[1]
    assert not tab.page.is_visible("#critical-path")
    low, high = tab.page.evaluate(f"document.querySelector('{TIMELINE}').layout.xaxis.range")
    unit = tab.page.evaluate("path.unit")
    assert round((high - low) * unit) == summary.by_step["dur_ns"].iloc[1]
    tab.page.select_option("#step", value="")
    assert tab.page.is_visible("#critical-path")


def test_a_button_shows_all_rows(tab: Any, file: Path, summary: Summary) -> None:
    """60 rows, then all; a name that was shortened is whole on hovering."""
    show(tab, file)
    n_rows = len(summary.path.segments)
    kept = min(n_rows, 2_000 // 8) if n_rows * 8 <= 2_000 else 100
    panel = tab.page.locator("#critical-path-timeline")
    panel.locator("summary").click()
    visible = "(rows) => rows.filter((row) => row.offsetParent).length"
    rows = panel.locator("tbody tr")
    before = rows.evaluate_all(visible)
    panel.locator("button.all").click()

    assert (before, rows.evaluate_all(visible)) == (60, kept)
    assert f"of {n_rows:,} rows" in panel.inner_text() or kept == n_rows


def test_on_paper_everything_is_open_and_nothing_cut(tab: Any, file: Path) -> None:
    """A4, light; afterwards the page looks as before."""
    tab.page.set_viewport_size({"width": 703, "height": 1000})
    tab.page.emulate_media(media="print", color_scheme="dark")
    tab.page.goto(file.as_uri())
    tab.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    tab.page.wait_for_function("!document.querySelector('[data-figure]:not([data-drawn])')")
    found = tab.page.evaluate(
        """[
            document.querySelectorAll("details:not([open])").length,
            [...document.querySelectorAll(".scroll")].filter(
                (box) => box.scrollWidth > box.clientWidth + 1
                    || box.scrollHeight > box.clientHeight + 2
            ).length,
            [...document.querySelectorAll("tbody tr")].filter(
                (row) => !row.offsetParent && !row.closest("[hidden]")
            ).length,
            getComputedStyle(document.body).color,
        ]"""
    )
    assert found == [0, 0, 0, "rgb(0, 0, 0)"]
    tab.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert tab.page.query_selector("details:not([open])") is not None


def test_a_narrow_screen_scrolls_only_within_tables(tab: Any, file: Path) -> None:
    """390 pixels, as a telephone has."""
    tab.page.set_viewport_size({"width": 390, "height": 800})
    show(tab, file)
    tab.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")

    assert tab.page.evaluate("document.documentElement.scrollWidth") == 390
