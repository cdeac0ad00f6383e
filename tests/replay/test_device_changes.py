"""What changes to device work save on a drawn trace, by hand."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.errors import QueryError
from tests.replay.drawn import drawn, saved_us


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


def test_overlapped_work_lets_the_rest_of_its_stream_go_on():
    """The third kernel is behind the first and its own launch, which began 6 us before at least."""
    graph = drawn("""
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a][launch >b][launch >c]
        stream 7 |      [gemm <a         ][nccl <b][gemm <c          ]
    """)

    assert saved_us(graph, hg.overlap("nccl")) == 5


@pytest.mark.parametrize("change", [hg.overlap("aten::mm"), hg.fuse("gemm", "norm")])
def test_where_no_device_work_is_changed_that_is_said(change):
    """An operator is no work of the device; and those two kernels do not follow each other."""
    graph = drawn("""
        us       |0         10        20        30        40
        cpu 1    |[aten::mm [launch >a]][launch >b]
        stream 7 |                 [norm <a][gemm <b   ]
    """)

    with pytest.raises(QueryError):
        hg.what_if(graph, change).dur_ns  # noqa: B018
