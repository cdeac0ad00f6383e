"""Two runs in one file, in the trace processor: before and after, recorded and predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

import htagraph as hg

pytestmark = pytest.mark.perfetto

PATHS = """
select t.name, sum(s.dur), count(*) from slice s join track t on s.track_id = t.id
where t.name like 'Critical path%' group by t.name order by t.name
"""
EVENTS = """
select count(*), max(ts + dur) from slice where category is null or category != 'critical_path'
"""
RUNS = """
select distinct name from process where name is not null
union select name from track where name like 'GPU%' order by 1
"""


def test_both_runs_are_there_each_with_its_path(tmp_path: Path, ask) -> None:
    """Every event twice, and two paths that tile their windows: 34 us, and 28 us."""
    trace = hg.Trace.from_events(
        hg.synth.timeline("""
            cpu 1    |[launch >a]   [sync @*           ]
            stream 7 |      [gemm <a               ]
        """)
    )
    graph = trace.compile()
    scenario = hg.what_if(graph, hg.scale("gemm", by=0.75))
    file = scenario.to_perfetto(tmp_path / "both.pftrace.gz")

    paths, [[n_events, end_ns]], runs = ask(file, PATHS, EVENTS, RUNS)

    lengths = [graph.dur_ns, scenario.dur_ns]
    segments = [len(one.critical_path().segments) for one in (graph, scenario.graph)]
    changed = "what if: scale('gemm', by=0.75)"
    assert paths == [
        [f"Critical path, {run}", length, n]
        for run, length, n in zip(("as it was", changed), lengths, segments, strict=True)
    ]
    assert lengths == [34_000, 28_000]
    assert (n_events, end_ns) == (2 * len(graph.dag.events), lengths[0])
    assert [name for [name] in runs] == [
        *(f"GPU 0, {run}" for run in ("as it was", changed)),
        f"python (pid 1000), {changed}",
        "python, as it was",
    ]


def test_windows_of_two_runs_begin_at_one_time(tmp_path: Path, ask) -> None:
    """The second step of one run, from 15 us on, next to the first of another, from 5 us on."""
    late, soon = (
        hg.Trace.from_events(hg.synth.timeline(drawing)).compile()
        for drawing in (
            "cpu 1 |     [aten::sum][aten::mm  ]",
            "cpu 1 |     [aten::mm][aten::sum]",
        )
    )
    first_ns = int(late.dag.events.ts_ns.min())
    step = late.window((first_ns + 11_000, first_ns + 23_000))
    out = hg.diff(step, soon).to_perfetto(tmp_path / "both.pftrace")

    paths, starts = ask(
        out,
        PATHS,
        "select distinct t.name, min(s.ts) from slice s join track t on s.track_id = t.id "
        "where t.name like 'Critical path%' group by t.name order by 1",
    )

    assert [(name, dur) for name, dur, _ in paths] == [
        ("Critical path, after", soon.dur_ns),
        ("Critical path, before", 12_000),
    ]
    assert starts == [["Critical path, after", 11_000], ["Critical path, before", 11_000]]
