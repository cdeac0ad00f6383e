"""Changes of the host: code that goes, waits that were latent."""

from __future__ import annotations

import numpy as np
import pytest

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.model.kinds import EventKind
from htagraph.model.rules import Rule
from htagraph.replay.assumptions import Assumption
from htagraph.replay.rehearsal import Rehearsal
from htagraph.replay.replay import latent_waits
from htagraph.synth import timeline
from tests.drawn import drawn_graph
from tests.event_rows import taken
from tests.real_traces import located
from tests.replay.drawn import drawn, saved_us
from tests.synth.program import Launch, Machine, Op, Program, Spend, Work
from tests.synth.repairs import repair
from tests.synth.rewriting import prefetched
from tests.synth.simulator import simulate


def test_a_batch_that_is_prefetched_is_there_as_long_after_the_one_before_as_it_took():
    """The first is waited for. Steps of 8 us hide that much of the other two."""
    graph = drawn("""
        cpu 1 |{data_loading}[work  ]{data_loading}[work  ]{data_loading}[work  ]
    """)

    assert graph.dur_ns == 66_000
    assert saved_us(graph, hg.prefetch()) == 16
    assert hg.what_if(graph, hg.prefetch()).saves_ns[:3] == (0, 16_000, 16_000)


def test_a_batch_that_an_earlier_change_shortened_is_prefetched_as_short():
    """Two workers load 14 us in 7: the first batch and three steps of 8 us are left of 66."""
    graph = drawn("""
        cpu 1 |{data_loading}[work  ]{data_loading}[work  ]{data_loading}[work  ]
    """)

    assert saved_us(graph, hg.scale("data_loading", by=0.5), hg.prefetch()) == 66 - 7 - 3 * 8


BATCHES = "cpu 1 |" + "{data_loading     }[work ]" * 12
"""Twelve batches of 19 us, and steps of 7 us."""


@pytest.mark.parametrize(
    ("workers", "left_us"), [(1, 12 * 19 + 7), (2, 19 + 5 * 19 + 2 * 7), (3, 19 + 12 * 7)]
)
def test_workers_load_in_turn_and_begin_together(workers, left_us):
    """One loads all twelve one after the other; of two, each loads six."""
    graph = drawn(BATCHES)

    assert graph.dur_ns == 12 * (19 + 7) * 1_000
    assert (graph.dur_ns / 1_000) - saved_us(graph, hg.prefetch(workers)) == left_us


def test_each_thread_has_workers_of_its_own():
    """Both wait for their first batch only; the second thread begins 3 us later."""
    graph = drawn("""
        cpu 1 |{data_loading}[work  ]{data_loading}[work  ]{data_loading}[work  ]
        cpu 2 |   {data_loading}[other ]{data_loading}[other ]{data_loading}[other ]
    """)

    assert saved_us(graph, hg.prefetch(3)) == 69 - (3 + 14 + 3 * 8)


@pytest.mark.parametrize(("dur", "n_batches"), [(19, 12), (40, 30), (12, 20)])
def test_as_many_workers_as_advised_hide_nearly_all_loading(dur, n_batches):
    """What is left is the first batch, which is waited for."""
    graph = drawn("cpu 1 |" + f"{{data_loading{' ' * (dur - 14)}}}[work  ]" * n_batches)
    (found,) = [one for one in graph.verdict().findings if one.cause == "data loading"]
    scenario = hg.what_if(graph, found.fix.change)

    assert str(found.fix.change).startswith("prefetch(")
    assert scenario.saves_ns.expected_ns >= 0.88 * found.cost_ns


LOADED = {
    "captures/single/loader0.pt.trace.json.gz": 4,
    "captures/features/pyexport_stack.pt.trace.json.gz": 3,
    "captures/single/baseline.pt.trace.json.gz": 1,
}
"""Captures of three batches each, and the workers that keep up."""


@pytest.mark.parametrize("name", LOADED)
def test_workers_hide_nearly_all_later_batches_of_a_real_loader(name):
    """The first of three is waited for."""
    graph = hg.load(located(name)).compile()
    cost, saved = (
        hg.what_if(graph, change).saves_ns.expected_ns
        for change in (hg.without("data loading"), hg.prefetch(LOADED[name]))
    )

    assert saved >= 0.88 * cost * 2 / 3


@pytest.mark.some(2)
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("seed", [0, 2, 3, 11])
def test_a_program_with_workers_takes_as_long_as_predicted(workers, seed):
    """Random programs with loaders, simulated before and after."""
    program = repair("prefetch", seed).before
    before, after = (
        hg.Trace.from_events(simulate(one).events).compile()
        for one in (program, prefetched(program, workers))
    )
    rehearsal = Rehearsal(before.dag, before.dag.span)

    saved_ns = before.dag.span.dur_ns - after.dag.span.dur_ns
    assert rehearsal.saved_ns((hg.prefetch(workers),)) == saved_ns > 0


def test_a_run_without_workers_is_refused():
    with pytest.raises(QueryError, match="workers must be 1 or more, not 0"):
        hg.prefetch(0)


