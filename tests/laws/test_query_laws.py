"""Laws that every question obeys, on any events: sound, simulated, and nonsense."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.explain.differences import kernel_diff, op_diff
from htagraph.explain.segments import segment_code
from htagraph.model import answers, frames
from htagraph.model.dag import Dag
from htagraph.model.events import EventTable, LaneTable, SparseColumn
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.samples import SampleTable, Series
from htagraph.model.schema import Schema
from htagraph.model.symbols import SymbolTable
from htagraph.model.window import Window
from htagraph.queries.communication import (
    class_overlap,
    collectives,
    exposed_communication,
    overlap,
)
from htagraph.queries.cost import cost, near_critical, opportunities, slack
from htagraph.queries.counters import (
    counters,
    cupti_counters,
    cupti_rates,
    launch_stats,
    memory_timeline,
    queue_blocked,
    sampled_counters,
)
from htagraph.queries.kernels import (
    graph_nodes,
    kernel_breakdown,
    kernel_durations,
    kernel_patterns,
)
from htagraph.queries.operators import (
    annotation_breakdown,
    execution_nodes,
    functions,
    operator_breakdown,
    operator_tree,
)
from htagraph.queries.quality import damage, inferences, kinds, profiler_overhead, quality
from htagraph.queries.roofline import mfu, roofline, speed_of_light
from htagraph.queries.steps import (
    idle_categories,
    idle_intervals,
    idle_time,
    steady_state,
    step_times,
    temporal_breakdown,
)
from htagraph.queries.utilization import device_activity, utilization, utilization_losses
from htagraph.synth import timeline
from tests.event_rows import taken
from tests.examples import one_in
from tests.synth.simulator import simulate
from tests.synth.strategies import programs
from tests.synth.training import training_rank


@dataclass(frozen=True)
class Question:
    """A question, what it answers with, and what its answer depends on."""

    ask: Callable[..., pd.DataFrame]
    schema: Schema
    cutoffs: tuple[str, ...] = ()
    scales: bool = True
    always_answers: bool = False


def _args(events: np.ndarray) -> list[dict[str, float]]:
    return [
        {"dram__bytes.sum": 64.0, "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 8.0}
        for _ in events
    ]


def _against_itself(diff: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
    def ask(dag: Dag, window: Window) -> pd.DataFrame:
        last = int(dag.events.ts_ns.max(initial=window.start_ns))
        until_last = Window(
            window.start_ns, max(last, window.start_ns), "until the last event begins"
        )
        return diff(dag, dag, before_window=window, after_window=until_last)

    return ask


def _near_critical(dag: Dag, window: Window, **options: int) -> pd.DataFrame:
    """The answer without its sentences: they have times and names of threads in them."""
    found = near_critical(dag, window, **options)
    return found.assign(said=pd.Series("", index=found.index, dtype=object))


QUESTIONS = {
    "temporal_breakdown": Question(temporal_breakdown, answers.TEMPORAL_BREAKDOWN),
    "utilization": Question(utilization, answers.UTILIZATION),
    # Rates of copies are by time.
    "device_activity": Question(device_activity, answers.DEVICE_ACTIVITY, scales=False),
    "utilization_losses": Question(utilization_losses, answers.UTILIZATION_LOSSES),
    "class_overlap": Question(class_overlap, answers.CLASS_OVERLAP),
    "overlap": Question(overlap, answers.OVERLAP),
    "exposed_communication": Question(exposed_communication, answers.EXPOSED_COMMUNICATION),
    "idle_time": Question(idle_time, answers.IDLE_TIME),
    "idle_time per stream": Question(lambda d, w: idle_time(d, w, per="stream"), answers.IDLE_TIME),
    "idle_intervals": Question(idle_intervals, answers.IDLE_INTERVALS),
    "idle_categories": Question(idle_categories, answers.IDLE_CATEGORIES, ("kernel_wait_ns",)),
    "kernel_breakdown": Question(kernel_breakdown, answers.KERNEL_BREAKDOWN),
    "roofline": Question(roofline, answers.ROOFLINE),
    "mfu": Question(mfu, answers.MFU),
    "speed_of_light": Question(speed_of_light, answers.SPEED_OF_LIGHT),
    "kernel_breakdown by name": Question(
        lambda d, w: kernel_breakdown(d, w, by="name"), answers.KERNEL_BREAKDOWN
    ),
    "kernel_breakdown by op": Question(
        lambda d, w: kernel_breakdown(d, w, by="op"), answers.KERNEL_BREAKDOWN
    ),
    "kernel_durations": Question(kernel_durations, answers.KERNEL_DURATIONS),
    "launch_stats": Question(
        launch_stats, answers.LAUNCH_STATS, ("launch_cutoff_ns", "delay_cutoff_ns")
    ),
    "graph_nodes": Question(graph_nodes, answers.GRAPH_NODES),
    "counters": Question(counters, answers.COUNTERS),
    "counters by track": Question(lambda d, w: counters(d, w, by="track"), answers.COUNTERS),
    "counters of memory_bandwidth": Question(
        lambda d, w: counters(d, w, name="memory_bandwidth"), answers.COUNTERS, scales=False
    ),
    "queue_blocked": Question(
        lambda d, w: queue_blocked(d, w, max_queue_length=2), answers.QUEUE_BLOCKED
    ),
    "kernel_patterns": Question(kernel_patterns, answers.KERNEL_PATTERNS),
    "kernel_patterns by occurrence": Question(
        lambda d, w: kernel_patterns(d, w, by="occurrence"), answers.KERNEL_PATTERNS
    ),
    "kernel_patterns under": Question(
        lambda d, w: kernel_patterns(d, w, under="aten::*", min_length=1), answers.KERNEL_PATTERNS
    ),
    "annotation_breakdown": Question(annotation_breakdown, answers.ANNOTATION_BREAKDOWN),
    "annotation_breakdown on the device": Question(
        lambda d, w: annotation_breakdown(d, w, on="device"), answers.ANNOTATION_BREAKDOWN
    ),
    "operator_breakdown": Question(operator_breakdown, answers.OPERATOR_BREAKDOWN),
    "operator_tree": Question(operator_tree, answers.OPERATOR_TREE),
    "cupti_counters": Question(
        lambda d, w: cupti_counters(d, w, args=_args), answers.CUPTI_COUNTERS
    ),
    "cupti_rates": Question(
        lambda d, w: cupti_rates(d, w, args=_args), answers.CUPTI_RATES, scales=False
    ),
    "op_diff": Question(_against_itself(op_diff), frames.DIFF),
    "kernel_diff": Question(_against_itself(kernel_diff), frames.DIFF),
    "execution_nodes": Question(execution_nodes, answers.EXECUTION_NODES),
    "memory_timeline": Question(memory_timeline, answers.MEMORY_TIMELINE),
    "step_times": Question(step_times, answers.STEP_TIMES),
    # Its sentences on what sets a step apart hold durations.
    "steady_state": Question(steady_state, answers.STEADY_STATE, scales=False),
    "collectives": Question(collectives, answers.COLLECTIVES),
    "opportunities": Question(opportunities, answers.OPPORTUNITIES, scales=False),
    "kinds": Question(kinds, answers.KINDS),
    "kinds of events": Question(lambda d, w: kinds(d, w, of="events"), answers.KINDS),
    "inferences": Question(inferences, answers.INFERENCES),
    "inferences by pair": Question(lambda d, w: inferences(d, w, by="pair"), answers.INFERENCES),
    "profiler_overhead": Question(profiler_overhead, answers.PROFILER_OVERHEAD),
    "slack": Question(slack, answers.SLACK),
    "cost": Question(cost, answers.COST),
    "cost by op": Question(lambda d, w: cost(d, w, by="op"), answers.COST),
    "cost by bound": Question(lambda d, w: cost(d, w, by="bound"), answers.COST),
    "functions": Question(functions, answers.FUNCTIONS),
    "near_critical": Question(_near_critical, answers.NEAR_CRITICAL, ("within_ns",)),
    "sampled_counters": Question(sampled_counters, answers.SAMPLED_COUNTERS),
    "sampled_counters by time": Question(
        lambda d, w: sampled_counters(d, w, by="time"), answers.SAMPLED_COUNTERS
    ),
    "damage": Question(damage, answers.DAMAGE),
    "quality": Question(quality, answers.QUALITY, scales=False, always_answers=True),
}
"""Questions by name; a variant adds its options after a space."""
_ABSOLUTE = ("ts_ns", "start_ns", "end_ns")
_NUMBERS = ("interval", "node", "parent")
_NAMES = (
    "aten::mm", "cudaLaunchKernel", "cudaDeviceSynchronize", "gemm", "relu",
    "ncclDevKernel_AllReduce", "Memcpy DtoH (Device -> Pageable)", "ProfilerStep#1",
    "ProfilerStep#2", "[memory]", "nn.Module: Linear_0", "train.py(4): loss",
)  # fmt: skip
_KINDS = (
    EventKind.OP, EventKind.RUNTIME, EventKind.ANNOTATION, EventKind.KERNEL, EventKind.KERNEL,
    EventKind.MEMCPY,
    EventKind.PYTHON, EventKind.INSTANT, EventKind.COUNTER_RANGE, EventKind.DEVICE_ANNOTATION,
    EventKind.OVERHEAD,
)  # fmt: skip


@st.composite
def nonsense(draw: st.DrawFn) -> EventTable:
    """Events that no profiler would write: overlaps, ids that mean nothing, zero lengths."""
    n = draw(st.integers(0, 20))

    def column(values: st.SearchStrategy[int]) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=n, max_size=n)), dtype=np.int64)

    kind = column(st.sampled_from([int(kind) for kind in _KINDS])).astype(np.int8)
    on_device = np.isin(kind, (EventKind.KERNEL, EventKind.MEMCPY, EventKind.DEVICE_ANNOTATION))
    stream, device = column(st.integers(0, 2)), column(st.integers(0, 1))
    copies = np.flatnonzero(kind == EventKind.MEMCPY)
    return EventTable(
        ts_ns=column(st.integers(0, 60)),
        dur_ns=np.where(kind == EventKind.INSTANT, 0, column(st.integers(0, 25))),
        kind=kind,
        name=column(st.integers(0, len(_NAMES) - 1)).astype(np.int32),
        category=np.zeros(n, dtype=np.int32),
        lane=np.where(on_device, 2 + stream % 2, stream % 2).astype(np.int32),
        device=np.where(on_device, device, -1).astype(np.int32),
        stream=np.where(on_device, stream, -1),
        correlation=column(st.integers(-1, 6)),
        external_id=np.full(n, -1, dtype=np.int64),
        symbols=SymbolTable(_NAMES),
        lanes=LaneTable(
            (1, 1, 0, 0), (1, 2, 7, 8), ("",) * 4, ("",) * 4, (0,) * 4, (0,) * 4, ("",) * 4
        ),
        columns={"bytes": SparseColumn(copies, np.arange(len(copies)))},
    )


def _sampled(events: EventTable) -> EventTable:
    """Events with two evenly spaced series of samples: around them, and among them."""
    first, last = (int(events.ts_ns.min()), int(events.end_ns.max())) if len(events) else (0, 20)
    step = 2 * ((last - first) // 8 + 1)
    power = SampleTable.of(
        [
            (Series("power", "W", 0, "smi", 2 * step), first + step * np.arange(-1, 5), range(6)),
            (Series("load", "%", -1, "smi", step), [first + 2 * step], [7.5]),
        ]
    )
    return replace(events, samples=power)


simulated = programs(max_blocks=3).map(lambda program: _sampled(simulate(program).events))
any_events = st.one_of(nonsense().map(_sampled), simulated)
_EXPENSIVE = one_in(4)
"""An example asks all questions, most of them twice."""
windows = st.tuples(st.integers(-10, 100), st.integers(0, 60)).map(
    lambda w: Window(w[0], w[0] + w[1], "any")
)


def _comparable(
    frame: pd.DataFrame, schema: Schema, *, as_set: bool = False
) -> list[tuple[object, ...]]:
    """The rows without what names rows of the event table; floats to ten digits."""
    kept = [
        n
        for n, c in schema.columns.items()
        if c.unit not in ("event", "edge") and n not in _NUMBERS
    ]
    columns = [frame[name].tolist() for name in kept]
    rows = [
        tuple(f"{value:.10g}" if isinstance(value, float) else str(value) for value in row)
        for row in zip(*columns, strict=True)
    ]
    return sorted(rows, key=str) if as_set else rows


@_EXPENSIVE
@given(events=any_events, window=windows)
def test_answers_have_their_schema_and_parts_add_up(events, window):
    """Columns, types and order are the contract; sums are checked inside: no window may raise."""
    dag = compile_events(events)
    for name, question in QUESTIONS.items():
        for at in (dag.span, window):
            frame = question.ask(dag, at)

            assert list(frame.columns) == list(question.schema.columns), name
            assert [str(dtype) for dtype in frame.dtypes] == [
                c.dtype for c in question.schema.columns.values()
            ], name
            assert frame.index.tolist() == list(range(len(frame))), name


@pytest.mark.some(9)
@pytest.mark.parametrize("question", QUESTIONS.values(), ids=list(QUESTIONS))
def test_nothing_is_answered_with_an_empty_table_of_the_same_columns(question):
    """An empty trace has no rows, and all columns with their categories."""
    frame = question.ask(*_compiled(timeline("us |")))
    full = question.ask(*_compiled(timeline("cpu 1 |[op [launch >a]]\nstream 7 |[k <a ]")))

    assert len(frame) == 0 or question.always_answers
    assert frame.dtypes.tolist() == full.dtypes.tolist()


def _compiled(events: EventTable) -> tuple[Dag, Window]:
    dag = compile_events(events)
    return dag, dag.span


@pytest.mark.slow
@_EXPENSIVE
@given(events=simulated)
def test_asking_twice_gives_one_answer(events):
    """Questions are pure functions; the arrays they read are read-only."""
    dag, span = _compiled(events)

    for name, question in QUESTIONS.items():
        assert_frame_equal(question.ask(dag, span), question.ask(dag, span), obj=name)


def _shifted(events: EventTable, shift: int) -> EventTable:
    flows = replace(events.flows, ts_ns=events.flows.ts_ns + shift)
    samples = replace(events.samples, ts_ns=events.samples.ts_ns + shift)
    return replace(events, ts_ns=events.ts_ns + shift, flows=flows, samples=samples)


def _slower(samples: SampleTable, factor: int) -> SampleTable:
    """Samples of a run that takes longer; nothing is more certain there."""
    series = [
        replace(one, uncertainty_ns=one.uncertainty_ns * factor) for one in samples.all_series
    ]
    return replace(samples, ts_ns=samples.ts_ns * factor, all_series=tuple(series))


@pytest.mark.slow
@_EXPENSIVE
@given(events=simulated, shift=st.integers(-(10**12), 10**12))
def test_shifting_all_times_shifts_only_instants(events, shift):
    """When the trace was taken does not matter."""
    at_first, later = _compiled(events), _compiled(_shifted(events, shift))
    for name, question in QUESTIONS.items():
        answer = question.ask(*later)
        for column in set(_ABSOLUTE) & set(answer.columns):
            answer[column] -= shift

        expected = _comparable(question.ask(*at_first), question.schema)
        assert _comparable(answer, question.schema) == expected, name


@pytest.mark.slow
@_EXPENSIVE
@given(events=simulated, factor=st.integers(2, 5))
def test_scaling_all_times_scales_times_and_nothing_else(events, factor):
    """Nothing depends on a unit of time; cut-offs are times as well, and rates are by time."""
    # Times since the epoch, several times as long, would not fit 62 bits.
    events = _shifted(events, -int(events.ts_ns.min()))
    slow = replace(
        events,
        ts_ns=events.ts_ns * factor,
        dur_ns=events.dur_ns * factor,
        flows=replace(events.flows, ts_ns=events.flows.ts_ns * factor),
        samples=_slower(events.samples, factor),
    )
    at_first, later = _compiled(events), _compiled(slow)
    for name, question in QUESTIONS.items():
        if not question.scales:
            continue
        frame = question.ask(*at_first, **dict.fromkeys(question.cutoffs, 20_000))
        scaled = question.ask(*later, **dict.fromkeys(question.cutoffs, 20_000 * factor))
        for column, meaning in question.schema.columns.items():
            if meaning.unit == "ns":
                frame[column] *= factor
            elif meaning.unit == "GB/s":
                frame[column] /= factor

        assert _comparable(frame, question.schema) == _comparable(scaled, question.schema), name


@pytest.mark.slow
@_EXPENSIVE
@given(events=simulated, seed=st.integers(0, 2**32 - 1))
def test_the_order_of_events_and_names_in_the_file_does_not_matter(events, seed):
    """Profilers write events in any order."""
    one, other = _compiled(events), _compiled(_shuffled(events, np.random.default_rng(seed)))
    for name, question in QUESTIONS.items():
        answer, expected = (
            _comparable(question.ask(*side), question.schema) for side in (other, one)
        )
        assert answer == expected, name


def _shuffled(events: EventTable, rng: np.random.Generator) -> EventTable:
    """The events in another order, with other codes for their names."""
    order, letters = rng.permutation(len(events)), rng.permutation(len(events.symbols))
    code = np.argsort(letters).astype(np.int32)
    moved = taken(events, order)
    columns = {
        name: replace(column, value=code[column.value])
        if column.value.dtype == np.int32
        else column
        for name, column in moved.columns.items()
    }
    return replace(
        moved,
        columns=columns,
        name=code[moved.name],
        category=code[moved.category],
        symbols=SymbolTable(tuple(events.symbols.array[letters])),
        flows=replace(events.flows, category=code[events.flows.category]),
    )


@_EXPENSIVE
@given(events=simulated)
def test_names_of_threads_and_streams_are_only_names(events):
    """Turning the order of streams and threads around gives the same answer with the new names."""
    last = 1000

    def renamed(stream: np.ndarray) -> np.ndarray:
        return np.where(stream >= 0, last - stream, stream)

    columns = dict(events.columns)
    if "wait_on_stream" in columns:
        columns["wait_on_stream"] = replace(
            columns["wait_on_stream"], value=renamed(columns["wait_on_stream"].value)
        )
    lanes = replace(
        events.lanes, tid=tuple(last - t if isinstance(t, int) else t for t in events.lanes.tid)
    )
    one = _compiled(events)
    two = _compiled(replace(events, lanes=lanes, columns=columns, stream=renamed(events.stream)))
    for name, question in QUESTIONS.items():
        other = question.ask(*two)
        if "stream" in other:
            other["stream"] = renamed(other["stream"].to_numpy())
        if "track" in other:
            other["track"] = [
                re.sub(r"-?\d+$", lambda number: str(last - int(number[0])), track)
                for track in other["track"]
            ]

        expected = _comparable(question.ask(*one), question.schema, as_set=True)
        assert _comparable(other, question.schema, as_set=True) == expected, name


@given(events=any_events, window=windows)
def test_idle_time_is_what_the_temporal_breakdown_calls_idle(events, window):
    """Two roads to one number: gaps between unions, and stretches in which nothing runs."""
    dag = compile_events(events)
    for at in (dag.span, window):
        times = temporal_breakdown(dag, at).set_index("device")
        idle = (
            idle_time(dag, at).groupby("device")["idle_ns"].sum().reindex(times.index, fill_value=0)
        )
        parts = times[["idle_ns", "compute_ns", "communication_ns", "memory_ns"]].sum(axis=1)

        assert idle.tolist() == times["idle_ns"].tolist()
        assert parts.tolist() == times["window_ns"].tolist()


@given(events=any_events, window=windows)
def test_overlap_is_never_more_than_either_part(events, window):
    """What is both is part of each; exposed communication is the rest."""
    dag = compile_events(events)
    frame = overlap(dag, window)

    assert (frame["overlap_ns"] <= frame[["compute_ns", "communication_ns"]].min(axis=1)).all()
    assert (frame["exposed_ns"] == frame["communication_ns"] - frame["overlap_ns"]).all()
    assert (
        frame["exposed_ns"].tolist() == temporal_breakdown(dag, window)["communication_ns"].tolist()
    )


@given(events=any_events, cut=st.integers(0, 85))
def test_two_halves_of_a_window_add_up(events, cut):
    """Answers in time are clipped, not counted by who begins where."""
    dag = compile_events(events)
    whole, left, right = Window(0, 90, "whole"), Window(0, cut, "left"), Window(cut, 90, "right")
    for ask in (temporal_breakdown, overlap):
        names = [name for name in ask(dag, whole).columns if name.endswith("_ns")]
        halves = ask(dag, left)[names] + ask(dag, right)[names]

        assert ask(dag, whole)[names].to_numpy().tolist() == halves.to_numpy().tolist()


DEMOS = ("dataloader", "sync_in_loop", "exposed_allreduce", "serving", "captured")
PATTERNS = (
    "op aten::* -LAUNCH> kernel -STREAM> kernel",
    "kernel <STREAM{1,3}- kernel [dur>10us]",
    "host -> any -> any",
    "op -CHILD> op -LAUNCH> kernel [on_path]",
    "runtime -SYNC|THREAD> any",
    "any -THREAD{0,4}> op [under=ProfilerStep*]",
)


@pytest.fixture(scope="module", params=DEMOS)
def graph(request: pytest.FixtureRequest) -> hg.TraceGraph:
    return hg.load(hg.demo_trace(request.param)).compile().window("trace")


@pytest.mark.parametrize("kind", EdgeKind.labels())
def test_a_pattern_of_one_hop_is_the_edges_of_that_kind(graph: hg.TraceGraph, kind: str) -> None:
    """Each edge between two events once; a launch also from what encloses its call."""
    edges = graph.edges
    between = edges[(edges["kind"] == kind) & (edges["tail_event"] != edges["head_event"])]
    forward = graph.match(f"any -{kind}> any").frame
    backward = graph.match(f"any <{kind}- any").frame
    own = forward
    if kind == "launch":
        tails = between.set_index("edge")["tail_event"]
        own = forward[forward["any_event"] == forward["any_2_edge"].map(tails)]

    keys = ["any_event", "any_2_event", "any_2_edge"]
    expected = between[["tail_event", "head_event", "edge"]].to_numpy()
    assert sorted(own[keys].to_numpy().tolist()) == sorted(expected.tolist())
    assert sorted(forward[keys].to_numpy().tolist()) == sorted(
        backward[["any_2_event", "any_event", "any_2_edge"]].to_numpy().tolist()
    )


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("seed", range(2))
def test_matches_do_not_depend_on_the_order_of_the_file(pattern: str, seed: int) -> None:
    """Shuffled events give the same names, times, lags and waits; rows are those of the file."""
    content = simulate(training_rank(steps=2, layers=2)).to_json()
    document = json.loads(content)
    shuffled = np.random.default_rng(seed).permutation(len(document["traceEvents"]))
    document["traceEvents"] = [document["traceEvents"][place] for place in shuffled]
    before, after = (
        hg.load(text).compile().window("trace").match(pattern)
        for text in (content, json.dumps(document).encode())
    )

    assert len(before) > 0
    for one, other in ((before.frame, after.frame), (before.group(), after.group())):
        kept = [name for name in one if not name.endswith(("_event", "_edge"))]
        assert sorted(map(str, one[kept].to_numpy().tolist())) == sorted(
            map(str, other[kept].to_numpy().tolist())
        )


NEIGHBOURS = ["Optimizer.zero_grad#AdamW.zero_grad", "aten::mm", "my loss (fwd)"]


def stepping(neighbour: str, gap_us: int) -> hg.TraceGraph:
    """Four steps, in each of which Python runs for long after an operator or a named range."""
    events, ts = [], 0
    for step in range(4):
        begin = ts
        parts = [("aten::add", 10, 200), (neighbour, 0, 100), ("aten::relu", gap_us, 300)]
        for name, pause, dur in parts:
            ts += pause
            kind = "cpu_op" if name.startswith("aten") else "user_annotation"
            events.append({"cat": kind, "name": name, "ts": ts, "dur": dur})
            ts += dur
        name = f"ProfilerStep#{step}"
        events.append({"cat": "user_annotation", "name": name, "ts": begin, "dur": ts - begin + 10})
        ts += 15
    written = [{"ph": "X", "pid": 1, "tid": 1, **event} for event in events]
    return hg.load(json.dumps({"traceEvents": written}).encode()).compile()


@pytest.mark.some(1)
@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_a_place_has_one_name_everywhere(neighbour: str) -> None:
    """Of the same segment, the longest of the path."""
    graph, slower = stepping(neighbour, 2_000), stepping(neighbour, 4_000)
    path, place = graph.critical_path(), f"after {neighbour}"
    longest = int(path.durations_ns.argmax())
    helpful = graph.opportunities()

    assert segment_code(path.attributed_time, path.n_segments)[longest] == place
    assert graph.verdict().findings[0].evidence[0].label == f"untraced code {place}"
    assert helpful.loc[helpful["kind"] == "Python code", "target"].iloc[0] == place
    compared = hg.diff(*map(hg.run_profile, (graph, slower)))
    assert f"Where: untraced code +2.00 ms {place}." in compared.details


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_a_place_can_be_removed_by_its_name(neighbour: str) -> None:
    """It takes 2 ms in each of four steps."""
    graph = stepping(neighbour, 2_000).window("trace")
    saves = hg.what_if(graph, hg.remove(hg.code(f"after {neighbour}"))).saves_ns

    assert saves is not None
    assert saves.expected_ns == 8_000_000
