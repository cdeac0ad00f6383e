"""Bandwidth of collectives: sizes, transfers, and what bounds them."""

from __future__ import annotations

import warnings

import pandas as pd
import pytest

import htagraph as hg
from htagraph.job.bandwidths import measure_bandwidths
from tests.real_traces import case, located


def members(*rows):
    """Matched collectives of 4 ranks, and the table of each: size, transfer and wait in us."""
    matched, tables = [], {rank: [] for rank in range(4)}
    for number, (n_bytes, transfer_us, wait_us) in enumerate(rows):
        start = 1_000_000 * number
        for rank in range(4):
            dur_ns = 1_000 * (transfer_us + (wait_us if rank else 0))
            matched.append(
                (number, rank, number, "all_reduce", "[0, 1, 2, 3]", start, start + dur_ns)
            )
            tables[rank].append((number, n_bytes))
    columns = ["match", "rank", "collective", "operation", "group", "start_ns", "end_ns"]
    return pd.DataFrame(matched, columns=columns), {
        rank: pd.DataFrame(table, columns=["collective", "n_bytes"])
        for rank, table in tables.items()
    }


def test_busbw_of_an_all_reduce():
    """4 ranks: each link carries 2 * 3/4 of the size."""
    found = measure_bandwidths(*members((1_000_000, 100, 0))).iloc[0]

    assert (found["algbw_gb_per_s"], found["busbw_gb_per_s"]) == (10.0, 15.0)


def test_waiting_is_no_transfer():
    """The rank that comes last shows how long the transfer takes."""
    found = measure_bandwidths(*members((1_000_000, 100, 400))).iloc[0]

    assert (found["transfer_ns"], found["wait_ns"]) == (100_000, 300_000)
    assert (found["algbw_gb_per_s"], found["limit"]) == (10.0, "late rank")


def test_small_ones_are_bound_by_latency_and_large_ones_by_bandwidth():
    """20 us and 100 GB/s."""
    rows = [(n_bytes, 20 + n_bytes // 100_000, 0) for n_bytes in (1_000, 100_000, 10_000_000)]
    found = measure_bandwidths(*members(*rows)).set_index("n_bytes").sort_index()

    assert found["limit"].tolist() == ["latency", "latency", "bandwidth"]
    assert found["latency_ns"].iloc[0] == pytest.approx(20_000, rel=0.05)
    assert found["fitted_gb_per_s"].iloc[0] == pytest.approx(100, rel=0.05)


def test_a_size_that_is_slower_than_its_own_network_is_congested():
    sizes = (1_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
    rows = [(n, (20 + n // 100_000) * (2 if n == 1_000_000 else 1), 0) for n in sizes]
    found = measure_bandwidths(*members(*rows)).set_index("n_bytes")

    assert found.loc[1_000_000, "limit"] == "congestion"


def test_two_sizes_are_no_fit():
    found = measure_bandwidths(*members((1_000, 20, 0), (10_000_000, 120, 0)))

    assert found["latency_ns"].isna().all()
    assert found["limit"].tolist() == ["unknown", "unknown"]


@pytest.mark.parametrize(
    ("name", "busbw"),
    [
        case("dlrm", {24_576: 2.150, 192: 0.021, 1_536: 0.192, 13_568: 1.696}),
        case("megatron-tp2", {24_576: 1.0995}),
    ],
)
def test_expected_bandwidths(name, busbw):
    """Computed apart from the package, from the raw JSON."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = hg.load_job(located(name)).bandwidths()
    measured = found[found["n_bytes"].isin(list(busbw))].set_index("n_bytes")["busbw_gb_per_s"]

    assert measured.to_dict() == pytest.approx(busbw, rel=0.03)
