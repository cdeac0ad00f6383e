"""`htagraph query`: chains of events on the command line."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import htagraph as hg
from htagraph.cli.main import main

TRACE = str(hg.demo_trace("none"))
CHAIN = "op aten::linear -LAUNCH> kernel -STREAM> kernel"


@pytest.fixture
def run(capsys, monkeypatch):
    """Exit code, output and error output of a query."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def queried(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["query", TRACE, *map(str, args)])
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return queried


def test_matches_are_a_table_with_units(run):
    """Names first, then how long each took and waited."""
    _, out, _ = run(CHAIN, "-q")

    title, head, row, *_ = out.splitlines()
    assert title == f"18 matches of {CHAIN} in this run."
    assert head.split()[:4] == ["op", "kernel", "kernel", "2"]
    assert row.split()[:3] == [
        "aten::linear",
        "ampere_sgemm_128x64_nn",
        "vectorized_elementwise_kernel",
    ]
    assert "us" in row


def test_scripts_get_all_rows_and_columns(run):
    """The same as in Python, to the nanosecond."""
    rows = json.loads(run(CHAIN, "-f", "json", "-q")[1])
    frame = hg.load(TRACE).compile().match(CHAIN).frame

    assert pd.DataFrame(rows)["kernel_wait_ns"].tolist() == frame["kernel_wait_ns"].tolist()
    assert list(rows[0]) == list(frame)


def test_groups_by_names_or_by_columns(run):
    """As `Matches.group` does."""
    (row,) = json.loads(run(CHAIN, "--by", "name", "-f", "json", "-q")[1])
    by_kind = json.loads(run(CHAIN, "--by", "op, kernel_edge_kind", "-f", "json", "-q")[1])

    assert (row["op"], row["n_matches"]) == ("aten::linear", 18)
    assert by_kind[0]["kernel_edge_kind"] == "launch"


def test_windows_limits_columns_and_files(run, tmp_path):
    """As of the other verbs."""
    code, out, err = run(CHAIN, "-w", "0:8ms", "--limit", 2, "--columns", "op,kernel_ts_ns")

    assert code == 0
    assert out.startswith(f"12 matches of {CHAIN} in 0:8ms.")
    assert len(out.splitlines()) == 4
    assert "+" in out.splitlines()[3]  # an instant, counted from the first
    assert "2 of 12 rows" in err
    run(CHAIN, "--out", tmp_path / "found.csv", "-q")
    assert len(pd.read_csv(tmp_path / "found.csv")) == 18


def test_a_wrong_pattern_is_shown_with_a_mark(run):
    """Before a file is read."""
    code, out, err = run("op -LANCH> kernel")

    assert (code, out) == (1, "")
    sentence, text, mark = err.splitlines()
    assert sentence.startswith("error: character 5 of the pattern: expected a kind of edge")
    assert (text, mark) == ("    op -LANCH> kernel", "        ^")


def test_a_job_needs_a_rank(capsys):
    """A pattern is about one rank."""
    with pytest.raises(SystemExit):
        main(["query", str(hg.demo_trace("job")), "kernel", "-q"])
    assert "--rank" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["query", str(hg.demo_trace("job")), "--rank", "1", "kernel ncc*", "-q"])
    assert "matches of kernel ncc*" in capsys.readouterr().out