def test_a_graphed_step_costs_one_launch():
    """All is launched by a call of 10 us: the last of three kernels ends at 30, in place of 48."""
    graph = drawn("""
        us       |0         10        20        30        40        50
        cpu 1    |[op [launch >a]][op [launch >b]][op [launch >c]]
        stream 7 |         [k1 <a]         [k2 <b]         [k3 <c]
    """)

    assert saved_us(graph, hg.graphed()) == 18


@pytest.mark.parametrize(("us_per_column", "saved_us"), [(200, 800), (400, 2_800)])
def test_a_batch_costs_a_handoff_or_half_of_its_loading_at_most(
    us_per_column: int, saved_us: int
) -> None:
    """Of 2.8 ms, 2 ms are a handoff; of 5.6 ms, half slows the step. Two batches are prefetched."""
    drawing = "cpu 1 |" + "{data_loading}[work              ]" * 3
    graph = drawn_graph(drawing, us_per_column=us_per_column)

    saving = hg.what_if(graph, hg.prefetch()).saves_ns

    assert dict(saving.readings)[Assumption.RIGID] == 2 * saved_us * 1_000


@pytest.mark.parametrize(
    ("between_us", "within_us", "is_gone"),
    [(80, 0, True), (150, 0, False), (0, 800, True), (0, 1_500, False)],
)
def test_code_that_takes_long_is_no_launching(between_us, within_us, is_gone):
    """Up to 100 us between operators and 1 ms within them, both are part of launching."""
    between, within = " " * between_us, " " * within_us
    graph = drawn(f"""
        cpu 1    |[op [launch >a]]{between}[op {within}[launch >b]]
        stream 7 |         [k1 <a]         {between}{within}[k2 <b]
    """)

    assert (saved_us(graph, hg.graphed()) >= between_us + within_us) is is_gone


STACK = """
    us       |0         10        20        30        40
    cpu 1    |[aten::mm]   [aten::mm]            [aten::mm]
    cpu 1    |      [parse              ][sleep]
"""
"""`parse` is 21 us long: 4 of the first operator, all of the second, and the gaps around it."""


def test_a_removed_frame_takes_what_runs_in_it_along():
    """Gaps as far as they lie in it, and operators."""
    graph = drawn(STACK, frames=("parse", "sleep"))

    assert saved_us(graph, hg.remove("parse")) == 21
    assert saved_us(graph, hg.remove("sleep")) == 7


def test_a_scaled_frame_scales_what_runs_in_it():
    graph = drawn(STACK, frames=("parse", "sleep"))

    assert saved_us(graph, hg.scale("parse", by=0.5)) == 10.5
    assert saved_us(graph, hg.scale("parse", by=2)) == -21


def test_frames_in_frames_count_once():
    graph = drawn(STACK, frames=("parse", "sleep"))

    assert saved_us(graph, hg.scale("*p*", by=0.5)) == 14
    assert saved_us(graph, hg.remove("parse"), hg.remove("sleep")) == 28
    nested = drawn(
        """
        cpu 1 |[aten::mm]                      [aten::mm]
        cpu 1 |            [outer          ]
        cpu 1 |              [inner      ]
        """,
        frames=("outer", "inner"),
    )

    assert saved_us(nested, hg.remove("*er")) == 17


def test_without_a_frame_nothing_that_it_launched_runs():
    """Neither the call nor its kernel: the next one starts as long as before after its launch."""
    graph = drawn(
        """
        us       |0         10        20        30
        cpu 1    |[aten::a]  [launch >k] [launch >n]
        cpu 1    |          [hook      ]
        stream 7 |                [gemm <k  ][norm <n]
        """,
        frames=("hook",),
    )

    assert saved_us(graph, hg.remove("hook")) == 12


def test_frames_of_another_thread_stay():
    graph = drawn(
        """
        cpu 1 |[aten::mm]      [aten::mm]
        cpu 2 |[aten::mm] [parse ]  [aten::mm]
        """,
        frames=("parse",),
    )

    assert saved_us(graph, hg.remove("parse")) == 5


def test_a_frame_is_followed_by_more():
    graph = drawn(STACK, frames=("parse", "sleep"))

    assert saved_us(graph, hg.insert(after="sleep", dur_ns=3_000)) == -3


def test_code_that_no_operator_covers_is_named_by_what_is_before_it():
    """Without stacks. The first gap is of 10 us, the second of 5."""
    graph = drawn("""
        cpu 1 |[aten::a]          [aten::b]     [aten::a]
    """)

    assert saved_us(graph, hg.remove(hg.code("after aten::a"))) == 10
    assert saved_us(graph, hg.scale(hg.code("after aten::*"), by=0.5)) == 7.5


def test_what_is_nowhere_is_refused_with_what_there_is():
    graph = drawn("cpu 1 |[aten::a]          [aten::b]")

    with pytest.raises(QueryError, match="no untraced code matches") as refused:
        hg.what_if(graph, hg.remove(hg.code("train.py:3"))).dur_ns  # noqa: B018
    assert "'after aten::a'" in refused.value.hint
    with pytest.raises(QueryError) as refused:
        hg.what_if(graph, hg.remove("*train.py*")).dur_ns  # noqa: B018
    assert "stacks=True" in refused.value.hint


