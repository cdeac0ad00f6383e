"""Two runs of different days in one file, in the trace processor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import htagraph as hg

pytestmark = pytest.mark.perfetto

PATHS = """
select t.name, min(s.ts), sum(s.dur) from slice s join track t on s.track_id = t.id
where t.name like 'Critical path%' group by t.name order by t.name
"""


def test_both_begin_at_one_time_each_with_its_path(tmp_path: Path, ask) -> None:
    """A day lies between them; on the screen they lie below each other."""
    day_ns = 86_400_000_000_000
    drawings = ("cpu 1 |[aten::mm ]", "cpu 1 |[aten::mm     ]")
    events = [hg.synth.timeline(drawing) for drawing in drawings]
    events[1] = replace(events[1], ts_ns=events[1].ts_ns + day_ns)
    graphs = [hg.Trace.from_events(one).compile() for one in events]
    file = hg.diff(*graphs).to_perfetto(tmp_path / "both.pftrace")

    [after, before] = ask(file, PATHS)[0]

    assert [before[0], after[0]] == ["Critical path, before", "Critical path, after"]
    assert before[1] == after[1]
    assert [before[2], after[2]] == [graph.dur_ns for graph in graphs]
