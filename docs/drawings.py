"""The drawings of the documents: ``python -m docs.drawings`` writes them as SVG.

A drawing has lanes, as a timeline has: boxes on lanes, and arrows between them. Its colors follow
the reader's light or dark setting, and stand on a ground of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from htagraph.model.colors import COLORS
from htagraph.model.kinds import Bound, EdgeKind

__all__ = ["DRAWINGS", "EDGES", "LAYERS", "STYLE", "SVG", "Box", "Drawing"]

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
        Lanes by number; what binds is drawn in red. On one lane, an arrow runs below it.
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
    if tail == head:
        return _arc(x1, x2, _top(tail) + _BOX, binds=binds)
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


def _arc(x1: int, x2: int, y: int, *, binds: bool) -> str:
    """An arrow on one lane, below it."""
    look = "binds" if binds else ""
    return (
        f'<path class="arrow {look}" stroke-width="1.6" '
        f'd="M{x1} {y}C{x1} {y + 16} {x2} {y + 16} {x2} {y + 6}"/>'
        f'<path class="{"binds-tip" if binds else "tip"}" d="M{x2} {y}l-4 7.2h8z"/>'
    )


def _edge(title: str, lanes: dict[str, list[Box]], *arrows: tuple[int, int, int, int]) -> Drawing:
    """A small drawing of a kind of edge, which is red."""
    return Drawing(title, lanes, tuple((*arrow, True) for arrow in arrows), width=420)


_B = Bound
EDGES = {
    EdgeKind.SPAN: _edge(
        "From the start of a kernel to its end.",
        {"stream 7": [Box(40, 220, "gemm", _B.COMPUTE)]},
        (0, 44, 0, 216),
    ),
    EdgeKind.THREAD: _edge(
        "From an operator to the one in it, back, and to the next.",
        {
            "thread": [Box(20, 150, "aten::linear"), Box(170, 250, "aten::relu")],
            "in it": [Box(40, 130, "aten::addmm", _B.HOST)],
        },
        (0, 24, 1, 44),
        (1, 126, 0, 146),
        (0, 148, 0, 174),
    ),
    EdgeKind.LAUNCH: _edge(
        "From the call that enqueues a kernel to its start.",
        {
            "thread": [Box(20, 130, "cudaLaunchKernel")],
            "stream 7": [Box(130, 240, "gemm", _B.COMPUTE)],
        },
        (0, 30, 1, 134),
    ),
    EdgeKind.STREAM: _edge(
        "From the end of a kernel to the start of the next one of its stream.",
        {"stream 7": [Box(20, 110, "gemm", _B.COMPUTE), Box(150, 240, "relu", _B.COMPUTE)]},
        (0, 106, 0, 154),
    ),
    EdgeKind.FLOW: _edge(
        "From a thread to another one that continues its work.",
        {
            "thread": [Box(20, 110, "backward()"), Box(200, 250, "next")],
            "autograd": [Box(110, 200, "MmBackward0", _B.HOST)],
        },
        (0, 106, 1, 114),
        (1, 196, 0, 206),
    ),
    EdgeKind.SYNC: _edge(
        "From the end of a kernel to the end of the call that waits for it.",
        {
            "stream 7": [Box(40, 190, "gemm", _B.COMPUTE)],
            "thread": [Box(20, 200, "cudaStreamSynchronize"), Box(200, 250, "next")],
        },
        (0, 188, 1, 200),
    ),
    EdgeKind.QUEUE: _edge(
        "From the start of a kernel, which frees its place, to the end of a launch.",
        {
            "stream 7": [Box(20, 120, "gemm", _B.COMPUTE), Box(120, 220, "gemm", _B.COMPUTE)],
            "thread": [Box(14, 124, "cudaLaunchKernel", _B.LAUNCH), Box(124, 190, "next")],
        },
        (0, 122, 1, 124),
    ),
    EdgeKind.HIDDEN_SYNC: _edge(
        "From a kernel to a thread that polled it: no call says that it waits.",
        {
            "stream 7": [Box(40, 180, "gemm", _B.COMPUTE)],
            "thread": [Box(20, 60, "query"), Box(60, 186, "polls", "none"), Box(186, 250, "next")],
        },
        (0, 178, 1, 188),
    ),
    EdgeKind.COLLECTIVE: _edge(
        "From the rank that comes last to the rank that waited.",
        {
            "rank 0": [Box(20, 160, "wait", "none"), Box(160, 240, "all-reduce", _B.COMMUNICATION)],
            "rank 1": [Box(160, 240, "all-reduce", _B.COMMUNICATION)],
        },
        (1, 164, 0, 164),
    ),
    EdgeKind.SOURCE: _edge(
        "From the start of the window to what nothing recorded precedes.",
        {
            "window": [Box(20, 250, "", "none")],
            "stream 7": [Box(90, 200, "gemm", _B.WORK_FROM_BEFORE_THE_PROFILE)],
        },
        (0, 24, 1, 94),
    ),
    EdgeKind.SINK: _edge(
        "From the last work to the end of the window.",
        {
            "stream 7": [Box(60, 200, "gemm", _B.COMPUTE)],
            "window": [Box(20, 220, "", "none")],
        },
        (0, 198, 1, 216),
    ),
    EdgeKind.CONTENTION: _edge(
        "From a kernel that fills the device to one of another stream that was ready.",
        {
            "stream 7": [Box(20, 150, "fills the device", _B.COMPUTE)],
            "stream 20": [
                Box(60, 140, "ready", "none"),
                Box(140, 240, "gemm", _B.COMPUTE),
            ],
        },
        (0, 140, 1, 144),
    ),
}
"""Each kind of edge, in red."""

LAYERS = {
    "what people use": ("cli", "agents", "capture", "reports"),
    "runs": ("comparison", "job", "run"),
    "answers on a graph": ("findings", "queries", "replay", "explain"),
    "graphs": ("lookup", "readers", "compiler", "writers", "synth"),
    "what all stand on": ("operators", "arrays", "model", "errors"),
}
"""Rooms of the package: each imports only what is to its right or further below."""


def _in_a_row(names: tuple[str, ...], width: int = 482) -> list[Box]:
    """Boxes that fill a lane."""
    each = width // len(names)
    return [Box(each * n, each * (n + 1) - 6, name) for n, name in enumerate(names)]


DRAWINGS = {
    "layers": Drawing(
        "A room imports only what is to its right or further below.",
        {lane: _in_a_row(names) for lane, names in LAYERS.items()},
    ),
    **{f"edge-{kind.label}": drawing for kind, drawing in EDGES.items()},
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
