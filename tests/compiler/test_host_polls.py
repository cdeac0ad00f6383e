"""HIDDEN_SYNC edges of hosts that poll: by what is known to poll, and never by chance."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.explain.attributed_time import attributed_time
from htagraph.explain.critical_path import critical_path
from htagraph.model.dag import Dag
from htagraph.model.events import EventTable
from htagraph.model.kinds import Cause, EdgeKind, EventKind
from htagraph.model.rules import Rule
from tests.drawn import drawn_dag
from tests.synth.program import Action, Annotation, Launch, Op, Program, Spend, Work
from tests.synth.rows import Row, event_table
from tests.synth.simulator import simulate

_NOTIFY = "void deep_ep::intranode::notify_dispatch<8>"
_US = 1_000
_MS = 1_000_000


@dataclass
class _Host:
    """A thread that launches kernels on one stream, and stands still as it is told."""

    now_ns: int = 0
    free_ns: int = 0
    rows: list[Row] = field(default_factory=list)

    def launch(self, name: str, dur_ns: int) -> int:
        """Launch a kernel; the time at which it ends."""
        number = len(self.rows) + 1
        call = Row(
            "cudaLaunchKernel", EventKind.RUNTIME, "cuda_runtime", (1, 1), self.now_ns, 4_000
        )
        start = max(self.now_ns + 6_000, self.free_ns + 1_000)
        kernel = Row(name, EventKind.KERNEL, "kernel", (0, 7), start, dur_ns, 0, 7)
        call.correlation = kernel.correlation = number
        self.rows += [call, kernel]
        self.now_ns, self.free_ns = self.now_ns + 5_000, start + dur_ns
        return self.free_ns

    def operator(self, name: str, dur_ns: int = 3_000) -> None:
        """Run an operator."""
        self.rows.append(Row(name, EventKind.OP, "cpu_op", (1, 1), self.now_ns, dur_ns))
        self.now_ns += dur_ns + 1_000

    def until(self, time_ns: int) -> None:
        """Stand still until a time."""
        self.now_ns = max(self.now_ns, time_ns)

    @property
    def events(self) -> EventTable:
        """The trace."""
        return event_table(self.rows)


def _polls(dag: Dag) -> list[tuple[str, str, int]]:
    """Each inferred poll: what was waited for, what came next, and the lag in us."""
    rows = dag.edges.take(dag.edges.rule == Rule.HOST_POLLS)
    names = dag.events.names
    return list(
        zip(
            names(rows.tail >> 1).tolist(),
            names(rows.head >> 1).tolist(),
            (rows.lag_ns // _US).tolist(),
            strict=True,
        )
    )


def _polling_host(
    seed: int, n_polls: int, *, before_ns: Sequence[int] = (), kernel: str = _NOTIFY
) -> EventTable:
    """A host that spins on a counter of each kernel; it sees it soon after the end, or before."""
    source = random.Random(seed)  # noqa: S311 - no secret
    host = _Host()
    for _ in range(n_polls):
        for _ in range(source.randint(1, 4)):
            host.launch("gemm", source.randint(5, 400) * _US)
            host.operator("aten::add", source.randint(2, 90) * _US)
        ended = host.launch(kernel, source.randint(300, 9_000) * _US)
        host.until(
            ended - source.randint(*before_ns) if before_ns else ended + source.randint(900, 9_000)
        )
        host.operator("aten::empty")
    return host.events


@pytest.mark.parametrize("seed", range(5))
def test_gaps_that_end_right_after_a_kernel_that_is_polled_are_waits(seed):
    """Recall: each gap of 12 is found, in random programs."""
    dag = compile_events(_polling_host(seed, 12))

    assert _polls(dag) == [(_NOTIFY, "aten::empty", 0)] * 12


@pytest.mark.parametrize("seed", range(5))
def test_a_kernel_that_writes_its_counter_before_it_ends_ran_until_the_gap_ended(seed):
    """The counter is written 20 to 30 us before the kernel is done."""
    dag = compile_events(_polling_host(seed, 12, before_ns=(20_000, 30_000)))
    edges = dag.edges.take(dag.edges.rule == Rule.HOST_POLLS)
    times = dag.events.node_ts_ns

    assert len(edges) == 12
    assert edges.ran_until.all()
    assert (times[edges.tail] + edges.lag_ns == times[edges.head]).all()


def test_gaps_beside_a_kernel_that_nobody_is_known_to_poll_are_time_of_their_own():
    """However often they end right after it: a sleep of that length looks the same."""
    assert _polls(compile_events(_polling_host(3, 20, kernel="gemm"))) == []


@pytest.mark.parametrize(("after_us", "n_polls"), [(8, 1), (18, 0), (-8, 1), (-18, 0)])
def test_a_host_that_spins_continues_near_the_end_of_the_kernel(after_us, n_polls):
    """Within an eighth of its wait, of 100 us here, before or after."""
    host = _Host()
    for _ in range(4):
        host.launch("slow to start", 1_000)
        host.until(host.now_ns + 200_000)
        host.operator("aten::add")
    ended = host.launch(_NOTIFY, 100_000)
    host.until(ended + after_us * _US)
    host.operator("aten::empty")

    assert len(_polls(compile_events(host.events))) == n_polls


@pytest.mark.parametrize(("after_us", "n_polls"), [(-67, 1), (-2_200, 1), (-2_300, 0), (2_400, 1)])
def test_of_a_long_wait_it_is_the_same_part(after_us, n_polls):
    """Of 18 ms before the end, 2.2 ms: how long before it the kernel has the answer."""
    host = _Host()
    ended = host.launch(_NOTIFY, 20 * _MS)
    host.until(ended + after_us * _US)
    host.operator("aten::empty")

    assert len(_polls(compile_events(host.events))) == n_polls


def test_a_gap_in_which_the_host_polls_is_no_python_time():
    """The kernel runs; what follows is charged to the wait, as long as the host was blocked."""
    dag = compile_events(_polling_host(5, 12))
    segments = critical_path(dag, dag.span)
    by_bound = segments.groupby("bound", observed=True)["dur_ns"].sum() / dag.span.dur_ns
    causes = attributed_time(dag, segments).groupby("cause")["dur_ns"].sum()

    assert by_bound["communication"] > 0.8
    assert by_bound["compute"] + by_bound["communication"] > 0.9
    assert by_bound["untraced_code"] < 0.1
    assert causes[Cause.GPU_SYNCHRONIZATION] > 0


@pytest.mark.parametrize(("backward", "n_polls"), [("aten::mm", 1), ("MmBackward0", 0)])
def test_a_gap_that_a_handoff_explains_is_no_poll(backward, n_polls):
    """The caller waits for an autograd thread, near the end of a kernel that hosts poll."""
    dag = drawn_dag(
        """
        cpu 1    |[L >n]                                                         [aten::empty]
        cpu 2    |           [B                                                ]
        stream 7 |     [N <n                                                    ]
        """,
        names={"L": "cudaLaunchKernel", "N": _NOTIFY, "B": backward},
    )

    assert len(_polls(dag)) == n_polls


def test_expert_parallel_dispatch_is_known_to_poll():
    """DeepEP's host always spins on this kernel."""
    host = _Host()
    for length, before in ((20, 27), (28, 67)):
        ended = host.launch("void deep_ep::internode::notify_dispatch<false, 4>", length * _MS)
        host.until(ended - before * _US)
        host.operator("aten::empty")
        host.launch("void deep_ep::internode::dispatch", 300 * _US)
    dag = compile_events(host.events)

    assert len(_polls(dag)) == 2


