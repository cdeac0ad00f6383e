"""`profile`: a profiler that is set up already, for a block of training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from htagraph.capture.handler import TraceHandler
from htagraph.capture.notices import say
from htagraph.capture.trace_file import TraceFile
from htagraph.errors import QueryError
from htagraph.model.units import human_count

__all__ = ["profile"]

_WARM_UP = 2
_OURS = ("schedule", "on_trace_ready")


@contextmanager
def profile(
    folder: str | Path,
    *,
    skip: int = 5,
    steps: int = 2,
    report: bool = True,
    timeout_s: float = 120.0,
    **options: Any,  # noqa: ANN401
) -> Iterator[Any]:
    """Profiler of a few steps of a block of training, which then says what bounds them.

    Call `step()` of it after each step. The first ones are skipped, as they do what is done only
    once. Of a block that ends before the steps to record, the very first step is kept. If `step()`
    is never called, all of the block is recorded as one step: for a short block. Either is said.

    Parameters
    ----------
    folder : str or Path
        For the traces and reports of all ranks, as of `handler`.
    skip : int, default=5
        How many steps to skip.
    steps : int, default=2
        How many to record then.
    report : bool, default=True
        Whether rank 0 writes a report when the block has ended, and prints its verdict.
    timeout_s : float, default=120, unit=s
        How long rank 0 waits for the files of the others.
    **options
        Of ``torch.profiler.profile``, for example ``with_stack=True``; by default, it records all
        activities that this torch can, and the waits of CUDA.

    Returns
    -------
    context manager of torch.profiler.profile

    Raises
    ------
    QueryError
        If there is no step to record, or an option is not for this.
    """
    if skip < 0 or steps < 1:
        raise QueryError(f"skip={skip}, steps={steps} records no step.", hint="give steps=1.")
    if ours := sorted(options.keys() & _OURS):
        raise QueryError(
            f"{ours[0]}= is not for hg.profile.",
            hint="use torch.profiler.profile(…, on_trace_ready=hg.handler(folder)).",
        )
    from torch.profiler import ProfilerAction  # noqa: PLC0415  torch is no dependency
    from torch.profiler import profile as torch_profile  # noqa: PLC0415

    if "experimental_config" not in options:
        options |= _recording_waits()
    block = _Block(TraceHandler(folder, report=report, timeout_s=timeout_s), skip, steps)

    def schedule(step: int) -> Any:  # noqa: ANN401
        return ProfilerAction[block.action(step)]

    profiler = torch_profile(schedule=schedule, on_trace_ready=block, **options)
    try:
        with profiler:
            yield profiler
    finally:
        block.end(profiler.step_num)


class _Block:
    """A block of steps: the first one is recorded to be sure, and given up for those asked for."""

    def __init__(self, handler: TraceHandler, skip: int, steps: int) -> None:
        self._handler = handler
        self._skip = skip
        self._steps = steps
        self._is_first = skip > 0
        self._first: TraceFile | None = None
        self._asked: TraceFile | None = None

    def action(self, step: int) -> str:
        """What the profiler does in a step."""
        to_go = self._skip + self._steps - 1 - step
        if to_go == 0 or step == 0 < self._skip:
            return "RECORD_AND_SAVE"
        if to_go < 0 or step < self._skip - _WARM_UP:
            return "NONE"
        return "WARMUP" if step < self._skip else "RECORD"

    def __call__(self, profiler: Any) -> None:  # noqa: ANN401  torch is no dependency
        """Write what was recorded: the first step, then those asked for."""
        if self._is_first:
            self._is_first = False
            self._first = self._handler.exported(profiler, 0)
            if profiler.step_num > 0:
                profiler.profiler = None  # else it warns that its events are cleared now
        elif profiler.step_num > self._skip or self._first is None:
            self._asked = self._handler.exported(profiler, self._skip)

    def end(self, n_steps: int) -> None:
        """Keep the trace of the steps asked for, else of the first one, and say which it is."""
        if self._asked is not None and self._first is not None:
            self._first.discard()
        file = self._asked or self._first
        if file is not None:
            self._say_what_is_recorded(n_steps)
            self._handler.finish(file, is_last=True)

    def _say_what_is_recorded(self, n_steps: int) -> None:
        """Say it, if it is not what was asked for."""
        n_recorded = min(n_steps - self._skip, self._steps)
        if n_recorded == self._steps:
            return
        if n_steps == 0:
            said = (
                "step() was never called: all of the block is recorded, as one step. Call it after "
                f"each step to record {human_count(self._steps, 'step')} alone."
            )
        elif self._asked is None:
            said = (
                f"the block ended after {human_count(n_steps, 'step')}, within the {self._skip} to "
                "skip: the trace is of the very first step, with what is done only once. Let it "
                "run longer, or give a smaller skip=."
            )
        else:
            said = (
                f"the block ended after {human_count(n_steps, 'step')}: of the {self._steps} to "
                f"record, the trace has {n_recorded}."
            )
        say(said, self._handler.place)


def _recording_waits() -> dict[str, Any]:
    """The option that has a profiler record waits of CUDA, if this torch has it."""
    try:
        from torch.profiler import _ExperimentalConfig  # noqa: PLC0415  torch is no dependency

        return {"experimental_config": _ExperimentalConfig(enable_cuda_sync_events=True)}
    except (ImportError, TypeError):
        return {}
