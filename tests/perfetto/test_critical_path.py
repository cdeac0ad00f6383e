"""The critical path in the trace processor: it tiles the window and points to its events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import htagraph as hg
from htagraph.graph import TraceGraph

pytestmark = pytest.mark.perfetto

REAL = {
    "alexnet": "hta/critical_path/alexnet/*.json.gz",
    "ns_resolution": "hta/ns_resolution_trace/*.json.gz",
    "control": "hta/trace_diff/control/*.json.gz",
    "eager B200": "tracelens/eager_trace.json.gz",
    "sglang decode": "tracelens/sglang_Qwen3-8B_decode.json.gz",
}

ON_PATH = (
    "select s.* from slice s join track t on s.track_id = t.id where t.name like 'Critical path%'"
)
TILES = f"""
select count(*), min(ts), max(ts + dur), sum(dur), sum(gap) from (
  select ts, dur, coalesce(ts - lag(ts + dur) over (order by ts, id), 0) != 0 as gap
  from ({ON_PATH})
)
"""  # noqa: S608  text of our own
ORIGINALS = (
    "select count(*), sum(dur) from slice where category is null or category != 'critical_path'"
)
# An arrow goes from the earlier of its two slices to the later one, so the path's slice may be at
# either end.
ARROWS = """
with ends as (
  select slice_out as a, slice_in as b from flow union all select slice_in, slice_out from flow
)
select p.name, o.name, extract_arg(o.arg_set_id, 'debug.critical')
from ends join slice p on p.id = a join slice o on o.id = b
where p.category = 'critical_path' order by p.ts
"""
SUMMARY = """
select t.name, sum(s.dur) from slice s
join track t on s.track_id = t.id join track p on t.parent_id = p.id
where p.name like 'Critical path%'
group by t.id order by extract_arg(t.source_arg_set_id, 'sibling_order_rank')
"""


@pytest.fixture
def graph() -> TraceGraph:
    """A rank that launches two kernels and waits for them."""
    drawing = """
      cpu 1    |[aten::linear           ]  [sync                ]  [aten::relu  ]
      cpu 1    |  [launch >a] [launch >b]
      stream 7 |     [kernel <a          ][kernel2 <b    ]
    """
    return hg.Trace.from_events(hg.synth.timeline(drawing)).compile()


def test_slices_of_the_path_tile_the_window(tmp_path: Path, ask, graph: TraceGraph) -> None:
    """Each begins where the one before ended, and together they are as long as the window."""
    path = graph.critical_path()
    tiles, summary = ask(path.to_perfetto(tmp_path / "x.pftrace"), TILES, SUMMARY)
    assert tiles == [[len(path.segments), 0, graph.dur_ns, graph.dur_ns, 0]]
    totals = path.breakdown()["dur_ns"]
    assert summary == [[bound.replace("_", " "), dur] for bound, dur in totals.items()]


def test_every_segment_has_an_arrow_to_its_event(tmp_path: Path, ask, graph: TraceGraph) -> None:
    """One arrow per segment with an event; the event at its other end is marked as critical."""
    path = graph.critical_path()
    (arrows,) = ask(path.to_perfetto(tmp_path / "x.pftrace"), ARROWS)
    about = path.segments[path.segments["event"] >= 0]
    names = graph.dag.events.names(about["event"])
    assert arrows == [[here, there, 1] for here, there in zip(about["name"], names, strict=True)]


def test_launches_have_arrows_to_their_kernels(tmp_path: Path, ask, graph: TraceGraph) -> None:
    """The links of the trace are there beside those of the path."""
    query = (
        "select a.name, b.name from flow "
        "join slice a on a.id = slice_out join slice b on b.id = slice_in "
        "where a.category != 'critical_path' and b.category != 'critical_path' order by 2"
    )
    (arrows,) = ask(graph.critical_path().to_perfetto(tmp_path / "x.pftrace"), query)
    assert arrows == [["cudaLaunchKernel", "kernel"], ["cudaLaunchKernel", "kernel2"]]


def test_the_path_in_json_tiles_the_window_and_has_its_arrows(tmp_path: Path, ask) -> None:
    """The JSON importer takes the added pairs and arrows as they are meant."""
    rank = hg.synth.simulate(hg.synth.training_rank(steps=2, layers=2))
    original = tmp_path / "rank.json"
    original.write_bytes(rank.to_json())
    path = hg.load(original).compile().critical_path()
    whole = """
    select count(*), sum(dur), max(ts + dur) - min(ts) from slice where category = 'critical_path'
    """
    pointing = """
    select count(*) from flow join slice a on a.id = slice_out join slice b on b.id = slice_in
    where (a.category = 'critical_path') + (b.category = 'critical_path') = 1
    """
    tiles, arrows = ask(path.to_chrome_json(tmp_path / "x.json.gz"), whole, pointing)
    assert tiles == [[len(path.segments), path.dur_ns, path.dur_ns]]
    assert arrows == [[int(np.sum(path.segments["event"] >= 0))]]


@pytest.mark.real
@pytest.mark.parametrize("name", REAL)
def test_a_real_trace_is_whole_and_its_path_tiles_it(
    tmp_path: Path, ask, real_traces: Path, name: str
) -> None:
    """Every event of the file has its duration, and the path covers every nanosecond once."""
    (file,) = real_traces.glob(REAL[name])
    graph = hg.load(file).compile()
    path, events = graph.critical_path(), graph.dag.events
    tiles, originals, arrows = ask(
        path.to_perfetto(tmp_path / "x.pftrace"),
        TILES,
        ORIGINALS,
        f"select count(*) from ({ARROWS})",  # noqa: S608
    )
    assert originals == [[len(events), int(events.dur_ns.sum())]]
    n, first, last, total, gaps = tiles[0]
    assert (n, last - first, total, gaps) == (len(path.segments), path.dur_ns, path.dur_ns, 0)
    assert arrows == [[int(np.sum(path.segments["event"] >= 0))]]
