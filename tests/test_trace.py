"""A trace is what a reader returned, whatever the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import htagraph as hg
from htagraph import trace as trace_module
from htagraph.model.recording import Origin, Recording, Repair
from htagraph.synth import timeline

EVENTS = timeline("""
    cpu 1    |{ProfilerStep#1        }
    cpu 1    | [aten::mm [launch >a]]
    stream 7 |                [gemm <a]
""")


class Arguments:
    """Args of events in memory."""

    def decode(self, events: Any) -> list[dict[str, Any]]:
        """The row of each event as its args."""
        return [{"row": int(event)} for event in events]

    def raw(self, events: Any) -> list[bytes]:
        """Empty events."""
        return [b"{}" for _ in events]


def foreign(source: Any, **_: Any) -> Recording:
    """Read a format that is not Kineto's."""
    return Recording(
        EVENTS,
        rank=3,
        rank_source="file name",
        world_size=8,
        repairs=(Repair("torn page", 2, 70, "left out"),),
        skipped={"python_function": 5},
        origin=Origin(Path(source), 1_000, Arguments(), {"tool": "other"}),
    )


@pytest.fixture
def trace(monkeypatch):
    """Load a file of another format, for which `load` needs one line."""
    is_foreign = (lambda source: str(source).endswith(".other"), foreign)
    monkeypatch.setattr(trace_module, "_READERS", (is_foreign, *trace_module._READERS))
    return hg.load("rank3.other")


def test_load_asks_the_reader_of_the_format(trace):
    """What the reader found is what the trace says."""
    assert (trace.rank, trace.rank_source, trace.world_size) == (3, "file name", 8)
    assert (trace.path, trace.metadata) == (Path("rank3.other"), {"tool": "other"})
    assert trace.repairs["kind"].tolist() == ["torn page"]
    assert (trace.has_unread_stacks, trace.args([2, 0])) == (True, [{"row": 2}, {"row": 0}])


def test_other_formats_stay_with_their_reader(trace):
    """A new reader changes nothing for the old one."""
    assert len(hg.load(b"[]").events) == 0


def test_the_graph_keeps_the_origin_and_not_the_file(trace):
    """Path and saved graph know where the events come from."""
    graph = trace.compile()

    assert graph.origin == graph.critical_path().origin == graph.select().origin
    assert graph.origin.source == Path("rank3.other")


def test_a_saved_graph_knows_its_file_and_base_time(trace, tmp_path):
    """The args are read from the file, which may be gone."""
    origin = hg.TraceGraph.open(trace.compile().save(tmp_path / "graph.npz")).origin

    assert (origin.path, origin.base_time_ns) == (Path("rank3.other").resolve(), 1_000)
    assert origin.args is None


def test_events_at_hand_have_no_origin():
    """Nothing was skipped or repaired, and there are no args."""
    trace = hg.Trace.from_events(EVENTS, rank=2)

    assert (trace.rank, trace.rank_source, trace.path) == (2, "given", None)
    assert (len(trace.repairs), dict(trace.skipped), trace.metadata) == (0, {}, {})
    assert trace.args([0]) == [{}]
