"""How long a launch takes at least, as measured on a drawn trace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.model.dag import Dag
from htagraph.model.kinds import EdgeKind
from htagraph.queries.quality import quality
from htagraph.synth import timeline


def _launched(delays_us: list[int]) -> Dag:
    """Launches by calls of 12 us onto an idle device, each followed by its work after a delay."""
    calls = "".join(f"[launch >{i:02d}]".ljust(us + 10) for i, us in enumerate(delays_us))
    work = "".join(f"{'':{us}}[k <{i:02d}]".ljust(us + 10) for i, us in enumerate(delays_us))
    return compile_events(timeline(f"cpu 1    |{calls}\nstream 7 |{work}"))


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
    dag = compile_events(timeline(f"cpu 1 |[graph >g]\nstream 7 |{'':9}[first <g{'':50}]{kernels}"))

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
    dag = compile_events(
        timeline("""
            us       |0         10        20        30        40        50        60        70
            cpu 1    |[launch >a][launch >b]
            stream 7 |[busy                                                             ]
            stream 9 |                                               [k <a]             [k <b]
        """)
    )

    assert dag.calibration.launch_latency_ns == 22_000
    assert _sample(dag) == (0, 20, "missing")


def test_a_trace_without_launches_has_no_launch_latency_to_measure():
    """There is nothing to check, and nothing to say."""
    assert _sample(compile_events(timeline("cpu 1 |[aten::mm]"))) == (0, 0, "good")


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
    dag = compile_events(timeline(f"cpu 1    |{cpu}\nstream 7 |{work}"))
    head = 2 * int(dag.events.ts_ns.argmax())

    assert dag.calibration.launch_latency_ns == 14_000
    assert dag.calibration.stream_floor_ns == 1_000
    assert dag.edges.kind[dag.binding[head]] == kind
