"""Which ranks have written their file of a cycle, by the names in the folder."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from htagraph.capture.names import TraceName

__all__ = ["Arrivals", "ranks_in_words"]

_POLL_S = 1.0
"""Time between two looks into the folder, which may be on a slow disk of a network."""

_N_NAMED = 8


@dataclass(frozen=True)
class Arrivals:
    """The files that come into a folder after those that were there.

    Parameters
    ----------
    earlier : frozenset of str
        Names that do not count: files of earlier runs.
    """

    folder: Path
    earlier: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def after_now(cls, folder: Path) -> Arrivals:
        """Those that will come."""
        return cls(folder, frozenset(_names(folder)))

    def ranks(self, step: int | None, n: int = 1) -> set[int]:
        """The ranks of which so many files of cycles that began in one step have come."""
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
        """The ranks whose files have not come when all have, or time is up.

        Parameters
        ----------
        timeout_s : float, unit=s
        meanwhile : callable, optional
            Told at each look what is waited for.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            missing = sorted(set(range(world_size)) - self.ranks(step, n))
            left_s = end_s - time.monotonic()
            if not missing or left_s <= 0:
                return missing
            meanwhile(f"waiting for the traces of {ranks_in_words(missing)}, {left_s:.0f} s more")
            time.sleep(min(_POLL_S, left_s))


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Ranks by number, the first ones of many.

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
    """The names in a folder; none where it cannot be read at the moment."""
    try:
        return os.listdir(folder)  # noqa: PTH208  names are enough
    except OSError:
        return []
