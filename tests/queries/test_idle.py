"""Idle time: its causes, categories, intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.errors import QueryError
from htagraph.explain import idle_parts
from htagraph.model.kinds import EventKind
from htagraph.model.samples import SampleTable, Series
from htagraph.model.window import Window
from htagraph.queries.steps import idle_categories, idle_intervals, idle_time
from htagraph.queries.utilization import device_activity
from htagraph.run.trace import Trace
from htagraph.synth import timeline
from tests.drawn import drawn_dag
from tests.queries.recorded_shapes import H100, Op, recorded


def test_causes_are_summed_by_operator_and_name():
    """Two gaps, each with part of the same operator."""
    dag = drawn_dag("""
        us       |0         10        20        30        40        50        60
        cpu 1    |[launch >a][aten::slow [launch >b]     [launch >c]  ]
        stream 7 |      [a <a ]                [b <b ]          [c <c    ]
    """)
    frame = idle_time(dag, dag.span)
    slow = frame[frame["name"] == "aten::slow"]

    assert slow[["op", "n_gaps", "idle_ns"]].to_numpy().tolist() == [["aten::slow", 2, 13_000]]


def test_an_unknown_grouping_is_an_error_that_says_what_there_is():
    """A mistyped option is no silent default."""
    dag = drawn_dag("stream 7 |[k]")

    with pytest.raises(QueryError, match="use 'device' or 'stream'"):
        idle_time(dag, dag.span, per="lane")


def test_host_time_names_its_python_frame_where_frames_were_recorded():
    """The host was in load_batch while the device waited."""
    events = timeline("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a][load_batch ][launch >b]
        stream 7 |      [a <a ]                [b <b]
    """)
    is_frame = events.names() == "load_batch"
    dag = compile_events(
        replace(events, kind=np.where(is_frame, EventKind.PYTHON, events.kind).astype(np.int8))
    )
    frame = idle_time(dag, dag.span).set_index("cause")

    assert frame.loc["untraced_code", ["frame", "idle_ns"]].tolist() == ["load_batch", 11_000]


def test_blocks_of_intervals_change_nothing(monkeypatch: pytest.MonkeyPatch):
    """Of one interval each: a name that is in both counts twice, and parts keep their interval."""
    dag = drawn_dag("""
        us       |0         10        20        30        40        50        60
        cpu 1    |[launch >a][aten::slow [launch >b]     [launch >c]  ]
        stream 7 |      [a <a ]                [b <b ]          [c <c    ]
    """)
    whole, intervals = idle_time(dag, dag.span), idle_intervals(dag, dag.span)
    monkeypatch.setattr(idle_parts, "_AT_ONCE", 1)

    assert idle_time(dag, dag.span).equals(whole)
    assert idle_intervals(dag, dag.span).equals(intervals)
    assert whole["n_gaps"].max() == 2


def test_categories_are_host_wait_kernel_wait_and_other():
    """B was launched late; c is close behind; d was launched in time, but began late."""
    dag = drawn_dag("""
        us       |0         10        20        30        40        50        60
        cpu 1    |[launch >a]     [launch >b][launch >c][launch >d]
        stream 7 |    [a <a]               [b <b               ] [c <c]          [d <d]
    """)
    frame = idle_categories(dag, dag.span, kernel_wait_ns=5_000)

    assert frame[["category", "n_gaps", "idle_ns"]].to_numpy().tolist() == [
        ["host_wait", 1, 15_000],
        ["kernel_wait", 1, 1_000],
        ["other", 1, 10_000],
    ]


def test_the_gaps_of_a_category_are_described():
    """Gaps of 1, 3 and 11 us between work that no launch is known of: HTA's table of intervals."""
    dag = drawn_dag("stream 7 |[a ] [b ]   [c ]           [d ]")
    found = idle_categories(dag, dag.span, kernel_wait_ns=5_000).set_index("category")

    described = ["n_gaps", "mean_ns", "std_ns", "min_ns", "p50_ns", "max_ns"]
    spread_ns = 2**0.5 * 1_000
    assert found.loc["kernel_wait", described].tolist() == [
        2,
        2_000,
        pytest.approx(spread_ns),
        1_000,
        1_000,
        3_000,
    ]
    assert found.loc["other", described].tolist() == [1, 11_000, 0, 11_000, 11_000, 11_000]
    assert found.loc["host_wait", described].tolist() == [0, 0, 0, 0, 0, 0]


def _parts(drawing: str, **options) -> list[tuple]:
    """(start, duration, cause, name) of the parts of idle intervals, in us."""
    dag = drawn_dag(drawing)
    frame = idle_intervals(dag, dag.span, **options)
    columns = zip(
        frame["start_ns"] // 1000,
        frame["dur_ns"] // 1000,
        frame["cause"],
        frame["name"],
        strict=True,
    )
    return [tuple(row) for row in columns]


