"""`htagraph sql`: queries on the command line."""

from __future__ import annotations

import json

import pytest

import htagraph as hg
from htagraph.cli.main import main

pytest.importorskip("duckdb")

TRACE, JOB = str(hg.demo_trace("none")), str(hg.demo_trace("job"))
BY_BOUND = "SELECT bound, sum(dur_ns) AS dur_ns FROM segments GROUP BY 1 ORDER BY 2 DESC"


@pytest.fixture
def run(capsys, monkeypatch):
    """Exit code, output and error output of a query."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def queried(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["sql", *map(str, args)])
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return queried


def test_rows_are_a_table_with_units(run):
    """Times by the names of their columns."""
    _, out, _ = run(TRACE, BY_BOUND, "-q")

    title, head, row, *_ = out.splitlines()
    assert title == "9 rows of this run."
    assert head.split() == ["bound", "dur"]
    assert row.split() == ["GPU", "compute", "11.2", "ms"]


def test_scripts_get_exact_numbers(run):
    """The parts of the path add up to the window."""
    rows = json.loads(run(TRACE, BY_BOUND, "-f", "json", "-q")[1])

    assert sum(row["dur_ns"] for row in rows) == hg.load(TRACE).compile().dur_ns


def test_a_table_has_forty_rows_unless_more_are_asked_for(run):
    """All are in a file, or in CSV."""
    _, out, err = run(TRACE, "FROM events")
    assert len(out.splitlines()) == 42
    assert "40 of 507 rows" in err
    assert len(run(TRACE, "FROM events", "--limit", 60, "-q")[1].splitlines()) == 62
    assert len(run(TRACE, "FROM events", "-f", "csv", "-q")[1].splitlines()) == 508


def test_a_job_has_ranks(run):
    """In the first column."""
    rows = json.loads(run(JOB, "SELECT DISTINCT rank FROM kernels", "-f", "json", "-q")[1])

    assert sorted(row["rank"] for row in rows) == [0, 1, 2, 3]


def test_a_plan_is_drawn(run):
    """As DuckDB does."""
    _, out, _ = run(TRACE, "EXPLAIN FROM events", "-q")

    assert "─" in out.splitlines()[0]


def test_a_wrong_query_is_refused(run):
    """In one sentence, with what there is."""
    code, _, err = run(TRACE, "SELECT nme FROM events", "-q")
    assert code == 1
    assert err.startswith('error: Referenced column "nme" not found')
    assert "did you mean 'name'?" in err
    assert "no files, network" in run(TRACE, "FROM read_csv('/etc/passwd')", "-q")[2]
    assert "not COPY" in run(TRACE, "COPY events TO 'x'", "-q")[2]


def test_the_largest_of_no_rows_is_empty(run):
    """DuckDB says null; a table shows nothing there, whatever the column is."""
    columns = "max(dur_ns) AS dur_ns, max(ts_ns) AS ts_ns, max(name) AS name, count(*) AS n"
    query = f"SELECT {columns} FROM kernels WHERE dur_ns < 0"  # noqa: S608  nobody else writes it
    _, out, _ = run(TRACE, query, "-q")

    assert out.splitlines()[-1].split() == ["0"]
