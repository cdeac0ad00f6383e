"""Who of a job waits for whom, as tracks: one for each rank, with its collectives.

A rank that arrives before the others waits; the last one was late meanwhile. Arrows lead from its
arrival to the others, who can now continue::

    Findings: who waits for whom
      rank 2               [late, 2 ranks wait][all_reduce]
      rank 0       [waits for rank 2          ][all_reduce]
      rank 1         [waits for rank 2        ][all_reduce]
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.arrays.intervals import rows
from htagraph.model.colors import COLORS, LATE
from htagraph.model.colors import WAITS as WAITING
from htagraph.model.kinds import Bound
from htagraph.model.names import CRITICAL_PATH
from htagraph.model.units import human_count
from htagraph.writers.slice_packets import Flows, Slices, Strings
from htagraph.writers.tracks import Tracks

WAITS = ("rank", "start_ns", "dur_ns", "match", "operation", "last_rank", "n_waiting")
"""Columns of waits. A row is a collective of a rank, its wait before it (with `last_rank`, -1 if
unknown), or the time for which `n_waiting` ranks wait for it. What is not the case is -1, and
`operation` is empty.
"""

_ABOUT = (
    "Collectives of the ranks in common time. The last rank to arrive is late for as long as the "
    "one before it waits. Where nothing is drawn, a rank is at work."
)


def wait_slices(
    waits: pd.DataFrame, zero_ns: int, tracks: Tracks, strings: Strings, first_id: int
) -> Slices:
    """Waits as slices of a track for each rank, in the order in which ranks first appear.

    `waits`: with the columns `WAITS`. `zero_ns`: time that is 0 in the file. `tracks`, `strings`:
    get new entries. `first_id`: from which on ids of arrows are free.
    """
    lane, ranks = pd.factorize(waits["rank"])
    ts_ns = waits["start_ns"].to_numpy(np.int64) - zero_ns
    dur_ns = waits["dur_ns"].to_numpy(np.int64)
    placed = rows(lane.astype(np.int32), ts_ns, ts_ns + dur_ns)
    # Viewers order roots by name: this one comes after the findings, before the devices.
    root = tracks.root("Findings: who waits for whom", _ABOUT)
    uuids = np.array(
        [
            [tracks.child(f"rank {rank}", root, order) for _ in range(placed.row.max() + 1)]
            for order, rank in enumerate(ranks.tolist())
        ]
    )
    names, colors = _texts(waits)
    n = len(waits)
    return Slices(
        ts_ns=ts_ns,
        dur_ns=dur_ns,
        track=uuids[lane, placed.row],
        name=strings.add(names),
        category=np.broadcast_to(strings.add([CRITICAL_PATH]), n),
        color=strings.add(colors),
        is_instant=np.zeros(n, dtype=bool),
        boundary=placed.boundary,
        flows=_arrows(waits, first_id),
    )


def _texts(waits: pd.DataFrame) -> tuple[pd.Series[str], pd.Series[str]]:
    """Names of slices, and the texts that give them a color."""
    last, n_waiting = waits["last_rank"], waits["n_waiting"]
    late = {n: f"late, {human_count(n, 'rank')} wait{'' if n > 1 else 's'}" for n in set(n_waiting)}
    wait = {rank: f"waits for rank {rank}" if rank >= 0 else "waits" for rank in set(last)}
    names = n_waiting.map(late).where(n_waiting >= 0, last.map(wait))
    colors = pd.Series(LATE.perfetto, waits.index).where(n_waiting >= 0, WAITING.perfetto)
    is_idle = waits["operation"] == ""
    work = COLORS[Bound.COMMUNICATION].perfetto
    return names.where(is_idle, waits["operation"]), colors.where(is_idle, work)


def _arrows(waits: pd.DataFrame, first_id: int) -> Flows:
    """From each late arrival to the collectives of the ranks that waited for it."""
    numbered = waits[["rank", "match"]].assign(row=np.arange(len(waits)))
    ends = numbered[waits["n_waiting"] >= 0].merge(numbered[waits["operation"] != ""], on="match")
    ends = ends[ends["rank_x"] != ends["rank_y"]]
    ids = first_id + np.arange(len(ends))
    return Flows.of(np.concatenate([ends["row_x"], ends["row_y"]]), np.tile(ids, 2))
