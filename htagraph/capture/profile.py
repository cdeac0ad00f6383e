"""`profile`: a profiler with a schedule and a handler, for a block of training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from htagraph.capture.asked import asked
from htagraph.capture.handler import TraceHandler
from htagraph.capture.trace_file import TraceFile
from htagraph.errors import QueryError
from htagraph.model.units import human_count

_WARM_UP = 2
"""Steps of warm-up, chosen: the profiler's own start is slow. Pinned by `test_handler.py`."""

_OWN_OPTIONS = ("schedule", "on_trace_ready")


@contextmanager
def profile(
    folder: str | Path,
    *,
    skip: int = 5,
    steps: int = 2,
    report: bool = True,
    timeout_s: float = 120.0,
    sample_ms: float = 1.0,
    keep: str | Path | None = None,
    **options: Any,  # noqa: ANN401
) -> Iterator[Any]:
    """Profiler for a few steps of a block of training, which then reports what limits them.

    Call its `step()` after each step. The first steps are skipped, because they include one-time
    work. If the block ends before the steps to record, the very first step is kept. If `step()` is
    never called, the whole block is recorded as one step, which suits a short block. A message says
    so in both cases.

    Parameters
    ----------
    folder : str or Path
        For the traces and reports of all ranks, as of `handler`.
    skip : int, default=5
        Steps to skip.
    steps : int, default=2
        Steps to record after that.
    report : bool, default=True
        Whether rank 0 writes a report after the block, and prints its verdict.
    timeout_s : float, default=120, unit=s
        How long rank 0 waits for the files of the other ranks.
    sample_ms : float, default=1, unit=ms
        How often the Python stacks of all threads are sampled, 0 for never; as of `handler`.
    keep : str or Path, optional
        Folder in whose ``.htagraph`` the run is kept, for `history`: one row, with its commit. It
        may be `folder`. Needs the report.
    **options
        Of ``torch.profiler.profile``, for example ``with_stack=True``. By default it records all
        activities that this torch supports, and CUDA synchronization events.

    Returns
    -------
    context manager of torch.profiler.profile

    Raises
    ------
    QueryError
        If there is no step to record, or an option that is set here.
    """
    skip, steps = asked("skip", skip), asked("steps", steps)
    if skip < 0 or steps < 1:
        raise QueryError(f"skip={skip}, steps={steps} records no step.", hint="give steps=1.")
    if own := sorted(options.keys() & set(_OWN_OPTIONS)):
        raise QueryError(
            f"hg.profile sets {own[0]}= itself.",
            hint="use torch.profiler.profile(…, on_trace_ready=hg.handler(folder)).",
        )
    if keep is not None and not report:
        raise QueryError("keep= needs the report.", hint="leave out report=False.")
    from torch.profiler import ProfilerAction  # noqa: PLC0415  torch is no dependency
    from torch.profiler import profile as torch_profile  # noqa: PLC0415

    if "experimental_config" not in options:
        with suppress(ImportError, TypeError):  # of a torch that has no such events
            from torch.profiler import _ExperimentalConfig  # noqa: PLC0415

            options["experimental_config"] = _ExperimentalConfig(enable_cuda_sync_events=True)
    sample_ms = 0.0 if options.get("with_stack") else sample_ms
    handler = TraceHandler(
        folder, report=report, timeout_s=timeout_s, sample_ms=sample_ms, keep=keep
    )
    block = _Block(handler, skip, steps)

    def schedule(step: int) -> Any:  # noqa: ANN401
        return ProfilerAction[block.action(step)]

    profiler = torch_profile(schedule=schedule, on_trace_ready=block, **options)
    try:
        with profiler:
            yield profiler
    finally:
        block.end(profiler.step_num)


class _Block:
    """A block of steps. The first is recorded as a fallback for the requested ones."""

    def __init__(self, handler: TraceHandler, skip: int, steps: int) -> None:
        self._handler = handler
        self._skip = skip
        self._steps = steps
        self._is_first = skip > 0
        self._first: TraceFile | None = None
        self._requested: TraceFile | None = None

    def action(self, step: int) -> str:
        """What the profiler does in a step."""
        to_go = self._skip + self._steps - 1 - step
        if to_go == 0 or step == 0 < self._skip:
            return "RECORD_AND_SAVE"
        if to_go < 0 or step < self._skip - _WARM_UP:
            return "NONE"
        return "WARMUP" if step < self._skip else "RECORD"

    def __call__(self, profiler: Any) -> None:  # noqa: ANN401  torch is no dependency
        """Write what was recorded: the first step, then the requested ones."""
        if self._is_first:
            self._is_first = False
            self._first = self._handler.exported(profiler, 0)
            if profiler.step_num > 0:
                profiler.profiler = None  # else torch warns that it clears the events of this cycle
        elif profiler.step_num > self._skip or self._first is None:
            self._requested = self._handler.exported(profiler, self._skip)

    def end(self, n_steps: int) -> None:
        """Keep the trace of the requested steps, else of the first one."""
        if self._requested is not None and self._first is not None:
            self._first.discard()
        file = self._requested or self._first
        if file is not None:
            self._notice_what_is_recorded(n_steps)
            self._handler.finish(file, is_last=True)

    def _notice_what_is_recorded(self, n_steps: int) -> None:
        """Print which steps the trace has, unless they are the requested ones."""
        n_recorded = min(n_steps - self._skip, self._steps)
        if n_recorded == self._steps:
            return
        if n_steps == 0:
            message = (
                "step() was never called, so the whole block is one step. Call it after each step "
                f"to record {human_count(self._steps, 'step')} only."
            )
        elif self._requested is None:
            message = (
                f"the block ended after {human_count(n_steps, 'step')}, within skip={self._skip}: "
                "the trace has only the very first step, with its one-time work. Let the block run "
                "longer, or give a smaller skip=."
            )
        else:
            message = (
                f"the block ended after {human_count(n_steps, 'step')}: the trace has "
                f"{n_recorded} of the {self._steps} steps to record."
            )
        self._handler.place.notice(message)
