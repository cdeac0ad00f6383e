"""Where HTA is wrong: the truth on drawn traces, one test per fault that the parity table names."""

from __future__ import annotations

from htagraph.model.window import Window
from htagraph.queries.counters import counters, launch_stats, queue_blocked
from htagraph.queries.kernels import kernel_breakdown, kernel_patterns
from htagraph.queries.steps import idle_categories, idle_time, temporal_breakdown
from tests.drawn import drawn_dag


def _ask(question, drawing, **options):
    dag = drawn_dag(drawing, **options.pop("drawn", {}))
    return question(dag, dag.span, **options)


def test_a_record_of_a_wait_is_no_work():
    """The device idles for 14 us while the host waits; HTA counts the record as busy time."""
    frame = _ask(
        temporal_breakdown,
        """
        cpu 1    |[launch >a][streamsync @7]
        stream 7 |     [k <a ]
        """,
    )

    assert frame["idle_ns"].tolist() == [19_000]
    assert frame["compute_ns"].tolist() == [7_000]


def test_an_operator_that_names_its_stream_is_no_kernel():
    """Triton operators carry the stream they launch on; only the kernel runs there."""
    frame = _ask(
        temporal_breakdown,
        """
        cpu 1    |[triton_fused [launch >a] ]
        stream 7 |                     [k <a]
        """,
        drawn={"columns": {"api_stream": {"triton_fused": 7}}},
    )

    assert frame["compute_ns"].tolist() == [6_000]


def test_kernels_that_overlap_leave_no_negative_gap():
    """Both run at 8 us; the only gap is that before the third, 4 us."""
    frame = _ask(
        idle_categories,
        """
        cpu 1    |[launch >a][launch >b][launch >c]
        stream 7 |     [a <a  ]             [c <c ]
        stream 7 |         [b <b       ]
        """,
    )

    assert frame.set_index("category")["idle_ns"].to_dict() == {
        "host_wait": 0,
        "kernel_wait": 4_000,
        "other": 0,
    }


def test_a_launched_graph_is_in_the_queue():
    """One call, three kernels: one launch is outstanding until the first kernel starts."""
    frame = _ask(
        counters,
        """
        cpu 1    |[graph >g]
        stream 7 |       [a <g][b <g][c <g]
        """,
    )

    assert frame[["ts_ns", "value"]].to_numpy().tolist() == [[0, 1], [7_000, 0]]
    assert _ask(launch_stats, "cpu 1 |[graph >g]\nstream 7 | [a <g][b <g]")[
        "n_kernels"
    ].tolist() == [2]


def test_what_happens_at_one_instant_is_one_change():
    """The first kernel starts just when the second is launched: there was never a queue of two."""
    frame = _ask(
        counters,
        """
        cpu 1    |[launch >a][launch >b]
        stream 7 |           [a <a ]    [b <b]
        """,
    )

    assert frame["value"].tolist() == [1, 0]


def test_an_operator_counts_wherever_it_is_called():
    """Two calls of aten::mm, one of them deeper: HTA keeps the outer level only."""
    frame = _ask(
        kernel_patterns,
        """
        cpu 1    |[aten::mm [launch >a]] [Module [aten::mm [launch >b]]]
        stream 7 |            [gemm <a ]                       [gemm <b]
        """,
        under="aten::mm",
        min_length=1,
    )

    assert frame["n_occurrences"].tolist() == [2]


def test_work_of_stream_0_belongs_to_its_operator():
    """The default stream is a stream."""
    frame = _ask(
        kernel_patterns,
        """
        cpu 1    |[aten::mm [launch >a]]
        stream 0 |            [gemm <a ]
        """,
        under="aten::mm",
        min_length=1,
    )

    assert frame[["pattern", "device_ns"]].to_numpy().tolist() == [[("gemm",), 10_000]]


def test_means_stay_means_with_many_kernels():
    """From eleven names on, HTA's default gives sums for means and no deviation."""
    others = "".join(f"[k{n:02}]" for n in range(11))
    frame = _ask(kernel_breakdown, f"stream 7 |[gemm][gemm    ]{others}", by="name").set_index(
        "group"
    )

    assert frame.loc["gemm", ["sum_ns", "mean_ns", "min_ns", "max_ns"]].tolist() == [
        16_000,
        8_000,
        6_000,
        10_000,
    ]
    assert len(frame) == 12


def test_every_stream_with_a_full_queue_is_told():
    """HTA keeps the last one only."""
    frame = _ask(
        queue_blocked,
        """
        cpu 1    |[launch >a][launch >b]
        stream 7 |         [a <a ]
        stream 9 |                 [b <b]
        """,
        max_queue_length=1,
    )

    assert frame[["stream", "full_ns"]].to_numpy().tolist() == [[7, 9_000], [9, 6_000]]


def test_a_device_is_busy_while_any_of_its_streams_is():
    """HTA calls 8 us of stream 9 idle, although stream 7 computes all the time."""
    drawing = """
        stream 7 |[gemm                          ]
        stream 9 |[b ]        [c ]
    """

    assert _ask(idle_time, drawing)["idle_ns"].sum() == 0
    assert _ask(idle_categories, drawing)["idle_ns"].sum() == 8_000


def test_a_kernel_of_less_than_a_microsecond_takes_its_time():
    """HTA rounds its start up and its end down, and makes it -1 us long."""
    dag = drawn_dag("stream 7 |[k  ]")
    inside = Window(1_200, 1_900, "700 ns")

    assert temporal_breakdown(dag, inside)["compute_ns"].tolist() == [700]


def test_collectives_are_found_by_today_s_names():
    """NCCL since 2.19, RCCL, DeepEP and one-shot all-reduce kernels all communicate."""
    names = (
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "rccl_main_kernel",
        "void deep_ep::internode::combine<true>()",
        "void vllm::cross_device_reduce_1stage<__half, 8>()",
    )
    drawn = {"names": {f"k{n}": name for n, name in enumerate(names)}}
    frame = _ask(kernel_breakdown, "stream 7 |[k0][k1][k2][k3]", by="class", drawn=drawn)

    assert frame[["group", "n_kernels"]].to_numpy().tolist() == [["communication", 4]]
