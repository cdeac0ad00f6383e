"""Matching of collectives of libraries that record nothing: by the order of kernels, or not at all.

If all ranks ran the same operations in the same order, the n-th kernel of one rank is the n-th on
the others. If some recorded fewer, their order has to fit into that of the others at one place
only, even with half of it overlapping: layers repeat, and an order that fits at several places
proves nothing. Such a match is inferred. It is dropped if no clock allows it, or if devices of one
host would be further apart than half the time from one collective to the next: some began later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from htagraph.algorithms.clocks import ClockFit, fit_clock
from htagraph.model.arrays import I64, Bools
from htagraph.model.collective_operations import ONE_SIDED
from htagraph.model.units import human_count, human_duration
from htagraph.queries.collectives import LIBRARY_KERNEL

INFERRED_RULES = ("inferred order", "inferred run")
"""Rules that match by the order of kernels: all of it, or the one place where it fits."""

_STATED_RANKS = re.compile(r" of (\d{1,9}) ranks ")
_TIMES = ("arrived_ns", "end_ns")


def stated_ranks(group: str) -> int:
    """How many ranks the group of a library's kernels has, 0 if their names do not state it."""
    found = _STATED_RANKS.search(group)
    return int(found[1]) if found else 0


def is_inferred(table: pd.DataFrame) -> Bools:
    """Which collectives are known only by the names of their kernels."""
    found: Bools = (table["found_by"] == LIBRARY_KERNEL).to_numpy(dtype=bool)
    return found


def ends_together(table: pd.DataFrame) -> Bools:
    """Which collectives all members leave together; others only bound the clocks."""
    one_sided: Bools = is_inferred(table) & table["operation"].isin(ONE_SIDED).to_numpy(dtype=bool)
    return ~one_sided


def in_kernel_order(table: pd.DataFrame) -> tuple[I64, str]:
    """Place of each collective of a group in the order of all ranks, and the rule; or why none.

    Parameters
    ----------
    table : DataFrame
        Collectives of one group, by rank, each in the order of launches; at least two ranks.

    Returns
    -------
    place : ndarray of shape (n,), dtype=int64
        -1 where nothing is matched.
    rule : str
        One of `INFERRED_RULES`, or why nothing is matched, in words.
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
    if min(places) < 0 or any(_fits_again(text, longest) for text in set(texts)):
        few, many = int(counts.min()), int(counts.max())
        ran = f"ranks ran {few:,} to {many:,} of them" if few < many else "ranks ran them"
        how = "in different orders" if min(places) < 0 else "and their order fits at several places"
        return nowhere, f"{ran}, {how}"
    return place, INFERRED_RULES[1]


def _fits_again(text: str, longest: str) -> bool:
    """Whether at least half of an order fits into the longest at several places."""
    half = (len(text) + 1) // 2
    fits = (
        longest[max(at, 0) : at + len(text)] == text[max(-at, 0) : len(longest) - at]
        for at in range(half - len(text), len(longest) - half + 1)
    )
    return len(text) < len(longest) and sum(fits) > 1


def contradicted(
    inferred: pd.DataFrame, certain: pd.DataFrame, hosts: Mapping[int, str] | None = None
) -> str:
    """Why a match by the order of kernels cannot be right, in words; empty if it can.

    `inferred` are members of one group, `certain` those of any group that metadata match.
    """
    first, *others = (int(rank) for rank in np.unique(inferred["rank"]))
    limit_ns = _usual_distance_ns(inferred[inferred["rank"] == first]) // 2
    for rank in others:
        pairs = _pairs(inferred, first, rank)
        if not _has_clock(pairs, _pairs(certain, first, rank)):
            return "no clock allows that they are the same in order"
        one_host = bool(hosts and hosts.get(rank) and hosts.get(rank) == hosts.get(first))
        apart_ns = _least_offset_ns(pairs)
        if one_host and apart_ns > limit_ns:
            apart = human_duration(apart_ns)
            return f"in order, devices of one host would be {apart} apart, so some began later"
    return ""


def _usual_distance_ns(members: pd.DataFrame) -> int:
    """The median time of a rank from a collective to the next one of the same operation."""
    ordered = members.sort_values("arrived_ns", kind="stable")
    distances = ordered.groupby("operation")["arrived_ns"].diff().groupby(ordered["operation"])
    usual = distances.median().dropna()
    return int(usual.min()) if len(usual) else np.iinfo(np.int64).max


def _pairs(matched: pd.DataFrame, first: int, second: int) -> pd.DataFrame:
    """The collectives in which two ranks wait for each other."""
    columns = ["match", *_TIMES, "together"]
    both = matched[matched["is_rendezvous"] & ~matched["is_partial"]]
    both = both.assign(together=ends_together(both))
    one, other = (both.loc[both["rank"] == rank, columns] for rank in (first, second))
    return one.merge(other.drop(columns="together"), on="match", suffixes=("", "_other"))


def _has_clock(inferred: pd.DataFrame, certain: pd.DataFrame) -> bool:
    """Whether one clock fits all collectives of two ranks, or none fits even the certain ones."""
    if _fit(pd.concat([inferred, certain])).width_ns >= 0:
        return True
    return len(certain) > 0 and _fit(certain).width_ns < 0 <= _fit(inferred).width_ns


def _least_offset_ns(pairs: pd.DataFrame) -> int:
    """The least distance of two clocks that their collectives allow."""
    fit = _fit(pairs)
    return max(fit.low_ns, -fit.high_ns, 0)


def _fit(pairs: pd.DataFrame) -> ClockFit:
    """The clock of the second of two ranks against the first, by their collectives."""
    columns = [pairs[name + side].to_numpy(np.int64) for side in ("_other", "") for name in _TIMES]
    return fit_clock(*columns, ends_together=pairs["together"].to_numpy(dtype=bool))
