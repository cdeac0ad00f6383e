"""Answers as tracks on top of a trace, in the trace processor."""

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
