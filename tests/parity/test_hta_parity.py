"""Every feature of HTA against htagraph, on every trace that HTA answers for, and its events."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.explain.differences import kernel_diff, op_diff
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window
from htagraph.queries.communication import class_overlap, overlap
from htagraph.queries.counters import counters, cupti_counters, launch_stats, queue_blocked
from htagraph.queries.kernels import kernel_breakdown, kernel_patterns
from htagraph.queries.operators import annotation_breakdown
from htagraph.queries.steps import idle_categories, temporal_breakdown

SYNC_IS_WORK = "records of waits (cuda_sync) count as work of the device"
OP_IS_WORK = "a Triton operator that names its stream counts as a kernel"
NEGATIVE = "kernels of a stream that overlap have a negative gap, which is taken off the others"
NO_GRAPHS = "launches of CUDA graphs are left out"
TIES = "what happens at one instant is put in any order, so that peaks appear that never were"
SHALLOW = "only calls of the operator at its least depth are counted"
DEFAULT_STREAM = "kernels of stream 0, all of AMD's, belong to no operator"
BOTH_RANKS = "the kernel types of all ranks are one sum"

DIFFERENCES = {
    ("temporal_breakdown", "alexnet"): SYNC_IS_WORK,
    ("temporal_breakdown", "simple_add"): SYNC_IS_WORK,
    ("temporal_breakdown", "cuda_event_sync"): SYNC_IS_WORK,
    ("temporal_breakdown", "cuda_event_sync_multi_stream"): SYNC_IS_WORK,
    ("temporal_breakdown", "triton_example"): OP_IS_WORK,
    ("kernel_types", "triton_example"): OP_IS_WORK,
    ("kernel_types", "trace_filter"): BOTH_RANKS,
    ("kernel_breakdown", "triton_example"): OP_IS_WORK,
    ("idle_categories", "negative_queue_length_values_check"): NEGATIVE,
    ("idle_categories", "trace_diff_test"): NEGATIVE,
    ("queue_length", "negative_queue_length_values_check"): NO_GRAPHS,
    ("queue_length", "cuda_event_sync_multi_stream"): TIES,
    ("memory_bandwidth", "trace_diff_test"): TIES,
    ("kernel_patterns aten::linear", "amd_trace"): DEFAULT_STREAM,
    ("kernel_patterns aten::addmm", "amd_trace"): DEFAULT_STREAM,
    ("kernel_patterns aten::linear", "negative_queue_length_values_check"): SHALLOW,
    ("kernel_patterns aten::linear", "timeline_analysis"): SHALLOW,
    ("kernel_patterns aten::linear", "trace_diff_control"): SHALLOW,
    ("kernel_patterns aten::linear", "trace_filter"): SHALLOW,
    ("kernel_patterns aten::addmm", "negative_queue_length_values_check"): SHALLOW,
    ("kernel_patterns aten::addmm", "timeline_analysis"): SHALLOW,
    ("kernel_patterns aten::addmm", "trace_diff_control"): SHALLOW,
    ("kernel_patterns aten::addmm", "trace_filter"): SHALLOW,
}


def _ns(us) -> int:
    return round(float(us) * 1_000)


def _first_rank(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["rank"] == frame["rank"].iloc[0]]


def _agree(feature: str, trace: str, theirs: object, ours: object) -> None:
    """Check that answers are equal, or differ where a fault is named."""
    if (feature, trace) in DIFFERENCES:
        assert theirs != ours, f"no difference any more: {DIFFERENCES[feature, trace]}"
    else:
        assert theirs == ours


def test_temporal_breakdown(trace, hta, as_hta_sees, kernel_time):
    """Idle, compute, and the rest of the time from the first to the last kernel."""
    row = hta(trace, "get_temporal_breakdown").iloc[0]
    dag = as_hta_sees(trace)
    mine = temporal_breakdown(dag, kernel_time(dag)).sum()
    theirs = [_ns(row[f"{part}_time(us)"]) for part in ("idle", "compute", "non_compute", "kernel")]

    _agree(
        "temporal_breakdown",
        trace,
        theirs,
        [mine.idle_ns, mine.compute_ns, mine.communication_ns + mine.memory_ns, mine.window_ns],
    )


def test_overlap_of_communication_with_compute(trace, hta, as_hta_sees, kernel_time):
    """Percentage of communication, to two digits; none of none."""
    theirs = hta(trace, "get_comm_comp_overlap")["comp_comm_overlap_pctg"].iloc[0]
    dag = as_hta_sees(trace)
    mine = overlap(dag, kernel_time(dag))["overlap_share"].iloc[0]

    _agree(
        "overlap",
        trace,
        None if pd.isna(theirs) else theirs,
        None if np.isnan(mine) else round(100 * mine, 2),
    )


def test_kernel_types(trace, hta, as_hta_sees, kernel_time):
    """Time in which exactly these classes run."""
    theirs = hta(trace, "get_gpu_kernel_breakdown__n1000")[0]
    names = {"COMPUTATION": "compute", "COMMUNICATION": "communication", "MEMORY": "memory"}
    theirs = {
        frozenset(names[part] for part in kind.split(" overlapping ")): _ns(us)
        for kind, us in zip(theirs["kernel_type"], theirs["sum"], strict=True)
        if us
    }
    dag = as_hta_sees(trace)
    mine = class_overlap(dag, kernel_time(dag))
    mine = mine[mine["classes"] != "idle"].groupby("classes")["dur_ns"].sum()

    _agree(
        "kernel_types",
        trace,
        theirs,
        {frozenset(name.split(" + ")): ns for name, ns in mine.items()},
    )


def test_kernel_breakdown(trace, hta, as_hta_sees):
    """Sum, extremes, mean and deviation of all names; HTA's means of the top ten are wrong."""
    theirs = hta(trace, "get_gpu_kernel_breakdown__n1000")[1]
    if not len(theirs):
        pytest.skip("HTA has none")
    theirs = _first_rank(theirs)
    dag = as_hta_sees(trace)
    mine = kernel_breakdown(dag, dag.span, by="name")
    parts = ("sum (us)", "max (us)", "min (us)", "mean (us)", "stddev")
    theirs = {
        row["name"]: tuple(_ns(row[part]) for part in parts) for row in theirs.to_dict("records")
    }
    columns = ("sum_ns", "max_ns", "min_ns", "mean_ns", "std_ns")

    _agree(
        "kernel_breakdown",
        trace,
        theirs,
        {
            row.group: tuple(round(getattr(row, name)) for name in columns)
            for row in mine.itertuples()
        },
    )


