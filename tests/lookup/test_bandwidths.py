"""What devices could do, and what was sampled of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.lookup.samples import bandwidths, sampled_use
from htagraph.lookup.sm_activity import geometry_devices, launch_geometry
from htagraph.model.dag import Dag
from htagraph.model.samples import SampleTable, Series
from htagraph.queries.quality import quality
from htagraph.synth import timeline
from tests.drawn import drawn_dag

_COPIES = """
    us       |0         10        20        30        40        50
    stream 7 |[Memcpy A    ] [Memcpy B]  [Memcpy C            ][k  ]
"""


def _rates(recorded: dict[str, float], *, cut: bool = True) -> Dag:
    """Compiled copies of 140, 100 and 220 kB that take 14, 10 and 22 us: 10 GB/s each."""
    events = timeline(
        _COPIES,
        columns={
            "bytes": {"Memcpy A": 140_000, "Memcpy B": 100_000, "Memcpy C": 220_000},
            "memory_bandwidth": recorded,
        },
    )
    # A kernel of 5 us and 1 ns says that durations are in nanoseconds.
    longer = (events.names() == "k") & (not cut)
    return compile_events(replace(events, dur_ns=events.dur_ns + longer))


def _copy_rates(dag: Dag) -> list[float]:
    return bandwidths(dag).rate.tolist()


def _fit(dag: Dag) -> tuple[int, int, str]:
    row = quality(dag, dag.span).set_index("check")
    row = row.loc["recorded bandwidths of copies fit bytes and durations"]
    return int(row["n_good"]), int(row["n_all"]), str(row["consequence"])


def test_a_recorded_bandwidth_off_by_one_factor_gives_way_to_bytes_and_durations():
    """Some producers write 0.4348 of it for every copy, and quality() says so."""
    dag = _rates({"Memcpy A": 4.348, "Memcpy B": 4.348, "Memcpy C": 4.348})

    assert _copy_rates(dag) == [10, 10, 10]
    assert _fit(dag) == (
        0,
        3,
        "The median recorded value is 0.435 of bytes by duration; bandwidth is bytes by duration.",
    )


def test_a_factor_that_a_cut_could_explain_is_none_if_all_copies_share_it():
    """Durations of 14, 10 and 22 us cut by up to 1 us do not all give 0.96."""
    dag = _rates({"Memcpy A": 9.6, "Memcpy B": 9.6, "Memcpy C": 9.6})

    assert _copy_rates(dag) == [10, 10, 10]


def test_two_durations_do_not_tell_a_factor_from_a_cut():
    """Both may have been cut by as much; the third copy has bytes only."""
    assert _copy_rates(_rates({"Memcpy A": 9.6, "Memcpy B": 9.6})) == [9.6, 9.6, 10]


def test_a_recorded_bandwidth_is_kept_where_durations_were_cut_to_microseconds():
    """14.5, 10.2 and 22.9 us became 14, 10 and 22: the recorded values know more."""
    dag = _rates({"Memcpy A": 9.655, "Memcpy B": 9.804, "Memcpy C": 9.607})

    assert _copy_rates(dag) == [9.655, 9.804, 9.607]
    assert _fit(dag) == (3, 3, "Taken as recorded, for durations are whole microseconds.")


def test_bytes_and_durations_give_the_bandwidth_where_durations_are_in_nanoseconds():
    """Nothing was cut there, so the recorded values cannot know more."""
    recorded = {"Memcpy A": 9.655, "Memcpy B": 9.804, "Memcpy C": 9.607}

    assert _copy_rates(_rates(recorded, cut=False)) == [10, 10, 10]


@pytest.mark.parametrize(
    ("recorded", "cut", "n_fit"),
    [
        ((10.09, 10.11, 10.0), False, 2),
        ((9.92, 9.92, 9.92), True, 3),
        ((9.88, 9.88, 9.88), True, 0),
    ],
)
def test_recorded_bandwidths_are_rounded_by_up_to_a_hundredth(recorded, cut, n_fit):
    """One factor of all copies is systematic only beyond that."""
    names = ("Memcpy A", "Memcpy B", "Memcpy C")
    found = bandwidths(_rates(dict(zip(names, recorded, strict=True)), cut=cut))

    assert (found.n_fit, found.n_compared) == (n_fit, 3)


@pytest.mark.parametrize(("threads", "fit"), [(1_024, 2), (256, 8), (65, 21)])
def test_an_undescribed_multiprocessor_holds_2048_threads_in_warps_of_32(threads, fit):
    """65 threads are 3 of 64 warps."""
    columns = {"grid_x": {"k": 8}, "block_x": {"k": threads}, "blocks_per_sm": {"k": 2}}
    dag = drawn_dag("stream 7 |[k     ]", columns=columns)
    device = geometry_devices(dag)[0]

    assert device.n_sms == 4
    assert launch_geometry(dag, np.zeros(1, np.int64), device).resident.tolist() == [fit]


@pytest.mark.parametrize(
    ("name", "unit", "most", "share"),
    [
        ("SMACT", "ratio", 1.4, 1.4),
        ("SMACT", "ratio", 1.6, 0.016),
        ("SMs Active [Throughput %]", "", 1.4, 0.014),
        ("SMs Active", "%", 1.4, 0.014),
    ],
)
def test_a_series_is_in_percent_if_it_says_so_or_exceeds_what_a_ratio_can(name, unit, most, share):
    """A ratio exceeds 1 by rounding only."""
    table = SampleTable.of([(Series(name, unit, 0), [5, 15], [most, most])])
    use = sampled_use(table, 0, np.array([0]), np.array([0]), np.array([20]))

    assert use["sm_activity"].tolist() == pytest.approx([share])
