"""The first screens of all demo traces and captures, as tests of any room read them."""

from __future__ import annotations

import io
import warnings
from functools import cache
from typing import Any, NamedTuple

import pytest
from rich.console import Console

import htagraph as hg
from htagraph.cli.tables import print_verdict
from htagraph.errors import HTAGraphWarning
from htagraph.findings.verdict import Verdict
from htagraph.reports.job_summary import JobSummary
from htagraph.reports.summary import Summary
from htagraph.synth.demo_traces import demo_trace
from tests.real_traces import CAPTURES, traces_in

DEMOS = {
    path.name.split(".")[0]: path
    for path in sorted(demo_trace("none").parent.iterdir())
    if path.name.endswith(".json.gz") or path.name == "job"
}
"""The demo traces, by name."""

_TRACES = [
    path for name in ("single", "features", "threads") for path in traces_in(CAPTURES / name)
]
_JOBS = [path for name in ("jobs", "pipelines") for path in sorted((CAPTURES / name).iterdir())]
_FAST = ("ddp_sleep_4", "pp4_1f1b_slow", "moe_hot2")
"""Captures of jobs that plain pytest reads: a late rank, a slow stage, unequal experts."""

_PATHS = DEMOS | {
    f"{path.parent.name}/{path.name.split('.')[0]}": path for path in (*_TRACES, *_JOBS)
}


class Screen(NamedTuple):
    """The verdict on a run, and how a terminal shows it."""

    verdict: Verdict
    summary: Summary | JobSummary

    def lines(self, width: int, *, colors: bool = False) -> list[str]:
        """The lines of a terminal so many columns wide."""
        console = Console(
            width=width,
            file=io.StringIO(),
            highlight=False,
            force_terminal=colors,
            color_system="truecolor" if colors else None,
        )
        print_verdict(console, self.summary)
        assert isinstance(console.file, io.StringIO)
        return [line.rstrip() for line in console.file.getvalue().splitlines()]


@cache
def screen_of(name: str) -> Screen:
    """The screen of a demo trace or capture."""
    path = _PATHS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HTAGraphWarning)
        summary = (
            JobSummary.of_answering(hg.load_job(path), path.name)
            if path.is_dir()
            else Summary.of(trace := hg.load(path), trace.compile())
        )
        return Screen(summary.verdict, summary)


def _case(name: str) -> Any:
    """A parameter of a test; jobs of captures are slow, but for three."""
    is_slow = _PATHS[name].is_dir() and name not in DEMOS and not name.endswith(_FAST)
    return pytest.param(name, marks=(pytest.mark.slow,) if is_slow else ())


SCREENS = pytest.mark.parametrize("name", [_case(name) for name in _PATHS])
"""Marks a test of all screens."""
