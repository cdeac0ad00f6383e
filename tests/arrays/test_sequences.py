"""Repeated sequences, told by words."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.sequences import repeats


def _words(text: str, *, min_length: int = 1, max_length: int = 8) -> dict[str, int]:
    """How often each repeated sequence of letters occurs; a space begins another lane."""
    letters = [letter for letter in text if letter != " "]
    lane = np.array(
        [text[:i].count(" ") for i, letter in enumerate(text) if letter != " "], dtype=np.int64
    )
    code = np.array([ord(letter) for letter in letters], dtype=np.int64)
    found = repeats(code, lane, min_length=min_length, max_length=max_length)
    rows = zip(found.start.tolist(), found.length.tolist(), strict=True)
    words = ["".join(letters[a : a + n]) for a, n in rows]
    number = {word: number for number, word in enumerate(dict.fromkeys(words))}
    assert found.sequence.tolist() == [number[word] for word in words]
    return {word: words.count(word) for word in words}


def test_what_occurs_once_is_not_there():
    """Nothing repeats in a word of different letters."""
    assert _words("abcdef") == {}


def test_a_sequence_that_is_always_part_of_a_longer_one_is_left_out():
    """B and ab and bc occur only in abc."""
    assert _words("abcxabcyabc") == {"abc": 3}


def test_parts_of_a_sequence_that_is_too_long_are_left_out_with_it():
    """Abc has three letters, and two are the most."""
    assert _words("abcxabc", max_length=2) == {}
    assert _words("abcxabc", max_length=3) == {"abc": 2}


def test_a_part_that_also_occurs_elsewhere_is_kept():
    """Ab occurs four times, abc three."""
    assert _words("abcxabcyabczab") == {"ab": 4, "abc": 3}


def test_a_sequence_repeated_is_the_sequence():
    """Abab is ab twice, and counts as that."""
    assert _words("ababababab") == {"ab": 5}


def test_occurrences_do_not_overlap():
    """Aba in ababa begins twice, but only one fits."""
    assert "aba" not in _words("ababa")


def test_sequences_do_not_cross_lanes():
    """The last of one stream and the first of another are no neighbors."""
    assert _words("ab ab") == {"ab": 2}
    assert _words("xa bx", min_length=2) == {}
    assert _words("a ba b", min_length=2) == {}


@given(text=st.text("ab ", max_size=30))
def test_every_sequence_occurs_as_often_as_a_search_finds_it(text):
    """`str.count` counts from the left without overlap, lane by lane."""
    for word, n in _words(text).items():
        assert sum(lane.count(word) for lane in text.split(" ")) == n >= 2
