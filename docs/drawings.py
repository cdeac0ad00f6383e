"""The drawings of the documents: ``python -m docs.drawings`` writes them as SVG.

A drawing has lanes, as a timeline has: boxes on lanes, and arrows between them. Its colors follow
the reader's light or dark setting, and stand on a ground of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from htagraph.model.colors import COLORS
from htagraph.model.kinds import Bound

__all__ = ["DRAWINGS", "STYLE", "SVG", "Box", "Drawing"]

FOLDER = Path(__file__).parent / "drawings"
_LABEL, _LANE, _BOX, _EDGE = 144, 40, 26, 14
SVG = "http://www.w3.org/2000/svg"
STYLE = """
text{font:12px system-ui,sans-serif}
.ground{fill:#f6f8fa}.text,.plain+text{fill:#1f2328}.dim{fill:#59636e}
.lane{stroke:#d1d9e0}.plain{fill:#dfe5ec}.none{fill:#f6f8fa;stroke:#59636e;stroke-dasharray:4 3}
.arrow{stroke:#59636e;fill:none}.tip{fill:#59636e}.binds{stroke:#c4351c}.binds-tip{fill:#c4351c}
@media (prefers-color-scheme:dark){
.ground,.none{fill:#1c2128}.text,.plain+text,.none+text{fill:#e6edf3}.dim{fill:#9198a1}
.lane{stroke:#3d444d}.plain{fill:#3d444d}
.arrow{stroke:#9198a1}.tip{fill:#9198a1}.binds{stroke:#ff8a73}.binds-tip{fill:#ff8a73}}
"""


@dataclass(frozen=True)
class Box:
    """A box on a lane.

    Parameters
    ----------
    start, end : int
        In pixels.
    text : str
    bound : Bound or str
        That colors it; ``plain``, or ``none`` for a gap.
    """

    start: int
    end: int
    text: str = ""
    bound: Bound | str = "plain"


@dataclass(frozen=True)
class Drawing:
    """Lanes with boxes, and arrows between lanes.

    Parameters
    ----------
    title : str
        What it shows, for those who do not see it.
    lanes : mapping of str to list of Box
        From the top.
    arrows : tuple of (lane, x, lane, x, binds)
        Lanes by number; what binds is drawn in red.
    notes : tuple of (lane, x, text)
        Text above a lane.
    width : int
    """

    title: str
    lanes: dict[str, list[Box]]
    arrows: tuple[tuple[int, int, int, int, bool], ...] = ()
    notes: tuple[tuple[int, int, str], ...] = ()
    width: int = 640

    def svg(self) -> str:
        """The drawing as a file."""
        height = len(self.lanes) * _LANE + 2 * _EDGE
        size = f'width="{self.width}" viewBox="0 0 {self.width} {height}"'
        parts = [
            f'<svg xmlns="{SVG}" role="img" {size}>',
            f"<title>{escape(self.title)}</title><style>{STYLE}</style>",
            f'<rect class="ground" width="{self.width}" height="{height}" rx="8"/>',
        ]
        for number, (label, boxes) in enumerate(self.lanes.items()):
            parts += [self._lane(number, label), *(_box(number, box) for box in boxes)]
        parts += [_arrow(*arrow) for arrow in self.arrows]
        parts += [
            f'<text class="dim" x="{_LABEL + x}" y="{_top(lane) - 3}">{escape(text)}</text>'
            for lane, x, text in self.notes
        ]
        return "\n".join([*parts, "</svg>\n"])

    def _lane(self, number: int, label: str) -> str:
        """The line of a lane and its label."""
        y = _top(number) + _BOX // 2
        return (
            f'<text class="text" x="{_EDGE}" y="{y + 4}">{escape(label)}</text>'
            f'<line class="lane" x1="{_LABEL}" x2="{self.width - _EDGE}" y1="{y}" y2="{y}"/>'
        )


def _top(lane: int) -> int:
    """Upper edge of the boxes of a lane."""
    return _EDGE + lane * _LANE + (_LANE - _BOX) // 2 + 2


def _box(lane: int, box: Box) -> str:
    """A box with its text."""
    if isinstance(box.bound, Bound):
        color = COLORS[box.bound]
        look, ink = f'fill="{color.fill}"', f'style="fill:{color.ink}"'
    else:
        look, ink = f'class="{box.bound}"', 'class="text"'
    x, width = _LABEL + box.start, box.end - box.start
    return (
        f'<rect {look} x="{x}" y="{_top(lane)}" width="{width}" height="{_BOX}" rx="3"/>'
        f'<text {ink} x="{x + width / 2:g}" y="{_top(lane) + 17}" '
        f'text-anchor="middle">{escape(box.text)}</text>'
    )


def _arrow(tail: int, start: int, head: int, end: int, binds: bool) -> str:
    """An arrow between two lanes."""
    down = head > tail
    x1, x2 = _LABEL + start, _LABEL + end
    y1 = _top(tail) + (_BOX if down else 0)
    y2 = _top(head) + (0 if down else _BOX)
    tip, middle = (-6 if down else 6), (y1 + y2) // 2
    look = "binds" if binds else ""
    return (
        f'<path class="arrow {look}" stroke-width="1.6" '
        f'd="M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2 + tip}"/>'
        f'<path class="{"binds-tip" if binds else "tip"}" '
        f'd="M{x2} {y2}l-4 {tip * 1.2:g}h8z"/>'
    )


_B = Bound
DRAWINGS = {
    "exact-path": Drawing(
        "Binding edges, walked back from the end, tile the window.",
        {
            "thread": [
                Box(0, 120, "data loader"),
                Box(120, 190, "aten::mm"),
                Box(210, 440, "cudaStreamSynchronize"),
                Box(440, 490, "Python"),
            ],
            "stream 7": [Box(180, 430, "gemm")],
            "critical path": [
                Box(0, 120, "data loading", _B.DATA_LOADING),
                Box(120, 160, "host", _B.HOST),
                Box(160, 180, "", _B.LAUNCH),
                Box(180, 430, "compute", _B.COMPUTE),
                Box(430, 440, "", _B.SYNC),
                Box(440, 490, "gap", _B.UNTRACED_CODE),
            ],
        },
        ((0, 160, 1, 180, True), (1, 430, 0, 440, True)),
    ),
    "windows": Drawing(
        "A step is a host range; its device work runs later.",
        {
            "thread": [Box(20, 150, "ProfilerStep#1"), Box(150, 280, "ProfilerStep#2")],
            "stream 7": [
                Box(60, 230, "kernels of #1", _B.COMPUTE),
                Box(230, 400, "kernels of #2", _B.COMMUNICATION),
            ],
            'window("…#2")': [Box(150, 280, "130 us", "none")],
            '… on="device"': [Box(230, 400, "170 us", "none")],
        },
        ((0, 40, 1, 60, False), (0, 170, 1, 230, False)),
        width=600,
    ),
    "inference": Drawing(
        "A kernel starts right after the end of another stream's, again and again.",
        {
            "stream 20": [Box(20, 120, "all-gather"), Box(210, 330, "all-gather")],
            "stream 7": [Box(126, 200, "gemm"), Box(336, 410, "gemm")],
            "recorded": [Box(20, 410, "nothing says that gemm waits for all-gather", "none")],
        },
        ((0, 120, 1, 126, True), (0, 330, 1, 336, True)),
        width=600,
    ),
    "clocks": Drawing(
        "Ends of one collective are one moment: so clocks are aligned, and waits are seen.",
        {
            "rank 0, as recorded": [Box(20, 320, "all-reduce")],
            "rank 1, as recorded": [Box(330, 400, "all-reduce")],
            "rank 0, aligned": [
                Box(20, 250, "wait", "none"),
                Box(250, 320, "transfer", _B.COMMUNICATION),
            ],
            "rank 1, aligned": [Box(250, 320, "transfer", _B.COMMUNICATION)],
        },
        ((3, 250, 2, 250, True),),
        width=600,
    ),
    "slack": Drawing(
        "The upper chain is critical; the lower one may take longer by its float.",
        {
            "stream 7": [
                Box(20, 200, "gemm", _B.COMPUTE),
                Box(200, 360, "gemm", _B.COMPUTE),
                Box(360, 430, "optimizer", _B.COMPUTE),
            ],
            "stream 20": [
                Box(200, 310, "all-reduce", _B.COMMUNICATION),
                Box(310, 360, "float", "none"),
            ],
        },
        ((1, 310, 0, 360, False),),
        width=600,
    ),
    "prediction": Drawing(
        "Without its loader the step is shorter by less than the loader: another chain takes over.",
        {
            "as it was: thread": [
                Box(0, 200, "data loader", _B.DATA_LOADING),
                Box(200, 250, "launch", _B.HOST),
                Box(380, 420, "sync", _B.SYNC),
            ],
            "stream 7": [Box(0, 110, "previous step"), Box(230, 380, "kernels", _B.COMPUTE)],
            "replayed: thread": [Box(0, 50, "launch", _B.HOST), Box(260, 300, "sync", _B.SYNC)],
            "stream 7, then": [
                Box(0, 110, "previous step"),
                Box(110, 260, "kernels", _B.COMPUTE),
                Box(300, 420, "saved", "none"),
            ],
        },
        ((0, 230, 1, 240, True), (1, 380, 0, 384, True), (3, 260, 2, 264, True)),
        width=600,
    ),
}
"""All drawings, by the name of their file."""


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, drawing in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(drawing.svg())
