"""Time under host annotations."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.model.window import Window
from htagraph.queries.operators import annotation_breakdown
from htagraph.synth import timeline

_DAG = compile_events(
    timeline("""
        us       |0         10        20        30        40        50        60
        cpu 1    |{step                                              }
        cpu 1    |     {forward [aten::mm [launch >a]]}[launch >b]
        stream 7 |                       [gemm <a            ][relu <b]
        stream 7 |                       {forward            }
    """)
)


def test_device_time_belongs_to_every_annotation_around_its_launch():
    """Gemm (21) was launched in forward, relu (9) in the step only; each is the step's as well."""
    frame = annotation_breakdown(_DAG, _DAG.span)
    columns = ["name", "n_ranges", "sum_ns", "n_kernels", "device_ns", "self_device_ns"]

    assert frame[columns].to_numpy().tolist() == [
        ["step", 1, 52_000, 2, 30_000, 9_000],
        ["forward", 1, 32_000, 1, 21_000, 21_000],
    ]


def test_a_pattern_picks_annotations():
    """The others still hold what is theirs."""
    assert annotation_breakdown(_DAG, _DAG.span, name="for*")["self_device_ns"].tolist() == [21_000]


def test_times_are_clipped_to_the_window():
    """From 30 to 50: seven of forward and fifteen of gemm."""
    frame = annotation_breakdown(_DAG, Window(30_000, 50_000, "part")).set_index("name")

    assert frame.loc["forward", ["sum_ns", "device_ns"]].tolist() == [7_000, 15_000]


def test_annotations_on_the_device_hold_what_begins_in_them():
    """The profiler's projection of forward has gemm."""
    frame = annotation_breakdown(_DAG, _DAG.span, on="device")

    assert frame[["name", "sum_ns", "n_kernels", "self_device_ns"]].to_numpy().tolist() == [
        ["forward", 21_000, 1, 21_000]
    ]
