"""The look of each bound, once: its color and hatch in every figure, on terminals, in Perfetto.

A reader may see no difference between two hues, and bars touch each other. So any two colors
differ by `LEAST_DIFFERENCE` for every kind of color vision, and bars have hatches as a second sign.
What is no bound has colors that no bound has: idle devices, and series such as ranks and streams.
"""

from __future__ import annotations

from typing import NamedTuple

from htagraph.model.kinds import Bound

LEAST_DIFFERENCE = 10.0
"""Least difference (CIEDE2000) of two colors that meet in a figure, for each kind of color vision.
About five times what is just noticeable in large patches; bars are small. The bounds reach 11.7.
More than 13 is out of reach for so many colors of a lightness between 40 and 80, which light and
dark paper need. test_colors fails if a color moves.
"""

INFERRED = "x"
"""Hatch of what is inferred; no bound has it."""

_BLACK, _WHITE = "#000000", "#ffffff"
_GRADIENT = "repeating-linear-gradient({}deg,{} 0 1.2px,transparent 1.2px 7px)"
_ANGLES = {"/": (-45,), "\\": (45,), "-": (0,), "|": (90,), "+": (0, 90)}
_DOTS = "radial-gradient(circle,{} 1px,transparent 1.3px) 0 0/5px 5px"


class Color(NamedTuple):
    r"""A color of bars, with its hatch."""

    fill: str  # Holds on light and on dark paper
    ink: str = _BLACK  # Of text on it
    hatch: str = ""  # As plotly writes it: one of ``/ \ - | + .``, or empty
    # Text for which viewers of Perfetto choose this fill: they hash it to a hue and a lightness
    perfetto: str = ""

    @property
    def lines(self) -> str:
        """Color of the hatch: the other ink, so text that crosses it stays legible."""
        return "rgba(255,255,255,0.5)" if self.ink == _BLACK else "rgba(0,0,0,0.5)"

    @property
    def css(self) -> str:
        """Background in CSS."""
        if self.hatch == ".":
            return f"{_DOTS.format(self.lines)},{self.fill}"
        lines = (_GRADIENT.format(angle, self.lines) for angle in _ANGLES.get(self.hatch, ()))
        return ",".join((*lines, self.fill))


COLORS = {
    Bound.COMPUTE: Color("#6b8f38", _BLACK, "", "compute aadu"),
    Bound.COMMUNICATION: Color("#f07b78", _BLACK, "/", "communication bIYo"),
    Bound.MEMORY: Color("#cdc857", _BLACK, "", "memory aksg"),
    Bound.LAUNCH: Color("#e03978", _BLACK, "-", "launch P"),
    Bound.KERNEL_GAP: Color("#9a90eb", _BLACK, "/", "kernel gap dGA"),
    Bound.HOST: Color("#3c80ad", _BLACK, "\\", "host laj"),
    Bound.DATA_LOADING: Color("#4bacb0", _BLACK, ".", "data loading ECo"),
    Bound.UNTRACED_CODE: Color("#a0c7f4", _BLACK, "", "untraced code arJQ"),
    Bound.SYNC: Color("#6a6228", _WHITE, "/", "sync bcge"),
    Bound.WORK_FROM_BEFORE_THE_PROFILE: Color(
        "#f5b3b4", _BLACK, "-", "work from before the profile ahOY"
    ),
    Bound.UNKNOWN_WAITS: Color("#a52d7b", _WHITE, "+", "unknown waits Ce"),
    Bound.WAITING_FOR_SMS: Color("#286954", _WHITE, ".", "waiting for sms Fn"),
    Bound.WAITING_FOR_WORK: Color("#3d4dd8", _WHITE, "", "waiting for work gG"),
}
"""Color of each bound, wherever it is drawn. Each is a hue and a lightness of HSLuv with a
saturation of 80, as Perfetto's viewers choose.
"""

LATE = Color("#c52c2d", _WHITE, "", "late rank ew")
WAITS = Color("#f1af54", _BLACK, "", "waits eI")
"""Colors of a rank that is late, and of those that wait for it."""

IDLE = Color("rgba(120, 140, 160, 0.38)")
"""Color of a device on which nothing runs."""

FILLS = (
    Color("#4f782d", _WHITE),
    Color("#66993c", hatch="\\"),
    Color("#8fd356", hatch="/"),
    Color("#cbfcad"),
)
"""Shades of computation, from a device that is full to one that is empty while a kernel runs."""

SERIES = ("#796c8e", "#9b92ac", "#c4bfce")
"""Shades of lines and dots that stand for a rank, a stream or a kernel; a legend names them."""
