"""Which synchronizations waited, and which returned at once."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.lookup.queues import long_waits
from htagraph.synth import timeline


def test_a_synchronization_of_more_than_two_launches_is_a_wait():
    """Launches usually take up to 4 us: 8 us may be a call that returned at once."""
    dag = compile_events(
        timeline("""
            cpu 1    |[launch >a][sync  ][launch >b][sync   ]
            stream 7 | [a <a ]            [b <b ]
        """)
    )

    assert dag.calibration.launch_usual_ns == 4_000
    assert dag.events.names()[long_waits(dag)].tolist() == ["cudaDeviceSynchronize"]
    assert dag.events.dur_ns[long_waits(dag)].tolist() == [9_000]
