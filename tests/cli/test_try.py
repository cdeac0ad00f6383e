"""`htagraph try`: the prediction is written first, the program records, the answer is modest."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from htagraph.cli.main import main
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank

RECORDS = "import os, shutil; shutil.copy({!r}, os.environ['HTAGRAPH_TRY_FOLDER'])"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """A training whose loader is slow, one whose loader is not, and a job."""
    folder = tmp_path_factory.mktemp("runs")
    found = {
        name: simulate(training_rank(steps=8, fault=fault, seed=seed)).write(
            folder / name / "rank0.pt.trace.json.gz"
        )
        for name, fault, seed in (
            ("slow", "dataloader", 1),
            ("again", "dataloader", 2),
            ("fast", "none", 3),
        )
    }
    simulate_job(training_job(ranks=2)).write(folder / "job")
    return found | {"job": folder / "job"}


@pytest.fixture
def tried(capsys, monkeypatch, tmp_path):
    """Try a change in an empty folder: exit code, output, and the folder of the try."""
    monkeypatch.chdir(tmp_path)

    def ran(*args: object) -> tuple[int, str, Path | None]:
        with pytest.raises(SystemExit) as ended:
            main(["try", *map(str, args)])
        streams = capsys.readouterr()
        out = " ".join(f"{streams.out} {streams.err}".split())
        return int(ended.value.code or 0), out, next(tmp_path.glob("htagraph-try/2*"), None)

    return ran


def records(trace: Path) -> list[str]:
    """A program that leaves a recording where it is asked to."""
    return [sys.executable, "-c", RECORDS.format(str(trace))]


def test_a_fix_that_was_made_is_confirmed(tried, runs):
    """The plan was there before the program ran, with what it needs to be judged by."""
    code, out, folder = tried(runs["slow"], "--fix", 1, "--", *records(runs["fast"]))
    plan, decision = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("plan", "decision")
    )

    assert code == 0
    assert out.startswith("Data loading: Load batches in workers")
    assert "Predicted: prefetch(workers=" in out
    assert "Confirmed: 4" in out
    assert "Now: " in out
    assert decision["state"] == "confirmed"
    assert plan["expected"]["low"] < plan["expected"]["saves"] < plan["expected"]["high"]
    assert (plan["settings"]["skip"], plan["settings"]["steps"], plan["device"]) == (
        0,
        8,
        "Simulated GPU",
    )
    assert plan["command"][0] == sys.executable
    planned, made = ((folder / name).stat().st_mtime_ns for name in ("plan.json", "after-1"))
    assert planned < made


def test_an_edit_that_changes_nothing_is_not_confirmed(tried, runs):
    """Three recordings of each side, in turn."""
    before = shlex.join(records(runs["slow"]))
    code, out, folder = tried(
        runs["slow"], "--before", before, "--repeat", 3, "--", *records(runs["again"])
    )

    assert code == 3
    assert "No effect: " in out
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == [
        f"{side}-{number}" for side in ("after", "before") for number in (1, 2, 3)
    ]


def test_without_a_program_it_says_how_to_record_and_judges_later(tried, runs):
    """On another machine, with the variables that it names."""
    code, out, folder = tried(runs["slow"], "--change", "--workers 3")
    assert code == 0
    assert "Predicted: prefetch(workers=3) saves " in out
    assert [path.name for path in folder.iterdir()] == ["plan.json"]

    code, out, _ = tried(runs["slow"], "--change", "--prefetch 3", "--after", runs["fast"])
    assert code == 0
    assert "Confirmed: " in out


def test_what_cannot_be_told_exits_with_one(tried, runs):
    """A job is no rank."""
    code, out, _ = tried(runs["slow"], "--after", runs["job"])

    assert code == 1
    assert "Not comparable: " in out


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (["-c", "pass"], "left no recording. Hint: in the script, put `with htagraph.profile("),
        (["-c", "raise SystemExit(7)"], "ended with exit code 7."),
    ],
)
def test_a_program_that_leaves_no_recording_is_an_error(tried, runs, program, said):
    """Which says what to add to it."""
    code, out, _ = tried(runs["slow"], "--", sys.executable, *program)

    assert code == 1
    assert said in out


def test_a_program_that_is_not_there_is_an_error(tried, runs):
    """In one line."""
    code, out, _ = tried(runs["slow"], "--", "no-such-program")

    assert code == 1
    assert "no-such-program: No such file or directory." in out


def test_what_saves_nothing_is_not_tried(tried, runs):
    """Nothing runs, and nothing is written."""
    code, out, folder = tried(runs["slow"], "--change", "--scale '*sgemm*=1'", "--", "false")

    assert (code, folder) == (1, None)
    assert "nothing to confirm: " in out
    assert tried(runs["slow"], "--fix", 99, "--", "false")[0] == 1
    assert tried(runs["slow"], "--before", "true")[0] == 2
