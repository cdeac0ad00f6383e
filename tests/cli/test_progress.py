"""Progress: what is done, how much of it, and how long it still takes; only on a terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from htagraph.cli import console
from htagraph.cli.console import Waiting
from htagraph.cli.main import main
from htagraph.model.progress import counted, heard_by, tell
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank


@pytest.fixture
def shown(monkeypatch) -> list[str]:
    """Every state of the progress line of what runs."""
    lines: list[str] = []
    hear = Waiting._hear

    def note(waiting: Waiting, doing: str, done: int, total: int, awaited: str) -> None:
        hear(waiting, doing, done, total, awaited)
        task = waiting._progress.tasks[-1]
        lines.append(f"{task.description} {task.fields['amount']}".strip())

    monkeypatch.setattr(Waiting, "_hear", note)
    return lines


def ran(*args: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    assert not ended.value.code


def test_a_report_tells_each_of_its_phases(shown, tmp_path) -> None:
    """Those of equal parts with a share; those of others by their names."""
    trace = simulate(training_rank(steps=2, layers=1)).write(tmp_path / "rank0.json")
    ran("report", trace, "--out", tmp_path / "out")

    assert "Compiling the graph · stream edges" in shown
    assert any(re.fullmatch(r"Finding what bounds it · change \d+ of \d+, \d+%", s) for s in shown)
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


def test_who_is_awaited_is_shown(shown) -> None:
    """Beside how many are done."""
    with Waiting().shown():
        tell("rank", 3, 4, "rank 2")

    assert shown == ["Opening · rank 4 of 4, 75%, awaiting rank 2"]


def test_what_is_told_within_a_count_is_not_heard() -> None:
    """Or the line would jump between the two."""
    heard: list[tuple[str, int, int, str]] = []
    with heard_by(lambda *told: heard.append(told)):
        for _ in counted("rank", ("a", "b")):
            tell("stream edges")
    tell("nobody listens")

    assert heard == [("rank", 0, 2, ""), ("rank", 1, 2, ""), ("rank", 2, 2, "")]


def test_a_terminal_sees_share_and_time_left(monkeypatch, tmp_path: Path) -> None:
    """And a pipe sees nothing."""
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(console, "notices", lambda **_: terminal)
    waiting = Waiting()
    now = [0.0]
    waiting._progress.get_time = lambda: now[0]
    with waiting.shown():
        waiting.stage("Replaying")
        for _ in counted("change", range(20)):
            now[0] += 3.0
            waiting._progress.refresh()
    assert isinstance(terminal.file, io.StringIO)
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", terminal.file.getvalue())

    assert "Replaying · change" in text
    assert re.search(r"11 of 20, 50% +0:00:\d\d about 0:\d\d left", text)
