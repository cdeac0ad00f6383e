"""Progress: what is done, how much of it, and how long it still takes; only on a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest
from rich.console import Console

from htagraph.cli import console
from htagraph.cli.console import shown_progress
from htagraph.cli.main import main
from htagraph.model.progress import (
    BYTES,
    Progress,
    begin_stage,
    counted,
    listening,
    report_progress,
)
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank


@pytest.fixture
def shown(monkeypatch) -> Iterator[list[str]]:
    """Every state of the progress line of what runs."""
    lines: list[str] = []
    hear = console._ProgressLine.hear

    def note(line, now: Progress) -> None:
        hear(line, now)
        task = line.tasks[-1]
        lines.append(f"{task.description} {task.fields['amount']}".strip())

    monkeypatch.setattr(console._ProgressLine, "hear", note)
    return lines


def ran(*args: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    assert not ended.value.code


def test_a_report_shows_each_of_its_phases(shown, tmp_path) -> None:
    """Counts with a share; other parts by their names."""
    trace = simulate(training_rank(steps=2, layers=1)).write(tmp_path / "rank0.json")
    ran("report", trace, "--out", tmp_path / "out")

    assert re.fullmatch(r"Reading rank0.json .* of .*, 100%", shown[2])
    assert "Compiling the graph · stream edges" in shown
    assert any(re.fullmatch(r"Finding what limits it · change \d+ of \d+, \d+%", s) for s in shown)
    assert any("report.html · section 1" in line for line in shown)


def test_the_ranks_of_a_job_are_counted(shown, tmp_path) -> None:
    simulate_job(training_job(ranks=3, steps=1, layers=1)).write(tmp_path)
    ran("path", tmp_path)

    assert [line for line in shown if line.startswith("Reading · rank")][:4] == [
        "Reading · rank 1 of 3, 0%",
        "Reading · rank 2 of 3, 33%",
        "Reading · rank 3 of 3, 67%",
        "Reading · rank 3 of 3, 100%",
    ]


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (Progress("Reading", "rank", 3, 4, "rank 2"), "rank 4 of 4, 75%, awaiting rank 2"),
        (Progress("Reading", BYTES, 1_000_000, 4_000_000), "1.0 MB of 4.0 MB, 25%"),
    ],
)
def test_a_line_has_what_is_counted_and_awaited(progress: Progress, line: str) -> None:
    assert str(progress).endswith(line)


def test_what_is_reported_within_a_count_is_not_heard() -> None:
    """Or the line would jump between the two."""
    heard: list[Progress] = []
    with listening(heard.append):
        for _ in counted("rank", ("a", "b")):
            report_progress("stream edges")
    report_progress("nobody listens")

    assert heard == [Progress("", "rank", done, 2) for done in range(3)]


def test_a_terminal_shows_share_and_time_left(monkeypatch) -> None:
    """And a pipe shows nothing."""
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    now = [0.0]

    class Line(console._ProgressLine):
        def get_time(self) -> float:
            return now[0]

        def hear(self, progress: Progress) -> None:
            super().hear(progress)
            self.refresh()

    monkeypatch.setattr(console, "notices", lambda **_: terminal)
    monkeypatch.setattr(console, "_ProgressLine", Line)
    with shown_progress():
        begin_stage("Replaying")
        for _ in counted("change", range(20)):
            now[0] += 3.0
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", terminal.file.getvalue())

    assert "Replaying · change" in text
    assert re.search(r"11 of 20, 50% +0:00:\d\d about 0:\d\d left", text)
