"""The version has one home."""

from __future__ import annotations

from importlib.metadata import version

import htagraph as hg


def test_the_installed_version_is_that_of_the_package():
    """Metadata are made from it when the package is built; install again where this fails."""
    assert version("htagraph") == hg.__version__
