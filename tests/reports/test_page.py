"""The page as a file: whole, self-contained, of bounded size, for whatever trace there is."""

from __future__ import annotations

import gzip
import json
import re
import sys
from base64 import b64decode
from collections.abc import Callable
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import htagraph as hg
from htagraph.arrays.codes import take
from htagraph.errors import OutputError, QueryError
from htagraph.findings.path import CriticalPath
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.markdown import next_question
from htagraph.reports.page import write_page
from htagraph.reports.page.panels import Commands, html_table, short_rule
from htagraph.reports.page.sections import answers_of
from htagraph.reports.summary import Summary
from tests.hostile.cpu_time import cpu_seconds
from tests.real_traces import case, located
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank

MAX_BYTES = 8_000_000
VOID = {"meta", "link", "br", "img", "input"}


class Outline(HTMLParser):
    """What a page consists of, and whether its elements are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.misplaced: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        if tag not in VOID:
            self.open.append(tag)
        found = dict(attrs)
        self.ids += [found["id"]] if found.get("id") else []
        self.links += [value for name, value in attrs if name in ("src", "href") and value]

    def handle_endtag(self, tag: str) -> None:
        """Close the element that was opened last."""
        if not self.open or self.open.pop() != tag:
            self.misplaced.append(tag)


def summary_of(trace: hg.Trace) -> Summary:
    return Summary(trace, trace.compile())


def page_of(summary: Summary, folder: Path, **options: object) -> str:
    page = write_page(folder / "report.html", summary, **options)  # type: ignore[arg-type]
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def training() -> Summary:
    return summary_of(hg.Trace.from_events(simulate(training_rank()).events))


def test_the_page_needs_nothing_but_itself(training: Summary, tmp_path: Path) -> None:
    """Links lead inside the page, and the policy forbids everything else."""
    text = page_of(training, tmp_path)
    outline = Outline(text)
    assert all(link.startswith(("#", "data:")) for link in outline.links)
    assert "default-src 'none'; script-src 'unsafe-inline'" in text


def test_elements_are_closed_and_ids_are_unique(training: Summary, tmp_path: Path) -> None:
    """The page is well formed, also around the scripts."""
    outline = Outline(page_of(training, tmp_path))
    assert (outline.open, outline.misplaced) == ([], [])
    assert len(outline.ids) == len(set(outline.ids))


def test_nothing_in_the_page_was_left_to_fill_in(training: Summary, tmp_path: Path) -> None:
    """The placeholders of the template are gone."""
    text = page_of(training, tmp_path)
    outside = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert re.findall(r"\$[a-z]+", outside) == []


def test_the_headline_is_first(training: Summary, tmp_path: Path) -> None:
    """Before the facts, the cards, the figures, the path, what helps and all that is folded."""
    text = page_of(training, tmp_path)
    places = (
        "<h1>", 'class="lead"', 'class="facts"', 'class="card"', 'class="tiles"', 'id="path"',
        'id="help"', 'class="section"',
    )  # fmt: skip
    found = [text.index(place) for place in places]

    assert found == sorted(found)


def test_the_page_needs_no_plotly(
    training: Summary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It brings the script that draws; only figures in Python need the package."""
    monkeypatch.setitem(sys.modules, "plotly", None)
    text = page_of(training, tmp_path)

    assert 'data-figure="critical-path-timeline"' in text
    with pytest.raises(QueryError, match="figures need plotly"):
        hg.plots.critical_path_timeline(training.path)


def test_the_page_brings_what_its_figures_use(training: Summary, tmp_path: Path) -> None:
    """Scatter, bar and heatmap: the cartesian build of plotly's script, with its license."""
    text = page_of(training, tmp_path)
    figures = json.loads(
        text.partition('<script id="figures" type="application/json">')[2].partition("</script>")[0]
    )
    packed = text.partition('<script id="plotly" type="application/gzip">')[2]
    script = gzip.decompress(b64decode(packed.partition("</script>")[0])).decode()

    assert {trace["type"] for one in figures.values() for trace in one["data"]} <= {
        "bar",
        "scatter",
        "heatmap",
    }
    assert "plotly.js (cartesian - minified)" in script[:200]
    assert "MIT" in script[:200]


