"""FLOW edges into workers: what a thread waits for that does nothing until it is called."""

from __future__ import annotations

import random

import numpy as np
import pytest

from htagraph.compiler import worker_calls
from htagraph.compiler.passes import compile_events
from htagraph.explain.critical_path import critical_path
from htagraph.model.api_calls import OS_CALLS
from htagraph.model.dag import Dag
from htagraph.model.events import EventTable
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule
from tests.drawn import drawn_dag
from tests.synth.rows import Row, event_table

_US = 1_000
_MS = 1_000_000


def _calls(dag: Dag) -> list[tuple[str, str]]:
    """Each inferred call: the event whose start or end it hangs on, and what begins or ends."""
    rows = dag.edges.take(dag.edges.rule == Rule.WORKER_CALLED)
    names = dag.events.names
    return sorted(zip(names(rows.tail >> 1).tolist(), names(rows.head >> 1).tolist(), strict=True))


def _server(seed: int, n_requests: int) -> EventTable:
    """A server: a thread takes requests, one of a pool runs the stage, a third one computes."""
    source = random.Random(seed)  # noqa: S311 - no secret
    rows: list[Row] = []

    def run(name: str, thread: int, begin: int, end: int) -> None:
        rows.append(
            Row(name, EventKind.ANNOTATION, "user_annotation", (1, thread), begin, end - begin)
        )

    def soon() -> int:
        return source.randint(15, 90) * _US

    now = 0
    for number in range(n_requests):
        now += source.randint(2, 60) * _MS
        taken = now + source.randint(100, 200) * _US
        run("Stage::take", 1, now, taken)
        begin = taken + soon()
        compute = begin + 30 * _US + soon()
        computed = compute + source.randint(1, 30) * _MS
        answer = computed + soon()
        run("Stage::run", 10 + number % 3, begin, answer + 300 * _US)
        run("Stage::answer", 10 + number % 3, answer, answer + 250 * _US)
        rows.append(
            Row("executor::run", EventKind.OP, "cpu_op", (1, 20), compute, computed - compute)
        )
        now = answer + 300 * _US
    return event_table(rows)


@pytest.mark.parametrize("seed", range(20))
def test_who_calls_a_pool_is_learnt_from_what_recurs(seed):
    """No call is missed and none is wrong, in 20 random servers; nobody calls for requests."""
    calls = _calls(compile_events(_server(seed, 20)))

    assert len(calls) >= 59
    assert {head for _, head in calls} == {"Stage::run", "executor::run", "Stage::answer"}
    assert {tail for tail, head in calls if head == "Stage::run"} == {"Stage::take"}
    assert {tail for tail, head in calls if head == "executor::run"} <= {
        "Stage::run",
        "Stage::take",
    }
    assert {tail for tail, head in calls if head == "Stage::answer"} == {"executor::run"}


def test_the_path_of_a_server_goes_through_the_threads_that_work_for_a_request():
    """The stage stands still while the executor computes: no Python time of the stage."""
    dag = compile_events(_server(1, 20))
    segments = critical_path(dag, dag.span)
    by_name = segments.groupby("name")["dur_ns"].sum()

    assert by_name["executor::run"] > 10 * _MS
    assert by_name.get("Stage::run", 0) < _MS


@pytest.mark.parametrize("seed", range(40))
def test_threads_that_do_their_own_work_side_by_side_call_nobody(seed):
    """Two to five threads with operators and pauses of their own: 0 false calls of 40."""
    source = random.Random(seed)  # noqa: S311 - no secret
    rows = []
    for thread in range(source.randint(2, 5)):
        now = 0
        for _ in range(source.randint(5, 80)):
            now += source.choice((source.randint(1, 20) * _US, source.randint(1, 9) * _MS))
            dur = source.randint(5, 900) * _US
            name = source.choice(("decode", "resize", "augment"))
            rows.append(Row(name, EventKind.OP, "cpu_op", (1, thread), now, dur))
            now += dur
    dag = compile_events(event_table(rows))

    assert _calls(dag) == []


def _rounds(more: str = "[x]", around: str = "{}", runs: str = "[run]") -> list[tuple[str, str]]:
    """Calls found where a worker is idle for 1 ms before each of nine, and runs soon after it."""
    calls, work = "", ""
    for name in "abcdefghij":
        calls += ("[call]" + more.replace("x", name).replace("y", name.upper())).ljust(1_000)
        work += f"{'':15}{runs}".ljust(1_000)
    opening, closing = around
    drawing = f"cpu 1 |{calls}\ncpu 2 |{opening}serve{work[6:]}{closing}"
    return _calls(drawn_dag(drawing))


@pytest.mark.parametrize(("more", "n_calls"), [("", 9), ("[x][y     ]", 9), ("[x][y]", 0)])
def test_a_caller_may_pass_three_boundaries_before_the_worker_runs(more, n_calls):
    """The end of the call is the fourth last, or the fifth last."""
    assert _rounds(more) == [("call", "run")] * n_calls


