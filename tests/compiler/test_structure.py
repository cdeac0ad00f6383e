"""Threads, queues, windows: what is given before any wait is explained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from htagraph.compiler.boundaries import Boundaries
from htagraph.compiler.classes import ClassRule
from htagraph.compiler.passes import compile_events
from htagraph.compiler.structure import Structure, examine
from htagraph.explain.critical_path import path_edges
from htagraph.model.events import EventTable, LaneTable
from htagraph.model.kinds import EdgeKind, EventKind, KernelClass
from htagraph.model.symbols import SymbolTable
from htagraph.synth import timeline
from tests.drawn import drawn_dag


@pytest.fixture
def given() -> Structure:
    """Three kernels on stream 7, the last of which ends first, and one on stream 9."""
    return examine(
        timeline("""
            us       |0         10        20        30        40        50        60
            cpu 1    |[launch >a][launch >b][launch >c][launch >d]
            stream 7 |   [k0 <a     ]                   [k1 <b      ]
            stream 7 |                                      [k2 <d]
            stream 9 |                                   [k3 <c]
        """)
    )


def names(structure: Structure, events: np.ndarray) -> list[str]:
    """Names of events, nothing of -1."""
    found = structure.events.names()
    return [found[event] if event >= 0 else "" for event in events.tolist()]


def test_launches_are_found_by_their_correlation(given):
    """And the time at which they began."""
    assert names(given, given.queue) == ["k0", "k1", "k2", "k3"]
    assert (given.launched_ns(given.queue) // 1_000).tolist() == [0, 11, 33, 22]
    assert given.queue_starts.tolist() == [True, False, False, True]
    assert given.queue_id.tolist() == [-1, -1, -1, -1, 0, 0, 0, 1]


def test_a_stream_has_what_was_launched_before_a_time(given):
    """Of it, what ends last; a launch that begins at that time comes after."""
    before = 1_000 * np.array([0, 1, 11, 12, 33, 34])

    assert names(given, given.covered(np.zeros(6, dtype=np.int64), before)) == [
        "",
        "k0",
        "k0",
        "k1",
        "k1",
        "k1",
    ]
    assert given.covered_on(0, before).tolist() == given.covered(np.zeros(6, int), before).tolist()
    assert names(given, given.covered_on(1, before)) == ["", "", "", "", "k3", "k3"]


def test_the_first_work_of_a_stream_since_a_time_is_launched_then_or_later(given):
    """None after the last launch, nor on a stream that ran nothing."""
    stream = np.array([0, 0, 0, 0, 1, 1, -1])
    since = 1_000 * np.array([0, 1, 11, 34, 0, 23, 0])

    assert names(given, given.first_after(stream, since)) == ["k0", "k1", "k1", "", "k3", "", ""]


def test_streams_are_numbered_by_device_and_name(given):
    """-1 for one that ran nothing."""
    assert given.find_queue(np.array([0, 0, 0, 1]), np.array([9, 7, 8, 7])).tolist() == [
        1,
        0,
        -1,
        -1,
    ]


def test_times_of_device_work_have_a_unit(given):
    """Starts and lengths are multiples of it."""
    kernel = given.events.kind == given.events.kind[given.queue[0]]
    finer = replace(given.events, dur_ns=given.events.dur_ns + 500 * kernel)

    assert given.resolution_ns == 1_000
    assert examine(finer).resolution_ns == 500
    assert examine(timeline("cpu 1 |[a]")).resolution_ns == 1


def numbered(correlation: list[int]) -> EventTable:
    """Two launches and a kernel with some correlation ids."""
    events = timeline("""
        cpu 1    |[launch >a][launch >b]
        stream 7 |                  [k <a][k <b]
    """)
    return replace(events, correlation=np.array(correlation))


@pytest.mark.parametrize(
    ("correlation", "launches", "n_ambiguous"),
    [
        ([1, 2, 1, 2], [0, 1], 0),
        ([2, 1, 1, 2], [1, 0], 0),
        ([3, 3, 3, 3], [0, 0], 1),  # the earlier one
        ([3, 3, 4, 2], [-1, -1], 0),  # an ambiguous id that no work has
        ([0, 1, 0, 1], [-1, 1], 0),  # 0 is none
    ],
)
def test_the_earliest_call_with_the_id_of_work_launched_it(correlation, launches, n_ambiguous):
    structure = examine(numbered(correlation))

    assert structure.launch[2:].tolist() == launches
    assert structure.n_ambiguous_correlations == n_ambiguous


def test_a_call_that_launched_more_than_one_thing_replays_a_graph():
    assert examine(numbered([3, 4, 3, 3])).replays.tolist() == [True, False, False, False]
    assert not examine(numbered([1, 2, 1, 2])).replays.any()


@pytest.fixture
def between() -> Boundaries:
    """Two threads, between which a stream has the lane of no thread."""
    return examine(
        timeline("""
            us       |0         10        20
            cpu 1    |[a    [b  ]   ]   [c]
            stream 7 |[k]
            cpu 2    |     [d ]
        """)
    ).boundaries


def test_boundaries_are_in_the_order_of_their_threads(between):
    """Where nothing is innermost, -1."""
    names = between.events.names()
    inside = [names[event] if event >= 0 else "" for event in between.inside.tolist()]

    assert names[between.node >> 1].tolist() == ["a", "b", "b", "a", "c", "c", "d", "d"]
    assert inside == ["a", "b", "a", "", "c", "", "d", ""]
    assert (between.ts_ns // 1_000).tolist() == [0, 6, 11, 15, 18, 21, 5, 9]


def test_the_last_boundary_of_a_thread_is_followed_by_none(between):
    """What comes next in the table is another thread's."""
    assert np.flatnonzero(~between.is_followed).tolist() == [5, 7]
    assert between.openings.tolist() == [0, 6]


