"""Which trace of a training block is kept, and the warning if it is not the requested one."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.capture.handler import TraceHandler
from htagraph.capture.profile import _Block
from tests.capture.profiler import Action, Profiler, settled


@pytest.mark.parametrize(
    ("skip", "steps", "expected"),
    [
        (5, 2, "SAVE NONE NONE WARMUP WARMUP RECORD SAVE NONE"),
        (2, 1, "SAVE WARMUP SAVE NONE"),
        (1, 2, "SAVE RECORD SAVE NONE"),
        (0, 2, "RECORD SAVE NONE"),
    ],
)
def test_a_block_records_the_first_step_to_be_sure_and_then_those_asked_for(skip, steps, expected):
    """After a warm-up of two steps, if so many are skipped."""
    block = _Block(TraceHandler("runs", report=False), skip, steps)
    planned = [block.action(step) for step in range(len(expected.split()))]

    assert " ".join(planned).replace("RECORD_AND_SAVE", "SAVE") == expected


@pytest.mark.parametrize(
    ("skip_and_steps", "kept", "said"),
    [
        ((5, 0), "rank0-step0", "step() was never called, so the whole block is one step"),
        ((5, 4), "rank0-step0", "the block ended after 4 steps, within skip=5"),
        ((5, 5), "rank0-step0", "the block ended after 5 steps, within skip=5"),
        (
            (5, 6),
            "rank0-step5",
            "the block ended after 6 steps: the trace has 1 of the 2 steps to record",
        ),
        ((5, 7), "rank0-step5", ""),
        ((5, 9), "rank0-step5", ""),
        ((1, 1), "rank0-step0", "the block ended after 1 step, within skip=1"),
        ((1, 3), "rank0-step1", ""),
        ((0, 0), "rank0-step0", "step() was never called"),
        ((0, 1), "rank0-step0", "the block ended after 1 step: the trace has 1 of the 2"),
        ((0, 2), "rank0-step0", ""),
    ],
)
def test_one_trace_is_kept_and_said_to_be_another_than_asked(
    tmp_path, capsys, skip_and_steps, kept, said
):
    """The requested steps, else the first one, else the whole block."""
    skip, n_steps = skip_and_steps
    block = _Block(TraceHandler(tmp_path, report=False), skip, 2)
    profiler = Profiler(block, schedule=lambda step: Action[block.action(step)])
    profiler.run(n_steps)
    block.end(profiler.step_num)
    settled()
    noticed = capsys.readouterr().err

    assert [path.name.split(".")[0] or path.name for path in tmp_path.iterdir()] == [kept]
    assert noticed.startswith(f"htagraph: {said}") if said else not noticed


@pytest.mark.parametrize("options", [{"schedule": None}, {"on_trace_ready": None}, {"steps": 0}])
def test_what_is_not_for_a_block_is_an_error(tmp_path, options):
    """Before anything is recorded."""
    with pytest.raises(hg.errors.QueryError), hg.profile(tmp_path, **options):
        raise AssertionError
