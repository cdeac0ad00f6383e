"""The history of kept runs: levels of the step time, by series, with causes and commits."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import numpy as np
import pytest

import htagraph as hg
from htagraph.cli.main import main
from htagraph.errors import QueryError
from htagraph.reports.kept_runs import KeptRun

BEGIN_NS = 1_780_000_000 * 10**9
HOUR_NS = 3600 * 10**9


def run(number: int, step_ns: float, **changed: object) -> KeptRun:
    """A row, an hour after the one before it."""
    row = KeptRun(
        key=f"{number:04}",
        start_ns=BEGIN_NS + number * HOUR_NS,
        name=f"run{number}",
        source="watch",
        unit="step",
        step_ns=round(step_ns),
        typical_step_ns=round(step_ns),
        first="GPU compute: costs 90%",
        series="0000",
        cost_ns={"GPU compute": round(step_ns) - 100_000, "data loading": 50_000},
    )
    return replace(row, **changed)


@pytest.fixture
def kept(tmp_path) -> hg.KeptRuns:
    """A folder without runs."""
    found = hg.KeptRuns(tmp_path / "runs")
    found.folder.mkdir(parents=True)
    return found


def levels(kept: hg.KeptRuns, *steps_ms: float, each: int = 12, **changed: object) -> None:
    """Keep runs of some step times, with a noise of half a percent."""
    noise = np.random.default_rng(2).normal(1, 0.005, len(steps_ms) * each)
    for number, step_ms in enumerate(np.repeat(steps_ms, each)):
        kept.add(run(number, step_ms * 1e6 * noise[number], **changed))


def test_a_change_is_told_with_the_cause_that_changed_most(kept):
    """By medians of the levels; without profiles it is unclear whether it is the code."""
    levels(kept, 10.0, 10.5)
    [change] = hg.history(kept.folder.parent).changes.plain.to_dict("records")

    assert change["name"] == "run12"
    assert change["change_share"] == pytest.approx(0.05, abs=0.005)
    assert (change["cause"], change["by"]) == ("GPU compute", "unclear")
    assert change["cause_ns"] == pytest.approx(500_000, rel=0.1)


def test_levels_that_differ_by_less_than_a_percent_are_one(kept):
    """However little they vary: as of two runs."""
    for number in range(24):
        kept.add(run(number, 10e6 + number + (number >= 12) * 90_000))
    found = hg.history(kept.folder.parent)

    assert found.changes.empty
    assert found.headline == "24 runs, no change of the step time beyond noise."


def test_each_series_has_its_own_levels(kept):
    """Runs that take turns are not compared with each other."""
    for number in range(40):
        kept.add(run(number, (10 + number % 2) * 1e6 + number, series=str(number % 2)))

    assert hg.history(kept.folder.parent).changes.empty


def test_what_could_not_be_read_is_no_run(kept):
    """And a folder without runs is a wrong question."""
    kept.add(run(0, 1e6, error="the file is damaged"))

    with pytest.raises(QueryError, match=r"no run is kept in .*runs"):
        hg.history(kept.folder.parent)


def test_the_commits_between_two_levels_are_named(kept):
    """Those after the last run that is clearly of the old level."""

    def git(*args: str) -> str:
        command = ["git", "-C", str(kept.folder.parent), "-c", "user.name=n", "-c", "user.email=e"]
        done = subprocess.run(
            [*command, *args], check=True, capture_output=True, text=True, env={**os.environ}
        )
        return done.stdout.strip()

    git("init", "-q")
    commits = []
    for said in ("one", "two", "slower", "four"):
        git("commit", "--allow-empty", "-qm", said)
        commits.append(git("rev-parse", "HEAD"))
    for number in range(24):
        step_ns = 10e6 + number * 1_000 + (number >= 12) * 500_000
        kept.add(run(number, step_ns, commit=commits[(number >= 11) + (number >= 12)]))
    [change] = hg.history(kept.folder.parent).changes.plain.to_dict("records")

    assert (change["n_commits"], change["commits"].split(" ", 1)[1]) == (1, "slower")


def test_the_command_prints_changes_and_runs(kept, capsys, tmp_path):
    """The last runs, and the figure as a page."""
    pytest.importorskip("plotly")
    levels(kept, 10.0, 12.0)
    with pytest.raises(SystemExit) as ended:
        main(["history", str(kept.folder.parent), "--out", str(tmp_path / "f.html"), "-q"])
    out = capsys.readouterr().out

    assert not ended.value.code
    assert out.startswith("24 runs, 1 change of the step time. The last one, 2026-05-29 08:26: 20%")
    assert "Runs, last 12 of 24" in out
    assert "<html>" in (tmp_path / "f.html").read_text()


def test_the_figure_marks_changes(kept):
    """Between the runs, with their share; causes have lines."""
    pytest.importorskip("plotly")
    levels(kept, 10.0, 12.0)
    figure = hg.history(kept.folder.parent).figure()

    assert [shape.x0 for shape in figure.layout.shapes] == [11.5]
    assert [note.text for note in figure.layout.annotations] == ["+20%, unclear"]
    assert [line.name for line in figure.data] == ["step time", "GPU compute", "data loading"]
    assert figure.layout.title.text.endswith("a step and changed 1 time")
