"""A slow-down of five percent is found in three steps, and nothing is where nothing changed."""

from __future__ import annotations

import pytest

from htagraph.comparison.run_diff import RunDiff
from tests.comparison.profiles import run

GEMM = "ampere_sgemm_128x64_nn"
KERNEL, HOST = {"kernel": GEMM, "by": 1.07}, {"under": "ProfilerStep", "by": 1.08}
LOADER = {"under": "enumerate(DataLoader)", "by": 1.06}


@pytest.mark.parametrize(
    ("options", "slow", "said"),
    [
        ({}, KERNEL, f" in {GEMM} (each "),
        ({"fault": "small_kernels"}, HOST, "CPU operators +176 us, +143 us of it in aten::add_"),
        ({"fault": "dataloader", "loader_ns": 7_000_000}, LOADER, " in DataLoader.__next__ "),
    ],
    ids=["kernels of one name", "host", "data loader"],
)
def test_five_percent_are_found_in_three_steps(options, slow, said):
    """With the cause; the same program with other random lengths is no change."""
    before, again, after = run(1, **options), run(11, **options), run(21, **options, **slow)

    assert before.n_compared == after.n_compared == 3
    assert not RunDiff(before, again).is_change
    found = RunDiff(before, after)
    assert found.is_change
    assert 0.04 < found.delta_share < 0.07
    assert said in found.notes[0]


def test_what_the_device_still_does_counts_although_the_host_is_done():
    """Nothing waits for the device: host ranges are the same, the steps are not."""
    before, after = run(1), run(2, fault="exposed_allreduce")

    assert before.typical_step_ns == pytest.approx(4.4e6, rel=0.05)
    assert " in all_reduce (each " in RunDiff(before, after).notes[0]
