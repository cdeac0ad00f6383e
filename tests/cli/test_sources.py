"""What a command is asked about: files, folders, globs, one rank of several."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from htagraph.cli.inputs import Source
from htagraph.cli.main import main
from tests.synth.simulator import simulate_job
from tests.synth.training import training_job


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Write a simulated job of three ranks."""
    into = tmp_path_factory.mktemp("job")
    simulate_job(training_job(ranks=3, steps=2, layers=1, straggler=1)).write(into)
    return into


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run a command in an empty folder: exit code, output and notices."""
    monkeypatch.chdir(tmp_path)

    def ran(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        streams = capsys.readouterr()
        return int(ended.value.code or 0), streams.out, streams.err

    return ran


def rank_file(folder: Path, rank: int) -> Path:
    return next(file for file in folder.iterdir() if f"rank{rank}" in file.name)


VERBS = [("path",), ("ask", "overlap"), ("dot",), ("info",), ("what-if",), ("report", "--no-files")]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_one_rank_of_a_folder_is_asked_about_as_its_file(run, folder, verb) -> None:
    """Every verb takes `--rank`."""
    code, out, _ = run(*verb, folder, "--rank", 2, "-q")

    assert (code, out) == run(*verb, rank_file(folder, 2), "-q")[:2]
    assert code == 0


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_a_folder_with_one_trace_is_that_trace(run, folder, tmp_path, verb) -> None:
    """For every verb, also where a rank of a job says something else."""
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(rank_file(folder, 2), alone)

    assert run(*verb, alone, "-q") == run(*verb, next(alone.iterdir()), "-q")


def test_the_path_of_a_folder_is_that_of_the_job(run, folder) -> None:
    """Its parts by rank add up."""
    _, out, _ = run("path", folder, "--by", "rank", "-f", "json")
    _, whole, _ = run("path", folder, "-f", "json")

    assert {row["rank"] for row in json.loads(out)} <= {0, 1, 2}
    assert sum(row["dur_ns"] for row in json.loads(out)) == sum(
        row["dur_ns"] for row in json.loads(whole)
    )


def test_a_glob_and_several_files_are_a_job(run, folder) -> None:
    """Of files that are listed, it is said."""
    listed = run("ask", "stragglers", *sorted(folder.iterdir()), "-f", "csv")

    assert listed[1] == run("ask", "stragglers", folder / "rank*", "-f", "csv")[1]
    assert listed[1] == run("ask", "stragglers", folder, "-f", "csv")[1]
    assert "3 files are taken as the ranks of one job." in listed[2]


def test_a_verb_of_one_trace_names_the_ranks_there_are(run, folder) -> None:
    code, _, err = run("info", folder)

    assert code == 1
    assert "3 ranks, and this command takes one. Hint: give --rank N, one of 0, 1, 2; or one" in err


def test_a_rank_that_is_not_there_is_said(run, folder) -> None:
    code, _, err = run("path", folder, "--rank", 7)

    assert (code, err) == (1, "error: no rank 7 in this job. Hint: available: 0, 1, 2.\n")


def test_a_broken_trace_is_repaired_out_of_its_folder(run, folder, tmp_path) -> None:
    assert run("repair", folder, tmp_path / "out.json", "--rank", 1, "-q")[0] == 0


def test_a_file_that_is_mistyped_is_named(run, folder) -> None:
    """The one in the same folder that is called alike."""
    name = rank_file(folder, 1).name
    for given in (folder / f"x{name}", folder.parent / "jobb0" / name):
        code, _, err = run("path", given)

        assert code == 1
        assert "no such file or folder. Hint: did you mean '" in err


def test_a_report_can_only_be_printed(run, folder, tmp_path) -> None:
    code, out, err = run("report", folder, "--no-files")

    assert (code, list(tmp_path.iterdir())) == (0, [])
    assert err.lstrip().startswith(f"Next: htagraph ask stragglers {folder}")
    assert "Rank 1 is late: it costs " in out
    assert run("report", folder, "--no-files", "--out", tmp_path)[0] == 1


def test_a_verdict_is_printed_before_files_are_written(run, folder, tmp_path) -> None:
    """Where none can be written, what limits the run has been said."""
    (tmp_path / "taken").write_text("")
    code, out, err = run("report", folder, "--rank", 0, "--out", tmp_path / "taken")

    assert (code, " of this run: " in out, "cannot create this folder" in err) == (
        1,
        True,
        True,
    )


def test_the_page_of_a_report_is_opened(run, folder, tmp_path, monkeypatch) -> None:
    """When it is written."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    code, _, _ = run("report", folder, "--rank", 0, "--out", tmp_path / "here", "--open", "-q")

    assert (code, opened) == (0, [(tmp_path / "here" / "report.html").as_uri()])


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        (["run/a-0.json", "run/a-1.json", "run/b c.json"], "run/"),
        (["run/a-0.json", "run/a-1.json"], "run/a-*.json"),
        (["run/a-0.json", "run/b c.json"], "run/a-0.json 'run/b c.json'"),
        (["run/a-1.json", "run/a-0.json"], "run/a-1.json run/a-0.json"),
        (["run"], "run/"),
        (["run/a-*"], "'run/a-*'"),
        (["run/b c.json"], "'run/b c.json'"),
    ],
)
def test_a_source_is_typed_as_short_as_it_can_be(tmp_path, monkeypatch, given, typed) -> None:
    """A folder of no other traces, a glob of no other files in this order; else every path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    for rank, name in enumerate(["a-0.json", "a-1.json", "b c.json"]):
        trace = {"traceEvents": [], "distributedInfo": {"rank": rank, "world_size": 3}}
        (tmp_path / "run" / name).write_text(json.dumps(trace))

    assert Source.of([Path(one) for one in given]).typed == typed
    assert Source.of([Path(one) for one in given], rank=0).typed == f"{typed} --rank 0"
