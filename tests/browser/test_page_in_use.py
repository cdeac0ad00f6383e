"""The page in use: a section unfolded, a segment opened, a table searched, all of it printed."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

import htagraph as hg
from htagraph.reports.page import write_page
from htagraph.reports.summary import Summary
from tests.browser.test_page_in_browser import column, show
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TOKEN = "a" * 43
"""In the address of a page that `htagraph view` serves."""
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
    folder = file.parent / TOKEN
    folder.mkdir(exist_ok=True)
    copyfile(file, folder / file.name)
    handler = partial(Quiet, directory=str(file.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{TOKEN}/report.html"
        server.shutdown()


def told(tab: Any) -> dict[str, str]:
    """The text of the dialog for the open segment."""
    found: dict[str, str] = tab.page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#segment dt')]"
        ".map((term) => [term.textContent, term.nextSibling.textContent]))"
    )
    return found | {"name": tab.page.get_attribute("#segment-name", "title")}


def test_without_a_network_every_figure_on_top_leads_to_its_section(tab: Any, file: Path) -> None:
    """Three figures, from the tables of the sections that they link to, which a click unfolds."""
    tab.page.context.set_offline(True)
    tab.page.goto(file.as_uri())
    links = tab.page.eval_on_selector_all(
        ".tiles a", "(all) => all.map((a) => [a.hash, Number(a.dataset.value)])"
    )

    assert [link for link, _ in links] == ["#steps", "#devices", "#communication"]
    for link, _ in links:
        assert not tab.page.is_visible(f"{link} .panel")
        tab.page.click(f".tiles a[href='{link}']")
        assert tab.page.is_visible(f"{link} .panel")
    (_, step_ns), (_, busy), (_, exposed) = links
    steps_ns = [int(value) for value in column(tab, "path-by-step", "dur")]
    assert step_ns == pytest.approx(sum(steps_ns) / len(steps_ns))
    assert 1 - busy == pytest.approx(float(column(tab, "temporal-breakdown", "idle share")[0]))
    shares = column(tab, "temporal-breakdown", "communication share")
    assert exposed == pytest.approx(float(shares[0]))


def test_an_unfolded_section_draws_its_figures_as_wide_as_it_is(tab: Any, file: Path) -> None:
    """Folded, they have no size, and are not drawn; its one line makes room for them."""
    tab.page.goto(file.as_uri())
    box = "document.querySelector('[data-figure=overlap]')"
    assert tab.page.evaluate(f"{box}.dataset.drawn") is None
    assert tab.page.is_visible("#communication .fact")
    tab.page.focus("#communication > summary")
    tab.page.keyboard.press("Enter")
    tab.until(f"{box}.dataset.drawn === 'yes'")

    widths = f"[{box}, {box}.querySelector('svg')].map((one) => one.getBoundingClientRect().width)"
    outer, inner = tab.page.evaluate(widths)
    assert outer == inner
    assert outer > 1000
    assert not tab.page.is_visible("#communication .fact")


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
    at = f"{start_ns}:{start_ns + longest['dur_ns']}"
    command = f"htagraph view {file.parent}/critical.pftrace --at {at}"
    asked, viewed = tab.page.locator("#segment .where code").all_inner_texts()
    assert viewed == command
    assert asked.startswith("htagraph why ")
    assert asked.endswith(f" {longest['event']}")
    assert found["why"].endswith(".")
    assert tab.page.query_selector("#segment .where a") is None


def test_keys_open_a_segment_walk_along_the_path_and_close_it(tab: Any, file: Path) -> None:
    """Enter on a name, Enter on "later", Escape: the name has the focus again."""
    tab.page.goto(file.as_uri())
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
    """The address that `htagraph view` opens; the one command is for what it waited for."""
    tab.page.goto(served)
    tab.page.click("#critical-path-timeline summary")
    tab.page.locator("#critical-path-timeline .opens").first.click()
    longest = summary.path.segments.sort_values("dur_ns", ascending=False, kind="stable").iloc[0]
    start_ns = longest["start_ns"] - summary.path.origin_ns

    link = tab.page.get_attribute("#segment .where a", "href")
    assert link == f"./?ts={start_ns}&dur={longest['dur_ns']}"
    assert "htagraph why" in tab.page.inner_text("#segment .where code")
    assert {url for url in tab.requests if not url.startswith(("data:", "blob:"))} == {served}


def test_a_button_shows_all_rows(tab: Any, file: Path, summary: Summary) -> None:
    """8 rows, then the 100 that the page keeps of more, then 8 again."""
    tab.page.goto(file.as_uri())
    assert len(summary.path.segments) > 100
    panel = tab.page.locator("#critical-path-timeline")
    panel.locator("summary").click()
    visible = "(rows) => rows.filter((row) => row.offsetParent).length"
    rows, button = panel.locator("tbody tr"), panel.locator("button.all")
    assert button.inner_text() == f"Show 100 of {len(summary.path.segments)}"
    told = []
    for _ in range(3):
        told.append((rows.evaluate_all(visible), button.get_attribute("aria-expanded")))
        button.click()

    assert told == [(8, "false"), (100, "true"), (8, "false")]
    assert "htagraph path FILE" in panel.locator(".more").inner_text()


def test_a_search_finds_rows_in_all_sections(tab: Any, file: Path, summary: Summary) -> None:
    """Also folded ones, and rows that a table does not show at first; then all is as before."""
    tab.page.goto(file.as_uri())
    rows = "all('tbody tr').filter((row) => row.checkVisibility()).map((row) => row.textContent)"
    before = tab.page.evaluate(rows)
    tab.page.fill("#find", "SGEMM ampere")
    found = tab.page.evaluate(rows)

    assert all("sgemm" in row and "ampere" in row for row in found)
    assert tab.page.inner_text("#found") == f"{len(found)} rows"
    assert len(found) > 8
    assert tab.page.is_visible("#top-kernels")
    assert not tab.page.is_visible("#checks")
    tab.page.fill("#find", "no such row")
    assert tab.page.evaluate(rows) == []
    assert tab.page.inner_text("#found") == "0 rows"
    tab.page.fill("#find", "")
    assert tab.page.evaluate(rows) == before


def test_what_the_reader_zoomed_to_stays_in_another_color_scheme(tab: Any, file: Path) -> None:
    """Figures are drawn again, not anew; a double click shows the whole path."""
    show(tab, file)
    ranges = f"document.querySelector('{TIMELINE}').layout.xaxis.range.map(Number)"
    whole = tab.page.evaluate(ranges)
    box = tab.page.query_selector(f"{TIMELINE} .nsewdrag")
    box.scroll_into_view_if_needed()
    at = box.bounding_box()
    tab.page.mouse.move(at["x"] + 100, at["y"] + 20)
    tab.page.mouse.down()
    tab.page.mouse.move(at["x"] + 200, at["y"] + 20, steps=4)
    tab.page.mouse.up()
    tab.until(f"{ranges}[0] > 0")
    zoomed = tab.page.evaluate(ranges)
    tab.page.click("#theme")
    tab.page.wait_for_timeout(200)
    assert tab.page.evaluate(ranges) == zoomed

    box = tab.page.query_selector(f"{TIMELINE} .nsewdrag")
    box.scroll_into_view_if_needed()
    at = box.bounding_box()
    tab.page.mouse.dblclick(at["x"] + 150, at["y"] + 20)
    tab.until(f"{ranges}[0] === {whole[0]}")
    assert tab.page.evaluate(ranges) == whole


@pytest.mark.parametrize("has_clipboard", [True, False])
def test_a_command_is_copied(tab: Any, file: Path, has_clipboard: bool) -> None:
    """Also from pages that the browser keeps from the clipboard; the page was moved meanwhile."""
    moved = file.parent / "a b" / "report.html"
    moved.parent.mkdir(exist_ok=True)
    moved.write_bytes(file.read_bytes())
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.page.goto(moved.as_uri())
    if not has_clipboard:
        tab.page.evaluate("delete Clipboard.prototype.writeText")
    command = "aside p:last-child .command"
    tab.page.click(f"{command} .copy")
    tab.until(f"document.querySelector('{command} .copy').textContent === 'copied'")

    copied = tab.page.evaluate("navigator.clipboard.readText()")
    assert copied == f"htagraph view '{moved.parent}/critical.pftrace'"


def test_the_first_screen_has_the_headline_and_the_first_finding(tab: Any, file: Path) -> None:
    """Of a telephone, and of a laptop."""
    for width, height in ((390, 844), (1440, 900)):
        tab.page.set_viewport_size({"width": width, "height": height})
        tab.page.goto(file.as_uri())
        bottom = "document.querySelector('{}').getBoundingClientRect().bottom"
        lead, title = (tab.page.evaluate(bottom.format(one)) for one in (".lead", ".card h3"))
        assert lead < title < height / 2


def test_paper_has_the_headline_the_findings_and_the_key_tables(tab: Any, file: Path) -> None:
    """A few pages of A4, in light colors, with what was unfolded; afterwards all is as before."""
    tab.page.emulate_media(color_scheme="dark")
    show(tab, file)
    tab.page.evaluate("all('details').forEach((fold) => { fold.open = false; })")
    tab.page.click("#kernels > summary")
    width = f"document.querySelector('{TIMELINE} svg').getBoundingClientRect().width"
    before = tab.page.evaluate(width)
    pages = re.findall(rb"/Type /Page\b", tab.page.pdf(prefer_css_page_size=True))
    tab.page.emulate_media(media="print")
    tab.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    shown = {
        selector: tab.page.is_visible(selector)
        for selector in (
            ".lead",
            ".card",
            TIMELINE,
            "#what-helps",
            "#kernels .figure",
            "#devices .fact",
            "#devices .figure",
        )
    }
    color = tab.page.evaluate("getComputedStyle(document.body).color")
    tab.page.evaluate("dispatchEvent(new Event('afterprint'))")
    tab.page.emulate_media(media="screen")

    assert len(pages) <= 5
    assert [name for name, is_shown in shown.items() if not is_shown] == ["#devices .figure"]
    assert color == "rgb(0, 0, 0)"
    tab.until(f"{width} === {before}")


def test_a_narrow_screen_scrolls_only_within_tables(tab: Any, file: Path) -> None:
    """390 pixels, as a telephone has."""
    tab.page.set_viewport_size({"width": 390, "height": 800})
    tab.page.goto(file.as_uri())
    assert tab.page.evaluate("document.documentElement.scrollWidth") == 390
    show(tab, file)

    assert tab.page.evaluate("document.documentElement.scrollWidth") == 390
