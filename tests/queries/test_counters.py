"""Counters over time."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.model.window import Window
from htagraph.queries.counters import counters
from htagraph.synth import timeline

_DAG = compile_events(
    timeline("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a][launch >b][launch >c]
        stream 7 |          [a <a               ][b <b][c <c]
    """)
)


def _points(frame) -> list[list]:
    return [
        [ts // 1000, dur // 1000, value]
        for ts, dur, value in frame[["ts_ns", "dur_ns", "value"]].to_numpy()
    ]


def test_the_queue_holds_what_is_launched_and_has_not_started():
    """A waits from 0 to 10; b from 11; c from 22; b starts at 31 and c at 37."""
    assert _points(counters(_DAG, _DAG.span)) == [
        [0, 10, 1],
        [10, 1, 0],
        [11, 11, 1],
        [22, 9, 2],
        [31, 6, 1],
        [37, 6, 0],
    ]


def test_a_window_begins_with_the_level_that_holds():
    """From 25 on: two are waiting."""
    assert _points(counters(_DAG, Window(25_000, 33_000, "part"))) == [[25, 6, 2], [31, 2, 1]]


def test_a_track_is_summed_up_over_time():
    """Of 43 us, nothing waits for 7 us, one launch for 27, two for 9."""
    found = counters(_DAG, _DAG.span, by="track")

    columns = ["stream", "dur_ns", "n_levels", "min", "p50", "p90", "max"]
    assert found[columns].to_numpy().tolist() == [[7, 43_000, 6, 0, 1, 2, 2]]
    assert found["value"].tolist() == [(27 + 2 * 9) / 43]


def test_bandwidth_is_that_of_the_copies_that_run_at_once():
    """Two copies of 2 and 3 GB/s overlap for 5 us; nothing is left over when both have ended."""
    dag = compile_events(
        timeline(
            """
            us       |0         10        20
            stream 7 |[Memcpy HtoD A]
            stream 9 |          [Memcpy HtoD B]
            """,
            names={
                "Memcpy HtoD A": "Memcpy HtoD (Pinned -> Device)",
                "Memcpy HtoD B": "Memcpy HtoD (Pageable -> Device)",
            },
            columns={"memory_bandwidth": {"Memcpy HtoD A": 0.2, "Memcpy HtoD B": 0.1}},
        )
    )
    frame = counters(dag, dag.span, name="memory_bandwidth")

    assert frame["name"].unique().tolist() == ["Memcpy HtoD"]
    assert frame["value"].tolist() == [0.2, 0.3, 0.1]


def test_bandwidth_follows_from_bytes_where_it_was_not_recorded():
    """16,000 bytes in 8 us are 2 GB/s."""
    dag = compile_events(timeline("stream 7 |[Memset][k]", columns={"bytes": {"Memset": 16_000}}))

    assert counters(dag, dag.span, name="memory_bandwidth")["value"].tolist() == [2.0, 0.0]
