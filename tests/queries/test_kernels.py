"""Kernels: by group, one by one, in patterns, and as launched."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.model.window import Window
from htagraph.queries.counters import launch_stats
from htagraph.queries.kernels import kernel_breakdown, kernel_durations, kernel_patterns
from tests.drawn import drawn_dag

_DAG = drawn_dag("""
    us       |0         10        20        30        40
    cpu 1    |[aten::mm [launch >a]][aten::relu [launch >b]]
    stream 7 |            [gemm <a ]                [relu <b]
    stream 9 |            [ncclX][gemm       ]
""")


@pytest.mark.parametrize(
    ("by", "sums"),
    [
        ("class", {"compute": 32_000, "communication": 7_000}),
        ("name", {"gemm": 23_000, "relu": 9_000, "ncclX": 7_000}),
        ("op", {"": 20_000, "aten::mm": 10_000, "aten::relu": 9_000}),
        ("stream", {"stream 9": 20_000, "stream 7": 19_000}),
        ("rule", {"everything else computes": 32_000, "nccl or rccl kernel": 7_000}),
    ],
)
def test_device_time_is_grouped_and_adds_up(by, sums):
    """10 of gemm, 9 of relu, 7 of nccl, and 13 of a gemm without a launch."""
    frame = kernel_breakdown(_DAG, _DAG.span, by=by)

    assert frame.groupby("group")["sum_ns"].sum().to_dict() == sums
    assert frame["sum_ns"].is_monotonic_decreasing
    assert frame["share"].sum() == pytest.approx(1)


def test_a_row_has_the_spread_of_its_durations():
    """Gemm takes 10 and 13 us: the median is the lower of two."""
    row = kernel_breakdown(_DAG, _DAG.span, by="name").set_index("group").loc["gemm"]
    columns = ["n_kernels", "mean_ns", "min_ns", "max_ns", "p50_ns", "p99_ns"]

    assert row[columns].tolist() == [2, 11_500, 10_000, 13_000, 10_000, 10_000]


def test_work_across_a_bound_counts_with_the_time_inside():
    """From 15 to 20: seven of gemm on stream 7, four of nccl, one of the other gemm."""
    frame = kernel_breakdown(_DAG, Window(15_000, 20_000, "part"), by="name")

    assert dict(zip(frame["group"], frame["sum_ns"], strict=True)) == {
        "gemm": 6_000,
        "ncclX": 4_000,
    }


def test_an_unknown_option_value_is_refused_with_those_there_are():
    """By every method, since they declare their values."""
    graph = hg.Trace.from_events(_DAG.events).compile()

    with pytest.raises(QueryError, match="class, name, op, stream, rule"):
        graph.kernel_breakdown(by="color")
    with pytest.raises(QueryError, match="queue_length, memory_bandwidth"):
        graph.counters(name="temperature")


def test_quantiles_are_durations_at_a_half_nine_tenths_and_all_but_a_hundredth():
    """Of 101 kernels of 3 to 103 us."""
    dag = drawn_dag("stream 7 |" + "".join(f"[k{' ' * n}]" for n in range(101)))
    row = kernel_breakdown(dag, dag.span, by="name").iloc[0]

    assert row[["p50_ns", "p90_ns", "p99_ns"]].tolist() == [53_000, 93_000, 102_000]


_DAG_KERNEL_DURATIONS = drawn_dag("""
    us       |0         10        20        30        40
    cpu 1    |{forward [aten::mm [launch >a]]}[launch >b]
    stream 7 |                      [gemm <a ]            [relu <b]
    stream 9 |                      [ncclX][gemm       ]
