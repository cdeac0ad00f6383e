"""Re-timing under several weights at once: as one after the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htagraph.algorithms.retime import DROPPED, retime, retime_at


@given(st.data())
def test_many_weights_at_once_are_as_one_after_the_other(data: st.DataObject) -> None:
    """Four weights of some edges, of which others are not there: more than one pass holds."""
    n = data.draw(st.integers(1, 8))
    into = [
        data.draw(st.lists(st.integers(0, node - 1), max_size=3)) if node else []
        for node in range(n)
    ]
    offsets = np.cumsum([0, *map(len, into)])
    tail = np.array([one for tails in into for one in tails], dtype=np.int32)
    m = len(tail)
    lags = st.one_of(st.integers(0, 99), st.just(DROPPED))
    weight = np.array(data.draw(st.lists(lags, min_size=m, max_size=m)), dtype=np.int64)
    release = np.array(data.draw(st.lists(st.integers(0, 99), min_size=n, max_size=n)))
    rows = np.flatnonzero(np.arange(m) % 2)
    some = st.lists(st.integers(0, 99), min_size=4 * len(rows), max_size=4 * len(rows))
    other = np.array(data.draw(some), dtype=np.int64).reshape(-1, 4)

    found = list(retime_at((offsets, tail, weight, release), rows, other))

    assert len(found) == 4
    for column, times in enumerate(found):
        changed = weight.copy()
        changed[rows] = other[:, column]
        assert times.tolist() == retime(offsets, tail, changed, release).tolist()
