"""How far a hop of a pattern may lead."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.errors import QueryError


def test_a_hop_follows_up_to_64_edges() -> None:
    """More is a typing error that would run for hours."""
    assert hg.hop("CHILD", at_least=0, at_most=64).at_most == 64
    for at_least, at_most in ((1, 65), (2, 1), (-1, 1)):
        with pytest.raises(QueryError, match=f"cannot follow {at_least} to {at_most} edges"):
            hg.hop("CHILD", at_least=at_least, at_most=at_most)
