"""The window that is judged: what is asked for, or of a whole trace what can be judged of it."""

from __future__ import annotations

from typing import NamedTuple

from htagraph.findings.opening import Opening, find_opening
from htagraph.findings.whole_part import part_to_judge
from htagraph.model.window import Window
from htagraph.path import CriticalPath

__all__ = ["Judged", "judged"]


class Judged(NamedTuple):
    """The window that is judged, and why it is not all.

    Parameters
    ----------
    window : Window
        All, or what the two below leave.
    opening : Opening, optional
        Work from before the profile that is left out at the start.
    part : Window, optional
        The longest part without lost records, if much is lost.
    """

    window: Window
    opening: Opening | None
    part: Window | None


def judged(path: CriticalPath) -> Judged:
    """The window that is judged, of the path of a whole trace."""
    opening = find_opening(path)
    rest = path.window if opening is None else opening.rest
    part = part_to_judge(path.dag, rest)
    return Judged(part or rest, opening, part)
