"""Sequences of kernels that occur again."""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.errors import QueryError
from htagraph.queries.kernel_patterns import kernel_patterns
from htagraph.synth import timeline

_COLUMNS = ["pattern", "n_occurrences", "device_ns", "gap_ns"]


def _patterns(drawing: str, columns=_COLUMNS, **options) -> list[list]:
    dag = compile_events(timeline(drawing))
    return kernel_patterns(dag, dag.span, **options)[columns].to_numpy().tolist()


def test_a_sequence_that_repeats_is_found_with_the_gaps_in_it():
    """Twice copy, 1 or 2 us of nothing, gemm; the gap between the two occurrences is not in it."""
    assert _patterns("stream 7 |[copy] [gemm]    [copy]  [gemm]") == [
        [("copy", "gemm"), 2, 24_000, 3_000]
    ]


def test_each_occurrence_of_a_pattern_has_its_own_times():
    """From the start of the copy to the end of the gemm."""
    columns = ["ts_ns", "dur_ns", "n_occurrences", "device_ns", "gap_ns"]
    drawing = "stream 7 |[copy] [gemm]    [copy]  [gemm]"

    assert _patterns(drawing, columns, by="occurrence") == [
        [0, 13_000, 2, 12_000, 1_000],
        [17_000, 14_000, 2, 12_000, 2_000],
    ]
    assert _patterns(drawing, columns) == [[0, 27_000, 2, 24_000, 3_000]]


def test_streams_are_apart():
    """Copy and gemm are no neighbors on either stream."""
    assert (
        _patterns("""
        stream 7 |[copy]      [copy]
        stream 9 |      [gemm]      [gemm]
    """)
        == []
    )


def test_under_an_operator_it_is_all_the_work_of_a_call():
    """One call has one kernel, two have two; host time is that of the calls."""
    drawing = """
  us       |0         10        20        30        40        50        60        70        80
  cpu 1    |[aten::mm [launch >a]][aten::mm [launch >b][launch >c]][aten::mm [launch >d][launch >e]]
  stream 7 |             [gemm <a]         [gemm <b][relu <c]                   [gemm <d][relu <e]
    """

    assert _patterns(
        drawing, ["pattern", "op", "n_occurrences", "device_ns", "host_ns"], under="aten::mm"
    ) == [[("gemm", "relu"), "aten::mm", 2, 36_000, 66_000]]
    assert _patterns(drawing, ["pattern", "n_occurrences"], under="aten::m*", min_length=1)[1] == [
        ("gemm",),
        1,
    ]


def test_a_call_inside_a_call_belongs_to_the_outer_one():
    """aten::matmul calls aten::mm; asked of both, the kernel is counted once."""
    assert _patterns(
        """
        cpu 1    |[aten::matmul [aten::mm [launch >a]]]
        stream 7 |                          [gemm <a]
        """,
        ["op", "n_occurrences"],
        under="aten::m*",
        min_length=1,
    ) == [["aten::matmul", 1]]


@pytest.mark.parametrize(
    ("rank_by", "first"), [("device_ns", "slow"), ("n_occurrences", "fast"), ("gap_ns", "far")]
)
def test_patterns_are_ranked_by_what_is_asked(rank_by, first):
    """Long kernels, frequent kernels, and kernels far apart."""
    slow, fast, far = "[slow           ][a ]", "[fast][b ]", "[far]   [c ]"
    drawing = "stream 7 |" + 2 * slow + 4 * fast + 2 * far
    found = _patterns(drawing, ["pattern"], rank_by=rank_by, top=1)

    assert found[0][0][0] == first


@pytest.mark.parametrize("lengths", [(0, 4), (5, 4)])
def test_lengths_that_no_sequence_has_are_refused(lengths):
    dag = compile_events(timeline("stream 7 |[k]"))
    with pytest.raises(QueryError):
        kernel_patterns(dag, dag.span, min_length=lengths[0], max_length=lengths[1])


def test_the_first_time_that_a_pattern_ran_is_the_earliest_on_any_stream() -> None:
    """Stream 20 begins 10 us before stream 7."""
    dag = compile_events(
        timeline("""
            us        |0         10        20        30
            stream 7  |          [gemm][relu]
            stream 20 |[gemm][relu]
        """)
    )
    found = kernel_patterns(dag, dag.span)

    assert (found["ts_ns"] - dag.span.start_ns).tolist() == [0]