def test_commands_name_the_trace_and_the_folder_of_the_page(tmp_path: Path) -> None:
    """By whole paths, quoted for the shell, and with the window of the page."""
    folder = tmp_path / "my runs"
    folder.mkdir()
    file = simulate(training_rank()).write(folder / "rank0.json")
    trace = hg.load(file)
    step = trace.steps["name"].iloc[1]
    summary = Summary.of(trace, trace.compile(), step)
    commands = Commands.on(summary)
    text = page_of(summary, folder, perfetto_file="critical.pftrace")

    assert commands.of("ask idle_time") == f"htagraph ask idle_time '{file}' -w '{step}'"
    verb, more = next_question(summary)
    assert escape(f"htagraph {verb} '{file}' -w '{step}' {more}".rstrip()) in text
    assert escape(f"htagraph view '{folder}/critical.pftrace'") in text
    assert re.findall(r"<code[^>]*>htagraph [^<]*(?:FILE|FOLDER)", text) == []


def test_commands_on_a_job_name_its_folder(tmp_path: Path) -> None:
    """Of all its ranks."""
    simulate_job(training_job(ranks=2, steps=1, layers=1)).write(tmp_path)
    commands = Commands.on(JobSummary(hg.load_job(tmp_path)))

    assert commands.of("path") == f"htagraph path {tmp_path}"


def sections_of(text: str) -> list[str]:
    """The open sections of a page, then the folded ones."""
    return re.findall(r'<(?:section|details class="section") id="([^"]+)"', text)


def test_a_trace_without_events_is_a_page_that_says_so(tmp_path: Path) -> None:
    """The headline says why nothing is known; sections without anything are left out."""
    summary = summary_of(hg.load(b'{"traceEvents": []}'))
    text = page_of(summary, tmp_path)
    assert escape(summary.verdict.headline) in text
    assert sections_of(text) == ["path", "help", "quality"]


def test_a_trace_of_the_host_alone_has_a_path_and_no_devices(tmp_path: Path) -> None:
    """One figure, no dashes."""
    trace = hg.Trace.from_events(hg.synth.timeline("cpu 1 |[aten::mm ] [aten::add ]"))
    text = page_of(summary_of(trace), tmp_path)
    assert sections_of(text) == ["path", "help", "numbers", "quality"]
    assert text.count('<li><a href="#') == 1


def test_sections_are_those_of_the_trace(training: Summary, tmp_path: Path) -> None:
    text = page_of(training, tmp_path)
    assert sections_of(text) == [
        "path", "help", "numbers", "steps", "devices", "communication", "kernels", "launches",
        "quality",
    ]  # fmt: skip
    assert re.findall(r'<details class="section" id="steps" open', text) == []


def test_the_cards_are_the_verdict_in_its_words(training: Summary, tmp_path: Path) -> None:
    """Title, cost, contributors and advice: each line of the terminal is a text of the page."""
    text = page_of(training, tmp_path)
    lines = [one for one in training.verdict.paragraphs if one.role != "card"]
    for line in lines:
        assert escape(line.text) in text
    for card in training.verdict.cards:
        assert f'aria-label="{escape(card.said)}"' in text
    assert text.count('<li class="card"') == len(training.verdict.cards) == 2


def test_a_name_is_told_once_where_a_job_is_late(tmp_path: Path) -> None:
    """The late rank leads; sections are those of a job, late ranks first of the folded."""
    program = training_job(ranks=3, straggler=2, delay_ns=9_000_000, steps=2, layers=1)
    simulate_job(program).write(tmp_path)
    summary = JobSummary(hg.load_job(tmp_path), "job")
    text = write_page(tmp_path / "report.html", summary).read_text(encoding="utf-8")
    assert escape(summary.verdict.headline) in text
    assert sections_of(text)[:4] == ["path", "help", "late", "numbers"]


def test_a_very_long_path_stays_under_the_limit(training: Summary, tmp_path: Path) -> None:
    """200,000 segments: the page is thinned, says so, and is less than 8 MB."""
    path = training.path
    n = 200_000
    repeated = take(path.coded, np.arange(n) % path.n_segments)
    long_path = CriticalPath(path.dag, type(path.window)(0, 10 * n, "long"))
    long_path.__dict__["coded"] = repeated._replace(
        start_ns=10 * np.arange(n), dur_ns=np.full(n, 10)
    )
    long_summary = Summary(training.trace, training.graph)
    long_summary.__dict__["path"] = long_path
    file = write_page(tmp_path / "report.html", long_summary)
    assert file.stat().st_size < MAX_BYTES
    assert "are drawn one by one; the 199,400 others are joined" in file.read_text(encoding="utf-8")


