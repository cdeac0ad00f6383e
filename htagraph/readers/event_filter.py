"""EventFilter: which events of a file to load."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from htagraph.errors import QueryError
from htagraph.model.window import pair_of

__all__ = ["EventFilter"]


@dataclass(frozen=True)
class EventFilter:
    """The events to load; see `htagraph.load`."""

    stacks: bool = False
    categories: Collection[str] | None = None
    window: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Check the window."""
        if self.window is None:
            return
        hint = "give (start_ns, end_ns) with start_ns <= end_ns."
        start_ns, end_ns = pair_of(self.window, hint=hint)
        if not start_ns <= end_ns:  # NaN compares false
            raise QueryError("the window ends before it starts.", hint=hint)
