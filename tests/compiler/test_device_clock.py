"""Clocks of devices, and what latencies of a trace calibrate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from htagraph import TraceGraph, load
from htagraph.compiler.passes import compile_events
from htagraph.explain.attributed_time import attributed_time
from htagraph.explain.critical_path import critical_path
from htagraph.model.dag import Dag
from htagraph.model.events import EventTable
from htagraph.model.kinds import Cause, EdgeKind, EventKind
from htagraph.queries.quality import quality
from htagraph.synth import timeline
from tests.drawn import drawn_dag, drawn_graph
from tests.real_traces import TRACES, case, located
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

_NAMES = {
    "L": "cudaLaunchKernel",
    "H": "hipMemcpyWithStream",
    "M": "Memcpy DtoH (Device -> Host)",
    "P": "Memcpy DtoH (Device -> Pinned)",
    "U": "Memcpy HtoD (Pageable -> Device)",
}


def _compiled(drawing: str, **names: str) -> Dag:
    """Graph of a drawing with short names."""
    known = {**_NAMES, **names}
    return drawn_dag(drawing, names={name: known[name] for name in known if f"[{name} " in drawing})


def test_a_copy_that_ends_after_its_blocking_call_moves_the_device_clock_back(arrows):
    """On MI300, copies "end" 2 to 9 us after the call that waited for them returned."""
    dag = _compiled(
        """
        cpu 1    |[L >a][H >m                     ]      [L >b]
        stream 7 |      [k1 <a              ][M <m  ]          [k2 <b]
        """,
    )

    assert dag.calibration.clock_shift_ns == -2_000
    assert dag.calibration.clock_steps == ()
    assert dag.calibration.clock_overlap_ns == 0
    assert arrows(dag, "sync") == [("Memcpy DtoH (Device -> Host)>", "hipMemcpyWithStream>", 0)]


def test_where_launches_do_not_allow_it_the_wait_hangs_on_the_start_of_the_copy(arrows, rules):
    """A kernel starts with its launch call, so the clock stays; the copy ran until then."""
    dag = _compiled(
        """
        cpu 1    |[L >a][H >m                     ]      [L >b]
        stream 7 |[k1 <a                    ][M <m  ]       [k2 <b]
        """,
    )

    assert dag.calibration.clock_shift_ns == 0
    assert dag.calibration.clock_overlap_ns == 2_000
    assert arrows(dag, "sync") == [("Memcpy DtoH (Device -> Host)<", "hipMemcpyWithStream>", 6)]
    assert rules(dag, "sync") == {"hipMemcpyWithStream>": "synchronous copy"}


def test_another_wait_may_overlap_as_much(arrows):
    """It has no record, and returns 1 us before the end of k2."""
    dag = _compiled(
        """
        cpu 1    |[L >a][H >m                     ]      [L >b][eventsync ]
        stream 7 |[k1 <a                    ][M <m  ]       [k2 <b         ]
        """,
    )

    assert dag.calibration.clock_overlap_ns == 2_000
    assert ("k2<", "cudaEventSynchronize>", 15) in arrows(dag, "sync")


def test_what_ran_until_an_overlapping_wait_is_its_bound_and_what_follows_is_its_effect():
    """The path goes through the copy; the host time behind is charged to the synchronous copy."""
    dag = _compiled(
        """
        cpu 1    |[L >a][H >m                     ]      [L >b]
        stream 7 |[k1 <a                    ][M <m  ]       [k2 <b]
        """,
    )
    segments = critical_path(dag, dag.span)
    causes = attributed_time(dag, segments).groupby("cause")["dur_ns"].sum()

    assert segments.groupby("bound", observed=True)["dur_ns"].sum()["memory"] == 6_000
    assert causes[Cause.SYNCHRONOUS_COPIES] == 6_000 + 9_000
    assert segments["dur_ns"].sum() == dag.span.dur_ns


def test_a_copy_that_begins_after_its_call_leaves_the_wait_to_what_ran_before_it(arrows):
    """The call had to wait for all earlier work of the stream, too."""
    dag = _compiled(
        """
        cpu 1    |[L >a][H >m                      ]      [L >b]
        stream 7 |      [k1 <a                 ]    [M <m][k2 <b]
        """,
    )

    assert arrows(dag, "sync") == [("k1>", "hipMemcpyWithStream>", 0)]


def test_a_recorded_wait_bounds_the_clock(arrows):
    """The record names stream 7, whose work ends 3 us after the wait."""
    dag = _compiled(
        """
        cpu 1    |[L >a][streamsync @7          ]
        stream 7 |      [k1 <a                    ]
        """,
    )

    assert dag.calibration.clock_shift_ns == -2_000
    assert arrows(dag, "sync") == [("k1>", "cudaStreamSynchronize>", 0)]


def test_of_two_devices_a_call_waits_for_one_and_does_not_say_which():
    """Work of the other may end later, and bounds no clock."""
    dag = _compiled(
        """
        cpu 1          |[L >a][L >b][sync       ]
        gpu 0 stream 7 |      [k1 <a          ]
        gpu 1 stream 7 |            [k2 <b           ]
        """,
    )

    assert dag.calibration.clock_shift_ns == 0
    assert dag.calibration.clock_overlap_ns == 0


def test_a_wait_right_after_a_copy_is_for_that_copy(arrows):
    """The call names no stream; aten::item waits for what it has just enqueued."""
    dag = _compiled(
        """
        cpu 1    |[L >a][H >m][hipStreamSynchronize    ]
        stream 7 |      [k1 <a                 ][M <m   ]
        """,
        H="hipMemcpyAsync",
    )

    assert dag.calibration.clock_shift_ns == -1_000
    assert arrows(dag, "sync") == [("Memcpy DtoH (Device -> Host)>", "hipStreamSynchronize>", 0)]


def test_copies_that_need_not_hold_their_call_say_nothing_about_clocks():
    """To pinned memory they run on; to the device, the call returns once they are staged."""
    dag = _compiled(
        """
        cpu 1    |[L >a][copy >p][copy >u  ]
        stream 7 |      [k1 <a       ][P <p  ][U <u  ]
        """,
    )

    assert dag.calibration.clock_shift_ns == 0
    assert dag.calibration.clock_overlap_ns == 0


def test_work_that_ends_long_after_a_wait_was_not_waited_for(arrows):
    """Clocks are not off by 0.2 ms: the edge is kept aside with its skew, and never used."""
    dag = _compiled(
        f"""
        cpu 1    |[L >a][streamsync @7  ]
        stream 7 |      [k1 <a          {" " * 200}]
        """,
    )

    assert dag.calibration.clock_shift_ns == 0
    assert arrows(dag, "sync") == []
    assert dag.rejected.skew_ns.tolist() == [200_000]


@pytest.mark.parametrize(("late_us", "overlap_us"), [(100, 94), (110, 0)])
def test_a_wait_returned_a_tenth_of_a_millisecond_before_its_work_ended_at_most(
    late_us, overlap_us
):
    """The launch allows 6 us; what overlaps beyond is not shifted away."""
    dag = _compiled(
        f"""
        stream 7 |      [k1 <a          {"":{late_us}}]
        cpu 1    |[L >a][streamsync @7  ]
        """,
    )

    assert dag.calibration.clock_overlap_ns == 1_000 * overlap_us


@pytest.mark.parametrize(
    ("n", "is_held", "shift_us", "apart_us"),
    [(2, False, 0, 0), (3, False, -196, 0), (2, True, 0, 0), (3, True, 0, 196)],
)
def test_three_waits_show_that_the_device_clock_is_ahead(n, is_held, shift_us, apart_us):
    """All end 196 us before their work. Work that begins with its launch forbids a shift."""
    every = "abc"[:n]
    cpu = "".join(f"[L >{letter}][streamsync @7 ]{'':240}" for letter in every)
    work = "".join(f"{'':200}[k <{letter}            ]{'':44}" for letter in every)
    held = f"\ncpu 2 |[L >z]\nstream 8 |[z <z {'':{n * 262}}]" if is_held else ""
    dag = _compiled(f"cpu 1 |{cpu}\nstream 7 |{work}{held}")

    assert dag.calibration.clock_shift_ns == 1_000 * shift_us
    assert dag.calibration.clock_steps == ()
    assert dag.calibration.clock_apart_ns == 1_000 * apart_us


@pytest.mark.parametrize(("early_us", "shift_us"), [(1_000, 1_000), (1_100, 0)])
def test_work_begins_a_millisecond_before_its_launch_at_most(early_us, shift_us):
    """No clock is off by more: then the launch is another one."""
    dag = drawn_dag(f"cpu 1    |{'':{early_us}}[launch >a]\nstream 7 |[k1 <a]")

    assert dag.calibration.clock_shift_ns == 1_000 * shift_us


@pytest.mark.parametrize("shift_ns", [-8_000, 8_000])
def test_a_device_clock_that_is_off_changes_only_how_a_round_trip_is_split(shift_ns):
    """Launch and return together take what they took; all else is as with the true clock."""
    events = simulate(training_rank(fault="sync_in_loop")).events
    on_device = events.is_device | (events.kind == EventKind.SYNC)
    moved = replace(events, ts_ns=events.ts_ns + np.where(on_device, shift_ns, 0))

    def bounds(recorded: EventTable) -> pd.Series:
        dag = compile_events(recorded)
        found = critical_path(dag, dag.span).groupby("bound", observed=True)["dur_ns"].sum()
        return found.rename({"launch": "round trip", "sync": "round trip"}).groupby(level=0).sum()

    assert bounds(moved).to_dict() == bounds(events).to_dict()


def test_a_clock_that_drifts_is_followed_where_no_device_works(arrows):
    """The first kernel starts 3 us before its launch, the last wait ends 2 us before its copy."""
    dag = _compiled("""
        cpu 1    |   [L >a]           [H >m                     ]
        stream 7 |[k1 <a    ]              [k2 <b       ][M <m    ]
        cpu 2    |                [L >b]
    """)

    assert dag.calibration.clock_shift_ns == 3_000
    assert dag.calibration.clock_steps == ((23_000, -2_000),)
    assert dag.calibration.clock_overlap_ns == 0
    assert dag.clock_shift_ns[dag.events.is_device].tolist() == [3_000, -2_000, -2_000]
    assert arrows(dag, "sync") == [("Memcpy DtoH (Device -> Host)>", "hipMemcpyWithStream>", 0)]


@pytest.mark.some(1)
@pytest.mark.parametrize("drift", [-0.0004, 0.0004])
def test_a_simulated_clock_that_drifts_loses_no_wait(drift):
    """By the end it is off by 40 us, more than a round trip takes; bounds stay within 1%."""
    events = simulate(training_rank(steps=40, fault="sync_in_loop")).events
    on_device = events.is_device | (events.kind == EventKind.SYNC)
    off_ns = ((events.ts_ns - events.ts_ns.min()) * drift).astype(np.int64)
    true = compile_events(events)
    dag = compile_events(replace(events, ts_ns=events.ts_ns + np.where(on_device, off_ns, 0)))

    assert len(dag.calibration.clock_steps) > 1
    recorded = (dag.events.ts_ns - dag.clock_shift_ns)[events.is_device]
    assert recorded.tolist() == (events.ts_ns + off_ns)[events.is_device].tolist()
    assert dag.calibration.clock_overlap_ns == 0
    assert len(dag.rejected.edges) == 0
    for bound in ("compute", "memory", "host", "untraced_code", "data_loading"):
        shares = [
            float(path.loc[path["bound"] == bound, "dur_ns"].sum() / path["dur_ns"].sum())
            for path in (critical_path(true, true.span), critical_path(dag, dag.span))
        ]
        assert shares[0] == pytest.approx(shares[1], abs=0.01), bound


def test_a_saved_graph_keeps_how_its_clock_was_followed(tmp_path):
    """What was added to device times is needed to find the events of the file again."""
    drawing = """
        cpu 1    |   [launch >a]      [launch >b]
        cpu 1    |                                 [sync @*]
        stream 7 |[k1 <a    ]                [k2 <b             ]
    """
    graph = drawn_graph(drawing)
    saved = TraceGraph.open(graph.save(tmp_path / "graph.npz"))

    assert len(graph.dag.calibration.clock_steps) == 1
    assert saved.dag.calibration == graph.dag.calibration


def test_a_drawing_that_agrees_is_left_alone():
    """Launches and waits hold as drawn: nothing is moved."""
    events = timeline("""
        cpu 1    |[launch >a][sync            ]
        stream 7 |     [k1 <a            ]
    """)

    assert compile_events(events).events.ts_ns.tolist() == events.ts_ns.tolist()


@pytest.mark.parametrize("name", [case(name) for name in TRACES if "sleep_on_rank2" in name])
def test_real_clocks_that_drift_by_more_than_a_round_trip_are_followed(name):
    """Bounds of launches and waits contradict by 8 to 25 us over these 3 s; no edge is lost."""
    dag = load(located(name)).compile().dag

    assert dag.calibration.clock_steps
    assert dag.calibration.clock_overlap_ns == 0
    assert len(dag.rejected.edges) == 0


def _launched(delays_us: list[int]) -> Dag:
    """Launches by calls of 12 us onto an idle device, each followed by its work after a delay."""
    calls = "".join(f"[launch >{i:02d}]".ljust(us + 10) for i, us in enumerate(delays_us))
    work = "".join(f"{'':{us}}[k <{i:02d}]".ljust(us + 10) for i, us in enumerate(delays_us))
    return drawn_dag(f"cpu 1    |{calls}\nstream 7 |{work}")


def _launches(n: int, delay_us: int) -> Dag:
    """All delays alike."""
    return _launched([delay_us] * n)


def _sample(dag: Dag) -> tuple[int, int, str]:
    row = quality(dag, dag.span).set_index("check").loc["launch latency measured on an idle device"]
    return int(row["n_good"]), int(row["n_all"]), str(row["verdict"])


def test_twenty_launches_onto_an_idle_device_measure_the_launch_latency():
    """Each starts 30 us after its call began, which is more than two calls and less than eight."""
    dag = _launches(20, delay_us=30)

    assert dag.calibration.launch_latency_ns == 30_000
    assert _sample(dag) == (20, 20, "good")


def test_of_few_launches_the_floor_is_no_more_than_twice_their_calls():
    """Three delays of 300 us are rather waits that nobody recorded; their calls take 12 us."""
    dag = _launches(3, delay_us=300)

    assert dag.calibration.launch_latency_ns == 24_000
    assert _launches(1, delay_us=300).calibration.launch_latency_ns == 24_000
    # The first one is not known to have found the device idle: it starts long after its call.
    assert _sample(dag) == (2, 20, "weak")


def test_of_few_launches_a_short_delay_still_says_that_less_is_enough():
    """No launch takes longer at least than one that was seen."""
    assert _launches(3, delay_us=14).calibration.launch_latency_ns == 14_000


def test_the_floor_is_never_beyond_eight_calls():
    """Even where all launches onto an idle device are late: most likely they all wait."""
    assert _launches(30, delay_us=300).calibration.launch_latency_ns == 96_000


@pytest.mark.parametrize(("delay_us", "n_idle"), [(0, 1), (40, 1), (60, 0)])
def test_the_first_launch_found_an_idle_device_if_its_work_began_within_four_calls(
    delay_us, n_idle
):
    """Its call takes 12 us; nothing is known to run before, and later something may have run."""
    assert _sample(_launches(1, delay_us))[0] == n_idle


def test_the_launch_latency_is_what_the_fastest_twentieth_takes_at_most():
    """Three launches in a hundred are said to take 8 us: no floor is measured by so few."""
    assert _launched([8] * 3 + [10] * 5 + [14] * 92).calibration.launch_latency_ns == 10_000


def test_overhead_is_up_to_four_floors_of_a_launch_and_two_between_queued_work():
    """Beyond, a dependency that was not recorded may be behind it."""
    calibration = _launches(20, delay_us=30).calibration

    assert calibration.launch_usual_ns == 120_000
    assert calibration.stream_usual_ns == 60_000


def test_the_gap_floor_is_what_a_hundredth_of_the_gaps_between_queued_work_takes_at_most():
    """One of 200 kernels begins at once, two after 1 us, all others after 3 us."""
    kernels = "[k <g]".join(["", "", *[" "] * 2, *["   "] * 197, ""])
    dag = drawn_dag(f"cpu 1 |[graph >g]\nstream 7 |{'':9}[first <g{'':50}]{kernels}")

    assert dag.calibration.stream_floor_ns == 1_000


def test_a_launch_may_take_twice_what_a_fast_quarter_takes():
    """Four launches take 10 us at least, but the fast quarter 30 us: 60 us are no surprise."""
    dag = _launched([10] * 4 + [30] * 5 + [50] * 11)

    assert dag.calibration.launch_latency_ns == 10_000
    assert dag.calibration.launch_usual_ns == 60_000


def test_no_launch_is_usual_beyond_sixteen_floors():
    """Most take 100 us, ten times the floor: whatever makes them late, it is no overhead."""
    assert _launched([10] * 2 + [100] * 18).calibration.launch_usual_ns == 160_000


def test_an_idle_stream_of_a_busy_device_measures_nothing():
    """Work of stream 9 may wait for that of stream 7; calls of 11 us stand in for a measurement."""
    dag = drawn_dag("""
        us       |0         10        20        30        40        50        60        70
        cpu 1    |[launch >a][launch >b]
        stream 7 |[busy                                                             ]
        stream 9 |                                               [k <a]             [k <b]
    """)

    assert dag.calibration.launch_latency_ns == 22_000
    assert _sample(dag) == (0, 20, "missing")


def test_a_trace_without_launches_has_no_launch_latency_to_measure():
    """There is nothing to check, and nothing to say."""
    assert _sample(drawn_dag("cpu 1 |[aten::mm]")) == (0, 0, "good")


def test_damaged_times_of_a_century_are_no_usual_launch():
    """A call of 2^60 ns, and its work 2^61 ns later: their multiples would not fit in 64 bits."""
    events = timeline("""
        us       |0         10        20
        cpu 1    |[launch >a]
        stream 7 |             [k <a] [l]
    """)
    far = replace(events, ts_ns=events.ts_ns * 2**47, dur_ns=events.dur_ns * 2**47)

    assert compile_events(far).calibration.launch_usual_ns == 4 * 2**56


@pytest.mark.parametrize(("ends_us", "kind"), [(12, EdgeKind.LAUNCH), (14, EdgeKind.STREAM)])
def test_of_launch_and_stream_the_later_arrival_binds(ends_us, kind):
    """By the floors of the trace: launches take 14 us, and kernels follow after 1 us."""
    idle = range(20)
    cpu = "".join(f"[launch >{at:02d}]{'':20}" for at in idle) + "[launch >aa][launch >bb]"
    work = "".join(f"{'':14}[k <{at:02d}]{'':11}" for at in idle)
    work += f"{'':14}[k <aa{'':39}] [k <bb"  # queued: it follows after 1 us
    begins = 20 * 32 + 100  # of the last call
    cpu = f"{cpu:{begins}}[launch >cc]"
    work = f"{work:{begins + ends_us - 1}}] "
    work = f"{work:{begins + 16}}[k <cc]"
    dag = drawn_dag(f"cpu 1    |{cpu}\nstream 7 |{work}")
    head = 2 * int(dag.events.ts_ns.argmax())

    assert dag.calibration.launch_latency_ns == 14_000
    assert dag.calibration.stream_floor_ns == 1_000
    assert dag.edges.kind[dag.binding[head]] == kind
