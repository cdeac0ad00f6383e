"""Machines: hosts whose ranks are late together, in whatever group they meet others."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from htagraph.job.lateness import waits_counted_once
from htagraph.model.collective_operations import POINT_TO_POINT
from htagraph.model.units import human_count

_OFTEN = 0.5
"""Part of the waiting in a rank's collectives with other hosts that is for all of its host. Chosen.

Pinned by `test_machines.py::test_a_host_is_late_if_half_of_the_waiting_is_for_it`.
"""

_MOST = 0.75
"""Part of a host's ranks of which that holds, for the host to be late. Chosen.

Pinned by `test_machines.py::test_a_host_is_late_if_most_of_its_ranks_are`.
"""


def late_hosts(
    collectives: pd.DataFrame, hosts: Mapping[int, str], stages: Mapping[int, int]
) -> dict[int, str]:
    """The ranks of hosts that are late, and their host.

    A host is late in a collective if all its members there come after all others, beyond the error
    of the clocks. Collectives of several stages do not count: stages differ by design.

    Parameters
    ----------
    collectives : DataFrame
        `job_answers.MATCHED_COLLECTIVES`.
    hosts, stages : mapping of int
        Host of each rank, empty if unknown, and stage, -1 if unknown.
    """
    if len(set(filter(None, hosts.values()))) < 2 or "" in hosts.values():
        return {}
    met = collectives[~collectives["is_partial"] & ~collectives["operation"].isin(POINT_TO_POINT)]
    met = met.assign(host=met["rank"].map(hosts), stage=met["rank"].map(stages))
    several = met.groupby("match")[["host", "stage"]].transform("nunique")
    met = met[(several["host"] > 1) & (several["stage"] == 1)]
    if met.empty:
        return {}
    met = met.assign(
        is_of_last=met["host"] == _last_host(met),
        since_ns=met["arrived_ns"] - met["arrived_ns"].min(),
        waited_ns=_waited_between(collectives, met),
    )
    own, others = (
        met["since_ns"].where(chosen).groupby(met["match"])
        for chosen in (met["is_of_last"], ~met["is_of_last"])
    )
    of_match = met.groupby("match")[["wait_ns", "error_ns"]].transform("max")
    # A host that waited longer than the others for somebody else is late because of that.
    own_wait, other_wait = (
        met["waited_ns"].where(chosen).groupby(met["match"])
        for chosen in (met["is_of_last"], ~met["is_of_last"])
    )
    more_ns = (own_wait.transform("max") - other_wait.transform("min")).clip(lower=0)
    is_apart = own.transform("min") - others.transform("max") - more_ns > of_match["error_ns"]
    waited = of_match["wait_ns"].groupby(met["rank"]).sum()
    for_it = of_match["wait_ns"].where(met["is_of_last"] & is_apart, 0).groupby(met["rank"]).sum()
    is_late = ((for_it >= _OFTEN * waited) & (for_it > 0)).reindex([*hosts], fill_value=False)
    by_host = is_late.groupby(pd.Series(hosts))
    found = by_host.mean()[(by_host.mean() >= _MOST) & (by_host.size() > 1)]
    return {rank: host for rank, host in hosts.items() if host in set(found.index)}


def _waited_between(collectives: pd.DataFrame, met: pd.DataFrame) -> pd.Series[int]:
    """What the rank of each member waited since the one before, wherever it waited."""
    every = collectives.assign(once_ns=waits_counted_once(collectives))
    every = every.sort_values(["rank", "arrived_ns"], kind="stable")
    own_ns = every["once_ns"]
    before = (own_ns.groupby(every["rank"]).cumsum() - own_ns).reindex(met.index)
    in_order = met.sort_values(["rank", "arrived_ns"], kind="stable").index
    ordered = before.loc[in_order]
    last = ordered.groupby(met["rank"].loc[in_order]).shift(fill_value=0)
    found: pd.Series[int] = (ordered - last).reindex(met.index)
    return found


def _last_host(met: pd.DataFrame) -> pd.Series[str]:
    """The host of the rank that came last, for each member."""
    last = met.sort_values("arrived_ns", kind="stable").groupby("match")["host"].last()
    return met["match"].map(last)


def host_in_words(host: str, ranks: list[int]) -> str:
    """Title of the finding on a late host."""
    is_row = ranks == list(range(ranks[0], ranks[-1] + 1))
    which = f"ranks {ranks[0]} to {ranks[-1]}" if is_row else human_count(len(ranks), "rank")
    return f"Host {host} ({which}) is late"
