"""Tracks of answers and of scenarios, as the trace processor reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

import htagraph as hg
from htagraph.cli.main import main
from htagraph.errors import QueryError

pytestmark = pytest.mark.perfetto

SLICES = """
select s.name, s.ts, s.dur, extract_arg(s.arg_set_id, 'debug.n_occurrences') from slice s
join track t on s.track_id = t.id where t.name = '{}' order by s.ts, s.dur desc
"""
ROOTS = "select name from track where name like 'Findings%' order by name"


def graph_of(drawing: str) -> hg.TraceGraph:
    return hg.Trace.from_events(hg.synth.timeline(drawing)).compile()


def test_patterns_are_drawn_where_they_run(tmp_path: Path, ask) -> None:
    """Copy and gemm run twice; relu and norm follow them once."""
    graph = graph_of("stream 7 |[copy] [gemm]    [copy]  [gemm][relu][norm]")
    patterns = graph.kernel_patterns(by="occurrence")
    out = tmp_path / "patterns.pftrace"
    graph.critical_path().to_perfetto(out, tracks={"kernel patterns": patterns})

    slices, roots = ask(out, SLICES.format("kernel patterns"), ROOTS)
    assert slices == [["copy, gemm", 0, 13_000, 2], ["copy, gemm", 17_000, 14_000, 2]]
    assert roots == [["Findings, rank 0"], ["Findings: kernel patterns, rank 0"]]


def test_rows_that_overlap_have_rows_of_one_track(tmp_path: Path, ask) -> None:
    """Kernels of two streams; each has its length."""
    graph = graph_of("stream 7 |[gemm    ]\nstream 9 |     [copy     ]")
    out = tmp_path / "kernels.pftrace"
    graph.critical_path().to_perfetto(out, tracks={"kernels": graph.kernel_durations()})

    (slices,) = ask(out, SLICES.format("kernels"))
    assert [row[:3] for row in slices] == [["gemm", 0, 10_000], ["copy", 5_000, 11_000]]


@pytest.mark.slow
def test_the_command_line_writes_the_trace_of_an_answer(tmp_path: Path, ask) -> None:
    """The demo's most frequent pattern, 33 times."""
    out = tmp_path / "patterns.pftrace"
    options = ["-o", "by=occurrence", "-o", "rank_by=n_occurrences", "-o", "top=1"]
    file = hg.demo_trace("small_kernels")
    with pytest.raises(SystemExit, match="0"):
        main(["ask", "kernel_patterns", str(file), *options, "--out", str(out), "-q"])

    (slices,) = ask(out, SLICES.format("kernel patterns"))
    assert len(slices) == 33
    assert {row[3] for row in slices} == {33}


def test_an_answer_of_a_job_is_not_drawn(tmp_path: Path, capsys) -> None:
    """Each rank has a trace of its own."""
    out = tmp_path / "patterns.pftrace"
    with pytest.raises(SystemExit, match="1"):
        main(["ask", "kernel_patterns", str(hg.demo_trace("job")), "--out", str(out), "-q"])
    assert "on the trace of one rank. Hint: name one with --rank N" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_answer_about_another_trace_is_refused(tmp_path: Path) -> None:
    """Its rows begin a year before."""
    graph = hg.load(hg.demo_trace("none")).compile()
    other = graph_of("stream 7 |[gemm]")
    with pytest.raises(QueryError, match="kernels: rows begin before the trace"):
        graph.critical_path().to_perfetto(
            tmp_path / "x.pftrace", tracks={"kernels": other.kernel_durations()}
        )


@pytest.mark.slow
def test_an_answer_without_rows_has_an_empty_track(tmp_path: Path, ask) -> None:
    """Nothing repeats."""
    graph = graph_of("stream 7 |[gemm]")
    out = tmp_path / "x.pftrace"
    patterns = graph.kernel_patterns(by="occurrence")
    graph.critical_path().to_perfetto(out, tracks={"kernel patterns": patterns})

    (slices,) = ask(out, SLICES.format("kernel patterns"))
    assert (len(patterns), slices) == (0, [])


def test_what_has_no_time_cannot_be_drawn_over_time(tmp_path: Path) -> None:
    """Nor has a sum over all of the run."""
    graph = graph_of("stream 7 |[gemm]")
    with pytest.raises(QueryError, match="cannot be drawn over time"):
        graph.critical_path().to_perfetto(
            tmp_path / "x.pftrace", tracks={"sums": graph.kernel_breakdown()}
        )
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.slow
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
