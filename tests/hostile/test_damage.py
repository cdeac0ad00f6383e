"""Damaged files cost no more than whole ones, and keep all events before the damage."""

from __future__ import annotations

import gzip
import json
import os

import numpy as np
import pytest

import htagraph as hg

N = 3_000
TEXT = json.dumps(
    {
        "traceEvents": [
            {
                "ph": "X", "cat": "cpu_op", "name": f"aten::op_{number % 97}", "pid": 1, "tid": 1,
                "ts": 1_700_000_000_000_000 + 10 * number, "dur": 8,
                "args": {"External id": number},
            }
            for number in range(N)
        ]
    }
).encode()  # fmt: skip
PACKED = gzip.compress(TEXT, 6)


def repairs_of(trace: hg.Trace) -> dict[str, int]:
    return dict(zip(trace.repairs["kind"], trace.repairs["n"], strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_after_a_flipped_bit_nothing_that_makes_no_sense_is_read(seed: int) -> None:
    """The checksum shows the damage, so no event is repaired."""
    chosen = np.random.default_rng(seed)
    damaged = bytearray(PACKED)
    damaged[chosen.integers(100, len(PACKED) - 8)] ^= 1 << chosen.integers(8)
    repairs = repairs_of(hg.load(bytes(damaged)))

    assert repairs["gzip damaged"] == 1
    assert not repairs.keys() & {"raw quote", "bare word", "torn event", "comma", "bad escape"}


def test_a_whole_file_of_broken_names_is_mended_to_its_end() -> None:
    """Its checksum is right: that is how the profiler wrote it."""
    broken = TEXT.replace(b'"aten::op_5"', b'"aten::"op"_5"')
    trace = hg.load(gzip.compress(broken))

    assert len(trace.events) == N
    assert repairs_of(trace) == {"raw quote": broken.count(b'"op"')}


def test_damage_in_a_later_part_of_a_gzip_file_keeps_what_came_before() -> None:
    half = TEXT.index(b"{", len(TEXT) // 2)
    first, second = gzip.compress(TEXT[:half]), bytearray(gzip.compress(TEXT[half:]))
    second[12] ^= 4
    trace = hg.load(first + bytes(second) + os.urandom(1 << 20))

    assert len(trace.events) >= N // 2 - 1
    assert repairs_of(trace)["gzip damaged"] == 1


def test_a_gzip_file_of_many_empty_parts_is_read() -> None:
    """Each once: what follows a part is not read anew."""
    trace = hg.load(gzip.compress(b"") * 20_000 + PACKED)

    assert (len(trace.events), repairs_of(trace)) == (N, {})
