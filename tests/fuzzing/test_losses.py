"""What a trace or a job has lost is told, or changes no headline: the law of `tests.headlines`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.fuzzing.losses import files_of, whole
from tests.headlines import answer, damaged_files, outcome, written

SAME = ("same", "same, told")
"""Nothing was lost that answers need."""
TOLD = ("same, told", "wrong, told", "withheld")
"""Much was lost, and whoever compares the files can see it."""
LAWFUL = (*SAME, *TOLD)
"""How much it matters depends on what it hit."""

ONE_RANK = {
    "lost_inner_step": TOLD,
    "cut_file": TOLD,
    "silent_device": TOLD,
    "doubled": SAME,
    "lost_collectives": LAWFUL,
    "lost_buffer": LAWFUL,
    "lost_flows": LAWFUL,
    "lost_correlations": LAWFUL,
    "lost_calls": LAWFUL,
    "stopped_stream": LAWFUL,
    "stopped_thread": LAWFUL,
    "clock_set_back": LAWFUL,
    "shifted_clock": SAME,
    "larger": SAME,
}
"""What is lost of one trace, and what may become of its headline."""

SOME_RANKS = ONE_RANK | {
    "lost_step": TOLD,
    "absent_rank": TOLD,
    "one_trace_twice": TOLD,
    "stopped_recording": LAWFUL,
    "lost_collective_calls": LAWFUL,
    "clock_set": LAWFUL,
}
"""What is lost of a job."""

CAPTURED = SOME_RANKS | {"shifted_clock": LAWFUL}
"""Captures of one host: clocks of its processes are one clock, until they contradict each other."""

_OF_DEVICES = ("silent_device", "lost_buffer", "lost_flows", "lost_correlations", "lost_calls",
               "stopped_stream")  # fmt: skip


def _cases() -> list[object]:
    """Sources with what they lose: the first of each in every run of the tests, the rest slow."""
    rows = [
        *(("all-reduce", kind, how) for kind, how in ONE_RANK.items()),
        *(("late host", kind, how) for kind, how in SOME_RANKS.items() if kind not in ONE_RANK),
    ]
    slow = [
        *((source, kind, ONE_RANK[kind])
          for source in ("syncs", "compute", "data loader", "small kernels", "synchronous copies")
          for kind in ONE_RANK),
        *(("late host", kind, how) for kind, how in ONE_RANK.items()),
        *((source, kind, how)
          for source in ("late kernels", "late loader", "pipeline")
          for kind, how in SOME_RANKS.items()),
        *((source, kind, how)
          for source in ("ddp_sleep_2", "allreduce_2", "ddp_sleep_4", "fsdp2_2", "pipeline_2")
          for kind, how in CAPTURED.items() if kind not in _OF_DEVICES),
    ]  # fmt: skip
    return [pytest.param(*row, id=f"{row[0]}-{row[1]}") for row in rows] + [
        pytest.param(*row, id=f"{row[0]}-{row[1]}", marks=pytest.mark.slow) for row in slow
    ]


@pytest.mark.some(2)
@pytest.mark.parametrize(("source", "kind", "lawful"), _cases())
def test_a_loss_is_told_or_changes_no_headline(
    source: str, kind: str, lawful: tuple[str, ...], tmp_path: Path
) -> None:
    """Of the first draw that hits anything."""
    files, lost, seed = files_of(source), "", 0
    while not lost and seed < 20:
        seed += 1
        files, lost = damaged_files(files_of(source), np.random.default_rng(seed), [kind])
    now = answer(written(files, tmp_path))

    how = outcome(whole(source), now)
    assert how in lawful, f"{lost}: {whole(source).headline} -> {now.headline} {sorted(now.said)}"
    assert lost
