"""Runs that are kept: one row each, written once and whole, and compared with the last one."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import htagraph as hg
from htagraph.cli.main import main
from htagraph.reports.kept_runs import LINE_WIDTH, commit_at, row_of
from htagraph.reports.markdown import markdown_block
from tests.comparison.profiles import simulated
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job

SLOW = {"kernel": "ampere_sgemm_128x64_nn", "by": 1.12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Write a run, another of the same program, a slower one, and keep them in this order."""
    into = tmp_path_factory.mktemp("runs")
    runs = {"first": {}, "second": {}, "slower": SLOW}
    for seed, (name, changed) in enumerate(runs.items(), start=1):
        simulated(seed, steps=4, **changed).write(into / f"{name}.pt.trace.json.gz")
        summary = hg.report(into / f"{name}.pt.trace.json.gz", write=False).summary
        hg.KeptRuns(into).keep(summary, "report")
    return into


def test_a_run_is_compared_with_the_last_one_before_it(folder):
    """Beyond noise, in the words of a comparison."""
    first, second, slower = hg.KeptRuns(folder)

    assert (first.earlier, second.earlier, slower.earlier) == ("", first.key, second.key)
    assert {first.series, second.series, slower.series} == {first.key}
    assert (second.is_change, slower.is_change) == (False, True)
    assert second.line == "second: 4.40 ms a step · GPU compute: costs 85% · no change"
    assert slower.line.endswith("· 8.4% slower (noise 2%)")
    assert slower.change.startswith("Steps are 8.4% slower: ")


def test_a_run_is_kept_once(folder):
    """By its content, wherever it lies and whatever it is called."""
    moved = folder / "renamed.pt.trace.json.gz"
    moved.write_bytes((folder / "slower.pt.trace.json.gz").read_bytes())
    kept = hg.KeptRuns(folder).keep(hg.report(moved, write=False).summary, "check")

    hg.KeptRuns(folder).add(kept)  # as of a process that did not know

    assert kept.name == "slower"
    assert len(list(hg.KeptRuns(folder))) == 3


def test_kept_profiles_are_baselines(folder):
    """They are no traces for a verb that searches the folder."""
    kept = hg.KeptRuns(folder)
    first, *_ = kept

    assert hg.RunProfile.read(kept.profile_file(first.key)).name == "first"
    assert {Path(path).name for path in hg.discover(folder)["path"]} <= {
        path.name for path in folder.iterdir()
    }


def test_pandas_and_duckdb_read_the_rows(folder):
    """As they are, with the costs of causes as columns."""
    duckdb = pytest.importorskip("duckdb")
    table = hg.KeptRuns(folder).table
    frame = pd.read_json(table, lines=True)
    columns = "name, cost_ns['GPU compute']"
    [(name, cost_ns)] = duckdb.read_json(str(table)).filter("is_change").project(columns).fetchall()

    assert frame["name"].tolist() == ["first", "second", "slower"]
    assert frame["start_ns"].dtype == frame["step_ns"].dtype == "int64"
    assert (name, cost_ns) == ("slower", frame["cost_ns"].iloc[2]["GPU compute"])


def test_what_a_killed_writer_left_of_a_row_is_removed(folder, tmp_path):
    """The rows before it stay, and the next one is a line of its own."""
    (tmp_path / ".htagraph").mkdir()
    kept = hg.KeptRuns(tmp_path)
    kept.table.write_bytes(hg.KeptRuns(folder).table.read_bytes()[:-20])
    kept.add(replace(next(iter(kept)), key="other", name="third"))

    assert [row.name for row in kept] == ["first", "second", "third"]
    assert kept.table.read_bytes().count(b"\n") == 3


def test_a_line_that_is_no_row_is_named(tmp_path):
    """With what to do."""
    (tmp_path / ".htagraph").mkdir()
    hg.KeptRuns(tmp_path).table.write_text('{"name": 3}\n')

    with pytest.raises(hg.errors.TraceFormatError, match="line 1 is no row of a run"):
        list(hg.KeptRuns(tmp_path))


def test_a_run_says_in_one_line_what_limits_it(tmp_path):
    """In fewer than 120 characters, however long its name is."""
    file = tmp_path / f"{'a_long_name_' * 20}.json.gz"
    simulated(1, steps=4).write(file)
    line = row_of(hg.report(file, write=False).summary).line

    assert len(line) == LINE_WIDTH
    assert "…" in line
    assert line.endswith("_long_name_: 4.38 ms a step · GPU compute: costs 85%")


@pytest.mark.parametrize("fault", ["none", "dataloader"])
def test_a_block_has_at_most_25_lines(fault, tmp_path):
    """The headline and the causes, without tables."""
    simulate_job(training_job(fault=fault)).write(tmp_path)
    text = markdown_block(hg.report(tmp_path, write=False).summary)

    assert text.count("\n") <= 25
    assert "\n1. **" in text
    assert "| --- |" not in text


def test_a_check_writes_the_summary_of_a_step(folder, tmp_path, monkeypatch):
    """Where GitHub names the file, after what other commands of the step wrote."""
    (tmp_path / "summary.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    runs = [folder / f"{name}.pt.trace.json.gz" for name in ("slower", "first")]
    with pytest.raises(SystemExit):
        main(["check", str(runs[0]), "--baseline", str(runs[1]), "-q"])
    text = (tmp_path / "summary.md").read_text()

    assert text.startswith("before\n### htagraph: Failed: steps are 8.9% slower, limit 5%: ")
    assert "| GPU compute |" in text
    assert "<details>" not in text
    assert text.count("\n") <= 26


def test_a_check_keeps_a_run(folder, tmp_path, capsys):
    """Once: with the same answer as without."""
    run = str(folder / "first.pt.trace.json.gz")
    for options in ((), ("--keep", str(tmp_path))):
        main_ended = pytest.raises(SystemExit)
        with main_ended:
            main(["check", run, "--max-step", "1s", "-f", "json", "-q", *options])
    plain, kept = capsys.readouterr().out.split("}\n{")
    [row] = hg.KeptRuns(tmp_path)

    assert json.loads(plain + "}")["limits"] == json.loads("{" + kept)["limits"]
    assert (row.source, row.name) == ("check", "first")


def test_the_commit_is_the_one_checked_out_when_a_run_was_recorded(tmp_path):
    """From git's own log of HEAD; before its first entry it is unknown."""
    stamp = {"GIT_AUTHOR_DATE": "@1700000000 +0000", "GIT_COMMITTER_DATE": "@1700000000 +0000"}

    def git(*args: str, **env: str) -> str:
        named = ["-c", "user.name=n", "-c", "user.email=e@x"]
        command = ["git", "-C", str(tmp_path), *named, *args]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, **env}
        )
        return done.stdout.strip()

    git("init", "-q")
    git("commit", "--allow-empty", "-qm", "one", **stamp)
    one = git("rev-parse", "HEAD")
    later = dict.fromkeys(stamp, "@1700001000 +0000")
    git("commit", "--allow-empty", "-qm", "two", **later)

    assert commit_at(tmp_path, 1_700_000_500 * 10**9) == one
    assert commit_at(tmp_path, 1_700_002_000 * 10**9) == git("rev-parse", "HEAD")
    assert commit_at(tmp_path, 1_600_000_000 * 10**9) == ""
    assert commit_at(Path("/"), 1_700_000_500 * 10**9) == ""
