"""The ranks that have written the file of a cycle, by the names in the folder."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from htagraph.capture.trace_name import TraceName

POLL_S = 1.0
"""Seconds between checks, chosen: no answer depends on it, and a network disk can bear it."""

_N_NAMED = 8
"""Ranks in a message, chosen: they fit into a line. Pinned by the example of `ranks_in_words`."""


@dataclass(frozen=True)
class Arrivals:
    """The files that appear in a folder after those that were there.

    Parameters
    ----------
    earlier : frozenset of str
        Names that do not count: files of earlier runs.
    """

    folder: Path
    earlier: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def after_now(cls, folder: Path) -> Arrivals:
        """The files that appear from now on."""
        return cls(folder, frozenset(_names(folder)))

    def ranks(self, step: int | None, n: int = 1) -> set[int]:
        """The ranks with at least `n` files of cycles that began in a step."""
        found = [TraceName.of(name) for name in _names(self.folder) if name not in self.earlier]
        n_files = Counter(name.rank for name in found if name is not None and name.step == step)
        return {rank for rank, n_of_rank in n_files.items() if n_of_rank >= n}

    def missing(
        self,
        world_size: int,
        step: int | None,
        n: int = 1,
        *,
        timeout_s: float,
        meanwhile: Callable[[str], None] = lambda _: None,
    ) -> list[int]:
        """The ranks whose files are still missing; waits until none is, or time is up.

        Parameters
        ----------
        timeout_s : float, unit=s
        meanwhile : callable, optional
            Called at each check with a message.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            missing = sorted(set(range(world_size)) - self.ranks(step, n))
            left_s = end_s - time.monotonic()
            if not missing or left_s <= 0:
                return missing
            meanwhile(f"waiting for the traces of {ranks_in_words(missing)}, {left_s:.0f} s left")
            time.sleep(min(POLL_S, left_s))


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Ranks by number; of many, the first ones.

    Examples
    --------
    >>> ranks_in_words([2]), ranks_in_words(range(1, 12))
    ('rank 2', '11 ranks (1, 2, 3, 4, 5, 6, 7, 8, …)')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    named = ", ".join(map(str, ranks[:_N_NAMED]))
    return f"{len(ranks):,} ranks ({named}{', …' if len(ranks) > _N_NAMED else ''})"


def _names(folder: Path) -> list[str]:
    """The names in a folder; none if it cannot be read at the moment."""
    try:
        return os.listdir(folder)  # noqa: PTH208  names are enough
    except OSError:
        return []