def test_a_folder_that_is_not_there_is_an_error(training: Summary, tmp_path: Path) -> None:
    """Nothing is written; the hint makes the folder."""
    with pytest.raises(OutputError, match="the folder does not exist"):
        write_page(tmp_path / "none" / "report.html", training)


def test_a_long_table_keeps_its_first_rows_and_says_how_many_it_has() -> None:
    """Eight are shown, a hundred kept behind a button; of more, the command that prints all."""
    few, whole, cut = (
        html_table(pd.DataFrame({"name": [f"op{row}" for row in range(n)]}), whole="command")
        for n in (8, 100, 101)
    )

    assert (few.count("<tr>"), "<button" in few) == (9, False)
    assert (whole.count("<tr>"), ">Show all 100</button>" in whole) == (101, True)
    assert (cut.count("<tr>"), ">Show 100 of 101</button>" in cut) == (101, True)
    assert ["<code>command</code>" in table for table in (few, whole, cut)] == [False, False, True]
    assert short_rule().startswith("table.short:not(.found) tbody tr:nth-child(n + 9)")


@pytest.mark.parametrize(
    "name",
    [case("tracelens/eager_trace.json.gz"), case("hta/trace_diff/control/control.json.gz")],
)
def test_pages_of_real_traces_stay_under_the_limit(name: str, tmp_path: Path) -> None:
    """100,000 segments, 10,000 kernels: less than 8 MB."""
    file = write_page(tmp_path / "report.html", summary_of(hg.load(located(name))))
    assert file.stat().st_size < MAX_BYTES


def test_what_some_ranks_are_asked_is_on_the_clock_of_the_whole_job(tmp_path: Path) -> None:
    """Also where the ranks shown leave out the first, whose clock is the common one."""
    program = training_job(ranks=3, steps=1, layers=1, max_offset_ns=5_000_000, seed=3)
    simulate_job(program).write(tmp_path)
    job = hg.load_job(tmp_path)
    found = answers_of(job, [1, 2])["step_times"]
    own_ns = job[1].step_times()["start_ns"].to_numpy()

    assert (
        found.loc[found["rank"] == 1, "start_ns"].tolist()
        == job.clock(1).to_common(own_ns).tolist()
    )
    assert job.clock(1).to_common(own_ns).tolist() != own_ns.tolist()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The page has no idle_time")
@pytest.mark.parametrize("made", ["threads", "devices", "streams"])
def test_a_page_of_thousands_is_written_within_seconds(made: str, tmp_path: Path) -> None:
    """50,000 threads took 8 s, 1,000 devices 15 s; questions that need too much are left out."""
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": MANY[made]()}))
    assert cpu_seconds(lambda: hg.report(file, tmp_path / "report")) < 10


def many_threads() -> list[dict[str, Any]]:
    """50,000 that each did one thing."""
    return [op(1, 10 * thread, 5, tid=thread) for thread in range(50_000)]


def many_kernels(n_devices: int, n_streams: int) -> list[dict[str, Any]]:
    """20,000 that overlap, on some devices and streams."""
    rows = []
    for k in range(20_000):
        device, stream = k % n_devices, 7 + k // n_devices % n_streams
        args = {"correlation": k + 1, "device": device, "stream": stream, "grid": [9, 1, 1]}
        rows.append(op(1, 10 * k, 3, cat="cuda_runtime", name="cudaLaunchKernel", args=args))
        rows.append(op(device, 10 * k + 5, 90, cat="kernel", name="k", tid=stream, args=args))
    return rows


def op(pid: int, ts: int, dur: int, **more: Any) -> dict[str, Any]:
    """An event."""
    at = 1_700_000_000_000_000 + ts
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": "op",
        "pid": pid,
        "tid": 1,
        "ts": at,
        "dur": dur,
    } | more


MANY: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "threads": many_threads,
    "devices": lambda: many_kernels(1_000, 1),
    "streams": lambda: many_kernels(1, 1_000),
}