def test_a_lane_without_host_events_has_no_boundaries(between):
    """Lanes are numbered through hosts and devices."""
    lanes = range(len(between.events.lanes))
    sizes = sorted(len(range(*between.of_lane(lane).indices(8))) for lane in lanes)

    assert sizes == [0, 2, 6]


def test_the_last_boundary_until_a_time_is_one_at_that_time_or_before(between):
    """On each lane its own; -1 before its first."""
    one, two = between.lane[[0, 6]].tolist()
    lanes = np.array([two, one, one, two, one])
    times = np.array([4_999, 11_000, 99_000, 5_000, 10_999])

    assert between.last(lanes, times).tolist() == [-1, 2, 5, 6, 1]


def test_long_times_are_those_between_boundaries_of_one_thread(between):
    """From 21 us on the first to 5 us on the second is none."""
    assert between.longer_than(4_000).tolist() == [0, 1]
    assert between.longer_than(3_999).tolist() == [0, 1, 2, 6]


def _burst(n_launches: int, last_ns: int, n_others: int, others_ns: int) -> EventTable:
    """Launches of 0.9 us onto kernels of 100 us, one of which starts early in the last launch."""
    launch_ts = np.arange(n_launches) * 1_000
    launch_ts[-1] = 1_104_500
    kernel_ts = 5_000 + np.arange(n_launches) * 100_000
    launch_dur = np.full(n_launches, 900)
    launch_dur[:n_others], launch_dur[-1] = others_ns, last_ns
    kind = np.repeat([EventKind.RUNTIME, EventKind.KERNEL], n_launches).astype(np.int8)
    stream = np.repeat([-1, 7], n_launches)
    return EventTable(
        ts_ns=np.concatenate([launch_ts, kernel_ts]),
        dur_ns=np.concatenate([launch_dur, np.full(n_launches, 99_000)]),
        kind=kind,
        name=np.repeat([0, 1], n_launches).astype(np.int32),
        category=np.full(2 * n_launches, 2, dtype=np.int32),
        lane=np.repeat([0, 1], n_launches).astype(np.int32),
        device=np.repeat([-1, 0], n_launches).astype(np.int32),
        stream=stream,
        correlation=np.tile(np.arange(1, n_launches + 1), 2),
        external_id=np.full(2 * n_launches, -1),
        symbols=SymbolTable(("cudaLaunchKernel", "kernel", "x")),
        lanes=LaneTable((1, 0), (1, 7), ("", ""), ("", ""), (0, 0), (0, 0), ("", "")),
    )


