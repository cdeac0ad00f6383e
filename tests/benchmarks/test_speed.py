"""Tables and picture of speed, of runs whose times are known."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from tests.benchmarks.rounds import OURS, Run
from tests.benchmarks.speed_picture import picture
from tests.benchmarks.speed_table import history, ratio_table, spread, time_table


def run(**seconds: float) -> Run:
    """A run whose stages took some seconds each, and 2 GB."""
    return {
        stage: {"wall_s": took, "cpu_s": took, "peak_bytes": 2e9} for stage, took in seconds.items()
    }


MEASURED = {
    size: {
        OURS: [run(load=1.0, compile=0.5, path=0.5), run(load=3.0, compile=0.5, path=0.5)],
        "HTA": [run(load=10.0, path=10.0), run(load=30.0, path=20.0)],
    }
    for size in ("20", "100")
}


def test_a_cell_has_the_median_with_least_and_most() -> None:
    assert spread([3.0, 1.0, 2.0]) == "2.00 (1.00-3.00)"
    assert (spread([2.0, 2.0]), spread([None])) == ("2.00", "-")


def test_ratios_are_of_runs_that_took_turns() -> None:
    """20 s by 2 s, and 50 s by 4 s."""
    assert "| 20 | HTA | 11.2 (10-12.5) | 11.2 (10-12.5) | 1 | - |" in ratio_table(MEASURED)


def test_a_stage_that_nobody_measured_is_no_time() -> None:
    """HTA has no stage between load and path, and the way to the path is the sum of what it has."""
    row = next(line for line in time_table(MEASURED).splitlines() if "| 20 | HTA |" in line)

    assert row.split(" | ")[2:6] == [
        "20.00 (10.00-30.00)", "-", "15.00 (10.00-20.00)", "35.00 (20.00-50.00)"
    ]  # fmt: skip


def test_the_picture_has_a_line_for_each_in_each_panel() -> None:
    drawn = ET.fromstring(picture(MEASURED))  # noqa: S314 - our own

    assert len(drawn.findall("{http://www.w3.org/2000/svg}polyline")) == 4


def test_history_has_the_ratios_of_each_version_once() -> None:
    """CPU of three processes: 2 s with 1 s of inflating, then 3 s, then 6 s; HTA takes 8 s."""
    seconds = {"inflate": 1.0, "htagraph path": 2.0, "verdict": 3.0, "report": 6.0, "path": 2.0}
    measured = {"20": {OURS: [run(**seconds)], "HTA": [run(path=8.0)]}}
    ratios = [
        "20,CPU of path / inflate,2.00",
        "20,CPU of verdict / path,1.50",
        "20,CPU of report / verdict,2.00",
        "20,CPU of HTA / htagraph,4.00",
        "20,memory of HTA / htagraph,1.00",
    ]

    first = history(measured, "1.0")
    second = history(measured, "1.1", history(measured, "1.0", first))

    assert first.splitlines()[1:] == [f"1.0,{ratio}" for ratio in ratios]
    assert second.splitlines()[1:] == [f"{v},{ratio}" for v in ("1.0", "1.1") for ratio in ratios]
