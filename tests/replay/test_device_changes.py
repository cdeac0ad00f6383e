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


def test_what_waited_through_moved_work_waits_for_what_that_waited_for():
    """B and D waited for A through the copy: both start when A ends at 56, not when launched."""
    graph = drawn(
        """
        us        |0         10        20        30        40        50        60        70
        cpu 1     |[launch >a][launch >c][record !r @7][launch >b]
        cpu 2     |                                    [wait ?r @20][launch >d]
        stream 7  |      [A <a                                            ][C <c    ][B <b    ]
        stream 20 |                                                                  [D <d    ]
        """,
        names={"C": "Memcpy HtoD"},
    )

    assert _begin_us(hg.what_if(graph, hg.overlap("Memcpy HtoD")).graph) == {
        "A": 6,
        "B": 56,
        "D": 56,
        "Memcpy HtoD": 56,
    }


def test_work_that_waited_for_many_streams_passes_that_on():
    """The copy waited for forty kernels; B, behind it, still starts after the last of them."""
    streams = range(10, 50)
    calls = "".join(f"[launch >k{n}][record !r{n} @{n}][wait ?r{n} @7]" for n in streams)
    ends = len(calls) + 30
    kernels = "".join(f"stream {n} |[k{n} <k{n}{' ' * (ends + n)}]\n" for n in streams)
    graph = drawn(
        f"cpu 1 |{calls}[launch >c][launch >b]\n{kernels}"
        f"stream 7 |{' ' * (ends + 80)}[C <c          ][B <b ]\n",
        names={"C": "Memcpy HtoD"},
    )
    begins = _begin_us(hg.what_if(graph, hg.overlap("Memcpy HtoD")).graph)
    events = graph.dag.events
    last_us = events.end_ns[events.named(events.symbols.searched("^k49$"))].max() / 1000

    assert 0 <= begins["B"] - last_us <= graph.dag.calibration.stream_usual_ns / 1000


def test_moved_work_of_one_stream_stays_in_order():
    """The second copy no longer has A between itself and the first; it still follows that."""
    graph = drawn(
        """
        us       |0         10        20        30        40        50        60
        cpu 1    |[launch >a][launch >c][launch >b]
        stream 7 |      [one <a                         ][A <c ][two <b          ]
        """,
        names={"one": "Memcpy HtoD", "two": "Memcpy DtoH"},
    )

    assert _begin_us(hg.what_if(graph, hg.overlap("Memcpy*")).graph) == {
        "Memcpy HtoD": 6,
        "A": 17,
        "Memcpy DtoH": 39,
    }


def _begin_us(graph: hg.TraceGraph) -> dict[str, float]:
    """When each piece of device work begins, by name."""
    events = graph.dag.events
    work = events.is_device
    return dict(zip(events.names()[work].tolist(), events.ts_ns[work] / 1000, strict=True))


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
