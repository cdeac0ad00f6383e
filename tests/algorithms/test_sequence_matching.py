"""Aligning what should be one sequence."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htagraph.algorithms.sequence_matching import align


def places(*sequences: list[int]) -> list[list[int]]:
    return [found.tolist() for found in align([np.array(sequence) for sequence in sequences])]


def test_equal_sequences_are_aligned_element_by_element() -> None:
    """Even where elements repeat."""
    assert places([7, 7, 7], [7, 7, 7]) == [[0, 1, 2], [0, 1, 2]]


def test_what_is_missing_at_the_start_leaves_the_end_aligned() -> None:
    """As where a capture began later."""
    assert places([1, 2, 3, 4], [3, 4]) == [[0, 1, 2, 3], [2, 3]]


def test_what_the_longest_one_lacks_has_no_place() -> None:
    """9 is in one sequence only."""
    assert places([1, 2, 3], [1, 9]) == [[0, 1, 2], [0, -1]]


@given(st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=1, max_size=4))
def test_aligned_elements_are_equal_and_in_order(sequences: list[list[int]]) -> None:
    """Law: places rise, and what is placed is the same symbol as in the longest sequence."""
    reference = max(sequences, key=len)
    for sequence, found in zip(sequences, places(*sequences), strict=True):
        used = [
            (place, symbol) for place, symbol in zip(found, sequence, strict=True) if place >= 0
        ]
        assert [place for place, _ in used] == sorted({place for place, _ in used})
        assert all(reference[place] == symbol for place, symbol in used)
