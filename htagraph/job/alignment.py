"""Which ranks of a job can be compared: one clock fits them, and they are of one capture."""

from __future__ import annotations

from collections.abc import Mapping

from htagraph.job.clocks import Clocks
from htagraph.job.rank_segments import RankEnds

__all__ = ["aligned_ranks"]

_ONE_CAPTURE_NS = 1_000_000_000
"""Hosts that keep time agree on it within a second: ranks further apart were not recorded together.
"""


def aligned_ranks(fitted: Clocks, ends: Mapping[int, RankEnds]) -> tuple[int, ...]:
    """The ranks of the largest component of the clocks, and what was recorded beside it; ascending.

    A component is what collectives align with each other. Without a collective in common, nothing
    says that two ranks belong together but that both were recorded at one time, on clocks as they
    are. A rank that shares collectives which no clock allows does not belong.

    Parameters
    ----------
    ends : mapping of int to RankEnds
        By rank, of the whole traces.
    """
    spans = {
        rank: fitted.clock(rank).to_common([one.start_ns, one.end_ns]).tolist()
        for rank, one in ends.items()
    }
    components: dict[int, list[int]] = {}
    for rank in ends:
        components.setdefault(fitted.component(rank), []).append(rank)

    def joined(first: int) -> list[int]:
        own = components[first]
        start_ns = min(spans[rank][0] for rank in own) - _ONE_CAPTURE_NS
        end_ns = max(spans[rank][1] for rank in own) + _ONE_CAPTURE_NS
        beside = [
            rank
            for other, ranks in components.items()
            if other != first and fitted.parents[other] < 0 and fitted.parents[first] < 0
            for rank in ranks
            if spans[rank][0] <= end_ns and spans[rank][1] >= start_ns
        ]
        return own + beside

    best = max(components, key=lambda first: (len(components[first]), len(joined(first)), -first))
    return tuple(sorted(joined(best)))