""")


def test_durations_are_listed_by_name():
    """A pattern picks; times are whole."""
    frame = kernel_durations(_DAG_KERNEL_DURATIONS, _DAG_KERNEL_DURATIONS.span, name="gem*")

    assert frame[["op", "stream", "ts_ns", "dur_ns"]].to_numpy().tolist() == [
        ["aten::mm", 7, 22_000, 10_000],
        ["", 9, 29_000, 13_000],
    ]


def test_every_kernel_names_its_annotation():
    """Relu was launched outside of any."""
    frame = kernel_durations(_DAG_KERNEL_DURATIONS, _DAG_KERNEL_DURATIONS.span).set_index("name")

    assert frame.loc["relu", ["op", "annotation", "module"]].tolist() == ["", "", ""]
    assert sorted(frame["annotation"]) == ["", "", "", "forward"]


_COLUMNS = ["pattern", "n_occurrences", "device_ns", "gap_ns"]


def _patterns(drawing: str, columns=_COLUMNS, **options) -> list[list]:
    dag = drawn_dag(drawing)
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
    dag = drawn_dag("stream 7 |[k]")
    with pytest.raises(QueryError):
        kernel_patterns(dag, dag.span, min_length=lengths[0], max_length=lengths[1])


def test_the_first_time_that_a_pattern_ran_is_the_earliest_on_any_stream() -> None:
    """Stream 20 begins 10 us before stream 7."""
    dag = drawn_dag("""
        us        |0         10        20        30
        stream 7  |          [gemm][relu]
        stream 20 |[gemm][relu]
    """)
    found = kernel_patterns(dag, dag.span)

    assert (found["ts_ns"] - dag.span.start_ns).tolist() == [0]


def _stats(drawing: str, **options):
    dag = drawn_dag(drawing)
    return launch_stats(dag, dag.span, **options)


def test_a_delay_begins_when_the_call_ends():
    """Call until 11, work from 15."""
    frame = _stats("""
        us       |0         10        20
        cpu 1    |[launch >a]
        stream 7 |               [a <a ]
    """)

    assert frame[
        ["launch_ns", "kernel_ns", "launch_delay_ns", "queued_ns"]
    ].to_numpy().tolist() == [[11_000, 7_000, 4_000, 0]]


def test_a_kernel_that_starts_during_its_call_has_no_delay():
    """Devices are fast."""
    assert _stats("""
        cpu 1    |[launch >a]
        stream 7 |   [a <a ]
    """)["launch_delay_ns"].tolist() == [0]


def test_waiting_behind_earlier_work_is_told_apart():
    """B could have begun at 22, when its call ended; a ran until 30, and 2 us went by."""
    frame = _stats("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a][launch >b]
        stream 7 |          [a <a              ]  [b <b ]
    """)

    assert frame[["name", "launch_delay_ns", "queued_ns"]].to_numpy().tolist() == [
        ["a", 0, 0],
        ["b", 10_000, 8_000],
    ]


def test_every_kind_of_launch_is_there():
    """Names of calls decide nothing: driver calls, HIP calls, graphs and copies launch as well."""
    frame = _stats("""
        cpu 1    |[cuLaunchKernelEx >a][hipExtModuleLaunchKernel >b][graph >c][copy >d]
        stream 7 |         [a <a]                 [b <b]                [k <c][k <c][Memcpy <d]
    """)

    assert frame[["call", "n_kernels"]].to_numpy().tolist() == [
        ["cuLaunchKernelEx", 1],
        ["hipExtModuleLaunchKernel", 1],
        ["cudaGraphLaunch", 2],
        ["cudaMemcpyAsync", 1],
    ]


def test_outliers_are_marked_by_cutoffs():
    """The call takes 11 us, its work 7, the delay 4."""
    drawing = """
        cpu 1    |[launch >a]
        stream 7 |               [a <a ]
    """
    flags = ["is_short_kernel", "is_launch_outlier", "is_delay_outlier"]

    assert _stats(drawing)[flags].to_numpy().tolist() == [[True, False, False]]
    assert _stats(drawing, launch_cutoff_ns=10_000, delay_cutoff_ns=3_000)[
        flags
    ].to_numpy().tolist() == [[False, True, True]]


def test_a_call_that_launches_nothing_is_no_launch():
    """Whatever it is called."""
    assert len(_stats("cpu 1 |[launch][op ]\nstream 7 |[k]")) == 0


def test_an_operator_takes_its_time_before_it_launches():
    """The call begins 10 us into aten::mm."""
    frame = _stats("""
        cpu 1    |[aten::mm [launch >a]]
        stream 7 |             [a <a ]
    """)

    assert frame[["op", "op_delay_ns"]].to_numpy().tolist() == [["aten::mm", 10_000]]
