"""Kernels on a device that no file describes."""

from __future__ import annotations

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.lookup.launch_geometry import geometry_devices, launch_geometry
from htagraph.synth import timeline


@pytest.mark.parametrize(("threads", "fit"), [(1_024, 2), (256, 8), (65, 21)])
def test_an_undescribed_multiprocessor_holds_2048_threads_in_warps_of_32(threads, fit):
    """65 threads are 3 of 64 warps."""
    columns = {"grid_x": {"k": 8}, "block_x": {"k": threads}, "blocks_per_sm": {"k": 2}}
    dag = compile_events(timeline("stream 7 |[k     ]", columns=columns))
    device = geometry_devices(dag)[0]

    assert device.n_sms == 4
    assert launch_geometry(dag, np.zeros(1, np.int64), device).resident.tolist() == [fit]
