"""What each change saves on a drawn trace, by hand."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.replay.assumptions import Assumption
from tests.replay.drawn import drawn, saved_us


def test_a_scaled_kernel_delays_what_waits_for_it():
    """Half of 20 us less; the call still returns 3 us after the kernel."""
    graph = drawn("""
        us       |0         10        20        30
        cpu 1    |[launch >a][sync @*           ]
        stream 7 |      [gemm <a             ]
    """)

    assert saved_us(graph, hg.scale("gemm", by=0.5)) == 11
    assert saved_us(graph, hg.scale("gemm", by=2)) == -22


def test_without_an_operator_what_it_launched_is_gone():
    """Operator, call and kernel: the other call is first, and its kernel starts 5 us after that."""
    graph = drawn("""
        us       |0         10        20        30        40
        cpu 1    |[op [launch >a]][launch >b]
        stream 7 |         [gemm <a         ][norm <b      ]
    """)

    assert saved_us(graph, hg.remove("op")) == 22


def test_fused_kernels_follow_each_other_at_once():
    """The second launch takes no time, nor does the gap: it ends 5 us earlier, and the call."""
    graph = drawn("""
        us       |0         10        20        30
        cpu 1    |[launch >a][launch >b]  [sync @*   ]
        stream 7 |           [add <a ]     [mul <b ]
    """)

    assert saved_us(graph, hg.fuse("add", "mul")) == 5
    assert saved_us(graph, hg.fuse("add", "mul")) == saved_us(
        graph, hg.fuse(graph.select(kind="kernel"))
    )


def test_a_call_that_need_not_wait_lets_the_host_run_ahead():
    """The second kernel is queued behind the first, 1 us after it in place of 7."""
    graph = drawn("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a][streamsync @7    ][launch >b]
        stream 7 |      [gemm <a             ]       [norm <b]
    """)

    assert saved_us(graph, hg.no_wait("cudaStreamSynchronize")) == 6
    assert saved_us(graph, hg.remove("sync")) == 6


def test_overlapped_work_lets_the_rest_of_its_stream_go_on():
    """The third kernel is behind the first and its own launch, which began 6 us before at least."""
    graph = drawn("""
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a][launch >b][launch >c]
        stream 7 |      [gemm <a         ][nccl <b][gemm <c          ]
    """)

    assert saved_us(graph, hg.overlap("nccl")) == 5


def test_a_batch_that_is_prefetched_is_there_as_long_after_the_one_before_as_it_took():
    """The first is waited for. Steps of 8 us hide all but 2 us of the other two."""
    graph = drawn("""
        cpu 1 |{data_loading}[work  ]{data_loading}[work  ]{data_loading}[work  ]
    """)

    assert graph.dur_ns == 66_000
    assert saved_us(graph, hg.prefetch()) == 16


def test_a_graphed_step_costs_one_launch():
    """All is launched by a call of 10 us: the last of three kernels ends at 30, in place of 48."""
    graph = drawn("""
        us       |0         10        20        30        40        50
        cpu 1    |[op [launch >a]][op [launch >b]][op [launch >c]]
        stream 7 |         [k1 <a]         [k2 <b]         [k3 <c]
    """)

    assert saved_us(graph, hg.graphed()) == 18


def test_inserted_time_behind_the_last_kernel_lengthens_the_run_by_just_that():
    graph = drawn("""
        us       |0         10        20        30
        cpu 1    |[launch >a][launch >b]
        stream 7 |      [gemm <a   ][last <b       ]
    """)

    assert saved_us(graph, hg.insert(after="last", dur_ns=7_000)) == -7
    assert saved_us(graph, hg.insert(after="cudaLaunchKernel", dur_ns=1_000)) == 0


def test_twice_the_bandwidth_halves_all_but_the_latency():
    """Of 42 us, 5 are; 0 to 10 by other readings. Nothing is saved where others are late."""
    graph = drawn("""
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a]
        stream 7 |      [ncclAllReduce <a                        ]
    """)
    saving = hg.what_if(graph, hg.bandwidth(2), on="window").saves_ns

    assert saving is not None
    assert dict(saving.readings)[Assumption.RIGID] == 16_000
    assert (saving.low_ns, saving.expected_ns, saving.high_ns) == (0, 18_500, 21_000)


@pytest.mark.parametrize(
    "change",
    [hg.scale("nothing", by=0.5), hg.remove("nothing"), hg.overlap("nothing"), hg.prefetch()],
)
def test_what_is_not_there_cannot_be_changed(change):
    graph = drawn("cpu 1 |[aten::mm]")

    with pytest.raises(QueryError):
        hg.what_if(graph, change).dur_ns  # noqa: B018
