"""`profile`: a profiler with a schedule and a handler, for a block of training."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

from htagraph.capture.asked import asked
from htagraph.capture.handler import TraceHandler
from htagraph.capture.trace_file import TraceFile
from htagraph.errors import QueryError
from htagraph.model.units import human_count

_WARM_UP = 2
"""Steps of warm-up, chosen: the profiler's own start is slow. Pinned by `test_handler.py`."""

_TIMED = 4
"""Steps that are timed after the recording, for each that was recorded: chosen, as a median of few
is off by 15% on a shared machine. Pinned by `test_handler.py`."""

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
    so in both cases. If the block continues, four times as many steps are timed without being
    recorded, which tells by how much recording slows them.

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
        self._began_ns: dict[int, int] = {}  # When steps after the recording did

    def action(self, step: int) -> str:
        """What the profiler does in a step that begins."""
        if self._requested is not None:
            self._time(step)
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
            self._time(profiler.step_num)

    def _time(self, step: int) -> None:
        """Note when a step begins after the recording, of those that are timed."""
        n_timed = _TIMED * self._steps
        if step in self._began_ns or (n := len(self._began_ns)) > n_timed:
            return
        if n in (n_timed // 2, n_timed) and (device := _device()) is not None:
            device.synchronize()
        self._began_ns[step] = time.perf_counter_ns()

    @property
    def _unrecorded(self) -> dict[str, int]:
        """How many steps were timed after the recording, and how long one takes.

        The first half begins with what was loaded ahead while the trace was written. The host runs
        ahead of a device, so there only the mean is known, between two synchronizations.
        """
        each_ns = [end - start for start, end in pairwise(self._began_ns.values())]
        half_ns, is_ahead = each_ns[len(each_ns) // 2 :], _device() is not None
        if not half_ns or (is_ahead and len(each_ns) < _TIMED * self._steps):
            return {}
        return {
            "steps": len(half_ns),
            "step_ns": round(mean(half_ns) if is_ahead else median(half_ns)),
        }

    def end(self, n_steps: int) -> None:
        """Keep the trace of the requested steps, else of the first one."""
        if self._requested is not None and self._first is not None:
            self._first.discard()
        file = self._requested or self._first
        if file is not None:
            file = replace(file, unrecorded=self._unrecorded)
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


def _device() -> Any | None:  # noqa: ANN401  torch is no dependency
    """The module of the device that this process uses; None for none that runs ahead."""
    used = (getattr(sys.modules.get("torch"), name, None) for name in ("cuda", "xpu"))
    return next((one for one in used if one is not None and one.is_initialized()), None)
