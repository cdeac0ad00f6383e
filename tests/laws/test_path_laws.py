"""Laws of the graph and its path, on any events: sound traces, simulated ones, and nonsense."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import rustworkx
from hypothesis import assume, given
from hypothesis import strategies as st

from htagraph import Trace, load
from htagraph.compiler.passes import compile_events
from htagraph.explain.critical_path import critical_path
from htagraph.lookup.find_window import find_window
from htagraph.model.dag import Dag
from htagraph.model.edges import EdgeTable
from htagraph.model.events import EventTable, LaneTable
from htagraph.model.kinds import EdgeKind, EventKind
from htagraph.model.rules import Evidence, Rule
from htagraph.model.symbols import SymbolTable
from htagraph.model.window import Window
from htagraph.replay.rehearsal import Rehearsal
from htagraph.replay.replay import replay_of
from htagraph.synth import timeline
from tests.event_rows import taken
from tests.fuzzing.traces import asked
from tests.judged_inference import INFERRED, Judgement, judge
from tests.replay.drawn import replayed
from tests.synth.mechanisms import KINDS, inference_program
from tests.synth.simulator import simulate
from tests.synth.strategies import inference_programs, programs
from tests.synth.training import training_rank

_NAMES = (
    "aten::mm",
    "cudaLaunchKernel",
    "cudaDeviceSynchronize",
    "cudaMemcpyAsync",
    "cudaEventRecord",
    "cudaStreamWaitEvent",
    "cudaEventElapsedTime",
    "MmBackward0",
    "gemm",
    "ncclDevKernel_AllReduce",
    "Memcpy DtoH (Device -> Pageable)",
    "ProfilerStep#1",
    "Context Sync",
    "Stream Wait Event",
    "Event Sync",
)
_KINDS = (
    EventKind.OP,
    EventKind.RUNTIME,
    EventKind.ANNOTATION,
    EventKind.KERNEL,
    EventKind.MEMCPY,
    EventKind.SYNC,
    EventKind.PYTHON,
)


@st.composite
def nonsense(draw: st.DrawFn, *, max_events: int = 25) -> EventTable:
    """Events that no profiler writes: overlaps, loops of waits, meaningless ids, zero lengths."""
    n = draw(st.integers(0, max_events))

    def column(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=n, max_size=n))

    kind = np.array(column(st.sampled_from([int(kind) for kind in _KINDS])), dtype=np.int8)
    on_device = np.isin(kind, (EventKind.KERNEL, EventKind.MEMCPY, EventKind.SYNC))
    stream = np.array(column(st.integers(0, 2)), dtype=np.int64)
    return EventTable(
        ts_ns=np.array(column(st.integers(0, 60)), dtype=np.int64),
        dur_ns=np.array(column(st.integers(0, 25)), dtype=np.int64),
        kind=kind,
        name=np.array(column(st.integers(0, len(_NAMES) - 1)), dtype=np.int32),
        category=np.zeros(n, dtype=np.int32),
        lane=np.where(on_device, 2 + stream % 2, stream % 2).astype(np.int32),
        device=np.where(on_device, 0, -1).astype(np.int32),
        stream=np.where(on_device, stream, -1),
        correlation=np.array(column(st.integers(-1, 6)), dtype=np.int64),
        external_id=np.full(n, -1, dtype=np.int64),
        symbols=SymbolTable(_NAMES),
        lanes=LaneTable(
            (1, 1, 0, 0), (1, 2, 7, 8), ("",) * 4, ("",) * 4, (0,) * 4, (0,) * 4, ("",) * 4
        ),
    )


def _simulated(*, without: tuple[str, ...] = ("full queue",)) -> st.SearchStrategy[EventTable]:
    """Simulated traces: arbitrary ones, and realistic ones with waits that no record names."""
    realistic = st.sampled_from([kind for kind in KINDS if kind not in without])
    planted = realistic.flatmap(lambda kind: inference_programs(kind=kind))
    return st.one_of(programs(max_blocks=4), planted).map(lambda program: simulate(program).events)


any_events = st.one_of(nonsense(), _simulated())
# The caching allocator frees within 200 us of the end of what it waited for, however long that ran.
without_allocator = st.one_of(
    nonsense(), _simulated(without=("full queue", "allocator", "mixture"))
)
windows = st.tuples(st.integers(-10, 100), st.integers(0, 60))
with_and_without_inference = pytest.mark.parametrize(
    "infer", [True, False], ids=["inferred", "recorded"]
)


@with_and_without_inference
@given(events=any_events)
def test_edges_run_forward_and_lags_fit(events, infer):
    """No edge may demand what did not happen."""
    dag = compile_events(events, infer=infer)
    times = dag.events.node_ts_ns

    assert (dag.edges.lag_ns >= 0).all()
    assert (times[dag.edges.tail] + dag.edges.lag_ns <= times[dag.edges.head]).all()
    assert (dag.residual_ns >= 0).all()
    assert (dag.slack_ns >= 0).all()


@with_and_without_inference
@given(events=any_events)
def test_the_order_of_nodes_is_topological(events, infer):
    """In the order of nodes every tail comes before its heads."""
    dag = compile_events(events, infer=infer)
    place = np.full(2 * len(events), -1)
    place[dag.order] = np.arange(len(dag.order))

    assert (place[dag.edges.tail] < place[dag.edges.head]).all()


@with_and_without_inference
@given(events=any_events)
def test_a_replay_without_changes_gives_back_every_time(events, infer):
    """The graph explains the trace, by every reading of what it leaves open."""
    dag = compile_events(events, infer=infer)
    for reading in Rehearsal(dag, dag.span).readings:
        assert reading.replay.ts_ns.tolist() == replayed(reading.replay).tolist()


@with_and_without_inference
@given(events=any_events, window=windows)
def test_segments_tile_any_window(events, window, infer):
    """Exactly one segment covers each instant; also in windows that begin or end anywhere."""
    dag = compile_events(events, infer=infer)
    for at in (dag.span, Window(window[0], window[0] + window[1], "any")):
        segments = critical_path(dag, at)
        ends = segments["start_ns"] + segments["dur_ns"]

        assert at.dur_ns == segments["dur_ns"].sum()
        assert (segments["dur_ns"] > 0).all()
        assert ends[:-1].tolist() == segments["start_ns"][1:].tolist()
        assert (segments["lag_ns"] + segments["residual_ns"] == segments["dur_ns"]).all()
        assert (segments["lag_ns"] >= 0).all()
        assert (segments["residual_ns"] >= 0).all()


@with_and_without_inference
@given(events=any_events, window=windows)
def test_the_longest_path_of_rustworkx_is_as_long_as_the_window(events, window, infer):
    """An independent solver over lag and residual finds the same length."""
    graph = Trace.from_events(events).compile(infer=infer)
    for at in (graph, graph.window((window[0], window[0] + window[1]))):
        longest = rustworkx.dag_longest_path_length(
            at.to_rustworkx(), lambda _tail, _head, edge: edge["lag_ns"] + edge["residual_ns"]
        )

        assert at.dur_ns == longest


@with_and_without_inference
@given(events=any_events)
def test_no_node_is_late_for_the_end(events, infer):
    """Latest times lie at or after the times that happened: total float is never negative."""
    dag = compile_events(events, infer=infer)
    float_ns = replay_of(dag).float_ns(dag.span)

    assert (float_ns >= 0).all()


def _bounds(events: EventTable, *, infer: bool) -> dict[str, int]:
    dag = compile_events(events, infer=infer)
    segments = critical_path(dag, dag.span)
    return segments.groupby("bound", observed=True)["dur_ns"].sum().to_dict()


@with_and_without_inference
@given(events=any_events, shift=st.integers(-(10**12), 10**12))
def test_shifting_all_times_changes_nothing(events, shift, infer):
    """When the trace was taken does not matter."""
    flows = replace(events.flows, ts_ns=events.flows.ts_ns + shift)
    shifted = replace(events, ts_ns=events.ts_ns + shift, flows=flows)

    assert _bounds(events, infer=infer) == _bounds(shifted, infer=infer)


@with_and_without_inference
@given(events=without_allocator, factor=st.integers(2, 7))
def test_scaling_all_times_scales_the_path(events, factor, infer):
    """Nothing in the graph depends on a unit of time, but the allocator's walk of its blocks."""
    # From the first event on: seven times the time since 1970 does not fit into 64 bits.
    first_ns = events.ts_ns.min(initial=np.iinfo(np.int64).max)
    flows = replace(events.flows, ts_ns=(events.flows.ts_ns - first_ns) * factor)
    slower = replace(
        events,
        ts_ns=(events.ts_ns - first_ns) * factor,
        dur_ns=events.dur_ns * factor,
        flows=flows,
    )
    expected = {bound: factor * dur_ns for bound, dur_ns in _bounds(events, infer=infer).items()}

    assert expected == _bounds(slower, infer=infer)


