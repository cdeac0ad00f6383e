"""Candidates: the changes that are worth asking about, from what a path is made of."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.lookup.data_loaders import Loading
from htagraph.model.kinds import Bound, Cause, KernelClass
from htagraph.replay.changes import Change, NoWait, Remove, Scale
from htagraph.replay.collective_changes import Bandwidth
from htagraph.replay.device_changes import Fuse, Overlap
from htagraph.replay.event_groups import ALLOCATIONS, of_class, waits_at
from htagraph.replay.excerpt import LARGE
from htagraph.replay.host_changes import Graphed, Prefetch
from htagraph.replay.host_code import Code
from htagraph.replay.repairs import repairs, spared

__all__ = ["SPEEDS", "TWICE_AS_FAST", "Candidate", "candidates", "kinds_done"]

TWICE_AS_FAST = 0.5
SPEEDS = (0.9, 0.75, TWICE_AS_FAST, 0.0)
"""Shares of its time that a kernel is left with: 10, 25, 50 and 100% less."""

_N_NAMES = 10
_N_NAMES_OF_LARGE = 4
"""Of a large graph: each change costs several replays, 20 ns an edge."""
_N_SITES = 8
_N_FUSIONS, _N_FUSIONS_OF_LARGE = 5, 2
_MIN_SHARE = 0.001
"""Parts of a path below this share are not asked about."""
_ON_DEVICE = (Bound.COMPUTE, Bound.COMMUNICATION, Bound.MEMORY)
_ON_HOST = (Bound.HOST, Bound.DATA_LOADING)


class Candidate(NamedTuple):
    """Changes made together, and what they are about.

    Parameters
    ----------
    kind : str
        Sort of change: ``repair`` of a cause, ``kernel``, ``operator``, ``wait`` …
    target : str
        What is changed, for people.
    left : float
        Share of its time that the target is left with.
    cause : str
        Cause that is repaired; empty where the change is about something else.
    rank : int
        Rank whose lateness is repaired, else -1.
    is_last_resort : bool
        Asked only where no other repair of the cause can be made.
    """

    kind: str
    target: str
    changes: tuple[Change, ...]
    left: float = 0.0
    cause: str = ""
    rank: int = -1
    is_last_resort: bool = False


def candidates(
    segments: pd.DataFrame,
    attributed: pd.DataFrame,
    sequences: Sequence[tuple[str, ...]] = (),
    *,
    n_edges: int = 0,
    done: Collection[str] = (),
) -> Iterator[Candidate]:
    """Yield what is worth asking about a path; some of it may turn out not to be there.

    Parameters
    ----------
    sequences : sequence of tuple of str
        Names of kernels that recur one after the other.
    n_edges : int
        Size of what is to be replayed.
    done : collection of str
        Kinds of change to the whole run that it has had already, see `kinds_done`.
    """
    is_large = n_edges >= LARGE
    yield from _of_causes(segments, attributed)
    yield from _of_names(segments, _N_NAMES_OF_LARGE if is_large else _N_NAMES)
    yield from _of_host_code(segments, attributed)
    yield from _of_waits(attributed)
    yield from (one for one in _OF_THE_WHOLE if one.kind not in done)
    for names in sequences[: _N_FUSIONS_OF_LARGE if is_large else _N_FUSIONS]:
        yield Candidate("fusion", " + ".join(names), (Fuse(names),))


def kinds_done(*, is_replayed: bool, loading: Loading) -> tuple[str, ...]:
    """Kinds of change to the whole run that it has had: graphs are replayed, workers load ahead.

    Examples
    --------
    >>> kinds_done(is_replayed=True, loading="in process")
    ('launches',)
    """
    by_workers = loading not in {"", "in process"}
    had = {"launches": is_replayed, "data loading": by_workers}
    return tuple(kind for kind, is_done in had.items() if is_done)


def _of_causes(segments: pd.DataFrame, attributed: pd.DataFrame) -> Iterator[Candidate]:
    """Yield the repairs of each cause, and of each late rank."""
    late = attributed["rank"] if "rank" in attributed else pd.Series(-1, index=attributed.index)
    late = late.where(attributed["cause"] == Cause.LATE_RANK, -1)
    keys = pd.MultiIndex.from_arrays([attributed["cause"], late])
    for cause, rank in keys.drop_duplicates().tolist():
        if cause == Cause.UNEXPLAINED:
            continue
        part = attributed[(attributed["cause"] == cause) & (late == rank)]
        left = TWICE_AS_FAST if cause == Cause.COMPUTE else 0.0
        target = str(cause) if rank < 0 else f"{cause} {rank}"
        *tried, rest = repairs(segments, part)
        for changes in tried:
            yield Candidate("repair", target, changes, left, str(cause), rank)
        yield Candidate("repair", target, rest, 0.0, str(cause), rank, is_last_resort=True)


def _largest(segments: pd.DataFrame, by: str, n: int) -> list[str]:
    """Groups with most of the path, those with little of it left out."""
    times = segments.groupby(by, observed=True, sort=False)["dur_ns"].sum()
    total_ns = max(int(segments["dur_ns"].sum()), 1)
    times = times[times >= _MIN_SHARE * total_ns]
    return [str(name) for name in times.sort_values(ascending=False, kind="stable").index[:n]]


def _of_names(segments: pd.DataFrame, n_names: int) -> Iterator[Candidate]:
    """Yield kernels by name at several speeds, and operators."""
    on_device = segments["bound"].isin([bound.label for bound in _ON_DEVICE])
    for name in _largest(segments[on_device], "name", n_names):
        for left in SPEEDS:
            yield Candidate("kernel", name, (Scale(name, left),), left)
    on_host = segments["bound"].isin([bound.label for bound in _ON_HOST])
    host = segments[on_host & (segments["event"] >= 0)]
    for name in _largest(host, "name", n_names):
        yield Candidate("operator", name, (Scale(name, TWICE_AS_FAST),), TWICE_AS_FAST)


def _of_host_code(segments: pd.DataFrame, attributed: pd.DataFrame) -> Iterator[Candidate]:
    """Yield host code by line, or by the operators around it."""
    code = attributed[attributed["cause"] == Cause.HOST_CODE]
    where = np.where(
        code["frame"] != "",
        code["frame"],
        np.where(code["place"] != "", code["place"], "in " + code["op"].astype(str)),
    )
    named = code.assign(where=where)
    for place in _largest(named, "where", _N_SITES):
        part = named[named["where"] == place]
        is_named = bool(((part["frame"] != "") | (part["place"] != "")).any())
        whole: Change = spared(segments, part, f"code {place}")
        yield Candidate("host code", place, (Remove(Code(place)) if is_named else whole,))


def _of_waits(attributed: pd.DataFrame) -> Iterator[Candidate]:
    """Yield each site at which the host waits: a call within an operator."""
    waits = attributed[attributed["cause"].isin([str(cause) for cause in _WAITS])]
    sites = waits.groupby(["cause", "name", "op"], sort=False)["dur_ns"].sum()
    for cause, name, op in sites.sort_values(ascending=False, kind="stable").index[:_N_SITES]:
        group = waits_at(str(name), str(op))
        kind = "blocking copy" if cause == Cause.BLOCKING_COPY else "wait"
        yield Candidate(kind, group.name, (NoWait(group),))


_WAITS = (Cause.HOST_WAIT, Cause.UNRECORDED_WAIT, Cause.BLOCKING_COPY)
_OF_THE_WHOLE = (
    Candidate("communication", "twice the bandwidth", (Bandwidth(2.0),), 0.5),
    Candidate(
        "overlap",
        "all communication beside other work",
        (Overlap(of_class(KernelClass.COMMUNICATION)),),
    ),
    Candidate("data loading", "one batch ahead, beside the step", (Prefetch(),)),
    Candidate("launches", "each step replayed as a graph", (Graphed(),)),
    Candidate("allocation", "no allocation in the run", (Remove(ALLOCATIONS),)),
)
"""What is done about all of a kind of time."""
