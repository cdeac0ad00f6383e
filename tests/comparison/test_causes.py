"""Which causes a comparison names, and from which share on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from htagraph.comparison.causes import Causes, Tables, calls_in_words, causes_of

MS = 1_000_000


def frame(changes: dict[tuple[str, str], int]) -> pd.DataFrame:
    """Groups that grew by so many ns, from 100 ms in 10 calls; by bound and name."""
    rows = [(bound, name, delta_ns) for (bound, name), delta_ns in changes.items()]
    found = pd.DataFrame(rows, columns=["bound", "name", "delta_ns"])
    return found.assign(
        change=np.where(found["delta_ns"] == 0, "noise", "grown"),
        calls_before=10.0,
        calls_after=10.0,
        before_ns=100 * MS,
        after_ns=100 * MS + found["delta_ns"],
        noise_ns=float(MS),
        name=found["name"].astype(object),
    )


def causes(bounds: dict[str, int], names: dict[tuple[str, str], int] | None = None) -> Causes:
    """The causes of a difference by bound, with kernels."""
    by_bound = frame({(bound, bound): delta_ns for bound, delta_ns in bounds.items()})
    by_name = frame(names or {})
    return causes_of(Tables(by_bound, frame({}), by_name, by_name, *[frame({})] * 3))


@pytest.mark.parametrize(("host_ms", "is_named"), [(9, False), (12, True)])
def test_bounds_are_named_from_a_tenth_on(host_ms: int, is_named: bool) -> None:
    """Of the whole difference, 100 ms."""
    found = causes({"compute": (100 - host_ms) * MS, "host": host_ms * MS})

    assert ("CPU operators" in found.where) is is_named


def test_three_bounds_are_named() -> None:
    """The largest."""
    bounds = dict.fromkeys(("compute", "communication", "memory", "host"), 25 * MS)

    assert causes(bounds) == (
        "25.0 ms more in GPU compute",
        "Where: GPU compute +25.0 ms; communication +25.0 ms; GPU copies +25.0 ms.",
    )


def test_one_bound_without_a_place_is_told_once() -> None:
    """In the headline."""
    assert causes({"host": -25 * MS}) == ("25.0 ms less in CPU operators", "")


@pytest.mark.parametrize(("gemm_ms", "is_named"), [(39, False), (41, True)])
def test_a_kernel_is_named_from_two_fifths_on(gemm_ms: int, is_named: bool) -> None:
    """Of the change of its bound."""
    found = causes({"compute": 100 * MS}, {("compute", "gemm"): gemm_ms * MS})

    assert ("of it in gemm (each 41% slower)" in found.where) is is_named


@pytest.mark.parametrize(
    ("gemm_ms", "said"),
    [
        (43, "GPU compute +100 ms, +43.0 ms of it in gemm (each 43% slower)"),
        (89, "GPU compute +100 ms, +89.0 ms of it in gemm (each 89% slower)"),
        (91, "GPU compute +91.0 ms in gemm (each 91% slower)"),
        (120, "GPU compute +100 ms in gemm (each 2.2x as long)"),  # others got faster
    ],
)
def test_a_kernel_gets_no_more_than_it_has(gemm_ms: int, said: str) -> None:
    """From nine tenths on, it is the cause; before, one of several."""
    found = causes({"compute": 100 * MS}, {("compute", "gemm"): gemm_ms * MS})

    assert found == ("100 ms more in GPU compute", f"Where: {said}.")


@pytest.mark.parametrize(
    ("calls", "took_ns", "said"),
    [
        (12.0, 1_245, "20% more calls"),  # each 4%: a sixth of the change
        (12.0, 1_300, "20% more calls, each 8% slower"),
        (10.3, 1_236, "each 20% slower"),  # 3% more calls: an eighth
        (10.8, 1_296, "8% more calls, each 20% slower"),
        (10.04, 1_014, "each 1% slower"),  # 0.4% more calls print as none
    ],
)
def test_calls_and_their_times_are_named_from_a_fifth_on(
    calls: float, took_ns: int, said: str
) -> None:
    """Of what both change, from 10 calls in 1 us; half a percent is none."""
    row: dict[Any, Any] = {"calls_before": 10.0, "before_ns": 1_000}

    assert calls_in_words(row | {"calls_after": calls, "after_ns": took_ns}) == said
