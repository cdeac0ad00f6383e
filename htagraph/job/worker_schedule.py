"""What each slice of a timeline of workers waits for, and which slices begin together.

Compute keeps its recorded order on each worker. A forward waits for its receive, which meets the
send of the stage before; a backward for that of the stage after. A receive is posted after the
previous compute of its direction, sends follow each other. What a worker does before its first
compute and after its last is done in order: parameters are gathered, gradients reduced, the
optimizer runs.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.algorithms.rendezvous import Rendezvous, rendezvous_of
from htagraph.model.arrays import I64
from htagraph.readers.worker_timeline.reader import COMPUTE

__all__ = ["COMPUTES", "DIRECTIONS", "scheduled"]

DIRECTIONS = ("forward", "backward")
COMPUTES = tuple(f"{one}-compute" for one in DIRECTIONS)
"""Names of the compute of a micro-batch."""

_TRANSFERS = tuple(f"{one}-{half}" for one in DIRECTIONS for half in ("send", "recv"))
_WORKER = ["step", "dp", "pp", "tp"]
_MEMBERS = {
    "layernorm-grads-all-reduce": ["dp", "pp"],
    "embedding-grads-all-reduce": ["dp", "tp"],
    "optimizer-clip-main-grad": [],
}
_MEMBERS_BY_KIND = {"dp-comm": ["pp", "tp"], "tp-comm": ["dp", "pp"]}
"""What the members of a collective have in common: by its name, else by the kind of its thread."""


def scheduled(table: pd.DataFrame) -> tuple[pd.DataFrame, Rendezvous]:
    """The steps that are whole, and how their slices wait for each other.

    Parameters
    ----------
    table : DataFrame
        As `read_worker_timeline` gives it.

    Returns
    -------
    DataFrame
        The same without steps that lack a slice, or whose orders contradict each other; with a
        column ``stage``, counted over all chunks.
    Rendezvous
        Slices are rows of that frame.
    """
    n_pp = int(table["pp"].max()) + 1 if len(table) else 1
    stage = np.maximum(table["chunk"], 0) * n_pp + table["pp"]
    position = _positions(table)
    batch = table["mb"].where(table["mb"] >= 0, position)  # in order, where it has no number
    table = table.assign(stage=stage, position=position, mb=batch)
    while len(table):
        schedule, broken = _schedule(table)
        stuck = table["step"].to_numpy()[np.isin(schedule.group, schedule.cyclic)]
        broken = broken.union(stuck.tolist())
        if not broken:
            return table, schedule
        table = table[~table["step"].isin(broken)].reset_index(drop=True)
    return table, rendezvous_of(*(np.zeros(0, dtype=np.int64) for _ in range(3)))


def _positions(table: pd.DataFrame) -> pd.Series[int]:
    """Position of each slice among those of its name on its worker, in the step."""
    order = table.sort_values([*_WORKER, "name", "start_ns", "seq"], kind="stable")
    return order.groupby([*_WORKER, "name"]).cumcount().reindex(table.index)


def _schedule(table: pd.DataFrame) -> tuple[Rendezvous, set[int]]:
    """The edges and meetings of all steps, and the steps that lack a slice."""
    is_compute = table["name"].isin(COMPUTES)
    is_transfer = table["name"].isin(_TRANSFERS)
    compute, others = table[is_compute], table[~is_compute & ~is_transfer]
    last = int(compute["stage"].max()) if len(compute) else 0
    edges, meetings = [_in_turn(table[is_compute | (table["kind"] == COMPUTE)], _WORKER)], []
    for direction, before in zip(DIRECTIONS, (-1, 1), strict=True):
        own, meeting = _passed_on(table, direction, before, last)
        edges += own
        meetings.append(meeting)
    edges += _around(others, compute)
    group = _groups(table, others, meetings)
    size = np.bincount(group)[group]
    expected = np.where(is_transfer, 2, size)
    is_lacking = size != expected
    for _, rows in others.groupby("name"):
        is_lacking[rows.index] = size[rows.index] != np.median(size[rows.index])
    sign = np.where(compute["name"] == COMPUTES[0], 1, -1)
    surplus = compute[_WORKER].assign(n=sign).groupby(_WORKER)["n"].sum()
    uneven = surplus.index.get_level_values("step")[surplus != 0]
    both = np.concatenate(edges)
    broken = {*table["step"].to_numpy()[is_lacking].tolist(), *uneven.tolist()}
    return rendezvous_of(group, both[:, 0].astype(np.int64), both[:, 1].astype(np.int64)), broken


def _in_turn(rows: pd.DataFrame, by: list[str]) -> I64:
    """Pairs of rows that follow each other on a worker; `rows` are in order."""
    number = rows.groupby(by).ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    at = rows.index.to_numpy()[order]
    same = np.diff(number[order]) == 0
    return np.column_stack([at[:-1][same], at[1:][same]])


def _passed_on(
    table: pd.DataFrame, direction: str, before: int, last: int
) -> tuple[list[I64], pd.DataFrame]:
    """Edges of the compute, receives and sends of a direction; and the pairs that meet."""
    compute, receives, sends = (
        table[table["name"] == f"{direction}-{one}"].sort_values("position", kind="stable")
        for one in (COMPUTE, "recv", "send")
    )
    turns = _in_turn(compute, _WORKER)
    previous = pd.Series(turns[:, 0], index=turns[:, 1])
    first, final = (0, last) if before < 0 else (last, 0)
    taken = _paired(receives, compute[compute["stage"] != first])
    given = _paired(sends, compute[compute["stage"] != final])
    posted = previous.reindex(taken[:, 1])
    edges = [
        taken,
        given[:, ::-1],
        np.column_stack([posted.to_numpy(), taken[:, 0]])[posted.notna().to_numpy()],
        _in_turn(sends, _WORKER),
    ]
    both = np.concatenate([taken, given])
    owners = table.loc[both[:, 1]]
    stage = owners["stage"].to_numpy() + np.repeat([before, 0], [len(taken), len(given)])
    meeting = owners[["step", "dp", "tp", "mb"]].assign(stage=stage).set_axis(both[:, 0])
    return edges, meeting


def _paired(transfers: pd.DataFrame, compute: pd.DataFrame) -> I64:
    """The n-th transfer of a worker with its n-th compute that has one."""
    place = compute.groupby(_WORKER).cumcount()
    key = [*_WORKER, "position"]
    left = transfers[key].assign(transfer=transfers.index)
    right = compute[key].assign(position=place, compute=compute.index)
    return left.merge(right, on=key)[["transfer", "compute"]].to_numpy(np.int64)


def _around(others: pd.DataFrame, compute: pd.DataFrame) -> list[I64]:
    """Edges of what a worker does before its first compute, and after its last."""
    bounds = compute.groupby(_WORKER)["start_ns"].agg(["min", "max"])
    at = others.join(bounds, on=_WORKER)
    rows = compute.assign(row=compute.index).groupby(_WORKER)["row"].agg(["first", "last"])
    opening, closing = at[at["start_ns"] < at["min"]], at[~(at["start_ns"] < at["max"])]
    ends = opening.groupby(_WORKER).tail(1).join(rows, on=_WORKER).dropna(subset="first")
    begins = closing.groupby(_WORKER).head(1).join(rows, on=_WORKER).dropna(subset="last")
    return [
        _in_turn(opening, _WORKER),
        np.column_stack([ends.index, ends["first"]]),
        np.column_stack([begins["last"], begins.index]),
        _in_turn(closing, _WORKER),
    ]


def _groups(table: pd.DataFrame, others: pd.DataFrame, meetings: list[pd.DataFrame]) -> I64:
    """The group of each slice: those that begin together share one."""
    group = np.arange(len(table), dtype=np.int64)
    for pairs in meetings:
        group[pairs.index] = group.max() + 1 + pairs.groupby([*pairs.columns]).ngroup().to_numpy()
        group = _renumbered(group)
    for (name, kind), rows in others.groupby(["name", "kind"]):
        shared = _MEMBERS.get(str(name), _MEMBERS_BY_KIND.get(str(kind)))
        if shared is not None:
            keys = ["step", *shared, "position"]
            group[rows.index] = group.max() + 1 + rows.groupby(keys).ngroup().to_numpy()
    return _renumbered(group)


def _renumbered(group: I64) -> I64:
    return np.unique(group, return_inverse=True)[1].astype(np.int64)
