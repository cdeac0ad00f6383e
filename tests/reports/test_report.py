"""`hg.report` and what objects show of themselves, on the terminal and in a notebook."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

import htagraph as hg
from htagraph.cli.main import app_of
from htagraph.errors import IncompleteTraceWarning, TraceError
from htagraph.model.progress import Progress, listening
from htagraph.reports import report
from htagraph.synth import timeline
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """A trace of a run with a stalled data loader."""
    folder = tmp_path_factory.mktemp("captured")
    return simulate(training_rank(fault="dataloader")).write(folder / "rank0.pt.trace.json.gz")


@pytest.fixture(scope="module")
def job_folder(tmp_path_factory):
    """Two ranks; the second is late."""
    folder = tmp_path_factory.mktemp("captured") / "run"
    simulate_job(training_job(ranks=2, straggler=1, delay_ns=9_000_000)).write(folder)
    return folder


@pytest.mark.slow
def test_a_report_from_python_is_that_of_the_command_line(captured, tmp_path):
    """The same files, and the same text."""
    into = str(tmp_path / "cli")
    done = CliRunner().invoke(app_of(), ["report", str(captured), "--tables", "--out", into])
    found = hg.report(captured, tmp_path / "python")

    written = {file.name: file for file in (tmp_path / "cli").iterdir()}
    assert {file.name for file in found.files.values()} == set(written)
    assert found.files["summary"].read_text() == written["summary.md"].read_text()
    assert found.files["dot"].read_text() == written["critical.dot"].read_text()
    printed = re.sub("[█▏▎▍▌▋▊▉]+", "", done.output)
    assert " ".join(str(found.verdict).split()) in " ".join(printed.split())
    assert found.document["verdict"]["items"][0]["causes"] == ["data loading"]


@pytest.mark.some(1)
@pytest.mark.parametrize("listed", [False, True], ids=["folder", "files"])
def test_a_report_on_a_job(job_folder, tmp_path, listed):
    """Its verdict is the job's own, and the files are there."""
    where = sorted(job_folder.iterdir()) if listed else job_folder
    found = hg.report(where, tmp_path)

    assert found.verdict.document() == hg.load_job(job_folder).verdict().document()
    assert found.verdict.findings[0].title == "Rank 1 is late"
    assert {"perfetto", "summary"} <= set(found.files)
    assert all(file.is_file() for file in found.files.values())


@pytest.mark.slow
def test_the_trace_of_many_ranks_has_those_that_matter(job_folder, tmp_path, monkeypatch):
    """Of two ranks, where one is the most: the one with most of the path; and that is said."""
    monkeypatch.setattr(report, "MOST_RANKS", 1)
    with pytest.warns(IncompleteTraceWarning, match=r"job\.pftrace has 1 of 2 ranks: those with"):
        found = hg.report(job_folder, tmp_path)

    assert hg.load(found.files["perfetto"]).rank == 1


@pytest.mark.some(1)
@pytest.mark.filterwarnings("ignore::htagraph.errors.IncompleteTraceWarning")
@pytest.mark.parametrize(
    ("whole", "ranks"), [(False, "holds 2 ranks, .*rank-2, .*rank-0"), (True, "holds 3 ranks")]
)
def test_the_trace_of_large_ranks_has_few_of_them(tmp_path, monkeypatch, *, whole, ranks):
    """The late rank and another one, or all if that is asked for."""
    simulate_job(training_job(ranks=3, straggler=2, delay_ns=9_000_000)).write(tmp_path / "job")
    monkeypatch.setattr(report, "MOST_EVENTS", 1)
    found = hg.report(tmp_path / "job", tmp_path / "report", whole=whole)

    with pytest.raises(TraceError, match=ranks):
        hg.load(found.files["perfetto"])


def test_the_trace_of_a_job_tells_how_far_it_is(job_folder, tmp_path):
    """Two ranks and the path are three parts."""
    heard = []
    with listening(heard.append):
        hg.report(job_folder, tmp_path)

    assert Progress(f"Writing {tmp_path / 'job.pftrace'}", "part", 3, 3) in heard


def test_nothing_is_written_where_that_is_not_wanted(captured, tmp_path, monkeypatch):
    """Only the answer."""
    monkeypatch.chdir(tmp_path)

    assert hg.report(captured, write=False).files == {}
    assert list(tmp_path.iterdir()) == []


def test_a_verdict_reads_like_the_terminal():
    """Headline, cards with evidence and what to do, no line over 88 columns."""
    trace = hg.Trace.from_events(simulate(training_rank(fault="dataloader")).events)
    lines = repr(trace.compile().verdict()).splitlines()

    assert lines[:3] == [
        "Data loading costs 72% of this run: 7.92 ms a step would be 2.22 ms without it.",
        "",
        f"1. Data loading{'costs 72%':>73}",
    ]
    assert any(line.startswith("   -> ") for line in lines)
    assert max(map(len, lines)) <= 88


def test_what_a_trace_calls_an_event_is_no_markup():
    """Names are data in a notebook, too."""
    events = timeline("cpu 1 |[aten::<b>&x                 ][aten::mm]")
    graph = hg.Trace.from_events(events).compile()

    shown = graph.verdict()._repr_html_()
    assert "aten::&lt;b&gt;&amp;x" in shown
    assert "<b>" not in shown.replace("<b>What", "")


def test_a_notebook_shows_every_object_in_a_few_kilobytes(captured, job_folder):
    """Trace, graph, path, verdict, job and report; without scripts, links or style sheets."""
    trace, job = hg.load(captured), hg.load_job(job_folder)
    graph = trace.compile()
    objects = [trace, graph, graph.critical_path(), graph.verdict(), job, job.critical_path()]
    objects.append(hg.report(captured, write=False))

    for shown in (one._repr_html_() for one in objects):
        assert 100 < len(shown) < 8_000
        assert not re.search(r"<script|<link|<style|https?:", shown)


@pytest.mark.parametrize("read", [hg.load, hg.load_job, hg.report])
def test_a_file_that_is_not_there_is_what_a_stranger_would_catch(read, tmp_path):
    """One of ours, and Python's own."""
    with pytest.raises(FileNotFoundError, match="no such file") as caught:
        read(tmp_path / "nope")

    assert isinstance(caught.value, hg.errors.TraceNotFoundError)


def test_the_version_has_one_home():
    """The package says it, and the command line repeats it."""
    done = CliRunner().invoke(app_of(), ["--version"])

    assert done.output.strip() == f"htagraph {hg.__version__}"