def _queue_edges(
    n_launches: int, last_ns: int = 150_000, n_others: int = 0, others_ns: int = 0
) -> int:
    dag = compile_events(_burst(n_launches, last_ns, n_others, others_ns))
    return int((dag.edges.kind == EdgeKind.QUEUE).sum())


def test_a_launch_onto_a_full_queue_waits_for_a_kernel_to_start():
    """With a thousand launches outstanding, the next call returns only when some work starts."""
    assert _queue_edges(1_012) == 1


def test_a_long_launch_onto_a_short_queue_waits_for_nothing():
    """A launch may be slow for other reasons; a queue with room is not one."""
    assert _queue_edges(1_011) == 0


@pytest.mark.parametrize(("last_ns", "n_edges"), [(2_600, 0), (2_800, 1)])
def test_a_launch_that_takes_three_times_as_long_as_usual_was_blocked(last_ns, n_edges):
    """Others take 900 ns."""
    assert _queue_edges(1_050, last_ns) == n_edges


@pytest.mark.parametrize(
    ("n_others", "others_ns", "last_ns", "n_edges"), [(40, 100, 2_600, 0), (980, 990, 2_800, 1)]
)
def test_usual_is_what_the_shortest_twentieth_takes_at_most(n_others, others_ns, last_ns, n_edges):
    """Three times 900 ns, whether a few calls of 1,050 were shorter or nearly all longer."""
    assert _queue_edges(1_050, last_ns, n_others, others_ns) == n_edges


def test_room_may_be_made_as_the_call_returns():
    """All calls but the last take 100 ns, and that one ends as a kernel starts."""
    assert _queue_edges(1_012, 500, 1_011, 100) == 1


def test_a_thread_is_one_chain_of_boundaries(arrows):
    """Every instant between the first and the last boundary is one edge, whoever is innermost."""
    dag = drawn_dag("""
        cpu 1    |[outer [inner]   ]   [next]
    """)

    assert arrows(dag, "thread") == [
        ("inner<", "inner>", 7),
        ("inner>", "outer>", 4),
        ("next<", "next>", 6),
        ("outer<", "inner<", 7),
        ("outer>", "next<", 3),
    ]


def test_the_time_of_an_edge_belongs_to_the_innermost_call():
    """A person charges time to what is drawn deepest; a gap belongs to nobody."""
    dag = drawn_dag("""
        cpu 1    |[outer [inner]   ]   [next]
    """)
    owners = [
        None if event < 0 else dag.events.symbols.texts[dag.events.name[event]]
        for event in dag.edges.event
    ]
    by_start = sorted(zip(dag.events.node_ts_ns[dag.edges.tail].tolist(), owners, strict=True))

    assert [owner for _, owner in by_start] == ["outer", "inner", "outer", None, "next"]


def test_partially_overlapping_calls_stay_one_chain(arrows):
    """Real threads have calls that end a little after their parent; nothing is lost."""
    dag = drawn_dag("""
        cpu 1    |[first    ]
        cpu 1    |      [second   ]
    """)

    assert arrows(dag, "thread") == [
        ("first<", "second<", 6),
        ("first>", "second>", 6),
        ("second<", "first>", 5),
    ]


def test_events_of_no_length_do_not_run_backward():
    """An event of no length begins and ends at one instant; in the order, its end comes later."""
    dag = drawn_dag("""
        cpu 1    |[outer ^now  ]
    """)
    position = {node: place for place, node in enumerate(dag.order.tolist())}

    assert all(
        position[tail] < position[head]
        for tail, head in zip(dag.edges.tail, dag.edges.head, strict=True)
    )
    assert len(dag.rejected.edges) == 0


def test_a_call_that_waits_needs_no_time_of_its_own(arrows):
    """The device explains the time in a blocking call, so program order must not."""
    dag = drawn_dag("""
        cpu 1    |[launch >a][sync              ]
        stream 7 |     [kernel <a           ]
    """)

    assert ("cudaDeviceSynchronize<", "cudaDeviceSynchronize>", 0) in arrows(dag, "thread")


