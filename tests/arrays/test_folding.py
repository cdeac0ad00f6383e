"""Cycles of letters, folded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htagraph.writers.path_outline import folded


def _parents(text: str, longest: int = 8) -> list[int]:
    return folded(np.array([ord(letter) for letter in text], dtype=np.int64), longest).tolist()


def _folded(text: str, longest: int = 8) -> str:
    """The letters that are left."""
    return "".join(text[at] for at in sorted(set(_parents(text, longest))))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("", ""),
        ("abc", "abc"),
        ("aaaa", "a"),
        ("abababc", "abc"),
        ("xabcabcabcy", "xabcy"),
    ],
)
def test_a_cycle_is_left_once(text: str, left: str) -> None:
    """What comes once stays."""
    assert _folded(text) == left


def test_the_beginning_of_one_more_cycle_is_folded_too() -> None:
    """The third cycle stops after its first letter."""
    assert _folded("abcabcax") == "abcx"
    assert _parents("abcabcax")[6] == 0


def test_cycles_of_cycles_are_folded() -> None:
    """A layer runs more often in one step than in the other; the steps are still one."""
    assert _folded("ababab" + "s" + "abab" + "s") == "abs"


def test_a_letter_that_comes_again_elsewhere_is_another_place() -> None:
    """Nothing repeats at once."""
    assert _folded("abcabd") == "abcabd"
    assert _folded("abca") == "abca"


def test_longer_cycles_than_asked_for_stay() -> None:
    """Three letters, and two are the most."""
    assert _folded("abcabc", longest=2) == "abcabc"


@given(st.text(alphabet="abc", max_size=40))
def test_every_place_is_folded_onto_an_earlier_one_of_its_letter(text: str) -> None:
    """Which itself stays; and what is left has no cycle any more."""
    parents, left = _parents(text), _folded(text)
    for at, parent in enumerate(parents):
        assert parent <= at
        assert text[parent] == text[at]
        assert parents[parent] == parent
    assert _folded(left) == left