@pytest.mark.parametrize(("around", "n_calls"), [("{}", 9), ("[]", 0)])
def test_a_worker_waits_for_calls_in_a_range_and_not_in_an_operator(around, n_calls):
    """What an operator does that it does not record is its own."""
    assert _rounds(around=around) == [("call", "run")] * n_calls


@pytest.mark.parametrize(("n_threads", "n_calls"), [(2, 10), (1, 0)])
def test_of_too_many_threads_those_that_did_most_may_call(monkeypatch, n_threads, n_calls):
    """The worker runs more than its caller."""
    monkeypatch.setattr(worker_calls, "_MOST_THREADS", n_threads)

    assert _rounds("", runs="[run][w][w]") == [("call", "run")] * n_calls


@pytest.mark.parametrize(("n_compared", "n_calls"), [(2 * 20, 9), (2 * 11, 0)])
def test_of_too_much_waiting_the_longest_is_compared(monkeypatch, n_compared, n_calls):
    """The two threads are idle ten times each, the caller for longer."""
    monkeypatch.setattr(worker_calls, "_MOST_COMPARED", n_compared)

    assert _rounds("", runs="[run    ]") == [("call", "run")] * n_calls


@pytest.mark.parametrize(
    "drawing", ["stream 7 |    [k1 ][k2    ]", "cpu 1    |    [cudaMalloc !a] [cudaFree ]"]
)
def test_a_trace_of_nothing_that_computes_on_the_host_is_as_long_as_what_it_has(drawing):
    """Device work, or else API calls."""
    assert drawn_dag(drawing).span.dur_ns == 1_000 * (len(drawing) - 14)


def test_a_trace_without_steps_ends_on_a_thread_that_launches():
    """A range of gloo, a watchdog and a thread that only computes outlive the work."""
    dag = drawn_dag("""
        cpu 1    |[aten::mm [launch >a]]
        stream 7 |              [kernel <a ]
        cpu 7    |       {gloo:all_reduce             }
        cpu 8    |[aten::tanh        ][aten::tanh            ]
        cpu 9    |    [cudaEventQuery]         [cudaEventQuery]
    """)

    assert dag.span.dur_ns == 26_000


def test_a_trace_on_the_host_without_steps_ends_on_what_computes():
    """A worker that runs collectives for others bounds nothing."""
    dag = drawn_dag("""
        cpu 1    |[aten::mm          ][aten::tanh]
        cpu 7    |       {gloo:all_reduce             }
    """)

    assert dag.span.dur_ns == 32_000


def test_what_lies_before_the_first_host_event_lies_before_the_capture():
    """Until then only the device was recorded, at work on what had been launched before."""
    dag = drawn_dag("""
        cpu 1    |                    [aten::mm [launch >a]      ]
        stream 7 |[old     ][old  ]
        stream 9 |                                         [kernel <a]
    """)
    by_bound = critical_path(dag, dag.span).groupby("bound", observed=True)["dur_ns"].sum()

    assert by_bound["work_from_before_the_profile"] == 20_000
    assert "unknown_waits" not in by_bound


@pytest.mark.parametrize("factor", [3, 1_000])
def test_calls_are_the_same_at_another_scale(factor):
    """Nothing is an absolute time."""
    events = _server(4, 20)
    scaled = event_table(
        [
            Row(name, EventKind(kind), "", (1, lane), factor * ts, factor * dur)
            for name, kind, lane, ts, dur in zip(
                events.names().tolist(),
                events.kind.tolist(),
                events.lane.tolist(),
                events.ts_ns.tolist(),
                events.dur_ns.tolist(),
                strict=True,
            )
        ]
    )

    assert _calls(compile_events(scaled)) == _calls(compile_events(events))


def test_calls_are_the_same_in_another_order():
    """Neither the order of the file nor the numbers of threads matter."""
    events = _server(4, 20)
    order = np.random.default_rng(0).permutation(len(events))
    shuffled = event_table(
        [
            Row(
                events.names([row])[0],
                EventKind(int(events.kind[row])),
                "",
                (1, 99 - int(events.lane[row])),
                int(events.ts_ns[row]),
                int(events.dur_ns[row]),
            )
            for row in order.tolist()
        ]
    )

    assert _calls(compile_events(shuffled)) == _calls(compile_events(events))


def _op(name: str, thread: int, begin: int, end: int) -> Row:
    return Row(name, EventKind.OP, "cpu_op", (1, thread), begin, end - begin)


