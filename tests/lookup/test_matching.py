"""Chains of patterns: how far a hop may reach."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.errors import QueryError


def test_a_hop_follows_64_edges_at_most() -> None:
    """More is a typing error, and would run for hours."""
    assert hg.hop("STREAM", at_most=64).at_most == 64
    with pytest.raises(QueryError, match="1 to 65 edges"):
        hg.hop("STREAM", at_most=65)
