"""Nodes of graphs, collectives and the cost of both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph.compiler.passes import compile_events
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window
from htagraph.queries.communication import collectives, short_group
from htagraph.queries.cost import cost
from htagraph.queries.kernels import graph_nodes
from htagraph.replay.changes import remove
from htagraph.replay.rehearsal import Rehearsal
from htagraph.replay.replay import Removal
from htagraph.synth import timeline
from tests.drawn import drawn_dag, drawn_graph
from tests.laws.test_query_laws import any_events
from tests.real_traces import case, located

TWICE = """
    us       |0         10        20        30        40        50
    cpu 1    |[graph >a]         [graph >b]
    stream 7 |      [k <a]  [m <a ]    [k <b  ]   [m <b ]
    stream 9 |       [side <a]           [side <b ]
"""


def test_a_node_is_told_by_its_position_in_its_stream():
    """Two replays of three nodes; times by hand."""
    dag = drawn_dag(TWICE)
    frame = graph_nodes(dag, dag.span)

    columns = ["graph", "node", "name", "stream", "n_replays", "min_ns", "max_ns", "offset_ns"]
    assert frame[columns].to_numpy().tolist() == [
        [0, 0, "k", 7, 2, 6_000, 8_000, 0],
        [0, 1, "side", 9, 2, 9_000, 10_000, 1_000],
        [0, 2, "m", 7, 2, 7_000, 7_000, 8_000],
    ]
    assert frame["mean_ns"].tolist() == [7_000.0, 9_500.0, 7_000.0]
    assert frame["offset_spread_ns"].tolist() == [0, 1_000, 3_000]
    assert frame["found_by"].tolist() == ["position"] * 3


def test_a_gap_is_when_no_earlier_node_runs_on_any_stream():
    """Before `m` of the first replay `side` still runs; one replay, so no median hides it."""
    dag = drawn_dag("""
        cpu 1    |[graph >a]
        stream 7 |      [k <a]     [m <a ]
        stream 9 |       [side <a]
        """)
    frame = graph_nodes(dag, dag.span).set_index("name")

    assert frame["gap_ns"].to_dict() == {"k": 0, "side": 0, "m": 1_000}


def test_other_work_is_another_graph():
    """Replays of one graph run the same work in the same places."""
    dag = drawn_dag("""
        cpu 1    |[graph >a][graph >b][graph >c]
        stream 7 |       [k <a][m <a][m <b][k <b][k <c][m <c]
        """)
    frame = graph_nodes(dag, dag.span)

    assert frame[["graph", "name", "n_replays"]].to_numpy().tolist() == [
        [0, "k", 2],
        [0, "m", 2],
        [1, "m", 1],
        [1, "k", 1],
    ]


def test_recorded_ids_win_over_positions():
    """The second replay runs its two streams in another order, and lacks a node: cut off."""
    dag = drawn_dag(
        """
            cpu 1    |[graph >a]           [graph >b]
            stream 7 |      [k1 <a][m1 <a]      [m2 <b]
            """,
        names={"k1": "k", "m1": "k", "m2": "k"},
        columns={
            "graph_id": {"k1": 4, "m1": 4, "m2": 4},
            "graph_node": {"k1": 11, "m1": 12, "m2": 12},
        },
    )
    frame = graph_nodes(dag, dag.span)

    assert frame[["graph", "node", "n_replays", "found_by"]].to_numpy().tolist() == [
        [0, 0, 1, "node id"],
        [0, 1, 2, "node id"],
    ]


def test_work_that_was_launched_one_by_one_is_no_node():
    """No graph, no rows."""
    dag = drawn_dag("cpu 1 |[launch >a]\nstream 7 |   [k <a]")

    assert graph_nodes(dag, dag.span).empty


def test_a_window_has_the_replays_that_overlap_it():
    """The second replay only."""
    graph = drawn_graph(TWICE)
    start_ns = graph.interval.start_ns
    part = graph.window((start_ns + 31_000, start_ns + 60_000))

    assert part.graph_nodes()["n_replays"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        case("tracelens/vllm_piecewise_graph.json.gz", [(4, 1), (15, 23), (12, 1)]),
        case("tracelens/sglang_Qwen3-8B_decode.json.gz", [(544, 1)]),
        case("hta/trace_diff/test/test.json.gz", [(339, 6), (502, 6)]),
    ],
)
def test_replays_of_real_graphs_are_told_apart(name: str, shape: list) -> None:
    """Nodes and replays of each graph."""
    frame = hg.load(located(name)).compile().window("trace").graph_nodes()
    by_graph = frame.groupby("graph")["n_replays"]

    assert list(zip(by_graph.size(), by_graph.max(), strict=True)) == shape
    assert (by_graph.min() == by_graph.max()).all()


def _asked(drawing: str, window: Window | None = None, **options) -> pd.DataFrame:
    dag = drawn_dag(drawing, **options)
    return collectives(dag, window or dag.span)


def _rows(frame: pd.DataFrame, *names: str) -> list[list]:
    return frame[list(names)].to_numpy().tolist()


def test_collectives_are_those_launched_in_the_capture_in_the_order_of_launches():
    """The first kernel has no launch; the one of stream 9 was launched last, and ran first."""
    frame = _asked("""
        us       |0         10        20        30        40        50
        cpu 1    |           [launch >a][launch >b]
        stream 7 |[ncclAllReduce]                      [ncclAllReduce <a ]
        stream 9 |                            [ncclAllReduce <b ]
    """)

    assert _rows(frame, "collective", "start_ns") == [[0, 37_000], [1, 28_000]]


@pytest.mark.parametrize(
    ("host", "kernel", "found"),
    [
        ("[launch >a]", "ncclAllReduce", ["all_reduce", "kernel name"]),
        ("[launch >a]", "ncclDevKernel_Generic", ["", "kernel name"]),
        ("{nccl:all_to_all [launch >a]}", "ncclSendRecv", ["all_to_all", "annotation"]),
        ("[op [launch >a]]", "ncclSendRecv", ["all_gather", "operator metadata"]),
    ],
)
def test_an_operation_is_named_by_metadata_else_by_an_annotation_else_by_the_kernel(
    host, kernel, found
):
    """A kernel that is called SendRecv may do anything."""
    recorded = {"collective": {"op": "_allgather_base"}} if "[op" in host else {}
    frame = _asked(
        f"""
        cpu 1    |{host}
        stream 7 |{" " * len(host)}[{kernel} <a ]
        """,
        columns=recorded,
    )

    assert _rows(frame, "operation", "found_by") == [found]


def test_an_annotation_says_who_sends_to_whom():
    """The peer of a send is who receives."""
    frame = _asked(
        """
        cpu 1    |{to [launch >a]}
        stream 7 |                [ncclSendRecv <a ]
        """,
        names={"to": "nccl:send 0->1"},
    )

    assert _rows(frame, "operation", "peer") == [["send", 1]]


@pytest.mark.parametrize(
    ("kernel", "operation", "group"),
    [
        ("void deep_ep::intranode::notify_dispatch<8>(int*)", "notify", "of 8 ranks (notify)"),
        ("void deep_ep::intranode::cached_notify_combine<8>(int)", "notify", "of 8 ranks (notify)"),
        ("void deep_ep::intranode::dispatch<8, 768>(int)", "dispatch", "of 8 ranks (dispatch)"),
        ("deep_ep::intranode::combine<__nv_bfloat16, 8>(int)", "combine", "of 8 ranks (combine)"),
        ("void deep_ep::internode::cached_notify<false>(int)", "notify", "(notify)"),
        ("void deep_ep::internode_ll::combine<false, 7168, 9>(int)", "combine", "(combine)"),
        ("void deep_ep::internode_ll::clean_low_latency_buffer<512>(int)", "barrier", "(barrier)"),
        ("mori::moe::EpDispatchIntraNodeKernel<float>(int)", "dispatch", "(dispatch)"),
    ],
)  # fmt: skip
def test_the_name_of_an_expert_parallel_kernel_says_what_it_does(kernel, operation, group):
    """Nothing else is recorded; some names say how many ranks take part."""
    frame = _asked("cpu 1 |[launch >a]\nstream 7 | [K <a ]", names={"K": kernel})

    assert _rows(frame, "operation", "group", "found_by", "is_rendezvous") == [
        [operation, f"expert parallel {group}", "library kernel", True]
    ]


@pytest.mark.parametrize(
    ("kernel", "operation"),
    [
        ("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(int)", "all_reduce"),
        (
            "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16>(int)",
            "all_reduce",
        ),
        ("void multimem_all_gather_kernel<16>(int)", "all_gather"),
        ("void flashinfer::allreduce_fusion_kernel_oneshot_lamport<__half, 4>(int)", "all_reduce"),
        ("void quickreduce::allreduce_prototype_twoshot<quick_reduce<2>>(int)", "all_reduce"),
        ("void barrier_on_stream_kernel_nvshmem(int)", "barrier"),
        ("void nvshmemi_alltoall_on_stream_kernel<int>(int)", "all_to_all"),
    ],
)
def test_the_name_of_a_custom_kernel_says_what_it_does(kernel, operation):
    """Custom all-reduces, symmetric memory, NVSHMEM: who comes last is waited for."""
    frame = _asked("cpu 1 |[launch >a]\nstream 7 | [K <a ]", names={"K": kernel})

    assert _rows(frame, "operation", "is_rendezvous") == [[operation, True]]


@pytest.mark.parametrize(
    "kernel",
    [
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(int)",
        "void nvshmemi_transfer_rma<0>(int)",
        "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
    ],
)
def test_a_kernel_whose_name_says_too_little_is_no_rendezvous(kernel):
    """Computation of a library, a transfer of one side, and what may be any collective of RCCL."""
    frame = _asked("cpu 1 |[launch >a]\nstream 7 | [K <a ]", names={"K": kernel})

    assert frame["is_rendezvous"].tolist() == [False]


def test_kernels_of_a_library_are_grouped_by_what_their_streams_run_whatever_their_numbers():
    """Streams 7 and 9 reduce, and one more gathers as well: two groups."""
    frame = _asked(
        """
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a][launch >b][launch >c][launch >d]
        stream 7 |      [R <a ]
        stream 9 |                   [R <b ]
        stream 3 |                              [R <c ]    [G <d ]
        """,
        names={"R": "one_shot_all_reduce_kernel<4>(int)", "G": "multimem_all_gather_kernel(int)"},
    )

    assert frame["group"].tolist() == [
        *["custom all-reduce (all_reduce)"] * 2,
        *["custom all-reduce (all_gather, all_reduce)"] * 2,
    ]


def test_a_collective_goes_back_to_the_one_that_its_stream_had_to_finish():
    """The second starts when the first has ended."""
    frame = _asked("""
        cpu 1    |[launch >a][launch >b]
        stream 7 |      [ncclAllReduce <a        ] [ncclAllReduce <b ]
    """)

    assert frame["after"].tolist() == [-1, 0]


def test_a_window_keeps_the_numbers_of_the_whole():
    """From 40 on, only the second runs."""
    frame = _asked(
        """
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a][launch >b]
        stream 7 |      [ncclAllReduce <a        ] [ncclAllReduce <b ]
        """,
        Window(40_000, 50_000, "late"),
    )

    assert frame["collective"].tolist() == [1]


def test_a_list_of_ranks_that_fits_into_a_line_is_not_shortened():
    """18 ranks take 62 characters, 19 take 66."""
    assert short_group(str([*range(18)])) == str([*range(18)])
    assert short_group(str([*range(19)])) == "[0, 1, …, 18]"


DRAWING = """
    us       |0         10        20        30        40
    cpu 1    |[launch >a][launch >b]        [sync @*   ]
    stream 7 |      [a <a                       ]
    stream 9 |                 [b <b   ][c    ]
