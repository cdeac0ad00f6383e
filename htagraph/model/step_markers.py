"""Names that mark the steps of a trace: those of the profiler, and those of serving engines."""

from __future__ import annotations

import re

PROFILER_STEP = re.compile(r"^ProfilerStep\s*#(\d+)")
"""Name of a step of ``profiler.step()``: ``ProfilerStep#12``."""

STEP_MARKERS = {
    "profiler step": PROFILER_STEP,
    "serving marker": re.compile(
        r"^(execute_\w+|step\[\w+)|^execute_model|^(Prefill|Decode|EXTEND|DECODE)\b"
    ),
}
"""Patterns of host ranges that are steps, by what marks them; the first that a trace has counts."""


def step_number(name: str) -> int:
    """Number of a step of the profiler; -1 for any other name.

    Examples
    --------
    >>> step_number("ProfilerStep#12"), step_number("step[DECODE bs=1]")
    (12, -1)
    """
    found = PROFILER_STEP.fullmatch(name)
    return int(found[1]) if found else -1


def without_step_number(name: str) -> str:
    """The name that all steps of the profiler share; any other name stays.

    Examples
    --------
    >>> without_step_number("ProfilerStep#12"), without_step_number("aten::mm")
    ('ProfilerStep', 'aten::mm')
    """
    return "ProfilerStep" if PROFILER_STEP.fullmatch(name) else name
