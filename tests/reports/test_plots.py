"""Figures: titles state the fact, axes have units, and what is thinned keeps its time."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph import JobSummary, load_job
from htagraph.errors import QueryError
from htagraph.explain.idle_parts import IdleCause
from htagraph.model.answers import (
    COUNTERS,
    EXPOSED_COMMUNICATION,
    IDLE_CATEGORIES,
    IDLE_TIME,
    KERNEL_BREAKDOWN,
    LAUNCH_STATS,
    MEMORY_TIMELINE,
    OVERLAP,
    SAMPLED_COUNTERS,
    STEP_TIMES,
    TEMPORAL_BREAKDOWN,
)
from htagraph.model.colors import COLORS, INFERRED, Color
from htagraph.model.frames import DIFF
from htagraph.model.job_answers import MATCHED_COLLECTIVES, PIPELINE_SCHEDULE
from htagraph.model.kinds import Bound, KernelClass, bound_in_words
from htagraph.model.samples import SampleTable, Series
from htagraph.model.schema import Schema, categorical
from htagraph.reports import plots
from htagraph.reports.page.document import write_page
from htagraph.reports.plots.drawing import (
    BOUND_COLORS,
    CAUSE_COLORS,
    new_figure,
    thin_line,
    thin_path,
)
from htagraph.reports.summary import Summary
from tests.job.drawn_pipelines import drawn
from tests.queries.gridded import gridded
from tests.queries.recorded_shapes import Op, recorded
from tests.real_traces import CAPTURES

pytest.importorskip("plotly")

STEP = """
    cpu 1    |{ProfilerStep#0                            }
    cpu 1    | [aten::mm [launch >a]] [launch >b][sync @*]
    stream 7 |            [gemm <a ]      [ncclK <b ]
"""


@pytest.fixture(scope="module")
def step() -> hg.TraceGraph:
    return hg.Trace.from_events(hg.synth.timeline(STEP)).compile()


def bars(figure: object) -> dict[str, list[float]]:
    """What is drawn, by the name of the trace."""
    return {trace.name: list(trace.x) for trace in figure.data}  # type: ignore[attr-defined]


def test_a_legend_of_many_names_leaves_the_title_its_line() -> None:
    """Four names of 20 characters fit on a line."""
    names = [f"of 20 characters, {n:2}" for n in range(9)]
    figures = [new_figure([{"name": name} for name in names[:n]], "a title") for n in (4, 8, 9)]

    assert [figure.layout["margin"]["t"] for figure in figures] == [60, 82, 104]


def test_every_bound_and_every_cause_has_a_color() -> None:
    """A new member of the vocabulary needs a color of its own."""
    assert set(BOUND_COLORS) == set(Bound.labels())
    assert set(CAUSE_COLORS) == set(IdleCause.labels())


def test_the_timeline_of_a_short_path_shows_every_segment(step: hg.TraceGraph) -> None:
    """Nothing is joined, so there is no note; blocks begin where segments begin."""
    path = step.critical_path()
    figure = plots.critical_path_timeline(path)
    begins = sorted(float(base) for trace in figure.data for base in trace.base)
    assert begins == [(start - path.window.start_ns) / 1000 for start in path.segments["start_ns"]]
    assert figure.layout.meta == {"note": ""}
    assert figure.layout.xaxis.title.text == "time, us"


def test_the_timeline_of_a_long_path_says_what_it_joins(step: hg.TraceGraph) -> None:
    """Two segments alone, the rest between them."""
    path = step.critical_path()
    n = len(path.segments)
    note = plots.critical_path_timeline(path, max_single=2).layout.meta["note"]
    longest = path.segments["dur_ns"].nlargest(2).sum() / path.dur_ns
    assert note.startswith(
        f"The 2 longest segments ({longest:.0%} of the time) are drawn one by one; "
        f"the {n - 2} others"
    )


@given(
    dur=st.lists(st.integers(0, 50), min_size=1, max_size=60),
    bounds=st.lists(st.integers(0, 3), min_size=60, max_size=60),
    max_single=st.integers(1, 10),
)
def test_blocks_keep_the_time_of_every_bound(
    dur: list[int], bounds: list[int], max_single: int
) -> None:
    """Joining loses no nanosecond and no segment that lasts; blocks stay inside their segments."""
    start, code = np.cumsum([0, *dur[:-1]]), np.array(bounds[: len(dur)])
    blocks = thin_path(start, np.array(dur), code, max_single=max_single)
    expected = np.bincount(bounds[: len(dur)], weights=dur, minlength=4)
    assert (
        np.bincount(blocks.code, weights=blocks.dur_ns, minlength=4).tolist() == expected.tolist()
    )
    assert (blocks.start_ns + blocks.span_ns <= sum(dur)).all()
    assert (blocks.dur_ns <= blocks.span_ns).all()
    lasting = sum(value > 0 for value in dur)
    assert lasting <= int(blocks.n_segments.sum()) <= len(dur)


@given(
    dur=st.lists(st.integers(1, 20), min_size=1, max_size=80),
    values=st.lists(st.integers(0, 9), min_size=80, max_size=80),
    max_points=st.integers(1, 30),
)
def test_a_thinned_line_keeps_its_highest_level_and_its_ends(
    dur: list[int], values: list[int], max_points: int
) -> None:
    """At no time is the drawn level below the true one: a peak is never lost."""
    ts, value = np.cumsum([0, *dur[:-1]]), np.array(values[: len(dur)], dtype=float)
    line = thin_line(ts, np.array(dur), value, max_points=max_points)
    assert (line.ts_ns[0], line.ts_ns[-1], line.value.max()) == (0, sum(dur), value.max())
    assert len(line.ts_ns) <= max_points + 1
    at = np.arange(sum(dur))
    drawn = line.value[np.searchsorted(line.ts_ns, at, side="right") - 1]
    true = value[np.searchsorted(ts, at, side="right") - 1]
    assert (drawn >= true).all()


def test_steps_are_stated_by_the_shortest_and_the_longest() -> None:
    """One step time is enough: that of the run is another figure's."""
    drawing = "cpu 1 |{ProfilerStep#1  }{ProfilerStep#2         }\ncpu 1 |[aten::mm ]  [aten::mm ]"
    path = hg.Trace.from_events(hg.synth.timeline(drawing)).compile().critical_path()
    title = plots.steps(path).layout.title.text
    assert title == "2 steps take 18.0 us to 25.0 us, ProfilerStep#2 the longest"


def test_a_difference_of_a_few_percent_is_no_title() -> None:
    """Steps of 100 and 104 us."""
    row = {name: [0] * 2 for name in STEP_TIMES.columns} | {"name": ["ProfilerStep#7"] * 2}
    frame = STEP_TIMES.frame(row | {"dur_ns": [100_000, 104_000]}).assign(rank=[0, 1])
    said = "Every rank takes as long as the others for each step, within 4.00 us"
    assert plots.step_spread(frame).layout.title.text == said


def test_what_a_device_does_adds_up_to_the_window(step: hg.TraceGraph) -> None:
    """Four parts, 100%."""
    figure = plots.temporal_breakdown(step.temporal_breakdown())
    parts = bars(figure)
    assert list(parts) == ["compute", "exposed communication", "exposed copies", "idle"]
    assert sum(x[0] for x in parts.values()) == pytest.approx(100)
    frame = step.temporal_breakdown()
    compute, idle = frame["compute_share"][0], frame["idle_share"][0]
    assert (
        figure.layout.title.text
        == f"Device 0 computes {compute:.0%} of the time and is idle {idle:.0%}"
    )


def test_ranks_of_a_job_have_a_row_each() -> None:
    """The title names who is idle most."""
    row = {name: [0, 0] for name in TEMPORAL_BREAKDOWN.columns}
    times = {"window_ns": [100, 100], "compute_ns": [75, 50], "idle_ns": [25, 50]}
    shares = {"compute_share": [0.75, 0.5], "idle_share": [0.25, 0.5]}
    frame = TEMPORAL_BREAKDOWN.frame(row | times | shares)
    frame.insert(0, "rank", [0, 1])
    figure = plots.temporal_breakdown(frame)
    assert list(figure.data[0].y) == ["rank 0, device 0", "rank 1, device 0"]
    assert figure.layout.title.text == (
        "Devices compute 62% of the time and are idle 38% on average; "
        "rank 1, device 0 is idle most (50%)"
    )


def test_of_many_devices_those_that_are_idle_most_have_a_row() -> None:
    """16 of 20; the title is on all."""
    row = {name: [0] * 20 for name in TEMPORAL_BREAKDOWN.columns}
    idle = [k / 100 for k in range(20)]
    times = {"window_ns": [100] * 20, "idle_ns": range(20)}
    frame = TEMPORAL_BREAKDOWN.frame(row | times | {"device": range(20), "idle_share": idle})
    figure = plots.temporal_breakdown(frame)
    assert list(figure.data[0].y) == [f"device {k}" for k in range(4, 20)]
    assert "are idle 10% on average; device 19 is idle most (19%)" in figure.layout.title.text
    assert figure.layout.meta["note"] == "The 16 of 20 devices with most idle time."


def test_bounds_of_less_than_one_percent_share_the_last_row() -> None:
    """Communication, launches and two more of the demo."""
    path = hg.load(hg.demo_trace("dataloader")).compile().critical_path()
    rows = list(plots.critical_path_timeline(path).layout.yaxis.ticktext)
    assert (rows[0], len(rows), rows[-1]) == ("data loading 83%", 6, "4 others &lt;1%")


def test_gaps_of_streams_are_drawn_in_the_categories_of_hta() -> None:
    """Stream 7 waits 10 us for its launch and 2 us for nothing; stream 9 has one kernel."""
    drawing = """
        cpu 1    |[launch >a]    [launch >b]
        stream 7 |     [a <a]          [b <b]  [c ]
        stream 9 |     [d   ]
    """
    graph = hg.Trace.from_events(hg.synth.timeline(drawing)).compile()
    figure = plots.idle_categories(graph.idle_categories())

    assert bars(figure) == {"host wait": [10.0, 0], "kernel wait": [2.0, 0], "other": [0, 0]}
    assert list(figure.data[0].y) == ["device 0, stream 7", "device 0, stream 9"]
    assert figure.layout.title.text == (
        "Gaps between the kernels of streams: host wait 83%, kernel wait 17%, other 0%"
    )


def test_what_differs_between_two_runs_is_drawn_largest_first() -> None:
    """The gemm takes 3 us less, the relu runs once more, the copy is the same."""
    before, after = (
        hg.Trace.from_events(hg.synth.timeline(drawing)).compile()
        for drawing in ("stream 7 |[gemm   ][relu][copy]", "stream 7 |[gemm][relu][relu][copy]")
    )
    kernels = hg.diff(before, after).kernels()
    time, count = plots.differences(kernels, top=1), plots.differences(kernels, of="count")

    assert bars(time) == {"before": [6.0], "after": [12.0]}
    assert time.layout.title.text == "relu takes 6.00 us more, the largest of 2 differences"
    assert time.layout.meta["note"] == "The table lists 1 more."
    assert bars(count) == {"before": [1], "after": [2]}
    assert count.layout.title.text == "relu has 1 call more, the largest of 1 difference"
    with pytest.raises(QueryError, match="not drawn of 'size'"):
        plots.differences(kernels, of="size")  # type: ignore[arg-type]


def test_a_timeline_has_a_row_for_each_stream() -> None:
    """Bars begin where work does; the window is 20 us."""
    drawing = "stream 7 |[gemm    ]    [relu]\nstream 9 |  [ncclAllReduce  ]"
    graph = hg.Trace.from_events(hg.synth.timeline(drawing)).compile()
    figure = plots.timeline(graph)

    assert list(figure.layout.yaxis.ticktext) == [
        "device 0, stream 7 80%",
        "device 0, stream 9 85%",
    ]
    drawn = {bar.name: (bar.y[0], list(bar.base), list(bar.x)) for bar in figure.data}
    assert drawn == {"compute": (0, [0, 14], [10, 6]), "communication": (1, [2], [17])}
    assert figure.layout.title.text == "Device 0, stream 9 is busy 85% of 20.0 us"


@given(
    work=st.lists(st.tuples(st.integers(0, 60), st.integers(3, 9)), min_size=1, max_size=40),
    max_marks=st.integers(1, 8),
)
def test_a_timeline_of_few_marks_keeps_the_time_in_which_a_stream_is_busy(
    work: list[tuple[int, int]], max_marks: int
) -> None:
    """Kernels may overlap, and most are joined."""
    drawing = (f"stream 7 |{' ' * start}[{'k':<{dur - 2}}]" for start, dur in work)
    graph = hg.Trace.from_events(hg.synth.timeline("\n".join(drawing))).compile()
    figure = plots.timeline(graph, max_marks=max_marks)
    area = sum(float(np.dot(bar.x, bar.width)) for bar in figure.data) / 0.86
    busy = {instant for start, dur in work for instant in range(start, start + dur)}

    assert sum(len(bar.x) for bar in figure.data) <= 2 * max_marks + 1
    assert area == pytest.approx(len(busy))


def test_exposed_communication_is_stated() -> None:
    """4 of 9 us of communication run beside compute."""
    graph = hg.Trace.from_events(
        hg.synth.timeline("stream 7 |[gemm  ]\n stream 9 |    [ncclK  ]")
    ).compile()
    figure = plots.overlap(graph.window("trace").overlap())
    assert (
        figure.layout.title.text
        == "44% of communication is hidden behind compute; 5.00 us is exposed"
    )
    assert bars(figure) == {"compute alone": [4.0], "both": [4.0], "exposed communication": [5.0]}


def test_kernels_of_one_short_name_are_told_apart() -> None:
    """Rows are named by the word that only one of them has."""
    names = {"k1": "void f<AddFunctor>(int)", "k2": "void f<MulFunctor>(int)"}
    graph = hg.Trace.from_events(hg.synth.timeline("stream 7 |[k1  ][k2]", names=names)).compile()
    figure = plots.top_kernels(graph.kernel_breakdown(by="name"))
    assert list(figure.layout.yaxis.ticktext) == ["f · AddFunctor", "f · MulFunctor"]
    assert (
        figure.layout.title.text
        == "f · AddFunctor takes 60% of device time, the first 2 of 2 kernels 100%"
    )


def test_the_longest_queue_is_stated() -> None:
    """Two launches are outstanding before the first kernel starts."""
    drawing = """
    cpu 1    |[launch >a][launch >b]
    stream 7 |                      [k <a][k <b]
    """
    graph = hg.Trace.from_events(hg.synth.timeline(drawing)).compile()
    figure = plots.queue_length(graph.counters(name="queue_length"))
    assert figure.layout.title.text == "At most 2 launches are outstanding on stream 7, device 0"


def test_each_sampled_counter_has_a_row_and_uncertain_times_are_stated() -> None:
    """How busy the device is comes first, then what changes; what does not is left out."""
    events = hg.synth.timeline("cpu 1 |[aten::mm  ]", us_per_column=1_000_000)
    at = np.arange(0, 12 * 10**9, 10**9)
    series = [
        (Series("memory.total", "MiB", 0, "nvidia-smi", 10**9), np.full(12, 8.0)),
        (Series("power.draw", "W", 0, "nvidia-smi", 10**9), at / 10**9 + 100),
        (Series("utilization.gpu", "%", 0, "nvidia-smi", 10**9), np.full(12, 40.0)),
    ]
    samples = SampleTable.of([(one, at, value) for one, value in series])
    graph = hg.Trace.from_events(replace(events, samples=samples)).compile()
    figure = plots.sampled_counters(graph.sampled_counters(by="time"))

    assert figure.layout.title.text == "utilization.gpu is 40% on average"
    assert [row.text for row in figure.layout.annotations] == [
        "utilization.gpu, %",
        "power.draw, W",
    ]
    assert figure.data[1].y[-1] == 111
    assert figure.layout.meta["note"] == (
        "1 counter that never changes is not drawn. Times of nvidia-smi may be off by 1.00 s to "
        "either side."
    )


def test_who_is_waited_for_is_stated() -> None:
    """Rank 1 comes 30 us late to the first collective, rank 0 comes 10 us late to the second."""
    row = {name: [0] * 4 for name in MATCHED_COLLECTIVES.columns}
    frame = MATCHED_COLLECTIVES.frame(
        row
        | {"match": [0, 0, 1, 1], "rank": [0, 1, 0, 1], "start_ns": [0, 30_000, 110_000, 100_000]}
        | {"wait_ns": [30_000, 0, 0, 10_000], "last_rank": [1, 1, 0, 0]}
        | {"operation": ["all_reduce"] * 4, "group": [""] * 4, "matched_by": ["seq"] * 4}
    )
    figure = plots.collective_waits(frame)
    assert figure.layout.title.text == "75% of all collective wait (40.0 us) is for rank 1"
    assert figure.data[0].z.tolist() == [[30.0, 0.0], [0.0, 10.0]]


def test_a_slow_device_stands_to_the_right_of_the_median_rank() -> None:
    """Rank 2 runs every gemm in 18 us, the others in 10; collectives wait and are not compared."""
    row = {name: [0] * 6 for name in KERNEL_BREAKDOWN.columns}
    row |= {
        "group": ["gemm", "nccl"] * 3,
        "class": categorical(
            [KernelClass.COMPUTE, KernelClass.COMMUNICATION] * 3, KernelClass.labels()
        ),
    }
    row |= {
        "mean_ns": [10_000.0, 900.0, 10_000.0, 800.0, 18_000.0, 100.0],
        "sum_ns": [1, 9, 1, 9, 1, 9],
    }
    frame = KERNEL_BREAKDOWN.frame(row).assign(rank=[0, 0, 1, 1, 2, 2])
    figure = plots.kernels_across_ranks(frame)
    assert figure.layout.title.text == "Rank 2 runs gemm 1.80 times as long as the median rank"
    assert [(dots.name, dots.x.tolist()) for dots in figure.data] == [
        ("rank 0", [1.0]),
        ("rank 1", [1.0]),
        ("rank 2", [1.8]),
    ]


def test_the_spread_of_a_step_is_over_ranks_not_devices() -> None:
    """Rank 0 has two devices and one step; steps of 4 and 6 ms: median 5 ms, difference 2."""
    row = {name: [0] * 3 for name in STEP_TIMES.columns} | {"name": ["ProfilerStep#7"] * 3}
    frame = STEP_TIMES.frame(row | {"dur_ns": [4_000_000, 4_000_000, 6_000_000]}).assign(
        rank=[0, 0, 1]
    )
    figure = plots.step_spread(frame)
    assert figure.layout.title.text == "Ranks differ most in ProfilerStep#7, by 2.00 ms"
    bars = figure.data[0]
    assert (bars.y.tolist(), bars.error_y.array.tolist(), bars.error_y.arrayminus.tolist()) == (
        [5.0],
        [1.0],
        [1.0],
    )


@pytest.mark.parametrize(
    ("plot", "schema"),
    [
        (plots.temporal_breakdown, TEMPORAL_BREAKDOWN),
        (plots.idle_time, IDLE_TIME),
        (plots.idle_categories, IDLE_CATEGORIES),
        (plots.differences, DIFF),
        (plots.overlap, OVERLAP),
        (plots.exposed_communication, EXPOSED_COMMUNICATION),
        (plots.top_kernels, KERNEL_BREAKDOWN),
        (plots.kernels_across_ranks, KERNEL_BREAKDOWN),
        (plots.launch_stats, LAUNCH_STATS),
        (plots.queue_length, COUNTERS),
        (plots.memory_bandwidth, COUNTERS),
        (plots.collective_waits, MATCHED_COLLECTIVES),
        (plots.sampled_counters, SAMPLED_COUNTERS),
    ],
)
def test_where_there_is_nothing_the_figure_says_so(plot: object, schema: Schema) -> None:
    """An empty answer is a figure with a title, not an exception."""
    title = plot(schema.empty()).layout.title.text  # type: ignore[operator]
    assert title.startswith(("No", "Device"))


def memory(**columns: list[object]) -> pd.DataFrame:
    """Records of memory: device 1 has its peak of 3 GB in aten::mm, at 20 us."""
    row = {name: [0] * 4 for name in MEMORY_TIMELINE.columns}
    drawn = {
        "ts_ns": [5_000, 10_000, 20_000, 30_000],
        "device_type": [0, 1, 1, 1],
        "device": [-1, 1, 1, 1],
        "allocated": [64, 1_000_000_000, 3_000_000_000, 2_000_000_000],
        "reserved": [0, 4_000_000_000, 4_000_000_000, 4_000_000_000],
        "op": ["aten::empty", "aten::mm", "aten::mm", ""],
    }
    return MEMORY_TIMELINE.frame(row | drawn | columns)


def test_the_peak_of_memory_is_named_and_steps_are_marked() -> None:
    """The host's few bytes are not drawn where a device has memory; time counts from 10 us."""
    frame = memory()
    frame.attrs["steps_ns"] = [12_000, 25_000]
    figure = plots.memory_timeline(frame)

    assert figure.layout.title.text == (
        "Device 1 allocates at most 3 GB, in aten::mm at 10.0 us; 4 GB are reserved then"
    )
    lines = {line.name: (list(line.x), list(line.y)) for line in figure.data}
    assert lines == {
        "allocated, device 1": ([0, 10, 20, 20], [1, 3, 2, 2]),
        "reserved, device 1": ([0, 10, 20, 20], [4, 4, 4, 4]),
    }
    assert [(mark.x, mark.y, mark.text) for mark in figure.layout.annotations] == [
        (10, 3, "peak 3 GB")
    ]
    assert [step.x0 for step in figure.layout.shapes] == [2, 15]


def test_memory_that_was_not_recorded_says_how_to_record_it() -> None:
    """Old files have changes, but no totals."""
    assert plots.memory_timeline(MEMORY_TIMELINE.empty()).layout.title.text == (
        "Memory was not recorded. torch.profiler.profile(profile_memory=True) records it."
    )
    changes = memory(allocated=[-1] * 4, reserved=[-1] * 4)
    assert plots.memory_timeline(changes).layout.title.text.startswith("No totals of memory")


def test_without_plotly_one_is_told_what_to_install() -> None:
    """The extra is optional: the error names it."""
    code = (
        "import sys; sys.modules['plotly'] = None\n"
        "from htagraph.reports import plots; from htagraph.model.answers import OVERLAP\n"
        "plots.overlap(OVERLAP.empty())"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    ).stderr
    assert told.splitlines()[-1] == (
        f"{QueryError.__module__}.QueryError: figures need plotly. "
        "Hint: pip install 'htagraph[plot]'"
    )


def test_a_frame_is_not_changed_by_drawing_it(step: hg.TraceGraph) -> None:
    """Figures are functions of answers."""
    frame = step.idle_time()
    before = frame.copy()
    plots.idle_time(frame)
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize("name", plots.__all__)
@pytest.mark.parametrize("given", [5, pd.DataFrame({"a": [1]})], ids=["number", "frame"])
def test_what_a_figure_cannot_draw_is_a_wrong_question(name: str, given: object) -> None:
    """The error says which answer it takes."""
    with pytest.raises(QueryError, match=rf"plots.{name} cannot draw a .* Hint: give the "):
        getattr(plots, name)(given)


def test_inferred_segments_are_cross_hatched() -> None:
    """Of a wait that no record names; the bar says the rule, and the note what it means."""
    names = {"L": "cudaLaunchKernel", "R": "cudaEventRecord", "E": "cudaEventElapsedTime"}
    drawing = """
        cpu 1    |[L >a][R         ]                                     [E         ][op           ]
        stream 7 |    [k1 <a                                          ]
    """
    path = hg.Trace.from_events(hg.synth.timeline(drawing, names=names)).compile().critical_path()
    figure = plots.critical_path_timeline(path)
    crossed = [
        (row.name, text)
        for row in figure.data
        if isinstance(row.marker.pattern.shape, tuple)
        for text, shape in zip(row.customdata, row.marker.pattern.shape, strict=True)
        if shape == INFERRED
    ]

    ((bound, said),) = crossed
    assert bound == "GPU synchronization"
    assert said.endswith("<br>inferred: host polls")
    assert figure.layout.meta["note"].startswith("Cross-hatched segments are inferred")


def test_a_path_of_records_has_no_hatching() -> None:
    """Nor a note on it: rows are named, and lines would look like more segments."""
    drawing = "cpu 1 |[launch >a][sync @*  ]\nstream 7 |   [k <a]"
    path = hg.Trace.from_events(hg.synth.timeline(drawing)).compile().critical_path()
    figure = plots.critical_path_timeline(path)

    assert not any(row.marker.pattern.shape for row in figure.data)
    assert figure.layout.meta["note"] == ""


def test_utilisation_adds_up_to_the_device() -> None:
    """One block on 4 SMs for 8 of 10 us: a quarter of the SMs, a quarter of their warps."""
    dag = gridded("cpu 1    |[op      ]\nstream 7 |[k     ]", k=(1, 128))
    figure = plots.utilization(hg.TraceGraph(dag, dag.span).utilization())
    assert {name: [round(x, 6) for x in values] for name, values in bars(figure).items()} == {
        "warps": [5.0],
        "SMs with a block, empty warp slots": [15.0],
        "no block: small grids": [60.0],
        "no kernel runs": [20.0],
    }
    assert figure.layout.title.text == "A kernel runs 80% of the time, on 25% of the SMs (estimate)"


@pytest.fixture(scope="module")
def modelled() -> pd.DataFrame:
    """Of 200 us for a product the H100 needs 139, of 240 for a sum 120; 100 have no model."""
    return recorded(
        Op("aten::mm", [[4096, 4096], [4096, 4096]], [("gemm", 200)]),
        Op("aten::add", [[8192, 8192], [8192, 8192]], [("add", 240)]),
        Op("mylib::own", [[4096, 4096]], [("own", 100)]),
    ).roofline()


def test_time_at_roof_is_drawn_up_to_the_time_of_each_operator(modelled: pd.DataFrame) -> None:
    """Largest excess first; the share is that of all device time, modelled or not."""
    figure = plots.time_at_roof(modelled)
    drawn = bars(figure)

    assert list(figure.layout.yaxis.ticktext) == ["aten::add", "aten::mm"]
    assert drawn["at the roof"] == pytest.approx([120.2, 138.9], abs=0.1)
    assert drawn["beyond it"] == pytest.approx([119.8, 61.1], abs=0.1)
    assert figure.layout.xaxis.title.text == "device time, us"
    assert figure.layout.title.text.endswith(
        "aten::add takes 120 us more than the device needs; "
        "all operators together 33% of device time"
    )


def test_the_roofline_bends_where_memory_feeds_the_peak(modelled: pd.DataFrame) -> None:
    """989.4 TFLOP/s at 3.35 TB/s are 295 FLOP/byte; a product of 1,365 is right of it."""
    figure = plots.roofline(modelled)
    roof, operators = figure.data

    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")
    assert (roof.name, roof.x[1], roof.y[1]) == ("bf16", pytest.approx(295.3, abs=0.1), 989.4)
    assert roof.y[0] == pytest.approx(3.35 * roof.x[0])
    assert roof.y[2] == 989.4
    assert roof.x[0] < operators.x[0] < roof.x[2]
    assert operators.x[0] == pytest.approx(1365.3, abs=0.1)
    assert operators.y[0] == pytest.approx(687.2, abs=0.1)
    assert len(operators.x) == 1  # the sum has no operations of matrix units
    assert "aten::mm reaches 687 TFLOP/s, 69% of its roof on H100 SXM" in figure.layout.title.text


def test_no_known_roof_is_said_in_the_title() -> None:
    unknown = recorded(Op("aten::mm", [[64, 64], [64, 64]], [("gemm", 9)]), device=None).roofline()

    for plot in (plots.roofline, plots.time_at_roof):
        assert "No operator has a known roof" in str(plot(unknown).layout)


pytest.importorskip("plotly")


def test_a_box_is_an_action_and_critical_ones_have_outlines() -> None:
    """Two actions of stage 0 may come later, all others hold up the step."""
    schedule = drawn(2, 2, lambda _, phase, __: 10.0 if phase == "F" else 20.0).timetable()
    figure = plots.pipeline_schedule(schedule)
    forward, backward, waited_for = figure.data
    assert (
        figure.layout.title.text
        == "Stages do nothing for micro-batches in 33% of a pipeline of 90.0 ms"
    )
    assert list(figure.layout.yaxis.ticktext) == ["stage 0 (rank 0)", "stage 1 (rank 1)"]
    boxes = zip(forward.y, forward.base, forward.text, strict=True)
    assert sorted(boxes) == [(0, 0, "0"), (0, 10, "1"), (1, 10, "0"), (1, 40, "1")]
    assert sorted(backward.y) == [0, 0, 1, 1]
    outlines = zip(waited_for.y, waited_for.base, strict=True)
    assert sorted(outlines) == [(0, 0), (0, 70), (1, 10), (1, 20), (1, 40), (1, 50)]


def test_ranks_that_are_no_pipeline_have_no_figure() -> None:
    """It says so."""
    figure = plots.pipeline_schedule(PIPELINE_SCHEDULE.empty())
    assert figure.layout.title.text == "The ranks are no pipeline"


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("name", "has"), [("pipelines/pp2_1f1b_slow", True), ("jobs/ddp_2", False)]
)
def test_a_page_has_a_section_on_its_pipeline(tmp_path: Path, name: str, *, has: bool) -> None:
    """And none if the job is no pipeline."""
    page = write_page(tmp_path / "page.html", JobSummary(load_job(CAPTURES / name)))
    assert ("<h2>Pipeline</h2>" in page.read_text()) == has