def _requests(
    seed: int, n_requests: int, *, late: tuple[int, ...] = (), step: str = "", in_call: bool = False
) -> EventTable:
    """A thread passes requests to another one, which runs 8 to 16 layers of one operator."""
    source = random.Random(seed)  # noqa: S311 - no secret
    rows, now = [], 0
    for number in range(n_requests):
        begin, now = now, now + source.randint(40, 170) * _US
        for _ in range(source.randint(8, 16)):
            end = now + source.randint(300, 900) * _US
            rows.append(_op("layer", 2, now, end))
            now = end + source.randint(10, 30) * _US
        now = end + (source.randint(40, 170) * _US if number not in late else 3 * _MS)
        kind, category = (EventKind.RUNTIME, OS_CALLS) if in_call else (EventKind.ANNOTATION, "")
        name = "sem_wait" if in_call else step or "request"
        rows.append(Row(name, kind, category, (1, 1), begin, now - begin))
        now += source.randint(2, 9) * _MS
    return event_table(rows)


@pytest.mark.parametrize("seed", range(10))
def test_a_caller_waits_for_the_last_of_many_operators_of_one_name(seed):
    """Something of that name ended a little before any instant; nothing followed the last one."""
    calls = _calls(compile_events(_requests(seed, 20)))

    assert calls.count(("layer", "request")) == 20


@pytest.mark.parametrize("seed", range(10))
def test_a_worker_is_called_where_it_also_pauses(seed):
    """Each layer begins after a pause; before the first one it is as long as the caller's."""
    calls = _calls(compile_events(_requests(seed, 20)))

    assert calls.count(("request", "layer")) >= 19
    assert {("layer", "request"), ("request", "layer")} == set(calls)


def test_the_time_of_a_request_is_that_of_the_thread_that_works_for_it():
    """All of its operators are on the path."""
    dag = compile_events(_requests(3, 20))
    path = critical_path(dag, dag.span)
    ran = path[(path["name"] == "layer") & (path["bound"] == "host")]

    assert ran["dur_ns"].sum() == dag.events.dur_ns[dag.events.names() == "layer"].sum()


def test_a_thread_that_takes_steps_may_wait_for_another():
    """Each step is run by a worker."""
    calls = _calls(compile_events(_requests(3, 20, step="ProfilerStep#1")))

    assert calls.count(("layer", "ProfilerStep#1")) == 20


def test_a_thread_may_wait_for_another_in_a_call_of_the_operating_system():
    """As Nsight Systems records it."""
    dag = compile_events(_requests(3, 20, in_call=True))

    assert _calls(dag).count(("layer", "sem_wait")) == 20


@pytest.mark.parametrize(("late", "n_calls"), [((7,), 20), ((7, 11, 12), 0)])
def test_who_is_waited_for_nearly_always_is_waited_for_where_the_thread_continues_late(
    late, n_calls
):
    """One of 20 continues after 3 ms, when nothing shows that it waited; or three do."""
    calls = _calls(compile_events(_requests(5, 20, late=late)))

    assert calls.count(("layer", "request")) == n_calls


def _rhythms(seed: int, n_times: int, jitter_us: tuple[int, int, int]) -> EventTable:
    """Two threads that work every 10 ms, the second about 0.2 ms after the first."""
    source = random.Random(seed)  # noqa: S311 - no secret
    own_us, common_us, other_us = jitter_us
    rows = []
    for number in range(n_times):
        both = 10 * _MS * number + source.randint(0, common_us) * _US
        one = both + source.randint(0, own_us) * _US
        other = both + (200 + source.randint(0, other_us)) * _US
        rows += [_op("sample", 1, one, one + 50 * _US), _op("report", 2, other, other + 90 * _US)]
    return event_table(rows)


@pytest.mark.parametrize("own_us", [0, 90])
@pytest.mark.parametrize("seed", range(10))
def test_threads_at_one_rhythm_call_nobody(seed, own_us):
    """The second is always near, but as regular without the first: 0 false calls of 20."""
    assert _calls(compile_events(_rhythms(seed, 40, (own_us, 0, 90)))) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_thread_that_is_late_whenever_another_one_is_waits_for_it(seed):
    """The rhythm is the caller's."""
    calls = _calls(compile_events(_rhythms(seed, 40, (0, 400, 90))))

    assert calls == [("sample", "report")] * 40


@pytest.mark.parametrize(("n_times", "n_calls"), [(6, 0), (5, 4)])
def test_of_few_periods_no_rhythm_shows(n_times, n_calls):
    """Six times have five waits with four periods between them, five have three."""
    assert len(_calls(compile_events(_rhythms(1, n_times, (90, 0, 90))))) == n_calls


@pytest.mark.parametrize(("n_waits", "n_calls"), [(2, 0), (3, 3)])
def test_two_waits_of_a_thread_show_nothing(n_waits, n_calls):
    """However long they are, and however soon the thread continues: 10 ms, and 5 us."""
    rows = [_op("open", thread, 0, 60 * _US) for thread in (1, 2)]
    for number in range(1, n_waits + 1):
        begin = 10 * _MS * number
        rows += [_op("sample", 1, begin, begin + 50 * _US)]
        rows += [_op("report", 2, begin + 55 * _US, begin + 90 * _US)]
    assert len(_calls(compile_events(event_table(rows)))) == n_calls
