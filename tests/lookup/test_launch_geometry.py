"""How many blocks of a kernel fit on a multiprocessor."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.lookup.launch_geometry import launch_geometry
from htagraph.model.devices import DeviceProperties
from htagraph.synth import timeline


@pytest.mark.parametrize(("threads", "resident"), [(128, 16), (65, 21)])
def test_a_multiprocessor_that_no_file_describes_holds_2048_threads(
    threads: int, resident: int
) -> None:
    """In warps of 32: a block of 65 threads takes the room of 96."""
    columns = {"grid_x": {"k": 100}, "block_x": {"k": threads}, "registers": {"k": 16}}
    dag = compile_events(timeline("stream 7 |[k    ]", columns=columns))
    found = launch_geometry(dag, np.array([0]), DeviceProperties(0, n_sms=4))

    assert (found.resident.tolist(), found.warps.tolist()) == ([resident], [0])
    assert found.n_full_waves(4).tolist() == [99 // (4 * resident)]
