"""`htagraph report FOLDER`: who keeps a job waiting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from htagraph import load_job
from htagraph.cli.main import main
from htagraph.report.job_summary import JobSummary
from htagraph.synth import simulate_job, training_job

_LATE = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Write a simulated job of four ranks, of which one is slow and all have clocks of their own."""
    into = tmp_path_factory.mktemp("late")
    simulate_job(training_job(ranks=4, steps=2, layers=2, straggler=_LATE, max_offset_ns=3_000_000)).write(into)
    return into


def test_the_planted_straggler_is_the_first_finding(folder):
    """By name, with what it costs; the claim is no more than the window."""
    summary = JobSummary(load_job(folder), "job")
    first = summary.findings[0]

    assert first.sentence.startswith(f"Rank {_LATE} is late")
    assert 0 < first.dur_ns <= summary.path.dur_ns


def test_a_folder_is_reported_as_a_job(capsys, folder, tmp_path):
    """The same verb; the path of all ranks, and the tables, as files."""
    with pytest.raises(SystemExit) as ended:
        main(["report", str(folder), "--out", str(tmp_path), "--quiet"])
    out = capsys.readouterr().out

    assert int(ended.value.code or 0) == 0
    assert f"Rank {_LATE} is late" in out
    assert {file.name for file in tmp_path.iterdir()} == {"job.pftrace", "summary.md", "job.json"}


def test_the_document_adds_up(folder):
    """For programs: the path by rank and by bound is the window."""
    document = json.loads(json.dumps(JobSummary(load_job(folder), "job").document(), default=str))

    for rows in document["path"].values():
        assert sum(row["dur_ns"] for row in rows) == document["dur_ns"]
    assert document["schema"] == "htagraph.job_report"


def test_a_corrupt_rank_is_left_out_and_named(capsys, folder, tmp_path):
    """The others still answer."""
    broken = tmp_path / "traces"
    broken.mkdir()
    for file in sorted(folder.glob("*.gz")):
        (broken / file.name).write_bytes(file.read_bytes())
    min(broken.iterdir()).write_bytes(b"not a trace")
    with pytest.warns(UserWarning, match="could not be used"), pytest.raises(SystemExit) as ended:
        main(["report", str(broken), "--out", str(tmp_path / "out"), "--quiet"])
    out = capsys.readouterr().out

    assert int(ended.value.code or 0) == 0
    assert "Left out" in out
    assert "1 rank missing" in out