def test_a_cached_dispatch_needs_no_answer():
    """Its host already knows the counts and goes on."""
    host = _Host()
    for length in (20, 28):
        ended = host.launch("void deep_ep::internode::cached_notify_dispatch<false>", length * _MS)
        host.until(ended - 41 * _US)
        host.operator("aten::empty")

    assert _polls(compile_events(host.events)) == []


def test_an_item_without_a_call_that_waits_waits_for_its_copy():
    """Old traces do not record the synchronization; the operator ends with its copy."""
    dag = drawn_dag(
        """
        cpu 1    |[L >a][aten::item [C >b]                                         ][aten::add]
        stream 7 |    [k <a                                         ]
        stream 7 |                                                    [M <b       ]
        """,
        names={"L": "cudaLaunchKernel", "C": "cudaLaunchCopy", "M": "Memcpy DtoH"},
    )

    assert _polls(dag) == [("Memcpy DtoH", "aten::item", 0)]
    assert "untraced_code" not in set(critical_path(dag, dag.span)["bound"])


@pytest.mark.parametrize(
    ("after_us", "polls"), [(-1, ["k"]), (0, ["copy"]), (32, ["copy"]), (33, [])]
)
def test_an_item_ends_promptly_after_its_copy(after_us, polls):
    """Within twice what is usual for launches, whose floor is 4 us; else it waits for another."""
    dag = drawn_dag(
        f"""
        cpu 1    |[L >a][aten::item [C >b]{" " * (41 + after_us)}][aten::add]
        stream 7 |    [k <a{"":43}][copy <b    ]
        """,
        names={"L": "cudaLaunchKernel", "C": "cudaLaunchCopy"},
    )

    assert [tail for tail, _, _ in _polls(dag)] == polls


