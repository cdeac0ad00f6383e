"""A short run of the fuzzer; ``python -m tests.readers.perfetto_fuzzing`` runs it for long."""

from __future__ import annotations

from tests.readers import perfetto_fuzzing


def test_broken_bytes_give_a_recording_or_an_error_of_the_package() -> None:
    """No crash, no hang, no foreign exception; no slice is missing without a count."""
    outcomes = perfetto_fuzzing.run(seconds=2, seed=11)

    assert outcomes["repaired"] > 0
    assert outcomes["TraceFormatError"] > 0
