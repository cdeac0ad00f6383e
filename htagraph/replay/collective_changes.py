"""Changes to collectives: bandwidth, and ranks that arrive on time."""

from __future__ import annotations

import numpy as np

from htagraph.arrays.codes import gather
from htagraph.arrays.retime import DROPPED
from htagraph.errors import QueryError
from htagraph.model.arrays import F64, I64
from htagraph.model.kinds import EdgeKind, KernelClass
from htagraph.replay.assumptions import Assumption
from htagraph.replay.changes import Change
from htagraph.replay.draft import Draft

_LATENCY_NS = 10_000
"""Latency of a collective at most, half of it expected (NCCL on one host: 5 to 20 us);
test_changes has both."""


def _latencies_ns(draft: Draft, rows: I64) -> F64:
    """Latency of the transfer of each edge: as fitted, give or take its error, else assumed."""
    assumed = {Assumption.RIGID: _LATENCY_NS, Assumption.LOOSE: 0}
    found = np.full(len(rows), float(assumed.get(draft.assumption, _LATENCY_NS // 2)))
    if draft.members is None:
        return found
    met, member = draft.transfers
    alpha, error = draft.members.latency_ns[member], draft.members.latency_error[member]
    more = {Assumption.RIGID: 1.0, Assumption.LOOSE: -1.0}.get(draft.assumption, 0.0)
    known = np.isfinite(alpha) & np.isin(met, rows)
    fitted = np.maximum(alpha * (1 + more * error), 0)
    found[np.searchsorted(rows, met[known])] = fitted[known]
    return found


def bandwidth(by: float) -> Change:
    """Change: collectives move data faster by a factor; their latency stays.

    This is the alpha-beta model: latency plus size over bandwidth (Hockney 1994). In a job whose
    collectives have sizes, the latency is that of ``job.bandwidths()``, if there is a fit; else 5
    us, and between 0 and 10 us by other readings.

    Parameters
    ----------
    by : float
        2 is twice the bandwidth.

    Returns
    -------
    Change

    Raises
    ------
    QueryError
        If it is not above 0.
    """
    if not by > 0:
        hint = "2 is twice the bandwidth."
        raise QueryError(f"bandwidth: by must be above 0, not {by:g}.", hint=hint)
    return Change(f"bandwidth({by:g})", _faster, (by,))


def _faster(draft: Draft, by: float) -> None:
    """Shorten the transfer part of each collective: all but its latency.

    Matched ranks have known transfers, and a fitted latency if sizes were recorded; else it is
    assumed. One rank alone does not know how long a collective waited: at the least, the fastest of
    its name did not.
    """
    dag, replay = draft.dag, draft.replay
    met, _ = draft.transfers
    communicates = dag.classification.kernel_class == KernelClass.COMMUNICATION
    runs = (replay.kind == EdgeKind.SPAN) & gather(communicates, replay.event, default=False)
    rows = np.union1d(np.flatnonzero(runs), met)
    rows = rows[draft.lag_ns[rows] != DROPPED]
    if not len(rows):
        hint = "the question collectives lists what is recorded."
        raise QueryError("no collective was recorded.", hint=hint)
    name = dag.events.name[replay.node[replay.head[rows]] >> 1]
    lag = draft.lag_ns[rows]
    least = np.full(len(dag.events.symbols), np.iinfo(np.int64).max)
    np.minimum.at(least, name, lag)
    waits = np.isin(rows, met, invert=True) & (draft.assumption is Assumption.RIGID)
    moves = np.where(waits, np.minimum(lag, least[name]), lag)
    transfer = np.maximum(moves - _latencies_ns(draft, rows), 0)
    draft.lag_ns[rows] = lag - transfer + np.rint(transfer / by).astype(np.int64)


def equalise() -> Change:
    """Change of a job: no rank arrives at a collective later than the median rank.

    Everything a late rank did since its previous collective is shortened by one factor. Of an even
    number of ranks, the median is the earlier of the two in the middle.

    Returns
    -------
    Change
    """
    return Change("equalise()", _on_time)


def _on_time(draft: Draft) -> None:
    """Shorten all edges since the rank's last arrival by one factor, until it is not late.

    At the least, it still arrives with the last of the others.
    """
    members, replay = draft.members, draft.replay
    if members is None:
        hint = "give the folder with its ranks, or a Job."
        raise QueryError("equalise needs a job: one rank alone is never late.", hint=hint)
    rigid = draft.assumption is Assumption.RIGID
    earlier_ns = members.earlier_ns(replay.ts_ns, at_least=rigid)
    draft.shorten(earlier_ns[replay.head] - earlier_ns[replay.tail])
