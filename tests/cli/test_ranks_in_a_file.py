"""A file of several ranks is a job, and a path below it is a rank; files beside traces are used."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.cli.main import main
from tests.readers.nsys_files import simulated_file
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank


@pytest.fixture(scope="module")
def export(tmp_path_factory) -> Path:
    """Write an export of a simulated job of two ranks."""
    job = simulate_job(training_job(ranks=2, steps=2, layers=1, straggler=1))
    into = tmp_path_factory.mktemp("exported")
    return simulated_file(into / "run.sqlite", [rank.events for rank in job.ranks])


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
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


def test_a_command_takes_the_export_or_a_rank_of_it(run, export) -> None:
    """As a file, in a folder, by --rank, and by the path of a rank."""
    by_rank, _ = run("path", export, "--by", "rank", "-f", "json", "-q")
    of_folder, _ = run("path", export.parent, "--by", "rank", "-f", "json", "-q")
    one, _ = run("path", export, "--rank", 1, "-f", "json", "-q")
    named, _ = run("path", export / "rank-1", "-f", "json", "-q")

    assert {row["rank"] for row in json.loads(by_rank)} <= {0, 1}
    assert by_rank == of_folder
    assert json.loads(one) == json.loads(named) != []


def test_a_report_on_a_rank_in_a_file_is_named_by_both(run, export) -> None:
    """``rank-1`` by itself would be that of any export."""
    out, _ = run("report", export / "rank-1", "--no-files", "-q")

    assert out.startswith("run.sqlite/rank-1 · rank 1 · ")


def test_an_execution_trace_in_a_folder_is_used(run, tmp_path) -> None:
    """It is no trace of a rank, and stands beside the one of its process."""
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 77, "tid": 77}
    times = {"ts": 1_700_000_000_000_000, "dur": 5, "args": {"Record function id": 3}}
    node = {"id": 9, "name": "aten::mm", "attrs": [{"name": "rf_id", "value": 3}]}
    node |= {"inputs": {"values": []}, "outputs": {"values": []}, "ctrl_deps": 1}
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": [event | times]}))
    (tmp_path / "et.json").write_text(
        json.dumps({"schema": "1.1.0-chakra.0.0.4", "pid": 77, "nodes": [node]})
    )

    out, _ = run("ask", "execution_nodes", tmp_path, "-f", "json", "-q")

    assert [(row["name"], row["node"]) for row in json.loads(out)] == [("aten::mm", 9)]


def test_what_stands_beside_a_trace_can_be_named(run, tmp_path) -> None:
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

    out, _ = run("ask", "sampled_counters", trace, "--beside", log, "-f", "json", "-q")

    assert [row["name"] for row in json.loads(out)] == ["power.draw"]
