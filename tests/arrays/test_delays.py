"""Delays that are each counted once, against sums over all stretches."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.delays import new_delays

_instants = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 100), st.integers(0, 60)), max_size=4
)


@given(_instants)
def test_a_delay_is_new_but_for_what_arose_since_in_stretches_before(instants):
    """Each stretch ends at its instant; its delay arises evenly over it, and fits into it."""
    seen = np.cumsum([100, *(step for step, _, _ in instants)])[1:]
    since = np.array([at - min(back, at) for at, (_, back, _) in zip(seen, instants, strict=True)])
    delay = np.array([late for *_, late in instants], dtype=np.int64)

    begin, new = new_delays(seen, since.astype(np.int64), delay)

    for at in range(len(seen)):
        assert begin[at] == max(since[at], seen[at - 1] if at else since[at])
        arose = sum(
            new[i] * max(seen[i] - max(begin[i], since[at]), 0) / max(seen[i] - begin[i], 1)
            for i in range(at)
        )
        most = seen[at] - begin[at]
        assert abs(new[at] - np.clip(delay[at] - arose, 0, most)) <= 1
        assert 0 <= new[at] <= most
