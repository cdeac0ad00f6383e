"""Matching of collectives of libraries that record nothing: by the order of kernels, or not at all.

The n-th kernel of an operation on one rank is the n-th on the others, if all ranks ran the same
operations in the same order. If some recorded fewer, their order has to fit into that of the others
at one place only, also where they overlap by half: layers repeat, and what fits at several places
says nothing. What matches so is inferred, and is dropped where no clock allows it.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.clocks import fit_clock
from htagraph.model.collective_operations import ONE_SIDED
from htagraph.model.units import human_count
from htagraph.queries.collectives import LIBRARY_KERNEL

__all__ = [
    "INFERRED_RULES",
    "contradicted",
    "ends_together",
    "in_kernel_order",
    "is_inferred",
    "stated_ranks",
]

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

INFERRED_RULES = ("inferred order", "inferred run")
"""Rules that match by the order of kernels: all of it, or the one place at which it fits."""

_STATED_RANKS = re.compile(r" of (\d+) ranks ")
_TIMES = ("arrived_ns", "end_ns")


def stated_ranks(group: str) -> int:
    """How many ranks the group of a library's kernels is of, 0 if their names do not say."""
    found = _STATED_RANKS.search(group)
    return int(found[1]) if found else 0


def is_inferred(table: pd.DataFrame) -> Bools:
    """Which collectives nothing is recorded of but the names of their kernels."""
    found: Bools = (table["found_by"] == LIBRARY_KERNEL).to_numpy(dtype=bool)
    return found


def ends_together(table: pd.DataFrame) -> Bools:
    """Which collectives all members leave together; of others only starts and ends bound clocks."""
    one_sided: Bools = is_inferred(table) & table["operation"].isin(ONE_SIDED).to_numpy(dtype=bool)
    return ~one_sided


def in_kernel_order(table: pd.DataFrame) -> tuple[I64, str]:
    """Place of each collective of a group in the order of all ranks, and the rule; or why not.

    Parameters
    ----------
    table : DataFrame
        Collectives of one group, by rank, each in the order of launches; at least two ranks.

    Returns
    -------
    place : ndarray of shape (n,), dtype=int64
        -1 where nothing is matched.
    rule : str
        One of `INFERRED_RULES`, or the reason, in words, why nothing is matched.
    """
    code, _ = pd.factorize(table["operation"])
    ranks, counts = np.unique(table["rank"].to_numpy(np.int64), return_counts=True)
    stated = stated_ranks(str(table["group"].iloc[0]))
    nowhere = np.full(len(table), -1, dtype=np.int64)
    if stated and stated < len(ranks):
        n = human_count(len(ranks), "rank")
        return nowhere, f"{n} ran them, in groups that are not recorded"
    texts = ["".join(map(chr, part + 1)) for part in np.split(code, np.cumsum(counts)[:-1])]
    longest = max(texts, key=len)
    places = [longest.find(text) for text in texts]
    place = np.concatenate(
        [at + np.arange(len(text)) for at, text in zip(places, texts, strict=True)]
    )
    if all(text == longest for text in texts):
        return place, INFERRED_RULES[0]
    if min(places) < 0 or any(map(_fits_again, texts, places, [longest] * len(texts))):
        few, many = int(counts.min()), int(counts.max())
        ran = f"ranks ran {few:,} to {many:,} of them" if few < many else "ranks ran them"
        how = "in different orders" if min(places) < 0 else "and their order fits at several places"
        return nowhere, f"{ran}, {how}"
    return place, INFERRED_RULES[1]


def _fits_again(text: str, place: int, longest: str) -> bool:
    """Whether an order fits to the longest at another place, where at least half of it overlaps."""
    half = (len(text) + 1) // 2
    if len(text) == len(longest):
        return False
    return any(
        longest[max(at, 0) : at + len(text)] == text[max(-at, 0) : len(longest) - at]
        for at in range(half - len(text), len(longest) - half + 1)
        if at != place
    )


def contradicted(inferred: pd.DataFrame, certain: pd.DataFrame) -> bool:
    """Whether no clock of some rank allows what was matched by the order of kernels.

    Parameters
    ----------
    inferred : DataFrame
        Members of the matched collectives of one group.
    certain : DataFrame
        Members of those that metadata match, of all groups.
    """
    lowest = inferred["rank"].min()
    return any(
        not _has_clock(_pairs(inferred, lowest, rank), _pairs(certain, lowest, rank))
        for rank in inferred["rank"].unique()
        if rank != lowest
    )


def _pairs(matched: pd.DataFrame, first: int, second: int) -> pd.DataFrame:
    """The meetings of two ranks, in which each waits for the other."""
    columns = ["match", *_TIMES, "together"]
    both = matched[matched["is_rendezvous"] & ~matched["is_partial"]]
    both = both.assign(together=ends_together(both))
    one, other = (both.loc[both["rank"] == rank, columns] for rank in (first, second))
    return one.merge(other.drop(columns="together"), on="match", suffixes=("", "_other"))


def _has_clock(inferred: pd.DataFrame, certain: pd.DataFrame) -> bool:
    """Whether one clock allows all meetings of two ranks, or the certain ones have none either."""
    if _width_ns(pd.concat([inferred, certain])) >= 0:
        return True
    return len(certain) > 0 and _width_ns(certain) < 0 <= _width_ns(inferred)


def _width_ns(pairs: pd.DataFrame) -> int:
    """Width of the clocks that meetings of two ranks allow, negative for none."""
    columns = [pairs[name + side].to_numpy(np.int64) for side in ("_other", "") for name in _TIMES]
    return fit_clock(*columns, ends_together=pairs["together"].to_numpy(dtype=bool)).width_ns
