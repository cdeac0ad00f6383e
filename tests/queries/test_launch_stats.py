"""Launches, one by one."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.queries.launches import launch_stats
from htagraph.synth import timeline


def _stats(drawing: str, **options):
    dag = compile_events(timeline(drawing))
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
