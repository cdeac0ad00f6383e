"""The critical path of drawn traces: what it is made of, to the nanosecond."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.errors import QueryError
from htagraph.explain import critical_path as module
from htagraph.explain.breakdown import sum_by
from htagraph.explain.critical_path import critical_path, critical_paths, path_parts, path_segments
from htagraph.explain.segments import LABELS, main_causes
from htagraph.findings.path import CriticalPath
from htagraph.lookup.find_window import find_window
from htagraph.model.frames import BREAKDOWN
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window
from htagraph.run.trace import Trace
from htagraph.synth import timeline
from tests.drawn import drawn_dag
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


def _path(
    drawing: str, at: str | tuple[int, int] | None = None, on: str = "host", **options
) -> list[tuple[str, str, int]]:
    dag = drawn_dag(drawing, **options)
    window = dag.span if at is None else find_window(dag, at, on=on)
    segments = critical_path(dag, window)
    assert segments["dur_ns"].sum() == window.dur_ns
    return [(row.bound, row.name, row.dur_ns // 1000) for row in segments.itertuples(index=False)]


def test_a_path_through_host_and_device():
    """Launch, kernel, and the host that waits for it: three segments tile the trace."""
    assert _path("""
        cpu 1    |[launch >a][sync               ]
        stream 7 |     [kernel <a          ]
    """) == [
        ("launch", "kernel", 5),
        ("compute", "kernel", 21),
        ("sync", "cudaDeviceSynchronize", 6),
    ]


def test_a_short_kernel_does_not_appear_when_the_host_is_the_bottleneck():
    """The device waits for the host all the time, so the host is the path."""
    assert _path("""
        cpu 1    |[aten::mm [launch >a]]        [aten::relu]
        stream 7 |              [k <a]
    """) == [
        ("host", "aten::mm", 10),
        ("host", "cudaLaunchKernel", 11),
        ("host", "aten::mm", 1),
        ("untraced_code", "(host gap)", 8),
        ("host", "aten::relu", 12),
    ]


def test_a_gap_inside_an_annotation_is_the_hosts():
    """An annotation is context, not work: time directly inside it was not recorded."""
    assert _path("""
        cpu 1    |{ProfilerStep#0   }
        cpu 1    |  [aten::mm]
    """) == [
        ("untraced_code", "ProfilerStep#0", 2),
        ("host", "aten::mm", 10),
        ("untraced_code", "ProfilerStep#0", 7),
    ]


def test_loading_data_is_told_apart_from_other_host_work():
    """The commonest stall of all has a name of its own."""
    assert _path(
        """
        cpu 1    |[Load      ]
        """,
        names={"Load": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"},
    ) == [("data_loading", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 12)]


def test_communication_that_compute_waits_for_is_on_the_path():
    """The stream wait makes the gemm start after the all-reduce."""
    segments = _path(
        """
        cpu 1    |[launch >a][record !r @9][wait ?r @7][launch >b]
        stream 9 |      [N <a                                              ]
        stream 7 |                                                           [gemm <b]
        """,
        names={"N": "ncclDevKernel_AllReduce_Sum_f32_RING_LL"},
    )

    assert ("communication", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 52) in segments


def test_a_wait_that_nothing_explains_is_called_so():
    """A kernel that starts long after its launch on an idle stream was held up by the unknown."""
    segments = _path("""
        cpu 1    |[launch >w]  [launch >a]
        stream 7 |    [w <w ]                                                                [k <a ]
    """)

    assert ("launch", "k", 11) in segments
    assert ("unknown_waits", "k", 51) in segments


def test_work_launched_before_the_capture_has_no_launch():
    """Its launch is not in the file: the start of the window is all that is known to release it."""
    assert _path("""
        cpu 1    |[aten::mm  ]
        stream 7 |    [k                  ]
    """) == [("work_from_before_the_profile", "k", 4), ("compute", "k", 21)]


def test_a_window_cuts_what_began_before_it():
    """The kernel runs when the window begins: its rest is on the path, from the first instant."""
    drawing = """
        cpu 1    |[launch >a][sync               ][aten::mm]
        stream 7 |     [kernel <a          ]
    """

    assert _path(drawing, at=(10_000, 35_000)) == [
        ("compute", "kernel", 16),
        ("sync", "cudaDeviceSynchronize", 6),
        ("host", "aten::mm", 3),
    ]


def test_a_window_ends_in_the_middle_of_what_runs():
    """What is under way at the end is cut there."""
    drawing = """
        cpu 1    |[launch >a][sync               ][aten::mm]
        stream 7 |     [kernel <a          ]
    """

    assert _path(drawing, at=(0, 15_000)) == [("launch", "kernel", 5), ("compute", "kernel", 10)]


def test_a_step_on_the_host_ends_with_its_host_range():
    """Why did the host take this long: the device's tail is not the host's concern."""
    drawing = """
        cpu 1    |{ProfilerStep#0     }
        cpu 1    |[aten::mm [launch >a]]
        stream 7 |               [kernel <a           ]
    """

    assert "kernel" not in {name for _, name, _ in _path(drawing, at="ProfilerStep#0")}


def test_a_step_on_the_device_spans_the_work_launched_in_it():
    """Why did the device take this long."""
    drawing = """
        cpu 1    |{ProfilerStep#0     }
        cpu 1    |[aten::mm [launch >a]]
        stream 7 |               [kernel <a           ]
    """

    assert _path(drawing, at="ProfilerStep#0", on="device") == [("compute", "kernel", 22)]


def test_an_empty_trace_has_an_empty_path():
    """Nothing happened, and it took no time."""
    dag = drawn_dag("")

    assert len(critical_path(dag, dag.span)) == 0


def test_a_window_in_which_nothing_is_known_is_unexplained():
    """Beyond the end of the trace nothing is recorded; the path says so and leaves nothing out."""
    dag = drawn_dag("cpu 1 |[aten::mm]")
    segments = critical_path(dag, Window(20_000, 50_000, "later"))

    columns = ["bound", "name", "event", "edge", "dur_ns"]
    assert segments[columns].to_numpy().tolist() == [
        ["unknown_waits", "(unknown wait)", -1, -1, 30_000]
    ]


def test_paths_of_many_windows_come_one_after_the_other():
    """The same 30 us after the trace a thousand times, and then the trace."""
    dag = drawn_dag("cpu 1 |[aten::mm]")
    segments = critical_paths(dag, [*[Window(20_000, 50_000, "after")] * 1_000, dag.span])

    assert segments["bound"].tolist() == [*["unknown_waits"] * 1_000, "host"]
    assert segments["dur_ns"].tolist() == [*[30_000] * 1_000, 10_000]


def test_an_anchor_is_where_the_path_of_a_window_ends():
    """Another kernel ends when the collective begins; what the collective waited for is asked."""
    drawing = """
        stream 9 |               [N <a  ]
        cpu 1    |[launch >a]
        stream 7 |[k            ]
    """
    dag = drawn_dag(drawing)
    for anchor, path in (
        (0, [("launch", 15_000)]),
        (-1, [("work_from_before_the_profile", 15_000)]),
    ):
        segments = critical_path(dag, Window(0, 15_000, "until N", anchor=anchor))
        assert list(zip(segments["bound"], segments["dur_ns"], strict=True)) == path


def test_before_its_first_host_event_a_capture_saw_only_the_device():
    """Kernels that were launched before it say so; the host was not yet recorded."""
    assert _path("""
        cpu 1    |          [aten::mm    ]
        stream 7 |[k   ]
    """) == [("work_from_before_the_profile", "(before the profile)", 10), ("host", "aten::mm", 14)]


def test_time_until_a_thread_of_a_pool_begins_is_a_wait_for_work():
    """Three threads of one name serve requests; the third is idle before each of its two."""
    drawing = f"""
        cpu 2    |{{Stage::request }}
        cpu 3    |    {{Stage::request }}
        cpu 4    |        {{Stage::request }}{" " * 200}{{Stage::request }}
        stream 7 |[k ]
    """
    events = timeline(drawing)
    lanes = replace(events.lanes, thread=tuple(f"exec{tid}" for tid in events.lanes.tid))
    dag = compile_events(replace(events, lanes=lanes))
    segments = critical_path(dag, dag.span)

    assert segments[["bound", "event", "name", "rule", "dur_ns"]].to_numpy().tolist() == [
        ["waiting_for_work", -1, "(waits for work)", "waits for work", 8_000],
        ["untraced_code", 2, "Stage::request", "program order", 17_000],
        ["waiting_for_work", -1, "(waits for work)", "waits for work", 200_000],
        ["untraced_code", 3, "Stage::request", "program order", 17_000],
    ]


def test_a_collective_of_the_host_is_communication_from_the_last_event_in_it():
    """What the thread does in between, and the time until then, is its own."""
    assert _path("""
        cpu 1    |[one][two]{gloo:recv  [aten::mm]           }
    """) == [
        ("host", "one", 5),
        ("host", "two", 5),
        ("untraced_code", "gloo:recv", 12),
        ("host", "aten::mm", 10),
        ("communication", "gloo:recv", 12),
    ]


def test_work_whose_end_comes_late_has_the_time_until_the_next_begins():
    """By the clock, k2 begins 3 us before k1 ends, for which it waits."""
    assert _path("""
        cpu 1    |[launch >a][record !r @7][wait ?r @9][launch >b]
        stream 7 |              [k1 <a                                  ]
        stream 9 |                                                     [k2 <b    ]
    """) == [("launch", "k1", 14), ("compute", "k1", 39), ("compute", "k2", 11)]


def test_a_gap_is_on_the_track_of_its_thread_and_work_on_that_of_its_stream():
    """Thread 1 runs nothing for 8 us, then launches."""
    dag = drawn_dag("""
        cpu 2    |[op][op]
        cpu 1    |[aten::mm]        [launch >a]
        stream 7 |                       [k <a          ]
        """)
    segments = critical_path(dag, dag.span)

    assert segments[["name", "track"]].to_numpy().tolist() == [
        ["aten::mm", "1"],
        ["(host gap)", "1"],
        ["k", "stream 7"],
        ["k", "stream 7"],
    ]


def test_what_is_longer_than_it_must_be_has_a_residual():
    """The first kernel began 5 us after its launch, the second 3 us later than that."""
    dag = drawn_dag("""
        cpu 1    |[launch >a]      [launch >b]
        stream 7 |     [k <a]              [k <b     ]
        """)
    segments = critical_path(dag, dag.span)

    assert segments[["bound", "lag_ns", "residual_ns", "dur_ns"]].to_numpy().tolist() == [
        ["host", 11_000, 0, 11_000],
        ["untraced_code", 6_000, 0, 6_000],
        ["launch", 5_000, 3_000, 8_000],
        ["compute", 11_000, 0, 11_000],
    ]


def test_what_runs_at_the_end_of_a_window_goes_before_a_gap():
    """The gap of thread 1 began later than `aten::mm`, but nothing is known to run in it."""
    drawing = """
        cpu 1    |[a  ]              [b ]
        cpu 2    |[aten::mm           ]
    """

    assert _path(drawing, at=(0, 15_000)) == [("host", "aten::mm", 15)]


def test_python_before_the_first_host_event_launched_nothing():
    """Frames are no work; what held up the operator is not known."""
    events = timeline("""
        cpu 1    |[frame                   ]
        cpu 1    |          [aten::mm    ]
    """)
    kind = np.where(events.names() == "frame", EventKind.PYTHON, events.kind).astype(np.int8)
    segments = critical_path(compile_events(replace(events, kind=kind)), Window(0, 24_000, "all"))

    assert segments[["bound", "dur_ns"]].to_numpy().tolist() == [
        ["unknown_waits", 10_000],
        ["host", 14_000],
    ]


def test_the_parts_of_a_path_are_its_segments(monkeypatch):
    """Of the whole trace, and of a window that cuts the first and the last segment."""
    monkeypatch.setattr(module, "_AT_ONCE", 3)
    dag = hg.Trace.from_events(simulate(training_rank(steps=2)).events).compile().dag
    start_ns, third_ns = dag.span.start_ns, dag.span.dur_ns // 3
    for window in (dag.span, Window(start_ns + third_ns, start_ns + 2 * third_ns, "")):
        parts = list(path_parts(dag, window))

        assert len(parts) > 9
        for of_parts, column in zip(
            zip(*parts, strict=True), path_segments(dag, [window]), strict=True
        ):
            assert np.concatenate(of_parts).tolist() == column.tolist()


@pytest.fixture(scope="module")
def path() -> CriticalPath:
    """The path of a simulated rank."""
    events = simulate(training_rank(steps=2, layers=2)).events
    return Trace.from_events(events).compile().critical_path()


@pytest.mark.parametrize("by", LABELS)
def test_a_breakdown_is_the_sum_of_the_segments_by_their_labels(path: CriticalPath, by: str):
    """The largest first, of two that are as long the one that comes first; labels are objects."""
    expected = sum_by(path.segments, by, path.dur_ns, BREAKDOWN)
    expected.index = pd.Index(expected.index.astype(object), name=by)

    assert_frame_equal(path.breakdown(by=by), expected)


def test_a_breakdown_by_what_is_no_label_says_which_there_are(path: CriticalPath):
    with pytest.raises(QueryError, match="by 'dur_ns'") as raised:
        path.breakdown(by="dur_ns")

    assert raised.value.hint == "by bound, kind, name, op, track, rule, step."


def test_of_parts_that_are_as_long_the_one_that_comes_first_is_first() -> None:
    """`relu` and `tanh` take 6 us each, `gemm` 9; in the file, `relu` comes first."""
    events = timeline("""
        stream 7 |      [relu]
        stream 7 |[tanh]      [gemm   ]
    """)
    path = Trace.from_events(events).compile().critical_path()

    assert path.breakdown(by="name").index.tolist() == ["gemm", "tanh", "relu"]


def test_segments_are_cut_where_a_step_is_done() -> None:
    """Each kernel is done 6 or 8 us after the host's range; the path stays on the host."""
    events = timeline("""
        us       |0         10        20        30
        cpu 1    |{ProfilerStep#0}{ProfilerStep#1  }[aten::mm]
        stream 7 |[k1                  ][k2                ]
    """)
    path = Trace.from_events(events).compile().window("trace").critical_path()
    by_step = path.breakdown(by="step").reset_index()

    assert by_step[["step", "dur_ns", "n_segments"]].to_numpy().tolist() == [
        ["ProfilerStep#0", 22_000, 2],
        ["ProfilerStep#1", 20_000, 2],
        ["(outside steps)", 2_000, 1],
    ]


def charged(*pieces: tuple[str, str, int]) -> pd.DataFrame:
    """Pieces of a path that starts at 100, with cause, bound and length."""
    cause, bound, dur_ns = zip(*pieces, strict=True)
    frame = pd.DataFrame({"cause": cause, "bound": bound, "dur_ns": dur_ns})
    return frame.assign(start_ns=100 + frame["dur_ns"].cumsum() - frame["dur_ns"])


def rows(found: pd.DataFrame) -> list[tuple[int, int, str]]:
    """Start, length and cause of each stretch."""
    return [*found[["start_ns", "dur_ns", "cause"]].itertuples(index=False, name=None)]


def test_a_part_has_the_cause_with_most_time_in_it() -> None:
    """Parts of 10 ns: in the second, loading has 6 of them in two pieces."""
    found = main_causes(
        charged(
            ("compute", "compute", 12),
            ("loading", "host", 3),
            ("compute", "compute", 2),
            ("loading", "host", 3),
            ("compute", "compute", 20),
        ),
        n_parts=4,
    )
    assert rows(found) == [(100, 10, "compute"), (110, 10, "loading"), (120, 20, "compute")]


def test_a_part_is_a_two_hundredth_of_the_run() -> None:
    """A cause of 6 ns in 1,000 fills one part of 5 ns, one of 2 ns none."""
    found = main_causes(
        charged(("a", "host", 100), ("b", "host", 6), ("a", "host", 500), ("c", "host", 2)).pipe(
            lambda frame: pd.concat([frame, charged(("a", "host", 392)).assign(start_ns=708)])
        )
    )
    assert rows(found) == [(100, 100, "a"), (200, 5, "b"), (205, 895, "a")]


def test_a_cause_is_of_the_bound_on_which_it_has_most_time() -> None:
    """In every stretch the same: 30 ns of CPU work run, 20 ns launch."""
    found = main_causes(
        charged(
            ("CPU work", "launch", 20),
            ("compute", "compute", 10),
            ("CPU work", "host", 30),
        )
    )
    assert found["bound"].tolist() == ["host", "compute", "host"]


def test_a_run_shorter_than_its_parts_has_as_many_as_nanoseconds() -> None:
    """No part is empty."""
    assert rows(main_causes(charged(("a", "host", 2), ("b", "host", 1)))) == [
        (100, 2, "a"),
        (102, 1, "b"),
    ]


def test_a_run_without_time_has_none() -> None:
    """Nothing was recorded."""
    assert main_causes(charged(("a", "host", 1)).iloc[:0]).empty