def test_a_late_host_is_blamed_by_operator():
    """From 13 on the device waits: for what is left of aten::slow, then for the launch of b."""
    assert _parts("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a][aten::slow     [launch >b]  ]
        stream 7 |      [a <a ]                   [b <b ]
    """) == [
        (0, 6, "launch", "a"),
        (13, 14, "host", "aten::slow"),
        (27, 5, "launch", "b"),
        (39, 2, "window_edge", "(no more work)"),
    ]


def test_time_that_was_not_recorded_is_a_python_gap():
    """Nothing is known of the host between its two calls."""
    parts = _parts("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a]            [launch >b]
        stream 7 |      [a <a ]                [b <b]
    """)

    assert parts[1:] == [
        (13, 10, "untraced_code", "(host gap)"),
        (23, 6, "launch", "b"),
    ]


def test_a_stream_that_waits_for_another_is_not_an_idle_device():
    """Stream 9 computes all the while; per stream, that work is what stream 7 waits for."""
    drawing = """
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a][record !r @9][wait ?r @7][launch >b]
        stream 9 |      [a <a                                      ]
        stream 7 |                                                    [b <b ]
    """
    per_device = _parts(drawing)
    per_stream = {(cause, name) for _, _, cause, name in _parts(drawing, per="stream")}

    assert per_device == [(0, 6, "launch", "a"), (50, 2, "event_wait", "b")]
    assert per_stream == {
        ("launch", "a"),
        ("other_work", "a"),
        ("event_wait", "b"),
        ("window_edge", "(no more work)"),
    }


def test_work_whose_launch_was_not_recorded_was_launched_before_the_capture():
    """Nothing says why k begins when it does."""
    parts = _parts("""
        cpu 1    |[aten::add                 ]
        stream 7 |[j]            [k ]
    """)

    assert parts[0][2:] == ("work_from_before_the_profile", "(launch not recorded)")


