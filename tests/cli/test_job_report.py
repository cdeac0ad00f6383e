"""`htagraph report FOLDER`: what limits a job, and who keeps it waiting."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from htagraph import load_job
from htagraph.cli.main import main
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.json_document import job_document
from htagraph.reports.markdown import markdown_summary
from htagraph.reports.page.sections import help_section
from htagraph.reports.summary import NOT_REPLAYED
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

_LATE = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Folder of a simulated job: four ranks, one of them slow, each with its own clock."""
    into = tmp_path_factory.mktemp("late")
    job = training_job(
        ranks=4, steps=2, layers=2, straggler=_LATE, delay_ns=5_000_000, max_offset_ns=3_000_000
    )
    simulate_job(job).write(into)
    return into


@pytest.fixture(scope="module")
def document(folder) -> dict:
    """The report for programs, as they read it."""
    return json.loads(json.dumps(job_document(JobSummary(load_job(folder), "job")), default=str))


def test_a_folder_is_reported_as_a_job(capsys, folder, tmp_path):
    """The same verb; the late rank by its number; page, path and tables as files."""
    with pytest.raises(SystemExit) as ended:
        main(["report", str(folder), "--out", str(tmp_path), "--quiet"])
    out = capsys.readouterr().out

    assert int(ended.value.code or 0) == 0
    assert "Rank 2 is late: it costs 68%. 6.27 ms a step would be 2.01 ms if it kept up." in out
    assert re.search(r"^1\. Rank 2 is late .* costs 68%$", out, re.MULTILINE)
    assert {file.name for file in tmp_path.iterdir()} == {
        "job.pftrace",
        "summary.md",
        "report.html",
    }
    assert 'id="help"' in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_late_rank_is_the_first_finding(document):
    """By number, with how often it was last and what made it late."""
    first = document["verdict"]["items"][0]

    assert (first["causes"], list(first["ranks"])) == ([f"late rank {_LATE}"], [str(_LATE)])
    assert first["detail"] == "last at 4 of 4 collectives"
    assert first["evidence"][0]["bound"] == "untraced_code"


def test_the_document_adds_up(document):
    """The path by rank and by bound is the window; so is that of all causes and what is apart."""
    dur_ns, verdict = document["window"]["dur_ns"], document["verdict"]

    for by in ("by_rank", "by_bound"):
        assert sum(row["dur_ns"] for row in document["critical_path"][by]) == dur_ns
    of_causes_ns = sum(item["path_ns"] for item in verdict["items"])
    assert of_causes_ns + sum(verdict["apart"].values()) == dur_ns


def test_the_document_has_the_keys_that_it_documents(document):
    """Scripts rely on them; a change of names is a change of version."""
    assert list(document) == [
        "schema",
        "version",
        "job",
        "failures",
        "window",
        "verdict",
        "critical_path",
        "stragglers",
        "clocks",
        "devices",
        "utilization",
        "weak_checks",
        "files",
        "profile",
    ]


def test_the_report_says_what_would_help(folder):
    """The late rank as early as the others comes first: in Markdown and on the page."""
    summary = JobSummary(load_job(folder), "job")
    rows = markdown_summary(summary).split("## What would help")[1].splitlines()
    first = help_section(summary).panels[0].frame.iloc[0]

    assert first["change"] == f"Rank {_LATE} is late: if it kept up"
    assert next(row for row in rows if "Rank" in row).startswith(f"| {first['change']} |")


def test_a_job_that_was_not_replayed_names_no_change(folder, monkeypatch):
    """The page says why."""
    monkeypatch.setattr("htagraph.job.job._REPLAYED_EVENTS", 10)
    summary = JobSummary(load_job(folder), "job")
    section = help_section(summary)

    assert "What would help" not in markdown_summary(summary)
    assert (section.panels, section.intro) == ((), NOT_REPLAYED)


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ("0:1000", "every rank has its own clock"),
        ("ProfilerStep#99", "no rank of the job has this window"),
    ],
)
@pytest.mark.filterwarnings("ignore:rank . is left out")
def test_a_window_that_a_job_does_not_have_is_one_line(capsys, folder, tmp_path, window, said):
    """What is wrong and what to do, and exit code 1."""
    with pytest.raises(SystemExit) as ended:
        main(["report", str(folder), "-w", window, "--out", str(tmp_path), "--quiet"])
    err = capsys.readouterr().err

    assert ended.value.code == 1
    assert f"error: {said}" in err
    assert "Traceback" not in err


@pytest.fixture(scope="module")
def two_captures(tmp_path_factory) -> Path:
    """Folder with two captures of a job of two ranks, an hour apart."""
    into = tmp_path_factory.mktemp("two") / "traces"
    job = training_job(ranks=2, steps=1, layers=1)
    for number in (1, 2):
        start_ns = job.ranks[0].start_ns + number * 3_600_000_000_000
        moved = replace(job, ranks=tuple(replace(one, start_ns=start_ns) for one in job.ranks))
        for file in simulate_job(moved).write(into / "now"):
            file.rename(into / f"{file.name.split('.')[0]}_cycle{number}.json.gz")
    (into / "now").rmdir()
    return into


