"""A place of host code has one name: in findings, opportunities, comparisons, and on the page."""

from __future__ import annotations

import json

import pytest

import htagraph as hg
from htagraph.explain.segments import segment_code

NEIGHBOURS = ["Optimizer.zero_grad#AdamW.zero_grad", "aten::mm", "my loss (fwd)"]


def stepping(neighbour: str, gap_us: int) -> hg.TraceGraph:
    """Four steps, in each of which Python runs for long after an operator or a named range."""
    events, ts = [], 0
    for step in range(4):
        begin = ts
        parts = [("aten::add", 10, 200), (neighbour, 0, 100), ("aten::relu", gap_us, 300)]
        for name, pause, dur in parts:
            ts += pause
            kind = "cpu_op" if name.startswith("aten") else "user_annotation"
            events.append({"cat": kind, "name": name, "ts": ts, "dur": dur})
            ts += dur
        name = f"ProfilerStep#{step}"
        events.append({"cat": "user_annotation", "name": name, "ts": begin, "dur": ts - begin + 10})
        ts += 15
    written = [{"ph": "X", "pid": 1, "tid": 1, **event} for event in events]
    return hg.load(json.dumps({"traceEvents": written}).encode()).compile()


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_a_place_has_one_name_everywhere(neighbour: str) -> None:
    """Of the same segment, the longest of the path."""
    graph, slower = stepping(neighbour, 2_000), stepping(neighbour, 4_000)
    path, place = graph.critical_path(), f"after {neighbour}"
    longest = int(path.durations_ns.argmax())
    helpful = graph.opportunities()

    assert segment_code(path.attributed_time, path.n_segments)[longest] == place
    assert graph.verdict().findings[0].evidence[0].label == f"untraced code {place}"
    assert helpful.loc[helpful["kind"] == "Python code", "target"].iloc[0] == place
    compared = hg.diff(*map(hg.run_profile, (graph, slower)))
    assert f"Where: untraced code +2.00 ms {place}." in compared.details


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_a_place_can_be_removed_by_its_name(neighbour: str) -> None:
    """It takes 2 ms in each of four steps."""
    graph = stepping(neighbour, 2_000).window("trace")
    saves = hg.what_if(graph, hg.remove(hg.code(f"after {neighbour}"))).saves_ns

    assert saves is not None
    assert saves.expected_ns == 8_000_000
