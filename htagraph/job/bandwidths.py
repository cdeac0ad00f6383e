"""Bandwidth of collectives: size, time of the transfer, and what limits it (Hockney 1994)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.lookup.collectives import bus_factors
from htagraph.model.arrays import F64, I64
from htagraph.model.job_answers import BANDWIDTHS
from htagraph.model.schema import categorical
from htagraph.model.units import human_size

_FEWEST_SIZES = 3
"""Distinct sizes that a line needs: two always fit."""
_LEAST_RANGE = 4
"""Largest by smallest size from which a slope can be told from noise. Chosen."""


class TransferFit(NamedTuple):
    """Latency and bandwidth, and how far times are from them."""

    alpha_ns: float  # Time of a transfer of nothing
    ns_per_byte: float
    error: float  # Median of the deviations, as a share of the fitted time

    def time_ns(self, n_bytes: npt.ArrayLike) -> F64:
        """Fitted time of transfers."""
        return self.alpha_ns + self.ns_per_byte * np.asarray(n_bytes, dtype=np.float64)


def fit_transfers(n_bytes: I64, time_ns: I64) -> TransferFit | None:
    """The line through the shortest times of each size; None if sizes are too few or too similar.

    Relative errors count: a large transfer must not outweigh the latency of small ones.
    """
    sizes, code = np.unique(n_bytes, return_inverse=True)
    if len(sizes) < _FEWEST_SIZES or sizes[-1] < _LEAST_RANGE * max(int(sizes[0]), 1):
        return None
    least = np.full(len(sizes), np.iinfo(np.int64).max)
    np.minimum.at(least, code.reshape(-1), time_ns)
    weight = 1 / np.maximum(least, 1)
    lines = np.stack([np.ones(len(sizes)), sizes.astype(np.float64)], axis=1)
    (alpha, slope), *_ = np.linalg.lstsq(lines * weight[:, None], least * weight, rcond=None)
    if slope <= 0 or alpha < 0:
        return None
    fit = TransferFit(float(alpha), float(slope), 0.0)
    return fit._replace(error=float(np.median(np.abs(least - fit.time_ns(sizes)) * weight)))


BandwidthKey = Literal["size", "collective"]

_CONGESTED = 1.5
"""Time of a transfer by that of its fit from which it is slower than its own network. Chosen:
test_bandwidths has 1.4 and 1.6."""
_FIT_ERRORS = 3
"""Median deviations from the fit within which a transfer is not slower: two standard deviations.
Chosen: test_bandwidths has sizes that differ as much from their fit."""
_MOST = 0.5
"""More than this share is most of something."""
_KILO = 1_000
_NO_FIT = TransferFit(np.nan, np.nan, np.nan)


class Limit(IntEnum):
    """What limits a collective."""

    LATE_RANK = 0
    LATENCY = 1
    BANDWIDTH = 2
    CONGESTION = 3
    UNKNOWN = 4

    @property
    def label(self) -> str:
        """Its name."""
        return self.name.lower().replace("_", " ")


def measure_bandwidths(
    matched: pd.DataFrame, tables: Mapping[int, pd.DataFrame], *, by: BandwidthKey = "size"
) -> pd.DataFrame:
    """Bandwidth of matched collectives by operation, group and size, or of each.

    The rank that arrives last does not wait: the shortest duration of all ranks is the transfer,
    the rest of the others' durations is waiting for that rank. This needs no clocks. Bandwidth is
    size by transfer (algbw), times the share of the size that each link carries (busbw), as NCCL's
    tests define them. If a rank was not recorded, it may be the last, and a transfer that is slower
    than the others is no congestion. `tables`: the collectives of each rank, schema
    `answers.COLLECTIVES`. Most time first. Collectives whose size was not recorded have durations
    only.
    """
    each = _each(matched, tables)
    if each.empty:
        return BANDWIDTHS.empty()
    keys = ["operation", "group", "n_bytes", *(["match"] if by == "collective" else [])]
    row = each.groupby(keys, sort=False).ngroup().to_numpy().astype(np.int64)
    rows = each.groupby(row).agg(
        operation=("operation", "first"),
        group=("group", "first"),
        match=("match", "first"),
        n_bytes=("n_bytes", "first"),
        n_ranks=("n_ranks", "max"),
        n_matched=("n_matched", "min"),
        is_whole=("is_whole", "all"),
        n_collectives=("match", "size"),
        sum_ns=("mean_ns", "sum"),
        transfer_ns=("transfer_ns", "median"),
        wait_ns=("wait_ns", "median"),
        latency_ns=("latency_ns", "first"),
        ns_per_byte=("ns_per_byte", "first"),
        fit_error_share=("fit_error_share", "first"),
    )
    if by == "size":
        rows["match"] = -1
    rows["last_rank"] = _last_ranks(each, row, len(rows))
    n_bytes, transfer = (rows[name].to_numpy(np.float64) for name in ("n_bytes", "transfer_ns"))
    size = np.where(n_bytes >= 0, n_bytes, np.nan)
    rows["algbw_gb_per_s"] = size / np.maximum(transfer, 1)
    operation, n_ranks = rows["operation"].to_numpy(object), rows["n_ranks"].to_numpy(np.int64)
    rows["busbw_gb_per_s"] = rows["algbw_gb_per_s"] * bus_factors(operation, n_ranks)
    rows["fitted_gb_per_s"] = 1 / rows["ns_per_byte"]
    rows["limit"] = categorical(_limits(rows, size), [one.label for one in Limit])
    rows = rows.sort_values(
        ["sum_ns", "operation", "n_bytes", "match"], ascending=[False, True, True, True]
    )
    rows = rows.astype(dict.fromkeys(("sum_ns", "transfer_ns", "wait_ns"), np.int64))
    return BANDWIDTHS.frame({name: rows[name].to_numpy() for name in BANDWIDTHS.columns})


def fitted_latencies(
    matched: pd.DataFrame, tables: Mapping[int, pd.DataFrame], match: I64
) -> tuple[F64, F64]:
    """Fitted latency of some matched collectives in ns, and its error as a share; NaN without."""
    each = _each(matched, tables)
    if each.empty:
        return np.full(len(match), np.nan), np.full(len(match), np.nan)
    fits = each.set_index("match").reindex(match)
    found = (fits[name].to_numpy(np.float64) for name in ("latency_ns", "fit_error_share"))
    latency, error = (np.where(fits["n_bytes"] >= 0, values, np.nan) for values in found)
    return latency, error


def _each(matched: pd.DataFrame, tables: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """Each matched collective: its transfer, what its ranks waited, and the fit of its kind."""
    sizes = [
        table[["collective", "n_bytes", "n_ranks"]].assign(rank=np.int64(rank))
        for rank, table in tables.items()
    ]
    if not len(matched) or not sizes:
        return pd.DataFrame()
    own = matched.merge(pd.concat(sizes), on=["rank", "collective"])
    own["dur_ns"] = own["end_ns"] - own["start_ns"]
    own = own.sort_values(["match", "dur_ns"], kind="stable", ignore_index=True)
    each = own.groupby("match", sort=False, as_index=False).agg(
        operation=("operation", "first"),
        group=("group", "first"),
        n_ranks=("n_ranks", "max"),
        n_matched=("rank", "nunique"),
        last_rank=("rank", "first"),
        is_partial=("is_partial", "any"),
        n_bytes=("n_bytes", "max"),
        transfer_ns=("dur_ns", "min"),
        mean_ns=("dur_ns", "mean"),
    )
    each["n_ranks"] = each[["n_ranks", "n_matched"]].max(axis=1)
    each["is_whole"] = (each["n_matched"] == each["n_ranks"]) & ~each["is_partial"]
    each["wait_ns"] = each["mean_ns"] - each["transfer_ns"]
    fits = np.full((len(each), 3), np.nan)
    kinds = each.groupby(["operation", "group"], sort=False).indices
    usable = (each["is_whole"] & (each["n_bytes"] > 0)).to_numpy(dtype=bool)
    n_bytes, transfer = (each[name].to_numpy(np.int64) for name in ("n_bytes", "transfer_ns"))
    for rows in kinds.values():
        known = rows[usable[rows]]
        fits[rows] = fit_transfers(n_bytes[known], transfer[known]) or _NO_FIT
    each[["latency_ns", "ns_per_byte", "fit_error_share"]] = fits
    return each


def _last_ranks(each: pd.DataFrame, row: I64, n_rows: int) -> I64:
    """The rank for which most of the waiting of each row is, -1 if that is no single rank."""
    waits = each[["last_rank", "wait_ns"]].assign(row=row)
    by_rank = waits.groupby(["row", "last_rank"])["wait_ns"].sum().reset_index()
    all_ns = by_rank.groupby("row")["wait_ns"].transform("sum")
    most = by_rank[by_rank["wait_ns"] > _MOST * all_ns]
    found = np.full(n_rows, -1, dtype=np.int64)
    found[most["row"].to_numpy(np.int64)] = most["last_rank"].to_numpy(np.int64)
    return found


def _limits(rows: pd.DataFrame, size: F64) -> I64:
    """What limits each row: codes of `Limit`."""
    transfer, wait, alpha, slope, error = (
        rows[name].to_numpy(np.float64)
        for name in ("transfer_ns", "wait_ns", "latency_ns", "ns_per_byte", "fit_error_share")
    )
    moves = slope * size
    most = (alpha + moves) * np.maximum(_CONGESTED, 1 + _FIT_ERRORS * error)
    is_slow, is_whole = transfer > most, rows["is_whole"].to_numpy(dtype=bool)
    return np.select(
        [wait > transfer, np.isnan(most) | (is_slow & ~is_whole), is_slow, alpha > moves],
        [Limit.LATE_RANK, Limit.UNKNOWN, Limit.CONGESTION, Limit.LATENCY],
        Limit.BANDWIDTH,
    )


def slowest_in_words(bandwidths: pd.DataFrame) -> str:
    """The size whose transfers take longest, its bandwidth and what limits it; empty if unknown."""
    moving_ns = bandwidths["transfer_ns"] * bandwidths["n_collectives"]
    if not len(moving_ns):
        return ""
    one = bandwidths.iloc[int(moving_ns.to_numpy().argmax())]
    if not one["n_bytes"] > 0 or one["limit"] == Limit.UNKNOWN.label:
        return ""
    n_bytes = int(one["n_bytes"])
    size = human_size(n_bytes) if n_bytes >= _KILO else f"{n_bytes} bytes"
    said = f"{one['operation']} of {size} runs at {one['busbw_gb_per_s']:.3g} GB/s busbw"
    expected_ns = one["latency_ns"] + one["n_bytes"] / one["fitted_gb_per_s"]
    share = expected_ns / max(one["transfer_ns"], 1)
    wait_share = one["wait_ns"] / max(one["wait_ns"] + one["transfer_ns"], 1)
    last = f", most of it for rank {one['last_rank']}" if one["last_rank"] >= 0 else ""
    reached = f"{min(share, 1):.0%} of what its sizes reach"
    return (
        said
        + {
            Limit.LATE_RANK.label: " once all ranks are there, but they wait "
            f"{wait_share:.0%} of its time{last}",
            Limit.CONGESTION.label: f", congested: {reached}",
            Limit.LATENCY.label: ", bound by latency: fewer and larger ones would move more",
            Limit.BANDWIDTH.label: f", bound by bandwidth: {reached}",
        }[str(one["limit"])]
    )