@with_and_without_inference
@given(events=_simulated(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_events_in_the_file_does_not_matter(events, seed, infer):
    """Profilers write events in any order."""
    order = np.random.default_rng(seed).permutation(len(events))
    shuffled = taken(events, order)

    assert _bounds(events, infer=infer) == _bounds(shuffled, infer=infer)


@with_and_without_inference
@given(events=any_events, stream=st.integers(1, 1000), tid=st.integers(1, 1000))
def test_names_of_threads_and_streams_do_not_matter(events, stream, tid, infer):
    """Ids are names, not quantities."""
    lanes = replace(
        events.lanes, tid=tuple(t + tid if isinstance(t, int) else t for t in events.lanes.tid)
    )
    columns = dict(events.columns)
    if "wait_on_stream" in columns:
        waits = columns["wait_on_stream"]
        columns["wait_on_stream"] = replace(
            waits, value=np.where(waits.value >= 0, waits.value + stream, waits.value)
        )
    renamed = replace(
        events,
        lanes=lanes,
        columns=columns,
        stream=np.where(events.stream >= 0, events.stream + stream, events.stream),
    )

    assert _bounds(events, infer=infer) == _bounds(renamed, infer=infer)


def _waits(edges: EdgeTable) -> set[tuple[int, ...]]:
    """All but the edges of threads, each as a tuple."""
    own = edges.take(edges.kind != EdgeKind.THREAD)
    columns = (own.tail, own.head, own.rule, own.lag_ns, own.event)
    return set(zip(*(column.tolist() for column in columns), strict=True))


def _threads(edges: EdgeTable) -> dict[tuple[int, int], int]:
    """The lag of each edge of a thread."""
    own = edges.take(edges.kind == EdgeKind.THREAD)
    nodes = zip(own.tail.tolist(), own.head.tolist(), strict=True)
    return dict(zip(nodes, own.lag_ns.tolist(), strict=True))


@given(events=any_events)
def test_without_inference_nothing_is_inferred(events):
    """What is left is recorded, or holds by definition, and rests on no support."""
    dag = compile_events(events, infer=False)

    assert not np.isin(dag.edges.rule, Rule.on(Evidence.INFERRED)).any()
    assert not np.isin(dag.rejected.edges.rule, Rule.on(Evidence.INFERRED)).any()
    assert dag.support == ()


@given(events=any_events)
def test_inference_only_adds(events):
    """Every other edge stays; a thread that is found to wait needs no time of its own there."""
    plain, dag = (compile_events(events, infer=infer) for infer in (False, True))
    kept = EdgeTable.concat([dag.edges, dag.rejected.edges])
    lags = _threads(kept)

    assert _waits(plain.edges) <= _waits(kept)
    assert all(lags[at] in (0, lag_ns) for at, lag_ns in _threads(plain.edges).items())


@given(events=any_events)
def test_compiling_leaves_the_events_as_they_are(events):
    """The input is the caller's."""
    before = {
        name: getattr(events, name).copy()
        for name in ("ts_ns", "dur_ns", "kind", "correlation", "stream")
    }
    compile_events(events)

    for name, column in before.items():
        assert column.tolist() == getattr(events, name).tolist()


_LAST_NS = (1 << 62) - 1
"""The reader lets no time pass beyond."""


def _moved(events: EventTable, rows: np.ndarray, by_ns: int) -> EventTable:
    """Events of which some are at another time, at most at the last."""
    near = np.clip(events.ts_ns, -_LAST_NS - min(by_ns, 0), _LAST_NS - max(by_ns, 0))
    ts_ns = np.where(rows, near + by_ns, events.ts_ns)
    return replace(events, ts_ns=np.minimum(ts_ns, _LAST_NS - events.dur_ns))


def test_the_only_launch_on_an_idle_stream_may_take_a_century() -> None:
    """What is usual is a multiple of it, which no integer of 64 bits holds."""
    events = timeline(
        """
        cpu 1    |                [launch >b]
        stream 7 | [k    ]                       [far <b]
        """
    )
    is_far = events.names() == "far"

    graph = asked(Trace.from_events(_moved(events, is_far, _LAST_NS)))

    assert graph.window("trace").dur_ns == _LAST_NS - int(events.ts_ns.min())


@pytest.mark.some(1)
@pytest.mark.parametrize("by_ns", [_LAST_NS, 10**18, -_LAST_NS])
@pytest.mark.parametrize("who", ["is_device", "is_host", "half", "last"])
def test_times_as_far_apart_as_integers_go_are_times(who: str, by_ns: int) -> None:
    """A launch that takes a century is unknown waits; no sum on the way to saying so overflows."""
    events = simulate(training_rank(steps=1, layers=2)).events
    number = np.arange(len(events))
    half, last = number % 2 == 0, number == number[-1]
    rows = {"half": half, "last": last}.get(who, getattr(events, who, half))

    graph = asked(Trace.from_events(_moved(events, rows, by_ns)))

    assert graph.dur_ns >= 0


def _tiles(frame: pd.DataFrame) -> list[tuple[int, int, str]]:
    """Start, end and bound of segments; neighbors of one bound are joined."""
    out: list[tuple[int, int, str]] = []
    for row in frame.itertuples(index=False):
        bound, end = str(row.bound), row.start_ns + row.dur_ns
        if out and out[-1][2] == bound and out[-1][1] == row.start_ns:
            out[-1] = (out[-1][0], end, bound)
        else:
            out.append((row.start_ns, end, bound))
    return out


def _n_tracks_that_end_last(dag: Dag) -> int:
    """Number of tracks that are busy until the last instant; of several, any may be the last."""
    events = dag.events
    return len(np.unique(events.lane[dag.is_work & (events.end_ns == dag.span.end_ns)]))


@given(program=programs())
def test_the_path_of_a_simulated_rank_is_the_true_one(program):
    """The simulator knows the cause of each instant; the compiler finds it in the trace alone."""
    rank = simulate(program)
    dag = compile_events(rank.events)
    assume(rank.n_ties == 0)
    assume(_n_tracks_that_end_last(dag) == 1)

    assert _tiles(rank.truth) == _tiles(critical_path(dag, dag.span))


@given(program=programs())
def test_the_path_of_each_simulated_step_is_the_true_one(program):
    """A step's path leads to the end of its host range, and is cut where the range starts."""
    rank = simulate(program)
    assume(rank.n_ties == 0)
    dag = compile_events(rank.events)

    for step in rank.steps.itertuples(index=False):
        assert _tiles(rank.step_truth(step.name)) == _tiles(
            critical_path(dag, find_window(dag, step.name))
        )


@given(program=programs())
def test_the_trace_as_a_file_has_the_same_path_as_the_trace_in_memory(program):
    """Writing Kineto JSON and reading it back changes nothing that the path depends on."""
    rank = simulate(program)
    from_file = load(rank.to_json()).compile().critical_path().segments
    dag = compile_events(rank.events)

    assert _tiles(critical_path(dag, dag.span)) == _tiles(from_file)


LEAST_PRECISION = 0.99
FEWEST = 5
"""Edges of each rule that bind in the programs, at least: of none nothing is shown."""
SEEDS = range(1_000, 1_008)

_judged: dict[str, list[Judgement]] = {}


def judged(kind: str) -> list[Judgement]:
    """Judgements of some programs of a kind, made once."""
    if kind not in _judged:
        programs = (inference_program(kind, seed) for seed in SEEDS)
        _judged[kind] = [judge(simulate(program)) for program in programs]
    return _judged[kind]


@pytest.mark.some(1)
@pytest.mark.parametrize("rule", INFERRED, ids=lambda rule: rule.label)
def test_what_a_rule_infers_is_true(rule: Rule) -> None:
    """Of the edges that bind, on all kinds of programs."""
    edges = pd.concat([found.edges.assign(kind=kind) for kind in KINDS for found in judged(kind)])
    own = edges[edges["rule"] == rule]

    assert len(own) >= FEWEST, (
        f"rule {rule.label!r} binds {len(own)} times: plant what it infers in "
        "tests/synth/mechanisms.py, name its truth in UNNAMED of tests/judged_inference.py"
    )
    wrong = own.loc[~own["is_right"], "kind"].value_counts().to_dict()
    assert own["is_right"].sum() >= LEAST_PRECISION * len(own), f"wrong, by kind: {wrong}"


def test_nothing_is_inferred_where_nothing_waits() -> None:
    """Garbage collection, data loading, sleeping, and streams that do not wait for each other."""
    edges = pd.concat([found.edges for found in judged("nothing")])

    assert edges["is_right"].all()


@pytest.mark.parametrize("kind", KINDS)
def test_inference_makes_no_path_worse(kind: str) -> None:
    """More of its time has the true bound with inference than without."""
    time = pd.concat([found.time for found in judged(kind)])
    right_ns = time.groupby("infer")["right_ns"].sum()

    assert right_ns[True] >= right_ns[False]
