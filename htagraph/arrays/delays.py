"""When delays arose that were observed at some instants: each is counted once.

Amounts split among parts, some of which pass theirs on to an earlier row.
"""

from __future__ import annotations

import numpy as np

from htagraph.arrays.passes import compiled
from htagraph.model.arrays import F64, I64


@compiled
def _new_delays(seen: I64, since: I64, delay: I64, begin: I64, new: I64, total: F64) -> None:
    """Fill where each stretch begins, and the delay that is new in it."""
    for at in range(len(seen)):
        first = np.searchsorted(seen[:at], since[at])
        before = total[first - 1] if first else 0.0
        if first < at and begin[first] < since[at] and new[first] > 0:
            share = (since[at] - begin[first]) / (seen[first] - begin[first])
            before += share * new[first]
        so_far = total[at - 1] if at else 0.0
        begin[at] = max(since[at], seen[at - 1]) if at else since[at]
        wanted = np.int64(delay[at] - (so_far - before))
        new[at] = min(max(wanted, 0), seen[at] - begin[at])
        total[at] = so_far + new[at]


def new_delays(seen_ns: I64, since_ns: I64, delay_ns: I64) -> tuple[I64, I64]:
    """Disjoint stretches, one before each instant, and by how much each became late in it.

    `seen_ns`: instants, ascending. `since_ns`: until when the run was in time before each instant;
    not after it. `delay_ns`: how late it was at each instant. `begin_ns`: each stretch ends with
    its instant. `new_ns`: the delay beyond what arose since `since_ns` in stretches before; at most
    the stretch.
    """
    begin, new = np.zeros_like(seen_ns), np.zeros_like(seen_ns)
    _new_delays(seen_ns, since_ns, delay_ns, begin, new, np.zeros(len(seen_ns)))
    return begin, new


@compiled
def _pass_on(
    amount: I64, first: I64, weight: F64, to: I64, own: I64, passed: I64, received: I64
) -> None:
    """Split each row, the last one first, since parts pass on to earlier rows."""
    for row in range(len(amount) - 1, -1, -1):
        whole = 0.0
        for part in range(first[row], first[row + 1]):
            whole += weight[part]
        sum_of_weights, own_before, passed_before = 0.0, 0, 0
        for part in range(first[row], first[row + 1]):
            sum_of_weights += weight[part]
            own_until = round(amount[row] * (sum_of_weights / whole))
            passed_until = round(received[row] * (sum_of_weights / whole))
            own[part] = own_until - own_before
            passed[part] = passed_until - passed_before
            own_before, passed_before = own_until, passed_until
            if to[part] >= 0:
                received[to[part]] += own[part] + passed[part]
                own[part] = 0
                passed[part] = 0


def pass_on(amount: I64, first: I64, weight: F64, to: I64) -> tuple[I64, I64]:
    """Split the amount of each row among its parts, by weight; parts may pass theirs on.

    What is passed to a row is split in the same way. The parts keep exactly the sum of the amounts.
    `amount` of shape (n_rows,): ``>= 0``. `first` of shape (n_rows + 1,): the parts of a row are
    ``first[row]:first[row + 1]``, one at least. `weight` of shape (n_parts,): ``> 0``. `to` of
    shape (n_parts,): an earlier row that takes the part; -1 if it is kept. `own`, `passed` of shape
    (n_parts,): what each part keeps of the amount of its row, and of what was passed to its row.
    """
    own, passed = np.zeros(len(to), dtype=np.int64), np.zeros(len(to), dtype=np.int64)
    _pass_on(amount, first, weight, to, own, passed, np.zeros_like(amount))
    return own, passed