def test_idle_categories(trace, hta, as_hta_sees, kernel_time):
    """Host wait, kernel wait and other per stream."""
    theirs = _first_rank(hta(trace, "get_idle_time_breakdown")[0])
    theirs = {
        (row.stream, row.idle_category): _ns(row.idle_time)
        for row in theirs.itertuples()
        if row.idle_time
    }
    dag = as_hta_sees(trace)
    mine = idle_categories(dag, kernel_time(dag))

    _agree(
        "idle_categories",
        trace,
        theirs,
        {(row.stream, row.category): row.idle_ns for row in mine.itertuples() if row.idle_ns},
    )


def test_launch_stats(trace, hta, as_hta_sees):
    """Every launch that HTA knows, with its three times; we know at least as many."""
    name = (
        "get_cuda_kernel_launch_stats__nomem"
        if trace.startswith("trace_diff")
        else "get_cuda_kernel_launch_stats"
    )
    theirs = next(iter(hta(trace, name).values()))
    dag = as_hta_sees(trace)
    mine = launch_stats(dag, dag.span).set_index("correlation")
    rows = mine.loc[theirs["correlation"]] if len(theirs) else mine.iloc[:0]

    assert len(mine) >= len(theirs)
    for ours, column in (
        ("launch_ns", "cpu_duration"),
        ("kernel_ns", "gpu_duration"),
        ("launch_delay_ns", "launch_delay"),
    ):
        assert [_ns(us) for us in (theirs[column] if len(theirs) else [])] == rows[ours].tolist()


def test_queue_length(trace, hta, as_hta_sees):
    """The longest queue of each stream."""
    summary = hta(trace, "get_queue_length_summary")
    if summary is None:
        pytest.skip("HTA answers None")
    rank = summary.index[0][0]
    theirs = {
        stream: int(n) for (r, stream), n in summary[("queue_length", "max")].items() if r == rank
    }
    dag = as_hta_sees(trace)
    mine = counters(dag, dag.span).groupby("stream")["value"].max()

    _agree("queue_length", trace, theirs, {stream: int(n) for stream, n in mine.items()})


def test_time_with_a_full_queue(trace, hta, as_hta_sees):
    """Of several streams HTA keeps only the last: that one is equal."""
    theirs = hta(trace, "get_time_spent_blocked_on_full_queue__10")
    if not len(theirs):
        pytest.skip("HTA has none")
    row = theirs.iloc[0]
    dag = as_hta_sees(trace)
    mine = queue_blocked(dag, dag.span, max_queue_length=10).set_index("stream")

    assert _ns(row["duration_at_max_queue_length"]) == mine.loc[int(row["stream"]), "full_ns"]


def test_memory_bandwidth(trace, hta, as_hta_sees):
    """The peak of each direction."""
    summary = hta(trace, "get_memory_bw_summary")
    if summary is None or not len(summary):
        pytest.skip("HTA has none")
    rank = summary.index[0][0]
    peaks = summary[("memory_bw_gbps", "max")].items()
    theirs = {name: round(value, 6) for (r, name), value in peaks if r == rank}
    dag = as_hta_sees(trace)
    mine = counters(dag, dag.span, name="memory_bandwidth").groupby("name")["value"].max().round(6)

    _agree("memory_bandwidth", trace, theirs, mine[mine > 0].to_dict())


