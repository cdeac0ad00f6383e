"""What each change saves on a drawn trace, by hand."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.replay.change_options import ChangeOptions
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


def test_a_call_that_need_not_wait_lets_the_host_run_ahead():
    """The second kernel is queued behind the first, 1 to 2 us after it in place of 7."""
    graph = drawn("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a][streamsync @7    ][launch >b]
        stream 7 |      [gemm <a             ]       [norm <b]
    """)

    assert saved_us(graph, hg.no_wait("cudaStreamSynchronize")) == 6
    assert saved_us(graph, hg.remove("sync")) == 6
    saving = hg.what_if(graph, hg.remove("sync")).saves_ns
    assert saving is not None
    assert (saving.low_ns, saving.expected_ns) == (5_000, 6_000)


def test_inserted_time_behind_the_last_kernel_lengthens_the_run_by_just_that():
    graph = drawn("""
        us       |0         10        20        30
        cpu 1    |[launch >a][launch >b]
        stream 7 |      [gemm <a   ][last <b       ]
    """)

    assert saved_us(graph, hg.insert(after="last", dur_ns=7_000)) == -7
    assert saved_us(graph, hg.insert(after="cudaLaunchKernel", dur_ns=1_000)) == 0


@pytest.mark.parametrize(
    "change",
    [hg.scale("nothing", by=0.5), hg.remove("nothing"), hg.overlap("nothing"), hg.prefetch()],
)
def test_what_is_not_there_cannot_be_changed(change):
    graph = drawn("cpu 1 |[aten::mm]")

    with pytest.raises(QueryError):
        hg.what_if(graph, change).dur_ns  # noqa: B018


def test_changes_beyond_a_million_are_refused():
    """Times would leave the range of int64."""
    assert str(hg.scale("gemm", by=9e5)) == "scale('gemm', by=900000)"
    assert hg.insert(after="gemm", dur_ns=9 * 10**14).dur_ns == 9 * 10**14
    with pytest.raises(QueryError, match="between 0 and 1,000,000"):
        hg.scale("gemm", by=1.1e6)
    with pytest.raises(QueryError, match="between 0 and 1e15"):
        hg.insert(after="gemm", dur_ns=11 * 10**14)


@pytest.mark.parametrize(
    ("time", "dur_ns"), [("3ns", 3), ("1.5us", 1_500), ("2ms", 2_000_000), ("4s", 4 * 10**9)]
)
def test_a_typed_time_has_a_unit(time, dur_ns):
    typed = dict.fromkeys(("scale", "remove", "no_wait", "overlap", "fuse", "bandwidth"))
    options = ChangeOptions(**typed, insert=[f"gemm={time}"], prefetch=False, graphed=False)

    assert options.changes() == (hg.insert(after="gemm", dur_ns=dur_ns),)