def test_code_is_found_anew_among_edges_that_another_change_added():
    """The 4 us before `aten::b`, whichever change is made first."""
    graph = drawn(
        """
        us       |0         10        20        30        40        50
        cpu 1    |[launch >k][launch >m][launch >n]    [aten::b      ]
        stream 7 |         [k <k     ][m <m   ][n <n     ]
        """
    )
    rehearsal = Rehearsal(graph.dag, graph.interval)
    code, overlap = hg.remove(hg.code("*")), hg.overlap("m")

    assert rehearsal.saved_ns([overlap, code]) == 4_000
    assert rehearsal.saved_ns([code, overlap]) == 4_000


LIMIT = 1_022


def test_a_call_that_found_its_work_done_waits_in_a_faster_run():
    """Without the operator it comes at 11, and the kernel ends at 30: 7 us later it returns."""
    graph = drawn("""
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a][aten::unique               ][sync ]
        stream 7 |      [gemm <a               ]
    """)

    assert graph.dur_ns == 47_000
    assert saved_us(graph, hg.remove("aten::unique")) == 10


def test_the_last_kernel_of_one_launch_is_the_one_that_ran_last():
    """Without the operator, the call waits for `two` until 26, wherever that is in the file."""
    events = timeline("""
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a][aten::unique               ][sync ]
        stream 7 |      [one <a   ][two <a ]
    """)
    backwards = taken(events, np.arange(len(events))[::-1])
    saved = [
        saved_us(hg.Trace.from_events(rows).compile(), hg.remove("aten::unique"))
        for rows in (events, backwards)
    ]

    assert saved == [14, 14]


def test_a_stream_is_waited_for_by_who_enqueued_on_it():
    """The call of 12 us is for stream 7, where its thread launched last: not for that on 9."""
    graph = drawn("""
        us       |0         10        20        30        40        50        60
        cpu 2    |[launch >b]
        cpu 1    |[launch >a][aten::unique               ][streamsync]
        stream 7 |      [gemm <a               ]
        stream 9 |      [conv <b                                             ]
    """)
    changed = hg.what_if(graph, hg.remove("aten::unique")).graph
    events = changed.dag.events
    ends = dict(zip(events.names().tolist(), events.end_ns.tolist(), strict=True))

    assert ends["gemm"] == 30_000
    assert ends["conv"] == 60_000
    assert ends["cudaStreamSynchronize"] == 42_000


def test_a_call_waits_for_the_streams_that_were_used_last():
    """Of 40 streams, each with one kernel that ended long before; a later one is waited for."""
    launches = "".join(f"[launch >{number:02}]" for number in range(40))
    kernels = "".join(
        f"        stream {number + 10} |{' ' * (12 * number + 12)}[k{number:02} <{number:02}]\n"
        for number in range(40)
    )
    graph = drawn(f"        cpu 1    |{launches}{' ' * 60}[sync ]\n{kernels}")
    found = latent_waits(graph.dag)
    names = graph.dag.events.names(found.tail >> 1)

    assert sorted(names) == [f"k{number:02}" for number in range(8, 40)]


def test_no_more_is_outstanding_in_a_faster_run_than_the_queue_holds():
    """The host is slow and the device slower; without host time, launches wait for room."""
    body = tuple(
        Op("aten::add", (Spend(4_000), Launch(Work("add", 6_000)))) for _ in range(LIMIT + 400)
    )
    rank = simulate(Program(body, machine=Machine(queue_limit=LIMIT)))
    graph = hg.Trace.from_events(rank.events).compile()
    changed = hg.what_if(graph, hg.scale("aten::add", by=0)).graph
    dag = changed.dag
    work = np.flatnonzero(dag.events.kind == EventKind.KERNEL)
    returned = np.sort(dag.events.end_ns[dag.launch[work]])
    started = np.sort(dag.events.ts_ns[work])
    outstanding = np.arange(len(work)) + 1 - np.searchsorted(started, returned, side="right")

    assert changed.dur_ns < graph.dur_ns
    assert outstanding.max() == LIMIT


@pytest.mark.parametrize(("n_waits", "n_latent"), [(7, 3), (3, 0)])
def test_a_kernel_waits_where_most_of_its_instances_do(n_waits, n_latent):
    """Of ten, some start right as the other stream's kernel ends; the rest start later."""
    cpu = stream = waiting = ""
    for number in range(10):
        start = 66 if number < n_waits else 80
        cpu += f"[launch >a{number}][launch >b{number}]".ljust(110)
        stream += f"      {f'[gemm <a{number}'.ljust(59)}]".ljust(110)
        waiting += f"{' ' * start}[nccl <b{number}]".ljust(110)
    drawing = f"cpu 1 |{cpu}\nstream 7 |{stream}\nstream 9 |{waiting}"
    graph = drawn_graph(drawing)

    found = latent_waits(graph.dag).rule == Rule.RECURRING_IN_REPLAYS

    assert found.sum() == n_latent