@pytest.mark.parametrize("where", ["cpu", "gpu"])
def test_annotations(trace, where, hta, as_hta_sees):
    """Sum and extremes of ranges by name, on the host and as projected onto the device."""
    theirs = hta(trace, f"get_gpu_user_annotation_breakdown__{where}")
    if theirs is None:
        pytest.skip("HTA has none")
    dag = as_hta_sees(trace)
    mine = annotation_breakdown(dag, _everything(dag), on="host" if where == "cpu" else "device")
    theirs = _first_rank(theirs)

    assert {
        name: (_ns(total), _ns(most), _ns(least))
        for name, total, most, least in zip(
            theirs["name"], theirs["sum (us)"], theirs["max (us)"], theirs["min (us)"], strict=True
        )
    } == {
        row["name"]: (row["sum_ns"], row["max_ns"], row["min_ns"])
        for row in mine.to_dict("records")
    }


def _everything(dag) -> Window:
    return Window(int(dag.events.ts_ns.min()), int(dag.events.end_ns.max()) + 1, "everything")


@pytest.mark.parametrize("op", ["aten::linear", "aten::addmm"])
def test_kernel_patterns(trace, op, hta, as_hta_sees):
    """Whole kernel lists of an operator, with count, device time and host time."""
    theirs = hta(trace, f"get_frequent_cuda_kernel_sequences__{op.replace('::', '_')}__min1")["df"]
    dag = as_hta_sees(trace)
    mine = kernel_patterns(dag, dag.span, under=op, min_length=1, max_length=10**9, top=10**9)
    theirs = {
        row["pattern"]: (
            row["count"],
            _ns(row["GPU kernel duration (us)"]),
            _ns(row["CPU op duration (us)"]),
        )
        for row in theirs.to_dict("records")
    }
    ours = {
        "|".join((row.op, *row.pattern)): (row.n_occurrences, row.device_ns, row.host_ns)
        for row in mine.itertuples()
    }

    _agree(f"kernel_patterns {op}", trace, theirs, ours)
    if (f"kernel_patterns {op}", trace) in DIFFERENCES:
        assert set(theirs) <= set(ours)
        assert all(count <= ours[pattern][0] for pattern, (count, _, _) in theirs.items())


@pytest.mark.public("hta/cupti_profiler")
def test_cupti_counters(hta, as_it_is):
    """Every value of every counter, and the operators above each kernel."""
    theirs = hta("cupti_profiler", "get_cupti_counter_data_with_operators")[0]
    trace, dag = as_it_is("cupti_profiler")
    mine = cupti_counters(dag, _everything(dag), args=trace.args)
    wide = mine.pivot_table(
        index="event", columns="counter", values="value", aggfunc="first"
    ).sort_index()
    names = mine.drop_duplicates("event").sort_values("event")
    theirs = theirs.sort_values("ts", kind="stable")
    counters_of_both = [name for name in theirs.columns if name.startswith("smsp__")]

    assert sorted(counters_of_both) == sorted(wide.columns)
    assert len(theirs) == len(names) == 77
    in_time = names.sort_values("ts_ns", kind="stable")
    assert theirs["name"].tolist() == in_time["name"].tolist()
    assert theirs["bottom_level_op"].tolist() == in_time["op"].tolist()
    assert theirs["top_level_op"].tolist() == in_time["top_op"].tolist()
    values = wide.loc[in_time["event"], counters_of_both]
    assert theirs[counters_of_both].astype(float).to_numpy().tolist() == values.to_numpy().tolist()


def _step(dag, step: str):
    """The graph of the host events that begin in a step, and of the work they launch."""
    events = dag.events
    marker = int(
        np.flatnonzero(
            (events.name == events.symbols.code(step)) & (events.kind == EventKind.ANNOTATION)
        )[0]
    )
    begins = (events.ts_ns >= events.ts_ns[marker]) & (events.ts_ns < events.end_ns[marker])
    launch = dag.launch
    kept = (events.is_host & begins) | ((launch >= 0) & begins[launch])
    gone = np.int8(EventKind.OTHER)
    return compile_events(replace(events, kind=np.where(kept, events.kind, gone)))


@pytest.mark.public("hta/trace_diff")
@pytest.mark.parametrize("device", ["CPU", "GPU"])
def test_differences_between_two_traces(device, hta, as_it_is):
    """The first step of either side: counts and times by name, and what became of each."""
    theirs = hta("pairs_trace_diff", f"compare_traces__trace_diff__{device}__short0")
    before, after = (
        _step(as_it_is(trace)[1], "ProfilerStep#1009")
        for trace in ("trace_diff_control", "trace_diff_test")
    )
    ask = {"CPU": op_diff, "GPU": kernel_diff}[device]
    mine = ask(before, after)
    columns = ["Control_counts", "Test_counts", "Control_total_duration", "Test_total_duration"]
    theirs = {
        name.replace("ProfilerStep#1009", "ProfilerStep"): (
            int(row[0]),
            int(row[1]),
            _ns(row[2]),
            _ns(row[3]),
        )
        for name, row in zip(theirs.index, theirs[columns].to_numpy(), strict=True)
    }

    ours = mine[["name", "n_before", "n_after", "before_ns", "after_ns"]].itertuples(
        index=False, name=None
    )

    assert theirs == {name: tuple(row) for name, *row in ours}