def test_the_interval_before_a_bound_is_explained_by_what_follows_it():
    """The window ends while the device waits for b; b is launched beyond."""
    dag = drawn_dag("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a][aten::slow     [launch >b]  ]
        stream 7 |      [a <a ]                   [b <b ]
    """)
    frame = idle_intervals(dag, Window(15_000, 20_000, "part"))

    assert frame[["start_ns", "dur_ns", "cause", "name"]].to_numpy().tolist() == [
        [15_000, 5_000, "host", "aten::slow"]
    ]


def test_idle_time_and_the_path_call_the_same_wait_by_the_same_name():
    """The device waits for a host that waited for it; the path runs through the same parts."""
    trace = Trace.from_events(
        timeline("""
            us       |0         10        20        30        40        50        60
            cpu 1    |[launch >a][aten::item [sync     ]  ]    [aten::add [launch >b]]
            stream 7 |      [a <a                    ]                           [b <b    ]
        """)
    )
    graph = trace.compile()
    segments = graph.critical_path().segments
    idle = graph.ask("idle_intervals")
    same = idle.merge(segments[["start_ns", "dur_ns", "bound"]], on=["start_ns", "dur_ns"])

    assert same[["cause", "bound"]].astype(str).to_numpy().tolist() == [
        ["launch", "launch"],
        ["sync", "sync"],
        ["host", "host"],
        ["untraced_code", "untraced_code"],
        ["host", "host"],
        ["launch", "launch"],
    ]


PRODUCT = Op("aten::mm", [[4096, 4096], [4096, 4096]], [("nvjet_tst_gemm", 200)])
"""137.4 GFLOP: 138.9 us at the peak; 100.7 MB: 30.0 us."""
ADDED = Op("aten::add", [[8192, 8192], [8192, 8192]], [("add", 240)])
"""402.7 MB: 120.2 us at memory bandwidth."""
TO_HOST = Op("aten::copy_", [[1000, 1000]], [("Memcpy DtoH (Device -> Pinned)", 100)])
"""2 MB."""


def sampled(graph, *series, at_us=(0, 500, 1_000, 1_500)):
    """The graph with samples of constant value from its start on."""
    start = graph.interval.start_ns
    times = [start + 1_000 * at for at in at_us]
    parts = [(one, times, [value] * len(times)) for one, value in series]
    events = replace(graph.dag.events, samples=SampleTable.of(parts))
    return replace(graph, dag=replace(graph.dag, events=events))


def column(graph, name):
    """A column by metric."""
    return graph.device_activity().set_index("metric")[name]


def test_the_ladder_of_estimates():
    """Two kernels in two steps: a product of 200 us and a sum of 240."""
    graph = recorded(PRODUCT, ADDED)
    length_us = graph.interval.dur_ns / 1_000
    found = column(graph, "estimate")

    assert found["GPU utilization"] == pytest.approx(440 / length_us)
    assert found["graphics engine active"] == found["GPU utilization"]
    assert found["tensor active"] == pytest.approx(138.9 / length_us, rel=1e-3)
    assert found["DRAM active"] == pytest.approx((30.05 + 120.2) / length_us, rel=1e-3)
    assert "SM active" not in found  # no grid was recorded


def test_products_of_fp32_count_if_their_kernel_runs_on_tensor_cores():
    """Else they run elsewhere; TF32 at 494.7 TFLOP/s takes 277.8 us."""
    plain = PRODUCT._replace(types=["float"] * 2, kernels=[("sgemm_128x128", 900)])
    tensor = plain._replace(kernels=[("cutlass_tensorop_s1688gemm_tf32", 900)])
    length_us = recorded(plain).interval.dur_ns / 1_000

    assert column(recorded(plain), "estimate")["tensor active"] == 0
    assert column(recorded(tensor), "estimate")["tensor active"] == pytest.approx(
        277.8 / length_us, rel=1e-3
    )


def test_what_has_no_model_lowers_the_coverage():
    """A third of the device time."""
    own = Op("mylib::attention", [[4096, 4096]], [("attention", 100)])
    found = column(recorded(PRODUCT, own), "coverage")

    assert found["tensor active"] == pytest.approx(2 / 3)
    assert found["GPU utilization"] == 1


def test_copies_are_the_least_that_the_link_moves():
    graph = recorded(TO_HOST)
    found = column(graph, "estimate")

    assert found["PCIe sent"] == pytest.approx(2e6 / graph.interval.dur_ns)
    assert "PCIe received" not in found


@pytest.mark.parametrize(
    ("series", "value", "metric", "measured"),
    [
        (Series("utilization.gpu", "%", 0, "nvidia-smi"), 80.0, "GPU utilization", 0.8),
        (Series("GRACT", "ratio", 0, "dcgm"), 0.7, "graphics engine active", 0.7),
        (Series("DCGM_FI_PROF_SM_ACTIVE", "ratio", 0, "dcgm"), 0.6, "SM active", 0.6),
        (Series("SMOCC", "ratio", 0, "dcgm"), 0.5, "SM occupancy", 0.5),
        (Series("TENSO", "ratio", 0, "dcgm"), 0.4, "tensor active", 0.4),
        (Series("DRAMA", "ratio", 0, "dcgm"), 0.3, "DRAM active", 0.3),
        (Series("PCITX", "B/s", 0, "dcgm"), 5e9, "PCIe sent", 5.0),
        (Series("DCGM_FI_PROF_PCIE_RX_BYTES", "B/s", 0, "dcgm"), 7e9, "PCIe received", 7.0),
        (Series("clocks.sm", "MHz", 0, "nvidia-smi"), 1830.0, "SM clock", 1830),
        (Series("MMCLK", "MHz", 0, "dcgm"), 2619.0, "memory clock", 2619),
        (Series("power.draw", "W", 0, "nvidia-smi"), 400.0, "power", 400),
    ],
)
def test_each_tool_measures_what_is_estimated(series, value, metric, measured):
    """Next to the estimate, in its unit, with the series and how many samples."""
    found = sampled(recorded(PRODUCT, ADDED), (series, value)).device_activity()
    row = found.set_index("metric").loc[metric]

    assert row["measured"] == pytest.approx(measured)
    assert (row["series"], row["instrument"]) == (series.name, series.instrument)
    assert row["n_samples"] >= 2
    assert found["measured"].notna().sum() == 1


def test_at_half_the_clock_tensor_cores_are_active_twice_as_long():
    """The same operations take twice the cycles' time; the log has the clock."""
    clock = Series("SMCLK", "MHz", 0, "dcgm")
    product = PRODUCT._replace(kernels=[("nvjet_tst_gemm", 400)])
    full, half = (
        column(sampled(recorded(product), (clock, mhz)), "estimate")["tensor active"]
        for mhz in (1830.0, 915.0)
    )

    assert half == pytest.approx(2 * full)


def test_it_goes_from_coarse_to_fine():
    """Each metric is a part of the one before, as far as they are shares."""
    graph = recorded(PRODUCT, ADDED, TO_HOST, device=H100)

    assert graph.device_activity()["metric"].tolist() == [
        *("GPU utilization", "graphics engine active", "tensor active", "DRAM active", "PCIe sent"),
    ]


def test_a_device_without_peaks_has_what_needs_none():
    found = column(recorded(PRODUCT, device={**H100, "name": "Unknown GPU"}), "estimate")

    assert found.index.tolist() == ["GPU utilization", "graphics engine active"]


def test_a_host_alone_has_no_activity():
    dag = drawn_dag("cpu 1 |[aten::mm]")

    assert device_activity(dag, dag.span).empty
