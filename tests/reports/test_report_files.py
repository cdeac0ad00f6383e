"""What a report writes of a trace that is too large for Perfetto's UI."""

from __future__ import annotations

from pathlib import Path

import pytest

import htagraph as hg
from htagraph.errors import IncompleteTraceWarning
from htagraph.findings.path import CriticalPath
from htagraph.reports.report import shown_in_perfetto
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

_FILE = Path("critical.pftrace")


@pytest.fixture(scope="module")
def path() -> CriticalPath:
    program = training_rank(steps=16, layers=2, fault="sync_in_loop")
    return hg.Trace.from_events(simulate(program).events).compile().critical_path()


def test_a_trace_of_a_million_events_is_shown_as_a_whole(path):
    assert shown_in_perfetto(path, _FILE) is path


def test_of_a_larger_one_steps_are_shown_with_their_own_path_and_it_is_said(path, tmp_path):
    with pytest.warns(IncompleteTraceWarning, match="5 of 15 similar steps.*--whole"):
        shown = shown_in_perfetto(path, _FILE, most_events=len(path.dag.events) - 1)
    assert path.start_ns < shown.start_ns < shown.end_ns < path.end_ns
    assert shown.segments["dur_ns"].sum() == shown.dur_ns
    found = hg.load(shown.to_perfetto(tmp_path / _FILE.name))
    assert len(found.recording.events) == len(shown.dag.events) < len(path.dag.events)
