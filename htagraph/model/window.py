"""Half-open time windows ``[start_ns, end_ns)``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from htagraph.errors import QueryError

WindowClock = Literal["host", "device"]
"""Whether a step's name stands for the host range, or for the device work launched in it."""


@dataclass(frozen=True)
class Window:
    """A half-open interval of a trace.

    Parameters
    ----------
    start_ns, end_ns : int, unit=ns
        ``start_ns <= end_ns``.
    name : str
        As requested: ``ProfilerStep#3``, ``trace``.
    anchor : int
        Node that the window ends with by definition (the end of a step's host range), -1 for none.
    n_steps : int
        Whole steps that it consists of, 0 if it is not made of steps.

    Examples
    --------
    >>> Window(10, 30, "x").dur_ns
    20
    """

    start_ns: int
    end_ns: int
    name: str
    anchor: int = -1
    n_steps: int = 0

    def __post_init__(self) -> None:
        """Check the order of the bounds."""
        if self.end_ns < self.start_ns:
            raise QueryError(
                f"window {self.name!r} ends before it starts "
                f"({self.start_ns:,} > {self.end_ns:,} ns).",
                hint="give (start_ns, end_ns) with start_ns <= end_ns.",
            )

    @property
    def dur_ns(self) -> int:
        """Length of the window."""
        return self.end_ns - self.start_ns

    @property
    def step_ns(self) -> float:
        """Step time: the mean length of its steps; 0 if it is not made of steps."""
        return self.dur_ns / self.n_steps if self.n_steps else 0.0


def pair_of(window: object, *, hint: str) -> tuple[Any, Any]:
    """Start and end of a window given as any pair; `hint` says what to give instead."""
    match [*window] if isinstance(window, Iterable) else []:
        case [Real() as start_ns, Real() as end_ns]:
            return start_ns, end_ns
    raise QueryError(f"{window!r} is not a window.", hint=hint)
