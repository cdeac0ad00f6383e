"""Candidates: changes worth replaying, picked from the critical path."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from htagraph.lookup.programs import Loading
from htagraph.model.kinds import Bound, Cause, EdgeKind, KernelClass
from htagraph.replay.changes import Change, no_wait, remove, scale, spare
from htagraph.replay.charges import Charges
from htagraph.replay.collective_changes import bandwidth, equalise
from htagraph.replay.device_changes import fuse, overlap
from htagraph.replay.draft import (
    ALLOCATIONS,
    COPIES_THAT_BLOCK,
    HOST_WAITS,
    of_class,
    of_topic,
    waits_at,
)
from htagraph.replay.host_changes import graphed, prefetch
from htagraph.replay.host_code import code

TWICE_AS_FAST = 0.5
"""Share of its time left to whatever is made twice as fast."""
SPEEDS = (0.9, 0.75, TWICE_AS_FAST, 0.0)
"""Shares of its time left to a kernel: chosen, test_slack lists them."""

_N_NAMES = 10
_N_NAMES_OF_LARGE = 4
"""Kernels and operators to try; of a large graph fewer, since each costs several replays. Chosen to
bound the time of a report: test_assumptions counts them."""
_N_SITES = 8
"""Places of code, and of waits, to try. Chosen like the names: test_assumptions counts them."""
_MIN_SHARE = 0.001
"""Share of the path below which a part is not tried. Chosen: test_assumptions has one either side.
"""
_ON_DEVICE = (Bound.COMPUTE, Bound.COMMUNICATION, Bound.MEMORY)
_ON_HOST = (Bound.HOST, Bound.DATA_LOADING)


class Candidate(NamedTuple):
    """Changes made together, and what they are about."""

    kind: str  # ``cause`` (the run without it), ``kernel``, ``operator``, ``wait`` …
    target: str  # What is changed, for people
    changes: tuple[Change, ...]
    left: float = 0.0  # Share of its time left to the target
    cause: str = ""  # Cause that is gone, or empty
    rank: int = -1  # Rank that is not late, else -1
    is_last_resort: bool = False  # Used only if no other change of its kind applies to the target


def of_parts(
    segments: pd.DataFrame,
    attributed: pd.DataFrame,
    sequences: Iterable[tuple[str, ...]] = (),
    functions: Iterable[str] = (),
    *,
    is_large: bool = False,
    done: Collection[str] = (),
) -> Iterator[Candidate]:
    """Yield what is worth trying on parts of a path, but what is `done`; some may not apply.

    `functions`: frames of functions to go, with all that they call.
    """
    yield from _of_names(segments, _N_NAMES_OF_LARGE if is_large else _N_NAMES)
    yield from (Candidate("function", frame, (remove(frame),)) for frame in functions)
    yield from _of_host_code(segments, attributed)
    yield from _of_waits(attributed)
    yield from (one for one in _OF_THE_WHOLE if one.kind not in done)
    for names in sequences:
        yield Candidate("fusion", " + ".join(names), (fuse(*names),))


def kinds_done(*, can_capture: bool, loading: Loading) -> tuple[str, ...]:
    """Kinds of change that the run has already, or cannot have: graphs, or workers that load."""
    by_workers = loading not in {"", "in process"}
    had = {"launches": not can_capture, "data loading": by_workers}
    return tuple(kind for kind, is_done in had.items() if is_done)


def of_causes(
    segments: pd.DataFrame,
    attributed: pd.DataFrame,
    charges: Charges,
    *,
    balance: Change | None = None,
    machines: Mapping[int, str] | None = None,
) -> Iterator[Candidate]:
    """Yield the run without each cause, or without each late rank's delay.

    A rank with too many tokens would still be last if it were not late for another reason.
    `charges` has the causes of all time, on the path or not. `machines`: ranks of machines that are
    late, and their machine: they are repaired together.
    """
    machines = machines or {}
    late, overfull = pd.Series(-1, index=attributed.index), set[int]()
    if "rank" in attributed:
        is_late = attributed["cause"] == Cause.LATE_RANK
        late = attributed["rank"].where(is_late, -1).replace(together(machines))
        is_overfull = attributed["cause"] == Cause.EXPERT_IMBALANCE
        overfull = set(attributed.loc[is_overfull, "rank"].tolist())
    both = pd.DataFrame({"cause": attributed["cause"], "late": late}).drop_duplicates()
    for name, late_rank in zip(both["cause"].tolist(), both["late"].tolist(), strict=True):
        cause, rank = Cause(str(name)), int(late_rank)
        if cause in UNRANKED:
            continue
        if cause is Cause.LATE_RANK:
            mine = attributed[(attributed["cause"] == cause) & (late == rank)]
            same = [one for one in machines if machines[one] == machines.get(rank)]
            changes: tuple[Change, ...] = (
                (_spared(segments, mine, f"lateness of rank {rank}"),)
                if rank in overfull
                else tuple(equalise().on_rank(one) for one in same or [rank])
            )
            yield Candidate("cause", f"{cause} {rank}", changes, 0.0, cause, rank)
            continue
        if cause is Cause.EXPERT_IMBALANCE and balance is not None:
            yield Candidate("cause", str(cause), (balance,), 0.0, cause)
        if cause in REMOVALS:
            yield Candidate("cause", str(cause), (REMOVALS[cause],), 0.0, cause)
        gone = charges.of_cause(cause).gone(str(cause))
        yield Candidate("cause", str(cause), (gone,), 0.0, cause, is_last_resort=True)


def together(machines: Mapping[int, str]) -> dict[int, int]:
    """By rank of a late machine, the first rank of that machine."""
    first: dict[str, int] = {}
    return {rank: first.setdefault(machine, rank) for rank, machine in machines.items()}


def _spared(segments: pd.DataFrame, part: pd.DataFrame, name: str) -> Change:
    """The change that removes some attributed time from the edges of a path."""
    at = part["segment"].to_numpy(np.int64)
    edge = segments["edge"].to_numpy(np.int64)[at]
    dur_ns = part["dur_ns"].to_numpy(np.int64)
    alone = np.full(len(segments), -1, dtype=np.int64)
    rank = (segments["rank"].to_numpy(np.int64) if "rank" in segments else alone)[at]
    known = edge >= 0
    return spare(name, edge[known], dur_ns[known], rank[known])


def _largest(segments: pd.DataFrame, by: str, n: int) -> list[str]:
    """The groups with the most path time, if that is not negligible."""
    times = segments.groupby(by, observed=True, sort=False)["dur_ns"].sum()
    total_ns = max(int(segments["dur_ns"].sum()), 1)
    times = times[times >= _MIN_SHARE * total_ns]
    return [str(name) for name in times.sort_values(ascending=False, kind="stable").index[:n]]


def _of_names(segments: pd.DataFrame, n_names: int) -> Iterator[Candidate]:
    """Yield kernels by name at several speeds, and operators."""
    on_device = segments["bound"].isin([bound.label for bound in _ON_DEVICE])
    for name in _largest(segments[on_device], "name", n_names):
        for left in SPEEDS:
            yield Candidate("kernel", name, (scale(name, by=left),), left)
    on_host = segments["bound"].isin([bound.label for bound in _ON_HOST])
    host = segments[on_host & (segments["event"] >= 0)]
    for name in _largest(host, "name", n_names):
        yield Candidate("operator", name, (scale(name, by=TWICE_AS_FAST),), TWICE_AS_FAST)


def _of_host_code(segments: pd.DataFrame, attributed: pd.DataFrame) -> Iterator[Candidate]:
    """Yield untraced code that no frame names, by the operators around it."""
    is_code = (attributed["cause"] == Cause.HOST_CODE) & (attributed["frame"] == "")
    in_code = attributed[is_code]
    number, ops = pd.factorize(in_code["op"].to_numpy(object))
    inside = ("in " + ops)[number]  # each text once: a name may have megabytes
    named = in_code.assign(where=np.where(in_code["place"] != "", in_code["place"], inside))
    for place in _largest(named, "where", _N_SITES):
        part = named[named["where"] == place]
        is_named = bool((part["place"] != "").any())
        change = remove(code(place)) if is_named else _spared(segments, part, f"code {place}")
        yield Candidate("Python code", place, (change,))


def _of_waits(attributed: pd.DataFrame) -> Iterator[Candidate]:
    """Yield the sites at which the host waits: calls within an operator."""
    waits = attributed[attributed["cause"].isin([str(cause) for cause in _WAITS])]
    site = waits[["cause", "name", "op"]].astype(object)
    sites = waits["dur_ns"].groupby([site[name] for name in site], sort=False).sum()
    for cause, name, op in sites.sort_values(ascending=False, kind="stable").index[:_N_SITES]:
        group = waits_at(str(name), str(op))
        kind = "synchronous copy" if cause == Cause.SYNCHRONOUS_COPIES else "wait"
        yield Candidate(kind, group.name, (no_wait(group),))


_WAITS = (Cause.GPU_SYNCHRONIZATION, Cause.UNRECORDED_WAIT, Cause.SYNCHRONOUS_COPIES)
_OF_THE_WHOLE = (
    Candidate("communication", "twice the bandwidth", (bandwidth(2.0),), 0.5),
    Candidate(
        "overlap",
        "overlap all communication",
        (overlap(of_class(KernelClass.COMMUNICATION)),),
    ),
    Candidate("data loading", "prefetch one batch ahead", (prefetch(),)),
    Candidate("launches", "each step captured as a graph", (graphed(),)),
    Candidate("allocation", "no allocation during the run", (remove(ALLOCATIONS),)),
)
"""Changes to the whole run."""
UNRANKED = (Cause.UNKNOWN_WAITS, Cause.WORK_FROM_BEFORE_THE_PROFILE)
"""Causes that nothing in the run can be blamed for."""
REMOVALS: dict[Cause, Change] = {
    Cause.FULL_QUEUE: remove(EdgeKind.QUEUE.label),
    Cause.WAITING_FOR_SMS: remove(EdgeKind.CONTENTION.label),
    Cause.GPU_SYNCHRONIZATION: remove(HOST_WAITS),
    Cause.SYNCHRONOUS_COPIES: remove(COPIES_THAT_BLOCK),
    Cause.ALLOCATION: remove(ALLOCATIONS),
    Cause.COMPILATION: remove(of_topic(Cause.COMPILATION)),
    Cause.RECOMPILATION: remove(of_topic(Cause.RECOMPILATION)),
    Cause.AUTOTUNING: remove(of_topic(Cause.AUTOTUNING)),
}
"""What goes with a cause that waits, or that makes others wait. Other causes are time only."""
