"""A short run of each fuzzer; ``python -m tests.fuzzing --minutes 30`` runs them for long."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from htagraph.cli.demo import warm
from tests.fuzzing.kinds import KINDS
from tests.fuzzing.running import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")


_SHORT = {
    "kineto": (40, {"valid", "repaired", "TraceFormatError"}),
    "traces": (8, {"valid", "repaired"}),
    "jobs": (1, {"answered"}),
    "losses": (4, {"same"}),
    "graphs": (30, {"valid", "refused"}),
    "nsys": (10, {"repaired", "TraceFormatError"}),
    "perfetto": (30, {"repaired", "TraceFormatError"}),
    "companions": (10, {"matched"}),
}
"""How many inputs take a second or two, and what becomes of some of them."""


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile before an input is answered: LLVM takes more memory and time than any input may."""
    warm(quiet=True)


@pytest.mark.some(1)
@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_broken_is_answered_or_refused_by_us(tmp_path: Path, kind: str, times: int) -> None:
    """No exception but htagraph's own, no broken law, nothing lost without being counted."""
    n_inputs, expected = _SHORT[kind]

    outcomes = run(kind, KINDS[kind], inputs=times * n_inputs, seed=times, folder=tmp_path)

    assert expected <= set(outcomes)