pytest.importorskip("plotly")

DRAWING = """
    cpu 1    |[aten::mm [launch >a]] [launch >b][sync @*]
    stream 7 |            [gemm <a ]      [ncclK <b ]
"""
DRAWN = (Bound.HOST, Bound.COMMUNICATION, Bound.LAUNCH, Bound.SYNC)


@pytest.fixture(scope="module")
def summary() -> Summary:
    trace = hg.Trace.from_events(hg.synth.timeline(DRAWING))
    return Summary(trace, trace.compile())


@pytest.fixture(scope="module")
def page(summary: Summary, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_page(tmp_path_factory.mktemp("page") / "report.html", summary).read_text()


@pytest.fixture(params=DRAWN, ids=lambda bound: bound.label)
def bound(request: pytest.FixtureRequest, summary: Summary) -> Bound:
    """A bound on the path of the drawing."""
    assert request.param.label in summary.by_bound.index
    found: Bound = request.param
    return found


@pytest.fixture
def color(bound: Bound) -> Color:
    return COLORS[bound]


def test_of_a_figure(summary: Summary, bound: Bound, color: Color) -> None:
    """Rows of the timeline; their names tell the bounds, so no hatch has to."""
    drawn, name = plots.critical_path_timeline(summary.path).data, bound_in_words(bound.label)
    assert {one.marker.color for one in drawn if one.name == name} == {color.fill}


def test_of_the_page(page: str, bound: Bound, color: Color) -> None:
    """Marks of tables and of bars outside figures."""
    colors = f"--key: {color.css}; --fill: {color.fill}; --ink: {color.ink};"
    assert f'[data-key="{bound.label}"] {{ {colors} }}' in page
    assert f'<td data-key="{bound.label}">' in page


def test_of_a_notebook(summary: Summary, color: Color) -> None:
    assert f"background:{color.css}" in summary.path._repr_html_()


def test_of_graphviz(summary: Summary, bound: Bound, color: Color) -> None:
    (box, *_) = [at for at, box in enumerate(summary.path.outline.boxes) if box.bounds[0] is bound]
    said = summary.path.to_dot().partition(f"n{box} [")[2].partition("];")[0]
    assert f'fillcolor="{color.fill}"' in said
    assert f'fontcolor="{color.ink}"' in said


def test_figures_of_the_page_are_called_by_their_sentence(page: str, summary: Summary) -> None:
    """A screen reader says what the title says; the table of the figure is next to it."""
    title = plots.critical_path_timeline(summary.path).layout.title.text
    figure = page.index(f'data-figure="critical-path-timeline" role="figure" aria-label="{title}"')
    assert page.index("<table", figure) < page.index("</article>", figure)
    tags = re.findall(r"<div [^>]*data-figure=[^>]*>", page)
    assert not [tag for tag in tags if 'role="figure" aria-label="' not in tag]
