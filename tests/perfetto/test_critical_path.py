"""The critical path in the trace processor: it tiles the window and points to its events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.lookup import windowed
from htagraph.lookup.windowed import edge_arrows
from htagraph.model.colors import COLORS
from htagraph.model.kinds import Bound, bound_in_words
from htagraph.run.graph import TraceGraph
from tests.queries.recorded_shapes import Op, recorded
from tests.real_traces import case, located
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

pytestmark = pytest.mark.perfetto

REAL = [
    case("captures/single/json_stack.pt.trace.json.gz"),
    case("hta/critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz"),
    case("hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"),
    case("hta/trace_diff/control/control.json.gz"),
    case("tracelens/eager_trace.json.gz"),
    case("tracelens/sglang_Qwen3-8B_decode.json.gz"),
]

SAID_OF_EACH = ("what", "operator", "track", "cause", "rule", "evidence")
ON_PATH = (
    "select s.* from slice s join track t on s.track_id = t.id where t.name like 'Critical path%'"
)
TILES = f"""
select count(*), min(ts), max(ts + dur), sum(dur), sum(gap) from (
  select ts, dur, coalesce(ts - lag(ts + dur) over (order by ts, id), 0) != 0 as gap
  from ({ON_PATH})
)
"""  # noqa: S608  text of our own
FINDINGS_TILE = TILES.replace("Critical path%", "Findings%")
ORIGINALS = (
    "select count(*), sum(dur) from slice where category is null or category != 'critical_path'"
)
# An arrow goes from the earlier of its two slices to the later one, so the path's slice may be at
# either end.
ARROWS = """
with ends as (
  select slice_out as a, slice_in as b from flow union all select slice_in, slice_out from flow
)
select extract_arg(p.arg_set_id, 'debug.what'), o.name, extract_arg(o.arg_set_id, 'debug.critical')
from ends join slice p on p.id = a join slice o on o.id = b
where p.category = 'critical_path' order by p.ts
"""
BY_BOUND = f"""
select substr(name, 1, instr(name || ' · ', ' · ') - 1), sum(dur) from ({ON_PATH}) group by 1
order by 2 desc
"""  # noqa: S608
FINDINGS = """
select s.name, s.ts, s.dur, extract_arg(s.arg_set_id, 'correlation_id') from slice s
join track t on s.track_id = t.id where t.name like 'Findings%' order by s.ts
"""
ARGUMENTS = """
select distinct s.name, a.key, a.display_value from slice s join track t on s.track_id = t.id
join args a using (arg_set_id) where t.name like 'Findings%' and a.key like 'debug.%'
order by a.id
"""
SAID = f"""
select name, {", ".join(f"extract_arg(arg_set_id, 'debug.{name}')" for name in SAID_OF_EACH)}
from ({ON_PATH}) order by ts
"""  # noqa: S608


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
    tiles, by_bound = ask(path.to_perfetto(tmp_path / "x.pftrace"), TILES, BY_BOUND)
    assert tiles == [[len(path.segments), 0, graph.dur_ns, graph.dur_ns, 0]]
    totals = path.breakdown()["dur_ns"]
    assert by_bound == [[bound_in_words(bound), dur] for bound, dur in totals.items()]


def test_segments_are_in_the_words_of_the_report(tmp_path: Path, ask, graph: TraceGraph) -> None:
    """Called by their bound and event; why they count is in their arguments."""
    (segments,) = ask(graph.critical_path().to_perfetto(tmp_path / "x.pftrace"), SAID)
    kernel, order = ("duration", "recorded"), ("program order", "by definition")
    waits = ("call semantics", "by definition")
    launched = ("correlation", "recorded")
    on_stream, called = ("aten::linear", "stream 7"), "cudaDeviceSynchronize"
    assert segments == [
        ["CPU operators · aten::linear", "aten::linear", None, "1", "CPU work", *order],
        ["launch latency · kernel", "kernel", *on_stream, "CPU work", *launched],
        ["GPU compute · kernel", "kernel", *on_stream, "GPU compute", *kernel],
        ["GPU compute · kernel2", "kernel2", *on_stream, "GPU compute", *kernel],
        [f"GPU synchronization · {called}", called, None, "1", "GPU synchronization", *waits],
        ["untraced code", "(host gap)", None, "1", "GPU synchronization", *order],
        ["CPU operators · aten::relu", "aten::relu", None, "1", "CPU work", *order],
    ]


def test_findings_have_the_titles_of_their_cards(tmp_path: Path, ask, graph: TraceGraph) -> None:
    """Of parts of 0.325 us: kernels run from 5 us to 42 us; the host waits, and is behind after."""
    card = "GPU compute, costs 57%\ncost: 37.0 us\nfix: use bf16: half the bytes\nevidence: kernel"
    file = graph.critical_path().to_perfetto(tmp_path / "x.pftrace", findings={"GPU compute": card})
    slices, arguments = ask(file, FINDINGS, ARGUMENTS)
    host, compute, sync = (
        COLORS[bound].perfetto for bound in (Bound.HOST, Bound.COMPUTE, Bound.SYNC)
    )
    assert slices == [
        ["CPU work", 0, 4_875, host],
        ["GPU compute, costs 57%", 4_875, 37_050, compute],
        ["GPU synchronization", 41_925, 14_950, sync],
        ["CPU work", 56_875, 8_125, host],
    ]
    assert arguments == [
        ["GPU compute, costs 57%", "debug.cost", "37.0 us"],
        ["GPU compute, costs 57%", "debug.fix", "use bf16: half the bytes"],
        ["GPU compute, costs 57%", "debug.evidence", "kernel"],
    ]


def test_the_path_is_below_the_findings(tmp_path: Path, ask, graph: TraceGraph) -> None:
    """Both are named after their rank; the UI orders what is on top by name."""
    tracks = """
    select t.name, p.name from track t left join track p on t.parent_id = p.id
    where t.type glob 'global*track_event' order by t.parent_id is not null, t.name
    """
    (found,) = ask(graph.critical_path().to_perfetto(tmp_path / "x.pftrace"), tracks)
    assert [track for track in found if "stream" not in track[0]][:3] == [
        ["Findings, rank 0", None],
        ["GPU 0, rank 0", None],
        ["Critical path, rank 0", "Findings, rank 0"],
    ]


def test_segments_have_the_colors_of_the_report(tmp_path: Path, ask, graph: TraceGraph) -> None:
    """The text that viewers hash to a color is that of the bound."""
    path = graph.critical_path()
    query = f"select extract_arg(arg_set_id, 'correlation_id') from ({ON_PATH}) order by ts"  # noqa: S608
    (texts,) = ask(path.to_perfetto(tmp_path / "x.pftrace"), query)
    bounds = [Bound.parse(bound) for bound in path.segments["bound"]]
    assert texts == [[COLORS[bound].perfetto] for bound in bounds]


def test_code_between_operators_is_called_by_its_range_or_its_neighbor(tmp_path: Path, ask) -> None:
    """A range of the program says where it is, the range of a step does not."""
    drawing = """
      cpu 1 |{ProfilerStep#0                                        }
      cpu 1 |[aten::mm]        {# loss                       }
      cpu 1 |                  [aten::sum]        [aten::relu]
    """
    rank = hg.Trace.from_events(hg.synth.timeline(drawing, us_per_column=100))
    out = rank.compile().critical_path().to_perfetto(tmp_path / "x.pftrace")
    (names,) = ask(out, f"select name from ({ON_PATH}) where name like 'untraced%' order by ts")  # noqa: S608

    assert names == [
        ["untraced code · after aten::mm"],
        ["untraced code · # loss"],
        ["untraced code · after # loss"],
    ]


def test_every_segment_has_an_arrow_to_its_event(tmp_path: Path, ask, graph: TraceGraph) -> None:
    """One arrow per segment with an event; the event at its other end is marked as critical."""
    path = graph.critical_path()
    (arrows,) = ask(path.to_perfetto(tmp_path / "x.pftrace"), ARROWS)
    about = path.segments[path.segments["event"] >= 0]
    names = graph.dag.events.names(about["event"])
    assert arrows == [[here, there, 1] for here, there in zip(about["name"], names, strict=True)]


def test_launches_have_arrows_to_their_kernels(tmp_path: Path, ask, graph: TraceGraph) -> None:
    """The flows of the trace are there, next to those of the path."""
    query = (
        "select a.name, b.name from flow "
        "join slice a on a.id = slice_out join slice b on b.id = slice_in "
        "where a.category != 'critical_path' and b.category != 'critical_path' order by 2"
    )
    (arrows,) = ask(graph.critical_path().to_perfetto(tmp_path / "x.pftrace"), query)
    assert arrows == [["cudaLaunchKernel", "kernel"], ["cudaLaunchKernel", "kernel2"]]


def test_the_path_in_json_tiles_the_window_and_has_its_arrows(tmp_path: Path, ask) -> None:
    """The JSON importer takes the added pairs and arrows as they are meant."""
    rank = simulate(training_rank(steps=2, layers=2))
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


@pytest.mark.parametrize("name", REAL)
def test_a_real_trace_is_whole_and_its_path_tiles_it(tmp_path: Path, ask, name: str) -> None:
    """Every event of the file has its duration, and the path covers every nanosecond once."""
    graph = hg.load(located(name)).compile()
    path, events = graph.critical_path(), graph.dag.events
    tiles, findings, originals, arrows = ask(
        path.to_perfetto(tmp_path / "x.pftrace"),
        TILES,
        FINDINGS_TILE,
        ORIGINALS,
        f"select count(*) from ({ARROWS})",  # noqa: S608
    )
    assert originals == [[len(events), int(events.dur_ns.sum())]]
    n, first, last, total, gaps = tiles[0]
    assert (n, last - first, total, gaps) == (len(path.segments), path.dur_ns, path.dur_ns, 0)
    assert findings[0][1:] == tiles[0][1:]
    assert findings[0][0] <= 200
    assert arrows == [[int(np.sum(path.segments["event"] >= 0))]]


def test_a_kernel_says_how_far_it_is_from_its_roof(tmp_path: Path, ask) -> None:
    """137.4 GFLOP in 200 us, on an H100 that does 989.4 TFLOP/s."""
    graph = recorded(Op("aten::mm", [[4096, 4096], [4096, 4096]], [("gemm", 200)]))
    out = graph.critical_path().to_perfetto(tmp_path / "x.pftrace")
    names = ("tflops_per_s", "gb_per_s", "share", "limit")
    columns = ", ".join(f"extract_arg(arg_set_id, 'debug.roof_{name}')" for name in names)
    (found,) = ask(out, f"select {columns} from slice where name = 'gemm' and category = 'kernel'")  # noqa: S608

    assert found == [[687.2, 503.3, 0.695, "compute"]]


EDGES = """
select o.name, i.name from flow join slice o on o.id = slice_out join slice i on i.id = slice_in
where coalesce(o.category, '') != 'critical_path' and coalesce(i.category, '') != 'critical_path'
order by o.ts, i.ts
"""


def test_all_edges_of_the_window_can_be_arrows(tmp_path: Path, ask, graph: TraceGraph) -> None:
    """Beyond launches: nesting, order of the thread and of the stream."""
    path, launch = graph.critical_path(), "cudaLaunchKernel"
    some, every = (
        ask(path.to_perfetto(tmp_path / f"{shown}.pftrace", edges=shown), EDGES)[0]
        for shown in ("work", "all")
    )
    assert some == [[launch, "kernel"], [launch, "kernel2"]]
    assert sorted(every) == [
        ["aten::linear", "cudaDeviceSynchronize"],
        ["aten::linear", launch],
        ["cudaDeviceSynchronize", "aten::relu"],
        [launch, launch],
        [launch, "kernel"],
        [launch, "kernel2"],
        ["kernel", "kernel2"],
        ["kernel2", "cudaDeviceSynchronize"],
    ]
    assert edge_arrows(graph.dag, path.window)[1] == 1


def test_too_many_arrows_are_refused(graph: TraceGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    """A viewer could not draw them."""
    monkeypatch.setattr(windowed, "MOST_ARROWS", 3)
    with pytest.raises(QueryError, match=r"more than 3\. Hint: take a shorter window"):
        edge_arrows(graph.dag, graph.interval)
