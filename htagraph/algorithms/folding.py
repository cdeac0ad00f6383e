"""Sequences in which cycles are folded: ``A B C A B C A B D`` is ``A B C D``.

Shorter cycles are folded first, so that cycles of cycles become visible: in ``A A B A B`` they are
``A B``. Each costs one pass, as in the search for tandem repeats (Main and Lorentz, 1984).
"""

from __future__ import annotations

import numpy as np

from htagraph.model.arrays import I64
from htagraph.native.passes import compiled


@compiled
def _fold(code: I64, place: I64, parent: I64, run: I64, longest: int) -> int:
    """Fold cycles in place; return how many places are left."""
    n, period = len(code), 1
    while period <= longest and 2 * period <= n:
        repeats = False
        run[n - period] = 0
        for at in range(n - period - 1, -1, -1):
            run[at] = run[at + 1] + 1 if code[at] == code[at + period] else 0
            repeats = repeats or run[at] >= period
        if not repeats:
            period += 1
            continue
        read, kept = 0, 0
        while read < n:
            first, length = kept, 1
            if read < n - period and run[read] >= period:
                length = run[read] + period
            for step in range(length):
                if step < period:
                    code[kept], place[kept] = code[read + step], place[read + step]
                    kept += 1
                else:
                    parent[place[read + step]] = place[first + step % period]
            read += length
        n, period = kept, 1
    return n


def folded(code: I64, longest: int) -> I64:
    """The place that each place of a sequence is folded onto: itself, or an earlier one.

    A cycle is folded if it occurs twice in a row at least; so is the beginning of the next one.

    Parameters
    ----------
    code : ndarray of shape (n,), dtype=int64
        In order.
    longest : int
        Codes of a cycle, at most.

    Examples
    --------
    >>> folded(np.array([1, 2, 3, 1, 2, 3, 1, 2, 4]), 5).tolist()
    [0, 1, 2, 0, 1, 2, 0, 1, 8]
    """
    parent = np.arange(len(code))
    run = np.empty(len(code) + 1, dtype=np.int64)
    _fold(code.copy(), parent.copy(), parent, run, longest)
    while len(moved := np.flatnonzero(parent[parent] != parent)):
        parent[moved] = parent[parent[moved]]
    return parent