"""


def costs(drawing: str, by: str = "name") -> dict[str, tuple[int, int, int]]:
    """Own time, time on the path and cost by group, in us."""
    dag = drawn_dag(drawing)
    found = cost(dag, dag.span, by=by)
    columns = (found[name] // 1000 for name in ("time_ns", "path_ns", "cost_ns"))
    return dict(zip(found["group"], zip(*columns, strict=True), strict=True))


def test_the_cost_of_work_ends_where_other_work_is_what_takes_longest() -> None:
    """Without a, the wait is for c, which ends at 33; and the wait still takes 7 us after it."""
    found = costs(DRAWING)

    assert found["a"] == (29, 35, 9)
    assert found["b"] == (9, 0, 0)
    assert found["cudaDeviceSynchronize"] == (12, 7, 7)


def test_without_an_operator_all_that_it_launched_is_gone_as_well() -> None:
    """The op with its call takes 16 us on the path. Without the tail, a is last, at 27 of 31."""
    assert costs(
        """
        us       |0         10        20        30
        cpu 1    |[op [launch >a]]    [tail     ]
        stream 7 |          [a <a           ]
        """,
        by="op",
    ) == {"op": (33, 16, 16), "tail": (11, 11, 4)}


def test_work_of_a_stream_is_taken_out_together() -> None:
    """Two streams that hide each other: neither loses alone what both do."""
    found = costs(DRAWING, by="stream")

    assert found == {"stream 7": (29, 35, 9), "stream 9": (16, 0, 0)}


@pytest.mark.parametrize("by", ["bound", "rule"])
def test_times_of_bounds_and_rules_on_the_path_are_the_window(by: str) -> None:
    """As the path's own breakdown has them."""
    graph = drawn_graph(DRAWING)
    found = graph.cost(by=by).set_index("group")["path_ns"]
    path = graph.critical_path().breakdown(by=by)["dur_ns"]

    assert found[found > 0].to_dict() == path[path > 0].to_dict()


