"""Cycles of a profiler: which steps one recorded, and whether another follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

_FAR = 10_000
"""Steps within which the next cycle must begin, chosen: later ones get a report of their own.
Pinned by `tests/capture/test_handler.py`."""

_RECORDING = frozenset({"RECORD", "RECORD_AND_SAVE"})


@dataclass(frozen=True)
class Cycle:
    """A cycle that ended.

    Parameters
    ----------
    step : int, optional
        Its first step, None if the profiler counts no steps.
    is_last : bool
        No other follows, as far as the schedule tells.
    n_steps : int, default=-1
        Whole steps that it recorded, -1 if unknown.
    """

    step: int | None
    is_last: bool
    n_steps: int = -1

    @classmethod
    def ended(cls, profiler: Any, before: int) -> Cycle:  # noqa: ANN401  torch has no door here
        """The cycle that just ended, when a profiler calls `on_trace_ready`.

        Parameters
        ----------
        before : int
            Step in which the previous cycle ended, -1 for none.
        """
        step: int | None = getattr(profiler, "step_num", None)
        schedule = getattr(profiler, "schedule", None)
        if step is None or not getattr(profiler, "record_steps", False):
            return cls(None, is_last=True)
        if not isinstance(schedule, FunctionType):
            return cls(step, is_last=False)  # calling an object might change its state

        def action(number: int) -> str:
            return str(schedule(number).name)

        try:
            stopped = _was_stopped(profiler, action, step, before)
            first = step if stopped else step - 1
            while first > max(before, 0) and action(first - 1) == "RECORD":
                first -= 1
            last = stopped or not any(action(step + n) in _RECORDING for n in range(_FAR))
        except Exception:  # noqa: BLE001  a schedule is the user's code
            return cls(step, is_last=False)
        return cls(first, last, step - first)


def _was_stopped(
    profiler: Any,  # noqa: ANN401
    action: Callable[[int], str],
    step: int,
    before: int,
) -> bool:
    """Whether `stop()` ended the cycle, not the step after its last one."""
    if profiler.current_action.name == "DEVICE_STOPPED":
        return False
    return step in (0, before) or action(step - 1) != "RECORD_AND_SAVE"
