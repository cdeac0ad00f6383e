"""The order in which each rank of a pipeline runs its actions, by the name of the schedule.

All schedules have one shape: forwards ahead, then a forward and a backward in turn, then the
backwards that are left. They differ in how many forwards are ahead, of two stages::

    gpipe  rank 0  [F0][F1][F2]        [B0][B1][B2]
           rank 1      [F0][F1][F2][B0][B1][B2]
    1f1b   rank 0  [F0][F1]    [B0][F2][B1]    [B2]
           rank 1      [F0][B0][F1][B1][F2][B2]

Interleaved: each rank holds several stages (chunks), and runs as many micro-batches as there are
ranks on one of them, then on the next. Zero bubble: gradients of weights run later than those of
inputs, where a rank would wait. Huang et al., "GPipe", 2019; Narayanan et al., "Efficient
large-scale language model training", 2021; Qi et al., "Zero bubble pipeline parallelism", 2023.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from htagraph.algorithms.pipelines import FORWARD, GRADIENT, INPUT, WEIGHT
from htagraph.model.arrays import I64

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero_bubble")
"""Schedules that have an order here."""


class Order(NamedTuple):
    """Actions, rank by rank and in the order of each; arrays have one entry per action.

    Stage s is on rank s modulo the number of ranks; a phase is its position in `PHASES`.
    """

    rank: I64
    stage: I64
    phase: I64
    micro_batch: I64


def round_of(n_ranks: int, n_batches: int) -> int:
    """Micro-batches that run on one stage before the rank's next one; 0 if rounds are uneven."""
    n_rounds = max(1, n_batches // n_ranks)
    return 0 if n_batches % n_rounds else n_batches // n_rounds


def order_of(schedule: str, n_ranks: int, n_batches: int, chunks: int = 1) -> Order:
    """The order of a schedule, one of `SCHEDULES`.

    Parameters
    ----------
    chunks : int
        Stages of each rank; if several, `round_of` must not be 0.

    Examples
    --------
    >>> one = order_of("1f1b", 2, 3)
    >>> ["FB"[phase] + str(number) for phase, number in zip(one.phase[:6], one.micro_batch[:6])]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    n, size = n_batches * chunks, round_of(n_ranks, n_batches) if chunks > 1 else n_batches
    rank, place = np.divmod(np.arange(n_ranks * n, dtype=np.int64), n)
    if schedule == "gpipe":
        ahead = np.full_like(rank, n)
    else:
        hops = 2 if schedule == "interleaved" else 1
        ahead = np.minimum((chunks - 1) * size + hops * (n_ranks - 1 - rank), n)
    chunk = place // size % chunks
    number = place // (size * chunks) * size + place % size
    forth, back = (each * n_ranks + rank for each in (chunk, chunks - 1 - chunk))
    is_split = schedule == "zero_bubble"
    # When each action's turn is; of one turn, a forward is first, then a backward, then weights.
    turns = [(FORWARD, forth, place), (INPUT if is_split else GRADIENT, back, place + ahead)]
    if is_split:
        turns.append((WEIGHT, back, place + ahead + rank))
    ranks, batches = np.tile(rank, len(turns)), np.tile(number, len(turns))
    phase = np.repeat([one[0] for one in turns], len(rank))
    stage, turn = (np.concatenate([one[at] for one in turns]) for at in (1, 2))
    order = np.lexsort((phase, turn, ranks))
    return Order(ranks[order], stage[order], phase[order], batches[order])