def test_threads_that_only_poll_do_not_define_the_trace():
    """A watchdog polls long after the work is done; nobody asks why it took that long."""
    dag = drawn_dag("""
        cpu 1    |[aten::mm [launch >a]]
        stream 7 |               [kernel <a ]
        cpu 9    |   [cudaEventQuery]              [cudaEventQuery]
    """)

    assert dag.span.dur_ns == 27_000


def test_a_side_thread_that_nothing_waits_for_does_not_end_the_trace():
    """A collective's worker and a background thread run on; the run ends with its last step."""
    dag = drawn_dag("""
        cpu 1    |{ProfilerStep#0 }{ProfilerStep#1 }
        cpu 1    | [aten::mm     ]  [aten::mm     ]
        cpu 7    |       {gloo:all_reduce             }
        cpu 8    |[aten::tanh        ][aten::tanh            ]
    """)

    heads = dag.edges.head[path_edges(dag, dag.span)] >> 1

    assert dag.span.dur_ns == 34_000
    assert len(set(dag.events.lane[heads].tolist())) == 1
    assert "ProfilerStep#1" in dag.events.names(heads)


_DRAWING = """
    cpu 1    |[launch >a]
    stream 7 |     [K <a ]
"""


def _classified(
    name: str, rules: tuple[ClassRule, ...] = (), **columns: int
) -> tuple[KernelClass, str]:
    events = timeline(
        _DRAWING, names={"K": name}, columns={key: {"K": value} for key, value in columns.items()}
    )
    found = compile_events(events, class_rules=rules).classification
    return KernelClass(int(found.kernel_class[1])), found.rules[found.rule[1]]


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*)",
        "void dpsk::ep::internode::notify_dispatch<8>(int const*)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16>(void**)",
        "void nvshmemi_transfer_rma<0>(int)",
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8>(int)",
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<2>>(int)",
        "void flashinfer::allreduce_fusion_kernel_oneshot_lamport<__half, 4>(int)",
        "mori::moe::EpDispatchIntraNodeKernel<float>(int)",
    ],
)
def test_known_communication_kernels_are_communication(name):
    """Whatever library sends: NCCL old and new, RCCL, DeepEP, NVSHMEM, custom all-reduce."""
    assert _classified(name)[0] == KernelClass.COMMUNICATION


@pytest.mark.parametrize(
    "name",
    [
        "ampere_sgemm_128x64_nn",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(float)",
        "void hipcub::reduce(int)",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(int)",
    ],
)
def test_everything_else_computes(name):
    """A reduction or a copy kernel of a framework is computation; hip in a name says nothing."""
    assert _classified(name) == (KernelClass.COMPUTE, "everything else computes")


def test_metadata_of_a_collective_decides_over_names():
    """The profiler says which kernels are collectives in newer files."""
    assert _classified("my_kernel", collective=0) == (
        KernelClass.COMMUNICATION,
        "collective metadata",
    )


def test_a_rule_of_the_user_comes_first():
    """Who writes own communication kernels says so once."""
    rule = ClassRule("our ring", KernelClass.COMMUNICATION, "^ring_")

    assert _classified("ring_step", (rule,)) == (KernelClass.COMMUNICATION, "our ring")


@pytest.mark.parametrize(
    "rules", [(), (ClassRule("our ring", KernelClass.COMMUNICATION, "^ring_"),)]
)
def test_the_first_built_in_rule_comes_after_those_of_the_user(rules):
    """It is the one of the largest libraries, with a name of its own."""
    assert _classified("ncclKernel_X", rules)[1] == "nccl or rccl kernel"


def test_a_rule_of_the_user_can_overrule_ours():
    """Even a kernel that carries the metadata of a collective."""
    rule = ClassRule("not really", KernelClass.COMPUTE, "^nccl")

    assert _classified("ncclKernel_X", (rule,), collective=0) == (KernelClass.COMPUTE, "not really")


def test_copies_are_memory():
    """Events of the copy engines are memory by their kind."""
    assert _classified("Memcpy DtoD (Device -> Device)") == (
        KernelClass.MEMORY,
        "copy or fill event",
    )
