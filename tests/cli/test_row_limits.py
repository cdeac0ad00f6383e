"""How many rows each table on the terminal has."""

from __future__ import annotations

from pathlib import Path

import pytest

from htagraph.cli.main import main
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fourteen steps."""
    rank = simulate(training_rank(steps=14, layers=3))
    return rank.write(tmp_path_factory.mktemp("rows") / "rank0.json")


@pytest.fixture
def printed(capsys, monkeypatch, trace):
    """Output and notices of a command on the trace."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(verb: str, *arguments: str) -> tuple[list[str], str]:
        with pytest.raises(SystemExit):
            main([verb, *arguments, str(trace)])
        streams = capsys.readouterr()
        return streams.out.splitlines(), streams.err

    return run


def table(lines: list[str], title: str) -> list[str]:
    """Rows of the table under a title, without its header."""
    first = next(row for row, line in enumerate(lines) if line.startswith(title))
    rows = lines[first + 2 :]
    return rows[: rows.index("")] if "" in rows else rows


def test_segments_and_rows_of_an_answer(printed) -> None:
    lines, aside = printed("path", "--by", "segment")
    assert len(lines) == 1 + 1 + 40
    assert "more rows: --format csv prints all" in aside

    lines, aside = printed("ask", "kernel_durations")
    assert len(lines) == 1 + 1 + 40
    assert "40 of" in aside


def test_steps_and_operators_of_a_report(printed) -> None:
    lines, _ = printed("report", "--no-files", "--tables")

    assert len(table(lines, "By step, first 12 of")) == 12
    assert len(table(lines, "Operators on the path")) == 6


def test_output_into_a_pipe_is_140_characters_wide(printed) -> None:
    lines, _ = printed("ask", "list")

    assert 120 < max(map(len, lines)) <= 140
