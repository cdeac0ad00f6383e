"""A short run of the fuzzer; ``python -m tests.readers.fuzzing`` runs it for long."""

from __future__ import annotations

import pytest

from tests.readers import fuzzing


@pytest.mark.parametrize("seed", [11, 12])
def test_broken_bytes_give_a_trace_or_an_error_of_the_package(seed: int) -> None:
    """No crash, no hang, no foreign exception; what is mended is valid JSON with equal events."""
    outcomes = fuzzing.run(seconds=3, seed=seed)

    assert outcomes["repaired"] > 0
    assert outcomes["TraceFormatError"] > 0
