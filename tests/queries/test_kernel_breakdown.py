"""How long kernels take, by group."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.errors import QueryError
from htagraph.model.window import Window
from htagraph.queries.kernels import kernel_breakdown
from htagraph.synth import timeline

_DAG = compile_events(
    timeline("""
        us       |0         10        20        30        40
        cpu 1    |[aten::mm [launch >a]][aten::relu [launch >b]]
        stream 7 |            [gemm <a ]                [relu <b]
        stream 9 |            [ncclX][gemm       ]
    """)
)


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
    dag = compile_events(timeline("stream 7 |" + "".join(f"[k{' ' * n}]" for n in range(101))))
    row = kernel_breakdown(dag, dag.span, by="name").iloc[0]

    assert row[["p50_ns", "p90_ns", "p99_ns"]].tolist() == [53_000, 93_000, 102_000]
