"""Late starts: device work that begins later than all that is known explains."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph.compiler import late_starts as module
from htagraph.compiler.late_starts import ended_before, late_starts, most_used_streams, running_at
from htagraph.compiler.launches import launch_edges, stream_edges
from htagraph.compiler.structure import Structure, examine
from htagraph.model.edges import EdgeTable
from htagraph.synth import timeline


def late(drawing: str) -> dict[str, tuple[int, int]]:
    """Since when late work was ready, and how long it waited, in us."""
    structure = examine(timeline(drawing))
    known = EdgeTable.concat([launch_edges(structure), stream_edges(structure)])
    found = late_starts(structure, known)
    names = structure.events.names(found.event).tolist()
    times = zip((found.ready_ns // 1_000).tolist(), (found.wait_ns // 1_000).tolist(), strict=True)
    return dict(zip(names, times, strict=True))


@pytest.mark.parametrize(("gap_us", "found"), [(21, {"k2": (57, 21)}), (20, {})])
def test_queued_work_is_late_beyond_two_launch_latencies_after_the_work_before_it(gap_us, found):
    """The launch latency is 10 us; k1 begins at once."""
    assert (
        late(f"""
        cpu 1    |[launch >a][launch >b][launch >c]
        stream 7 |{"":10}[k0 <a{"":33}][k1 <b]{"":{gap_us}}[k2 <c]
    """)
        == found
    )


@pytest.mark.parametrize(("delay_us", "found"), [(51, {"k2": (61, 41)}), (50, {})])
def test_work_is_late_beyond_four_launch_latencies_after_a_launch_takes(delay_us, found):
    """The launch latency is 10 us, and k2 is launched at 51 us."""
    assert (
        late(f"""
        cpu 1    |[launch >a]{"":40}[launch >b]
        stream 7 |{"":10}[k1 <a]{"":{34 + delay_us}}[k2 <b]
    """)
        == found
    )


@pytest.fixture
def stream() -> Structure:
    """Three kernels, of which two overlap."""
    return examine(
        timeline("""
            us       |0         10        20
            stream 7 |  [k0  ]     [k1   ]
            stream 7 |                 [k2   ]
        """)
    )


def test_the_last_work_that_has_ended_may_end_at_that_time(stream):
    """-1 for none, long before."""
    until = 1_000 * np.array([7, 8, 19, 20, 30])

    work, end_ns = ended_before(stream, 0, until)

    assert work.tolist() == [-1, 0, 0, 1, 2]
    assert (end_ns[1:] == stream.events.end_ns[work[1:]]).all()
    assert end_ns[0] < -until.max()


def test_work_that_runs_ends_at_that_time_or_later(stream):
    """Or it begins next; -1 after all, which ends last."""
    at = 1_000 * np.array([0, 8, 9, 18, 21, 24, 25])

    work, end_ns = running_at(stream, 0, at)

    assert work.tolist() == [0, 0, 1, 1, 2, 2, -1]
    assert (end_ns[:-1] == stream.events.end_ns[work[:-1]]).all()
    assert end_ns[-1] == np.iinfo(np.int64).max


def test_of_very_many_streams_those_with_most_work_are_searched(monkeypatch):
    """Streams 8 and 9 ran more than stream 7."""
    structure = examine(timeline("stream 7 |[a]\nstream 8 |[a][a]\nstream 9 |[a][a][a]"))
    monkeypatch.setattr(module, "_MOST_STREAMS", 2)

    assert most_used_streams(structure).tolist() == [1, 2]
