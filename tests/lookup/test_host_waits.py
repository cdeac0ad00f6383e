"""Which synchronizations waited, though nothing says for what."""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.lookup.host_waits import long_waits
from htagraph.synth import timeline


@pytest.mark.parametrize(("took_us", "waited"), [(40, False), (41, True)])
def test_a_wait_takes_more_than_twice_as_long_as_a_launch(took_us: int, waited: bool) -> None:
    """Launches take up to 20 us in this trace; the kernel has ended long before."""
    dag = compile_events(
        timeline(f"""
        cpu 1    |[launch >a][op      ]{"[sync".ljust(took_us - 1)}][op ]
        stream 7 |     [k1 <a ]
        """)
    )
    assert dag.calibration.launch_usual_ns == 20_000
    assert dag.events.names(long_waits(dag).nonzero()[0]).tolist() == (
        ["cudaDeviceSynchronize"] if waited else []
    )