def test_an_item_is_found_next_to_operators_of_any_depth():
    """Some are below two others."""
    dag = drawn_dag(
        """
        cpu 1    |[L >a][aten::item [C >b]                                         ][aten::add]
        cpu 2    |[L >c][aten::a [aten::b [aten::c                                      ]]]
        stream 7 |    [k <a                                         ]
        stream 7 |                                                    [copy <b    ]
        stream 9 |          [k <c]
        """,
        names={"L": "cudaLaunchKernel", "C": "cudaLaunchCopy"},
    )

    assert _polls(dag) == [("copy", "aten::item", 0)]


def test_an_item_with_a_call_that_waits_is_explained():
    """Its own time after that is its own."""
    dag = drawn_dag(
        """
        cpu 1    |[L >a][aten::item [C >b][streamsync @7               ]           ][aten::add]
        stream 7 |    [k <a                  ]
        stream 7 |                            [M <b                   ]
        """,
        names={"L": "cudaLaunchKernel", "C": "cudaLaunchCopy", "M": "Memcpy DtoH"},
    )

    assert _polls(dag) == []


def _query_loop(n_queries: int, kernel_ns: int) -> _Host:
    """A host that asks for an event every 10 us until the kernel before it has ended."""
    host = _Host()
    host.launch("gemm", kernel_ns)
    for _ in range(n_queries):
        query = Row("cudaEventQuery", EventKind.RUNTIME, "cuda_runtime", (1, 1), host.now_ns, 2_000)
        host.rows.append(query)
        host.now_ns += 10_000
    return host


@pytest.mark.parametrize(("n_queries", "polls"), [(20, [("gemm", "cudaEventQuery", 0)]), (15, [])])
def test_a_loop_of_queries_is_a_wait_for_what_ended_before_the_last(n_queries, polls):
    """20 queries in a row, and the kernel ends between the last two; 15 may be of 15 events."""
    host = _query_loop(n_queries, (n_queries - 1) * 10_000 - 7_000)
    host.operator("aten::add")

    assert _polls(compile_events(host.events)) == polls


@pytest.mark.parametrize(("kernel_us", "n_polls"), [(178, 0), (180, 1)])
def test_the_last_query_but_one_was_not_answered_yet(kernel_us, n_polls):
    """It begins 185 us after the launch, and the kernel 6 us after it."""
    host = _query_loop(20, kernel_us * _US)
    host.operator("aten::add")

    assert len(_polls(compile_events(host.events))) == n_polls


def test_a_loop_ends_with_its_thread():
    """Another thread queries later, for what it has not launched."""
    host = _query_loop(20, 183_000)
    for row in host.rows[-20:]:
        host.rows.append(replace(row, lane=(1, 2), ts_ns=row.ts_ns + 500_000))

    assert _polls(compile_events(host.events)) == [("gemm", "cudaEventQuery", 0)]


def test_the_events_of_the_caching_allocator_are_no_loop():
    """Inside an operator, each query asks for another event."""
    host = _query_loop(60, 588_000)
    host.rows.append(Row("aten::empty", EventKind.OP, "cpu_op", (1, 1), 4_500, host.now_ns - 4_000))
    host.operator("aten::add")

    assert _polls(compile_events(host.events)) == []


_TWO_THREADS = """
    cpu 1     |[L >a][aten::item                                                   ][aten::add]
    cpu 2     |{launch}
    stream 20 |    [S <a           ]
    stream 7  |                    [E <b                                    ]
"""
_TWO_NAMES = {
    "L": "cudaLaunchKernel",
    "S": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "E": "split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1",
}


def test_work_of_any_thread_counts_and_the_nearest_end_wins():
    """A collective of the same thread ended 48 us before, work of the autograd thread 7 us."""
    dag = drawn_dag(_TWO_THREADS.format(launch="[L >b]"), names=_TWO_NAMES)

    assert _polls(dag) == [(_TWO_NAMES["E"], "aten::item", 0)]


def test_work_launched_during_a_gap_is_not_what_it_waits_for():
    """What the host waits for is enqueued. The collective ended too early to say something."""
    dag = drawn_dag(_TWO_THREADS.format(launch="            [L >b]"), names=_TWO_NAMES)

    assert _polls(dag) == []


