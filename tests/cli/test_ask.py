"""`htagraph ask` and `repair`: answers for people and for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from htagraph.cli.main import main
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    """Write a simulated training rank."""
    return simulate(training_rank(steps=2, layers=2)).write(
        tmp_path_factory.mktemp("ask") / "rank0.json.gz"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Write a simulated job of two ranks."""
    into = tmp_path_factory.mktemp("job")
    simulate_job(training_job(ranks=2, steps=2, layers=2, straggler=1)).write(into)
    return into


def _run(capsys, *args: object) -> tuple[int, str, str]:
    """Exit code, output and error output of a command."""
    with pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_a_question_is_answered_as_json(capsys, trace):
    """For scripts: every column, exact numbers."""
    code, out, _ = _run(capsys, "ask", "temporal_breakdown", trace, "--format", "json", "--quiet")
    (row,) = json.loads(out)

    assert code == 0
    parts = row["idle_ns"] + row["compute_ns"] + row["communication_ns"] + row["memory_ns"]
    assert parts == row["window_ns"]


def test_rows_can_be_filtered_and_options_given(capsys, trace):
    """As in pandas, and as in Python."""
    args = (
        "ask",
        "kernel_breakdown",
        trace,
        "-o",
        "by=name",
        "--where",
        "n_kernels > 4",
        "-f",
        "json",
        "-q",
    )
    _, out, _ = _run(capsys, *args)

    assert all(row["n_kernels"] > 4 for row in json.loads(out))


def test_a_table_can_be_written_as_parquet(capsys, trace, tmp_path):
    """The same rows, in a file that other tools read."""
    pytest.importorskip("pyarrow")
    out = tmp_path / "launches.parquet"
    _run(capsys, "ask", "launch_stats", trace, "--out", out, "-q")

    assert len(pd.read_parquet(out)) > 0


def test_an_unknown_question_is_one_clear_line(capsys, trace):
    """With the command that answers, and where all questions are."""
    code, _, err = _run(capsys, "ask", "why", trace)

    assert code == 1
    assert f"try `htagraph report {trace}`; `htagraph ask list` lists all questions." in err
    assert "Traceback" not in err


def test_a_broken_trace_is_repaired(capsys, tmp_path):
    """The repair is listed, and what comes out is valid JSON."""
    broken, out = tmp_path / "broken.json", tmp_path / "whole.json"
    broken.write_bytes(
        b'{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a "b" c","pid":1,"tid":1,'
        b'"ts":1,"dur":2},]}'
    )
    code, text, _ = _run(capsys, "repair", broken, out, "-f", "json", "-q")

    assert code == 0
    assert "raw quote" in [row["kind"] for row in json.loads(text)]
    assert json.loads(out.read_text())["traceEvents"][0]["name"] == 'a "b" c'


def test_the_plot_of_an_answer_is_a_page(capsys, trace, tmp_path):
    """Of every question that has one: `tests/reports/test_plots.py` draws each."""
    pytest.importorskip("plotly")
    out = tmp_path / "plot.html"
    code, _, err = _run(capsys, "ask", "idle_time", trace, "--out", out)

    assert (code, f"Wrote {out}" in err) == (0, True)
    assert "Plotly.newPlot(" in out.read_text(encoding="utf-8")


def test_an_answer_without_a_plot_names_those_that_have_one(capsys, trace, tmp_path):
    code, _, err = _run(capsys, "ask", "cost", trace, "--out", tmp_path / "plot.html")

    assert (code, list(tmp_path.iterdir())) == (1, [])
    assert "there is no plot of cost" in err
    assert "exposed_communication, idle_categories, idle_time" in err
