"""Operations of collectives by who waits for whom; what names say is in `collective_names`."""

from __future__ import annotations

RENDEZVOUS = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"),
    *("notify", "dispatch", "combine"),
)
"""Operations in which every rank waits for every other."""

ONE_SIDED = ("dispatch", "combine", "all_to_all", "all_gather")
"""Operations whose members, in a kernel of a library, end each on its own.

Each waits until all others have started, and ends when its own part has come.
"""

FROM_ROOT = ("broadcast", "scatter")
"""Operations in which the others wait for one rank, the root."""

TO_ROOT = ("reduce", "gather")
"""Operations in which the root waits for the others."""

POINT_TO_POINT = ("send", "recv")
"""Operations between two ranks."""