def _run(capsys, *args: object) -> tuple[int, str, str]:
    """Exit code, output and notices of a command."""
    with pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    streams = capsys.readouterr()
    return int(ended.value.code or 0), streams.out, streams.err


def test_captures_of_a_folder_are_listed(capsys, two_captures):
    """Capture, rank, steps, time and size of each file; for programs with all columns."""
    _, out, _ = _run(capsys, "report", two_captures, "--capture", "list")
    _, table, _ = _run(capsys, "ask", "stragglers", two_captures, "--capture", "list", "-f", "csv")

    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["capture", "rank", "steps", "time", "(UTC)", "length", "size", "file"]
    assert [(line[0], line[1], line[-1]) for line in lines[1:]] == [
        ("1", "0", "rank0_cycle1.json.gz"),
        ("1", "1", "rank1_cycle1.json.gz"),
        ("2", "0", "rank0_cycle2.json.gz"),
        ("2", "1", "rank1_cycle2.json.gz"),
    ]
    assert table.splitlines()[0].startswith("capture,rank,world_size,steps,start_ns")


@pytest.mark.filterwarnings("ignore:.*holds 2 captures")
def test_the_latest_complete_capture_is_reported_and_said_to_be(capsys, two_captures, tmp_path):
    """Nobody has to know that the folder holds two."""
    code, out, _ = _run(capsys, "report", two_captures, "--out", tmp_path, "-q")

    assert code == 0
    assert "2 captures; the latest complete one is used: capture 2 (2 ranks" in " ".join(
        out.split()
    )


def test_a_question_is_asked_of_one_capture_or_of_all(capsys, two_captures):
    """By number; of all, with one more column."""
    asked = ("ask", "temporal_breakdown", two_captures, "-f", "csv", "-q", "--capture")

    _, one, _ = _run(capsys, *asked, "1")
    _, every, _ = _run(capsys, *asked, "all")

    assert [line.split(",")[0] for line in one.splitlines()] == ["rank", "0", "1"]
    assert [line.split(",")[:2] for line in every.splitlines()] == [
        ["capture", "rank"],
        *(["1", "0"], ["1", "1"], ["2", "0"], ["2", "1"]),
    ]


def test_a_capture_is_named_by_one_of_its_files(capsys, two_captures):
    """Whatever its number is by now."""
    asked = ("ask", "temporal_breakdown", two_captures, "-f", "csv", "-q", "--capture")

    for number in "12":
        named = _run(capsys, *asked, two_captures / f"rank1_cycle{number}.json.gz")

        assert named == _run(capsys, *asked, number)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("3", "no capture 3"),
        ("newest", "unknown capture 'newest'"),
        ("rank9.json", "no trace rank9.json in"),
    ],
)
def test_a_capture_that_is_not_there_is_one_line(capsys, two_captures, given, said):
    """And says which there are."""
    code, _, err = _run(capsys, "report", two_captures, "--capture", given, "-q")

    assert (code, len(err.strip().splitlines())) == (1, 1)
    assert said in err.removeprefix("error:")


def test_unrelated_traces_are_refused_with_a_table(capsys, two_captures, tmp_path):
    """Single runs of different processes are no job; what there is stands above the error."""
    for number in (0, 1):
        file = two_captures / f"rank{number}_cycle{number + 1}.json.gz"
        (tmp_path / f"run{number}.json.gz").write_bytes(file.read_bytes())

    code, _, err = _run(capsys, "report", tmp_path, "-q")
    lines = err.strip().splitlines()

    assert code == 1
    assert [line.split()[0] for line in lines] == ["capture", "1", "2", "error:"]
    assert "holds traces of unrelated runs" in lines[-1]


def test_ranks_without_work_are_reported(capsys, tmp_path):
    """That there is nothing, and not that something broke."""
    for rank in range(2):
        head = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}}
        named = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({**head, "traceEvents": [named]}))
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path), "--out", str(tmp_path / "out"), "--quiet"])

    assert not ended.value.code
    assert "2 ranks · 0 events" in capsys.readouterr().out


def test_a_rank_that_was_cut_off_is_told_once_above_the_headline(capsys, folder, tmp_path):
    """On the terminal, on the page, in Markdown and in JSON; loading warns of the file."""
    where = shutil.copytree(folder, tmp_path / "cut")
    file = where / "rank1.pt.trace.json.gz"
    text = gzip.decompress(file.read_bytes())
    file.write_bytes(gzip.compress(text[: int(0.3 * len(text))]))
    with pytest.raises(SystemExit):
        main(["report", str(where), "--out", str(tmp_path / "out"), "--json", str(tmp_path / "j")])
    printed = capsys.readouterr()
    said = (
        "as its file is cut off; what the others did afterwards is judged without it, and "
        "predictions leave it out."
    )
    out = " ".join(printed.out.split())
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    found = json.loads((tmp_path / "j").read_text())["verdict"]

    assert "Rank 1: the file is cut off (truncated)" in printed.err
    assert out.index(said) < out.index(found["headline"]) < out.index(" 1. ")
    assert page.index('class="lead"') < page.index(said) < page.index('<ol class="cards">')
    assert [one.endswith(said) for one in found["damage"]] == [True]
    assert [text.count(said) for text in (out, page)] == [1, 1]
    assert (tmp_path / "out" / "summary.md").read_text().count("as its file is cut off") == 1