def test_modules_are_named_by_the_python_stack_of_the_launch() -> None:
    """The kernel is of the module that launched it; the tail is of none."""
    events = timeline(
        """
        us       |0         10        20        30
        cpu 1    |[linear                 ]
        cpu 1    |    [mm [launch >a]]     [tail     ]
        stream 7 |          [a <a           ]
        """,
        names={"linear": "nn.Module: Linear_0"},
    )
    is_frame = events.names() == "nn.Module: Linear_0"
    kind = np.where(is_frame, EventKind.PYTHON, events.kind).astype(np.int8)
    dag = compile_events(replace(events, kind=kind))
    found = cost(dag, dag.span, by="module")

    assert found[["group", "n_events", "time_ns"]].to_numpy().tolist() == [
        ["nn.Module: Linear_0", 3, 16_000 + 17_000]
    ]


def test_without_stacks_nothing_is_said_of_modules() -> None:
    """Rather than one group of everything."""
    graph = drawn_graph(DRAWING)

    with pytest.raises(hg.errors.MissingEventsError, match="modules"):
        graph.cost(by="module")


@given(events=any_events, cut=st.tuples(st.integers(0, 100), st.integers(1, 100)))
def test_a_cost_is_the_replay_without_the_event(events, cut) -> None:
    """Of every event with nothing under it, in the trace and in a part of it."""
    graph = hg.Trace.from_events(events).compile().window("trace")
    dag, span = graph.dag, graph.interval
    is_leaf = dag.events.is_host | dag.events.is_device
    for above in (dag.parent, dag.launch):
        is_leaf[above[above >= 0]] = False
    leaves = np.flatnonzero(is_leaf)[:30]
    group = np.full(len(dag.events), -1, dtype=np.int64)
    group[leaves] = np.arange(len(leaves))
    start_ns = span.start_ns + span.dur_ns * cut[0] // 200
    for part in (graph, graph.window((start_ns, start_ns + span.dur_ns * cut[1] // 200))):
        rehearsal = Rehearsal(dag, part.interval)
        removal = Removal.of_events(dag, rehearsal.expected.replay, group, len(leaves))
        one_by_one = [
            part.dur_ns - rehearsal.dur_ns(rehearsal.run([remove(chosen)]).times_ns)
            for chosen in (graph.select(where=f"event == {event}") for event in leaves)
        ]

        assert removal.costs_ns(part.interval).tolist() == one_by_one
