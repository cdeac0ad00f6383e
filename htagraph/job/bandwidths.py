"""Bandwidth of collectives: size, time of the transfer, and what bounds it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.transfer_times import TransferFit, fit_transfers
from htagraph.model.job_answers import BANDWIDTHS
from htagraph.model.schema import categorical

__all__ = ["BusFactor", "measure_bandwidths"]

I64 = npt.NDArray[np.int64]

_CONGESTED = 1.5
"""Time of a transfer by that of its fit from which it is slower than its own network. Chosen."""


class BusFactor(StrEnum):
    """Operations by the share of the size that each link carries: NCCL's tests, PERFORMANCE.md."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"

    def of(self, n_ranks: int) -> float:
        """The factor for a number of ranks."""
        factor = (n_ranks - 1) / n_ranks
        return 2 * factor if self is BusFactor.ALL_REDUCE else factor


class _Limit(StrEnum):
    LATE_RANK = "late rank"
    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    CONGESTION = "congestion"
    UNKNOWN = "unknown"


def measure_bandwidths(matched: pd.DataFrame, tables: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """Bandwidth of matched collectives by operation, group and size.

    Parameters
    ----------
    tables : mapping of int to DataFrame
        The collectives of each rank, schema `answers.COLLECTIVES`.

    Returns
    -------
    DataFrame, schema `job_answers.BANDWIDTHS`
        Most time first. Collectives whose size was not recorded have durations only.

    Notes
    -----
    The rank that arrives last does not wait: the shortest duration of all ranks is the transfer,
    the rest of the others' durations is waiting. Bandwidth is size by transfer (algbw), times the
    share of the size that each link carries (busbw), as NCCL's tests define them.
    """
    sizes = [
        table[["collective", "n_bytes"]].assign(rank=np.int64(rank))
        for rank, table in tables.items()
    ]
    if not len(matched) or not sizes:
        return BANDWIDTHS.empty()
    own = matched.merge(pd.concat(sizes), on=["rank", "collective"])
    own["dur_ns"] = own["end_ns"] - own["start_ns"]
    each = own.groupby("match").agg(
        operation=("operation", "first"),
        group=("group", "first"),
        n_ranks=("rank", "nunique"),
        n_bytes=("n_bytes", "max"),
        transfer_ns=("dur_ns", "min"),
        mean_ns=("dur_ns", "mean"),
    )
    rows = []
    for (operation, group), part in each.groupby(["operation", "group"], sort=False):
        known = part[part["n_bytes"] > 0]
        fit = fit_transfers(
            known["n_bytes"].to_numpy(np.int64), known["transfer_ns"].to_numpy(np.int64)
        )
        for n_bytes, alike in part.groupby("n_bytes"):
            rows.append(_row(str(operation), str(group), int(str(n_bytes)), alike, fit))
    found = pd.DataFrame(rows)
    labels = [one.value for one in _Limit]
    found["limit"] = categorical([labels.index(one) for one in found["limit"]], labels)
    found = found.sort_values(["sum_ns", "operation", "n_bytes"], ascending=[False, True, True])
    return BANDWIDTHS.frame({name: found[name].to_numpy() for name in BANDWIDTHS.columns})


def _row(
    operation: str, group: str, n_bytes: int, alike: pd.DataFrame, fit: TransferFit | None
) -> dict[str, object]:
    """Collectives of one operation, group and size."""
    transfer_ns = int(alike["transfer_ns"].median())
    n_ranks = int(alike["n_ranks"].max())
    wait_ns = int((alike["mean_ns"] - alike["transfer_ns"]).median())
    algbw = n_bytes / max(transfer_ns, 1) if n_bytes >= 0 else np.nan
    factor = BusFactor(operation).of(n_ranks) if operation in set(BusFactor) else 1.0
    return {
        "operation": operation,
        "group": group,
        "n_bytes": n_bytes,
        "n_ranks": n_ranks,
        "n_collectives": len(alike),
        "sum_ns": int((alike["mean_ns"] * 1.0).sum()),
        "transfer_ns": transfer_ns,
        "wait_ns": wait_ns,
        "algbw_gb_per_s": algbw,
        "busbw_gb_per_s": algbw * factor,
        "latency_ns": fit.alpha_ns if fit else np.nan,
        "fitted_gb_per_s": 1 / fit.ns_per_byte if fit else np.nan,
        "fit_error_share": fit.error if fit else np.nan,
        "limit": _limit(n_bytes, transfer_ns, wait_ns, fit),
    }


def _limit(n_bytes: int, transfer_ns: int, wait_ns: int, fit: TransferFit | None) -> str:
    """What bounds collectives of a size."""
    if wait_ns > transfer_ns:
        return _Limit.LATE_RANK
    if fit is None or n_bytes < 0:
        return _Limit.UNKNOWN
    if transfer_ns > _CONGESTED * float(fit.time_ns(n_bytes)):
        return _Limit.CONGESTION
    is_latency = fit.alpha_ns > fit.ns_per_byte * n_bytes
    return _Limit.LATENCY if is_latency else _Limit.BANDWIDTH
