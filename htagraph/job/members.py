"""What each rank has of the matched collectives, for its replay: whom it meets, and how late."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.delays import new_delays
from htagraph.algorithms.gather import gather
from htagraph.job.timeline import Timeline
from htagraph.replay.collective_members import Members

__all__ = ["members_of"]

Bools = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]

_NEVER = np.iinfo(np.int64).min


def members_of(timeline: Timeline, begun_ns: Mapping[int, int]) -> dict[int, Members]:
    """The members of matched collectives, by rank.

    Nobody waits in a collective without all its members, nor one that had ended before the last
    one came, by the clocks.

    Parameters
    ----------
    begun_ns : mapping of int to int
        When each rank that is asked about begins, in common time. How late it is by then is not
        its doing: the profiler began there later.
    """
    roles, measured = timeline.members, timeline.collectives
    here = measured["rank"].isin(begun_ns).to_numpy(dtype=bool, copy=True)
    here &= ~measured["is_partial"].to_numpy(dtype=bool)
    roles, measured = roles[here], measured[here]
    match, rank, event, arrived, overrun = (
        measured[name].to_numpy(np.int64)
        for name in ("match", "rank", "event", "arrived_ns", "overrun_ns")
    )
    awaited, waits = (roles[name].to_numpy(dtype=bool) for name in ("is_awaited", "waits"))
    met = pd.Series(np.where(awaited, arrived, _NEVER)).groupby(match).transform("max").to_numpy()
    begun = pd.Series(begun_ns).reindex(rank).to_numpy(np.int64)
    came, left = np.empty_like(event), np.empty_like(event)
    for number in begun_ns:
        rows = np.flatnonzero(rank == number)
        came[rows], left[rows] = _came(timeline, number, roles["collective"].iloc[rows])
    median = _median_of(match, arrived)
    since = np.where(left[median] > _NEVER, left[median], begun)
    late = arrived - arrived[median]
    at_first = arrived - begun - (arrived - begun)[_median_of(match, arrived - begun)]
    late = np.where(left[median] > _NEVER, late, np.minimum(late, at_first))
    late = np.where(roles["is_rendezvous"], np.maximum(late, 0), 0)
    least = np.minimum(late, np.maximum(arrived - _latest_other(match, arrived), 0))
    found = {}
    for number in begun_ns:
        rows = np.flatnonzero(rank == number)
        rows = rows[np.argsort(arrived[rows], kind="stable")]
        seen = arrived[rows]
        earliest = np.minimum(since[rows], seen)
        begin, own = new_delays(seen, earliest, late[rows])
        least_begin, least_own = new_delays(seen, earliest, least[rows])
        found[number] = Members(
            rank=number,
            match=match[rows],
            event=event[rows],
            came=came[rows],
            waits=waits[rows] & (overrun[rows] == 0) & (met[rows] > _NEVER),
            is_awaited=awaited[rows],
            arrived_ns=arrived[rows],
            met_ns=met[rows],
            since_ns=begin,
            late_ns=own,
            least_since_ns=least_begin,
            least_late_ns=least_own,
        )
    return found


def _came(timeline: Timeline, rank: int, collective: pd.Series[int]) -> tuple[I64, I64]:
    """The event with which a rank came to collectives, and when it had left the one before.

    That is the collective that its coming goes back to, if there is one.
    """
    table = timeline.graphs.summaries[rank].collectives
    row = np.searchsorted(table["collective"], collective)
    arrival = table["arrival"].to_numpy(np.int64)[row]
    row = np.where(arrival >= 0, arrival, row)
    ends = timeline.clocks[rank].to_common(table["end_ns"])
    after = table["after"].to_numpy(np.int64)[row]
    return table["event"].to_numpy(np.int64)[row], gather(ends, after, _NEVER)


def _latest_other(match: I64, arrived: I64) -> I64:
    """When the last of the others came to the collective of each row; itself of one alone."""
    order = np.lexsort((arrived, match))
    ends = np.flatnonzero(np.diff(match[order], append=-1))
    sizes = np.diff(ends, prepend=-1)
    last, runner_up = order[ends], order[np.where(sizes > 1, ends - 1, ends)]
    row = np.empty(len(match), dtype=np.int64)
    row[order] = np.repeat(last, sizes)
    row[last] = runner_up
    return arrived[row]


def _median_of(match: I64, values: I64) -> I64:
    """The row of the median value of the collective of each row.

    Of an even number, the median is the lower of the two in the middle.
    """
    order = np.lexsort((values, match))
    begins = np.flatnonzero(np.diff(match[order], prepend=-1))
    sizes = np.diff(begins, append=len(order))
    median = np.empty(len(match), dtype=np.int64)
    median[order] = np.repeat(order[begins + (sizes - 1) // 2], sizes)
    return median
