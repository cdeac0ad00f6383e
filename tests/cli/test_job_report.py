"""`htagraph report FOLDER`: what bounds a job, and who keeps it waiting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from htagraph import load_job
from htagraph.cli.main import main
from htagraph.report.job_summary import JobSummary
from htagraph.report.json_document import JOB_VERSION, job_document
from htagraph.synth import simulate_job, training_job

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
    pytest.importorskip("plotly")
    with pytest.raises(SystemExit) as ended:
        main(["report", str(folder), "--out", str(tmp_path), "--quiet"])
    out = capsys.readouterr().out

    assert int(ended.value.code or 0) == 0
    assert f"1. The others wait for rank {_LATE}, which is late" in out
    assert {file.name for file in tmp_path.iterdir()} == {
        "job.pftrace",
        "summary.md",
        "report.html",
    }


def test_json_is_printed_alone(capsys, folder, tmp_path):
    """For scripts: nothing else on standard output."""
    with pytest.raises(SystemExit):
        main(["report", str(folder), "--out", str(tmp_path), "--json", "-", "--quiet"])
    document = json.loads(capsys.readouterr().out)

    assert (document["schema"], document["version"]) == ("htagraph.job_report", JOB_VERSION)
    assert document["findings"]["items"][0]["cause"] == "late rank"
    assert document["files"]["page"] == str(tmp_path / "report.html")


def test_the_late_rank_is_the_first_finding(document):
    """By number, with how often it was last and what made it late."""
    first = document["findings"]["items"][0]

    assert (first["cause"], list(first["ranks"])) == ("late rank", [str(_LATE)])
    assert first["detail"] == "last at 4 of 4 collectives"
    assert next(iter(first["parts"])) == "python_gap"


def test_the_document_adds_up(document):
    """The path by rank and by bound is the window; findings share no more than that."""
    dur_ns = document["window"]["dur_ns"]

    for by in ("by_rank", "by_bound"):
        assert sum(row["dur_ns"] for row in document["critical_path"][by]) == dur_ns
    assert sum(finding["dur_ns"] for finding in document["findings"]["items"]) <= dur_ns


@pytest.mark.real
@pytest.mark.filterwarnings("ignore:no clock brings")
def test_no_verdict_on_ranks_that_cannot_have_met(real_traces):
    """No clock brings these two together: what they waited for each other is not known."""
    verdict = JobSummary(load_job(real_traces / "hta" / "trace_filter"), "job").verdict

    assert verdict.findings == ()
    assert "report on each rank by itself" in verdict.withheld


def test_a_corrupt_rank_is_left_out_and_named(capsys, folder, tmp_path):
    """The others still answer; with one rank gone, nobody knows for whom they waited.

    The report names the file itself: with `--quiet`, no warning says it before.
    """
    broken = tmp_path / "traces"
    broken.mkdir()
    for file in sorted(folder.glob("*.gz")):
        (broken / file.name).write_bytes(file.read_bytes())
    min(broken.iterdir()).write_bytes(b"not a trace")
    with pytest.raises(SystemExit) as ended:
        main(["report", str(broken), "--out", str(tmp_path / "out"), "--quiet"])
    out = capsys.readouterr().out

    assert int(ended.value.code or 0) == 0
    assert "Left out" in out
    assert "1 rank missing" in out


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
