"""Progress of long work: code reports it where it works, a listener of the caller hears it.

The listener lives in the context, as handlers of `logging` do, so no function passes it on. Other
threads and processes do not report; the code that waits for them counts what they have finished.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from htagraph.model.units import human_size

BYTES = "bytes"
"""What is counted while a file is read."""


@dataclass(frozen=True)
class Progress:
    """How far long work is."""

    stage: str  # What is done, as a user reads it: ``Reading rank0.json``
    # The step of the stage that runs; if `total` is known, the noun of what is counted
    part: str = ""
    # done, total: items finished, and all of them; 0 if their number is not known
    done: int = 0
    total: int = 0
    awaited: str = ""  # What the stage waits for, if that takes long

    @property
    def title(self) -> str:
        """Stage and part."""
        return f"{self.stage} · {self.part}" if self.part not in ("", BYTES) else self.stage

    @property
    def amount(self) -> str:
        """How much is finished; empty if nothing is counted."""
        if not self.total:
            return ""
        if self.part == BYTES:
            amount = f"{human_size(self.done)} of {human_size(self.total)}"
        else:
            amount = f"{min(self.done + 1, self.total):,} of {self.total:,}"
        awaited = f", awaiting {self.awaited}" if self.awaited else ""
        return f"{amount}, {self.done / self.total:.0%}{awaited}"

    def __str__(self) -> str:
        """One line."""
        return f"{self.title} {self.amount}".rstrip()


Listener = Callable[[Progress], None]
"""Called with each progress report. It may raise to cancel the work."""

Item = TypeVar("Item")

_AUDIENCE: ContextVar[tuple[Listener, list[str]] | None] = ContextVar("audience", default=None)
"""The listener of this context, and the stage that it was told last, in a list."""


def listening(listener: Listener | None) -> AbstractContextManager[None]:
    """Send the progress of the block to a listener; None leaves the present one."""
    return nullcontext() if listener is None else _heard_by((listener, [""]))


@contextmanager
def _heard_by(audience: tuple[Listener, list[str]] | None) -> Iterator[None]:
    token = _AUDIENCE.set(audience)
    try:
        yield
    finally:
        _AUDIENCE.reset(token)


def begin_stage(stage: str) -> None:
    """Report that the next stage of the work begins."""
    audience = _AUDIENCE.get()
    if audience is not None:
        audience[1][:] = [stage]
        audience[0](Progress(stage))


def report_progress(part: str, done: int = 0, total: int = 0, awaited: str = "") -> None:
    """Report progress within the present stage; see `Progress`."""
    audience = _AUDIENCE.get()
    if audience is not None:
        audience[0](Progress(audience[1][-1], part, done, total, awaited))


def counted(part: str, items: Collection[Item]) -> Iterator[Item]:
    """Iterate over items and report how many are done; reports from within an item are dropped."""
    for done, item in enumerate(items):
        report_progress(part, done, len(items))
        with _heard_by(None):
            yield item
    report_progress(part, len(items), len(items))
