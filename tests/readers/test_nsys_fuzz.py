"""A short run of the fuzzer; ``python -m tests.readers.nsys_fuzzing`` runs it for long."""

from __future__ import annotations

from tests.readers import nsys_fuzzing


def test_broken_exports_give_a_trace_or_an_error_of_the_package():
    """No crash, no hang, no foreign exception; each row is an event, or counted."""
    outcomes = nsys_fuzzing.run(seconds=3, seed=5)

    assert outcomes["repaired"] > 0
    assert outcomes["TraceFormatError"] > 0
