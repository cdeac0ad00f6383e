"""A clock that drifts moves all parts alike; a change of the code moves some of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import htagraph as hg
from htagraph.arrays.welch import Sample
from htagraph.comparison.causes import (
    Alike,
    all_alike,
    has_same_calls,
    in_every_step,
    is_same_size,
)
from htagraph.comparison.run_diff import RunDiff
from htagraph.comparison.run_profile import RunProfile
from tests.comparison.profiles import run, simulated

SHARES = {"gemm": 50.0, "softmax": 20.0, "norm": 15.0, "relu": 10.0, "add": 5.0}
"""Of 100 ms."""


def rows(factors: dict[str, float], shares: dict[str, float] = SHARES, noise: float = 0.01):
    """Groups of a run, in ms, and by which factor each takes longer; those left out stay."""
    before = pd.Series(shares, dtype=float) * 1_000_000
    return pd.DataFrame(
        {
            "name": before.index,
            "before_ns": before.to_numpy(),
            "after_ns": [before[name] * factors.get(name, 1.0) for name in before.index],
            "noise_ns": noise * before.to_numpy(),
        }
    )


def parts(*lengths_ms: list[int]) -> Sample:
    """What parts of steps took, a list for each."""
    known = np.array(lengths_ms, dtype=float)
    ends = known[:, 0], known[:, -1], known.min(axis=1), known.max(axis=1)
    return Sample(known.shape[1], known.mean(axis=1), known.std(axis=1, ddof=1), *ends)


def scaled(seed: int, by: float, **options: object) -> RunProfile:
    """A simulated run on a machine whose clocks, of host and device, have another rate."""
    events = simulated(seed, steps=5, **options).events
    start_ns, end_ns = ((ns * by).astype("int64") for ns in (events.ts_ns, events.end_ns))
    return hg.run_profile(
        hg.Trace.from_events(replace(events, ts_ns=start_ns, dur_ns=end_ns - start_ns))
    )


def test_all_parts_move_by_one_factor():
    """Each by 4 to 10%, and most by 7%."""
    moved = {"gemm": 1.07, "softmax": 1.06, "norm": 1.08, "relu": 1.1, "add": 1.04}
    found = all_alike(rows(moved))

    assert found is not None
    assert found.in_words == "all 5 names with 100% of the time are 7.0% slower"


@pytest.mark.parametrize(("stays", "is_alike"), [(9, True), (12, False)])
def test_one_part_that_stays_is_a_reason_to_say_nothing(stays: int, is_alike: bool):
    """From a tenth of the time on."""
    shares = {"gemm": 60 - stays, "norm": 10, "relu": 10, "copy": stays}
    many = shares | {f"op{n}": 2 for n in range(10)}
    moved = dict.fromkeys(set(many) - {"copy"}, 1.07)

    assert (all_alike(rows(moved, many)) is not None) is is_alike


@pytest.mark.parametrize(
    ("least_ms", "factor", "lasts"),
    [(8, 1.0, True), (6, 1.0, False), (8, 2.0, False), (10, 2.0, True), (8, 0.5, True)],
)
def test_a_part_is_longer_in_every_step(least_ms: int, factor: float, lasts: bool):
    """By more than 5% of a step of 100 ms: one that took 2 ms, or 4 if load explains twice that."""
    fast = parts([1, 2, 0], [99, 98, 100])
    slow = parts([least_ms, 30, 40], [80, 90, 120])

    assert in_every_step(fast, slow, np.array([factor])).tolist() == [lasts, False]


def test_two_steps_do_not_tell_what_lasts():
    """Chance has one part longer in both."""
    few = in_every_step(parts([1, 2], [99, 98]), parts([50, 60], [99, 98]), np.ones(1))

    assert few.tolist() == [False, False]


def test_two_factors_are_no_clock():
    """Half of the time moves by 14%, the other half not at all."""
    assert all_alike(rows({"gemm": 1.14})) is None
    assert all_alike(rows({"gemm": 1.14, "softmax": 1.02, "norm": 1.02, "relu": 1.02})) is None


@pytest.mark.parametrize(("names", "is_alike"), [(2, False), (3, True)])
def test_two_kernels_are_too_few(names: int, is_alike: bool):
    """They may be one change."""
    shares = {f"kernel{n}": 30 for n in range(names)}

    assert (all_alike(rows(dict.fromkeys(shares, 1.07), shares)) is not None) is is_alike


@pytest.mark.parametrize(("relu", "is_alike"), [(0.9, False), (1.1, True)])
def test_a_name_counts_from_a_hundredth_of_the_time_on(relu: float, is_alike: bool):
    """Of two names with the rest."""
    shares = {"gemm": 60.0, "norm": 40.0 - relu, "relu": relu}

    assert (all_alike(rows(dict.fromkeys(shares, 1.07), shares)) is not None) is is_alike


@pytest.mark.parametrize(("calls", "is_same"), [(1_009, True), (1_011, False)])
def test_calls_may_differ_by_a_hundredth(calls: int, is_same: bool):
    """More calls are other work, whatever a clock does."""
    work = pd.DataFrame({"calls_before": [500.0, 500.0], "calls_after": [500.0, calls - 500.0]})

    assert has_same_calls(work) is is_same


def test_one_kernel_with_nearly_all_of_the_time_is_not_all():
    """The others that moved with it have too little to tell."""
    shares = {"gemm": 94, "relu": 3, "add": 3}

    assert all_alike(rows(dict.fromkeys(shares, 1.07), shares)) is None


def test_what_noise_hides_tells_as_a_sum_only():
    """Each of the rest varies by 20%; together they moved, or did not."""
    shares = {"gemm": 30, "softmax": 20, "norm": 20}
    told = rows(dict.fromkeys(shares, 1.07), shares)
    rest = {f"op{n}": 3 for n in range(10)}
    moved = rows(dict.fromkeys(rest, 1.07), rest, noise=0.2)
    stayed = rows({}, rest, noise=0.2)

    assert all_alike(pd.concat([told, moved])) == Alike(1.07, 3, 0.7)
    assert all_alike(pd.concat([told, stayed])) is None
    assert all_alike(rows(dict.fromkeys(rest, 1.07), rest, noise=0.2)) is None


@pytest.mark.parametrize(("overhead", "is_same"), [(1.07, True), (1.0, False)])
def test_larger_inputs_leave_the_overhead(overhead: float, is_same: bool):
    """A clock makes the calls of operators slower too; a larger batch does not."""
    path = pd.DataFrame(
        {
            "bound": ["host", "untraced_code"],
            "name": ["aten::mm", "after aten::mm"],
            "calls_before": [10.0, 10.0],
            "before_ns": [10_000_000, 150_000],
            "after_ns": [10_700_000, 150_000 * overhead],
        }
    )
    none = path.iloc[:0]

    assert is_same_size(Alike(1.07, 5, 1.0), path, none, none) is is_same


@pytest.mark.parametrize(("after", "is_same"), [("aten::mm [64, 64]", True), ("", False)])
def test_shapes_tell_the_size_if_they_were_recorded(after: str, is_same: bool):
    """A batch of another size has other shapes."""
    shapes = pd.DataFrame(
        {
            "name": ["aten::mm [64, 64]", "aten::mm [68, 64]"],
            "before_ns": [100.0, 0.0],
            "after_ns": [107.0, 0.0] if after else [0.0, 107.0],
        }
    )
    none = pd.DataFrame({"bound": [], "name": [], "calls_before": [], "before_ns": []})

    assert is_same_size(Alike(1.07, 5, 1.0), none, shapes, none) is is_same


@pytest.mark.some(1)
@pytest.mark.parametrize("by", [0.9, 1.07])
def test_a_host_whose_clock_drifts_is_no_change_of_the_code(by: float):
    """A run that is bound by its host, against the same at another rate."""
    found = RunDiff(run(1, steps=5, fault="small_kernels"), scaled(2, by, fault="small_kernels"))

    how = "slower" if by > 1 else "faster"
    assert found.verdict().endswith("; all parts by the same factor.")
    assert found.notes[0].startswith("All 12 names with ")
    assert f"{abs(by - 1):.1%} {how}: the machine's clock or load, not the code" in found.notes[0]


def test_a_device_whose_clock_drifts_is_no_change_of_the_code():
    """All kernels take longer, the host does not."""
    found = RunDiff(run(1, steps=5), scaled(2, 1.07))

    assert (
        ": all 3 names with 100% of the time are 7.4% slower: the device's clock or load, not the "
        "code (inferred)"
    ) in found.notes[0]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "slow",
    [
        {"kernel": "ampere_sgemm_128x64_nn", "by": 1.1},
        {"under": "ProfilerStep", "by": 1.2},
        {"under": "enumerate(DataLoader)", "by": 1.2},
    ],
)
@pytest.mark.parametrize("fault", ["none", "small_kernels", "dataloader"])
def test_a_planted_change_is_no_clock(slow: dict[str, object], fault: str):
    """Whatever it does to the steps."""
    found = RunDiff(run(1, steps=5, fault=fault), run(2, steps=5, fault=fault, **slow))

    assert "clock" not in found.notes[0]
