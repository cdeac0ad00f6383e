"""A short run of each fuzzer; ``python -m tests.fuzzing --minutes 30`` runs them for long."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from htagraph.cli.warm import warm
from tests.fuzzing.kinds import KINDS
from tests.fuzzing.running import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")


_SHORT = {
    "kineto": (150, {"valid", "repaired", "TraceFormatError"}),
    "traces": (8, {"valid", "repaired"}),
    "jobs": (4, {"answered"}),
    "losses": (8, {"same"}),
    "graphs": (120, {"valid", "refused"}),
    "nsys": (20, {"repaired", "TraceFormatError"}),
    "perfetto": (100, {"repaired", "TraceFormatError"}),
    "companions": (30, {"matched"}),
}
"""How many inputs take a few seconds, and what becomes of some of them."""


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile before an input is answered: LLVM takes more memory and time than any input may."""
    warm(quiet=True)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_broken_is_answered_or_refused_by_us(tmp_path: Path, kind: str, seed: int) -> None:
    """No exception but htagraph's own, no broken law, nothing lost without being counted."""
    n_inputs, expected = _SHORT[kind]

    outcomes = run(kind, KINDS[kind], inputs=n_inputs, seed=seed, folder=tmp_path)

    assert expected <= set(outcomes)
