"""What a command is given: files, folders, ranks in a file, companions."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.cli.inputs import Source
from htagraph.cli.main import main
from tests.readers.nsys_files import simulated_file
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank


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
    if verb == ("path",):
        assert "1 of 3 ranks is here: rank2.pt.trace.json.gz." in run(*verb, alone)[2]


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


@pytest.fixture(scope="module")
def export(tmp_path_factory) -> Path:
    """Write an export of a simulated job of two ranks."""
    job = simulate_job(training_job(ranks=2, steps=2, layers=1, straggler=1))
    into = tmp_path_factory.mktemp("exported")
    return simulated_file(into / "run.sqlite", [rank.events for rank in job.ranks])


@pytest.fixture
def ranks_in_a_file_run(capsys, monkeypatch, tmp_path):
    """Run a command in an empty folder; its output and notices."""
    monkeypatch.chdir(tmp_path)

    def ran(*args: object) -> tuple[str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        streams = capsys.readouterr()
        assert not ended.value.code, streams.err
        return streams.out, streams.err

    return ran


def test_an_export_of_several_processes_is_a_job(export) -> None:
    """Its ranks are found, loaded, and their collectives matched."""
    captures = hg.discover(export)
    job = hg.load_job(export)

    assert [Path(path).name for path in captures["path"]] == ["rank-0", "rank-1"]
    assert captures["capture"].tolist() == [1, 1]
    assert sorted(job.summaries) == [0, 1]
    assert set(job.collectives()["rank"]) == {0, 1}
    assert job.critical_path().dur_ns == job.critical_path().segments["dur_ns"].sum()


def test_a_command_takes_the_export_or_a_rank_of_it(ranks_in_a_file_run, export) -> None:
    """As a file, in a folder, by --rank, and by the path of a rank."""
    by_rank, _ = ranks_in_a_file_run("path", export, "--by", "rank", "-f", "json", "-q")
    of_folder, _ = ranks_in_a_file_run("path", export.parent, "--by", "rank", "-f", "json", "-q")
    one, _ = ranks_in_a_file_run("path", export, "--rank", 1, "-f", "json", "-q")
    named, _ = ranks_in_a_file_run("path", export / "rank-1", "-f", "json", "-q")

    assert {row["rank"] for row in json.loads(by_rank)} <= {0, 1}
    assert by_rank == of_folder
    assert json.loads(one) == json.loads(named) != []


def test_a_report_on_a_rank_in_a_file_is_named_by_both(ranks_in_a_file_run, export) -> None:
    """``rank-1`` by itself would be that of any export."""
    out, _ = ranks_in_a_file_run("report", export / "rank-1", "--no-files", "-q")

    assert out.startswith("run.sqlite/rank-1 · rank 1 · ")


def test_an_execution_trace_in_a_folder_is_used(ranks_in_a_file_run, tmp_path) -> None:
    """It is no trace of a rank, and stands beside the one of its process."""
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 77, "tid": 77}
    times = {"ts": 1_700_000_000_000_000, "dur": 5, "args": {"Record function id": 3}}
    node = {"id": 9, "name": "aten::mm", "attrs": [{"name": "rf_id", "value": 3}]}
    node |= {"inputs": {"values": []}, "outputs": {"values": []}, "ctrl_deps": 1}
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": [event | times]}))
    (tmp_path / "et.json").write_text(
        json.dumps({"schema": "1.1.0-chakra.0.0.4", "pid": 77, "nodes": [node]})
    )

    out, _ = ranks_in_a_file_run("ask", "execution_nodes", tmp_path, "-f", "json", "-q")

    assert [(row["name"], row["node"]) for row in json.loads(out)] == [("aten::mm", 9)]


def test_what_stands_beside_a_trace_can_be_named(ranks_in_a_file_run, tmp_path) -> None:
    """``--beside`` of every verb is `beside` of `load`."""
    trace = tmp_path / "trace.json"
    rank = simulate(training_rank(steps=1))
    shutil.copy(rank.write(tmp_path / "simulated.json"), trace)
    log = tmp_path / "power.csv"
    log.write_text(
        "timestamp, index, power.draw [W]\n"
        "2026/01/29 00:00:00.000, 0, 300.00 W\n"
        "2026/01/29 00:00:01.000, 0, 310.00 W\n"
    )

    out, _ = ranks_in_a_file_run(
        "ask", "sampled_counters", trace, "--beside", log, "-f", "json", "-q"
    )

    assert [row["name"] for row in json.loads(out)] == ["power.draw"]


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    """A simulated rank of three steps."""
    out = tmp_path_factory.mktemp("beside") / "rank0.json"
    return simulate(training_rank(steps=3, layers=1)).write(out)


def _log(trace: Path, days: int = 0) -> Path:
    """A log of DCGM, every millisecond from the start of the trace, or some days later."""
    begin = datetime.fromtimestamp(hg.load(trace).events["ts_ns"].min() / 1e9, UTC)
    lines = ["timestamp,gpu,DCGM_FI_PROF_SM_ACTIVE"]
    for n in range(-5, 50):
        when = begin + timedelta(days=days, milliseconds=n)
        lines.append(f"{when.isoformat(timespec='milliseconds')},0,{n % 5 / 5}")
    path = trace.with_name(f"dcgm{days}.csv")
    path.write_text("\n".join(lines))
    return path


def _printed(capsys, *args: object) -> str:
    with pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    assert not ended.value.code
    return " ".join(capsys.readouterr().out.split())


def test_info_says_what_was_found_of_each_file(capsys, trace):
    """One log fits, one is of another day."""
    logs = [_log(trace), _log(trace, days=1)]
    printed = _printed(capsys, "info", trace, "--beside", logs[0], "--beside", logs[1])

    assert "Companion files instrument n matched detail dcgm 55" in printed
    assert "not placed: the log begins 86,400 s after the trace ends" in printed


def test_the_report_draws_what_was_found_and_says_what_was_not(capsys, tmp_path, trace):
    """The page has a panel among its folded sections, below the path."""
    logs = [_log(trace), _log(trace, days=1)]
    printed = _printed(
        capsys, "report", trace, "--beside", logs[0], "--beside", logs[1], "--out", tmp_path
    )
    page = (tmp_path / "report.html").read_text()

    assert page.index('id="critical-path-timeline"') < page.index('id="sampled-counters"')
    assert f"{logs[1]} matches nothing in the trace: " in printed