def test_a_watchdog_that_queries_events_waits_for_no_work():
    """The thread of NCCL that watches collectives launches nothing: it only sleeps and queries."""
    host = _query_loop(40, 383_000)
    for row in host.rows:
        if row.name == "cudaEventQuery":
            row.lane = (1, 2)

    assert _polls(compile_events(host.events)) == []


def test_a_thread_that_launches_nothing_polls_nothing():
    """Its gaps end with work of another thread, as they would by chance."""
    events = _polling_host(1, 12)
    lane = np.where(events.kind == EventKind.RUNTIME, len(events.lanes), events.lane)
    lanes = replace(
        events.lanes,
        **{
            column.name: (
                *getattr(events.lanes, column.name),
                getattr(events.lanes, column.name)[0],
            )
            for column in fields(events.lanes)
        },
    )

    polls = _polls(compile_events(replace(events, lane=lane.astype(np.int32), lanes=lanes)))
    assert not any(head.startswith("aten::") for _, head, _ in polls)


_HOSTS = ("collection", "loading", "lock", "json", "sleep", "exact sleep", "timer")
_DEVICES = ("random", "long", "back to back", "exact", "as long as the host")


def _stands_still(host: str, source: random.Random, length_ns: int) -> Action:
    """Something that takes the host a while and has nothing to do with the device."""
    if host == "exact sleep":
        return Spend(length_ns)
    if host == "sleep":
        return Spend(length_ns + source.randint(0, length_ns // 50))
    varied = Spend(source.randint(length_ns // 10, 2 * length_ns))
    pause = varied if source.random() < 0.4 else Spend(source.randint(1, 30) * _US)
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    return {
        "loading": Annotation(loader, (varied,)),
        "json": Op("json::loads", (varied,)),
        "lock": Op("lock::acquire", (varied,)),
        "timer": Spend(length_ns + source.randint(0, 3) * length_ns),
        "collection": pause,
    }[host]


def _kernels(device: str, source: random.Random, length_ns: int) -> list[Launch]:
    """Work in flight beside it."""
    streams = [7] * 3 + [13]
    if device == "back to back":
        dur = source.choice((20_000, 90_000))
        return [Launch(Work("pointwise", dur)) for _ in range(source.randint(5, 40))]
    if device == "long":
        return [Launch(Work("flash_attention", source.randint(3, 9) * length_ns))]
    if device == "exact":
        return [Launch(Work("gemm", length_ns // 3)) for _ in range(3)]
    if device == "as long as the host":
        return [Launch(Work("gemm", length_ns + source.randint(-20_000, 20_000)))]
    return [
        Launch(
            Work(f"gemm_{source.randint(0, 2)}", source.randint(5_000, length_ns)),
            source.choice(streams),
        )
        for _ in range(source.randint(1, 6))
    ]


def _innocent(host: str, device: str, seed: int) -> Program:
    """A program in which the host waits for nothing on the device."""
    source = random.Random(f"{host} {device} {seed}")  # noqa: S311 - no secret
    length_ns = source.choice((400_000, 2_000_000, 20_000_000))
    body: list[Action] = []
    for _ in range(source.choice((3, 4, 6, 12, 30, 60))):
        body.append(Op("aten::linear", tuple(_kernels(device, source, length_ns))))
        body.append(_stands_still(host, source, length_ns))
        if source.random() < 0.5:
            body.append(Op("aten::empty", (Spend(source.randint(1, 9) * _US),)))
    return Program(tuple(body), seed=seed)


@pytest.mark.some(6)
@pytest.mark.parametrize("host", _HOSTS)
@pytest.mark.parametrize("device", _DEVICES)
def test_a_host_that_stands_still_for_another_reason_polls_nothing(host, device):
    """0 false positives in 35 kinds of 8 random programs: 280 in all, whatever rule looks."""
    for seed in range(8):
        dag = compile_events(simulate(_innocent(host, device, seed)).events)
        assert not (dag.edges.kind == EdgeKind.HIDDEN_SYNC).any(), (host, device, seed)
        assert dag.support == ()


@pytest.mark.parametrize("factor", [3, 1_000])
def test_polls_are_the_same_at_another_scale(factor):
    """Nothing is an absolute time."""
    events = _polling_host(7, 12)
    scaled = replace(events, ts_ns=factor * events.ts_ns, dur_ns=factor * events.dur_ns)

    assert [poll[:2] for poll in _polls(compile_events(scaled))] == [
        poll[:2] for poll in _polls(compile_events(events))
    ]
