"""Changes as options of the command line say them: ``--scale 'gemm*=0.5'``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from htagraph.errors import QueryError
from htagraph.replay.changes import Change, insert, no_wait, remove, scale
from htagraph.replay.collective_changes import bandwidth, equalise
from htagraph.replay.device_changes import fuse, overlap
from htagraph.replay.host_changes import graphed, prefetch

__all__ = ["Asked"]

_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(ns|us|ms|s)")
_COMMA = re.compile(r",(?![^<(]*[>)])")
"""A comma between names, not one within the brackets of a template."""


@dataclass(frozen=True)
class Asked:
    """Options that name changes, as they were typed.

    Parameters
    ----------
    rank : int, optional
        Of a job, the rank on which they are made; None for all.
    """

    scale: Sequence[str] | None
    remove: Sequence[str] | None
    no_wait: Sequence[str] | None
    insert: Sequence[str] | None
    overlap: Sequence[str] | None
    fuse: Sequence[str] | None
    prefetch: bool
    graphed: bool
    bandwidth: float | None
    equalise: bool = False
    rank: int | None = None

    @property
    def is_of_a_job(self) -> bool:
        """Whether what is asked makes sense of a job only."""
        return self.equalise or self.rank is not None

    def changes(self) -> tuple[Change, ...]:
        """Changes in the order of the options above; those of one option as they were typed.

        Raises
        ------
        QueryError
            If one of them is no change, or a rank is named and no change.
        """
        found = self._on_every_rank()
        if self.rank is None:
            return found
        if not found:
            hint = "name one, for example --on-rank 3 --scale 'gemm*=0.5'."
            raise QueryError(
                "--on-rank says where changes are made, and there are none.", hint=hint
            )
        return tuple(change.on_rank(self.rank) for change in found)

    def _on_every_rank(self) -> tuple[Change, ...]:
        return (
            *(_scaled(text) for text in self.scale or ()),
            *(remove(name) for name in self.remove or ()),
            *(no_wait(name) for name in self.no_wait or ()),
            *(_inserted(text) for text in self.insert or ()),
            *(overlap(name) for name in self.overlap or ()),
            *(_fused(text) for text in self.fuse or ()),
            *([prefetch()] if self.prefetch else []),
            *([graphed()] if self.graphed else []),
            *([bandwidth(self.bandwidth)] if self.bandwidth is not None else []),
            *([equalise()] if self.equalise else []),
        )


def _scaled(text: str) -> Change:
    """Change that ``NAME=FACTOR`` says."""
    name, factor = _parts(text, "--scale 'gemm*=0.5' is twice as fast.")
    try:
        return scale(name, by=float(factor))
    except ValueError as exc:
        if isinstance(exc, QueryError):
            raise
        hint = "--scale 'gemm*=0.5' is twice as fast."
        raise QueryError(f"{factor!r} is no factor.", hint=hint) from None


def _inserted(text: str) -> Change:
    """Change that ``NAME=50us`` says."""
    hint = "--insert 'aten::mm=50us', in ns, us, ms or s."
    name, time = _parts(text, hint)
    found = _DURATION.fullmatch(time)
    if found is None:
        raise QueryError(f"{time!r} is no time.", hint=hint)
    return insert(after=name, dur_ns=round(float(found[1]) * _UNITS[found[2]]))


def _fused(text: str) -> Change:
    """Change that ``NAME,NAME`` says."""
    names = [name.strip() for name in _COMMA.split(text)]
    if len(names) == 1 or not all(names):
        raise QueryError(f"{text!r} is not two names or more.", hint="--fuse 'add*,mul*'.")
    return fuse(*names)


def _parts(text: str, hint: str) -> tuple[str, str]:
    """Both sides of the last ``=``."""
    name, separator, value = text.rpartition("=")
    if not separator or not name:
        raise QueryError(f"{text!r} is no NAME=VALUE.", hint=hint)
    return name, value.strip()
