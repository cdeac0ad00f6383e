"""DOT, the language of Graphviz: a critical path on one slide, and a graph as boxes and arrows."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pydot

from htagraph.errors import GraphError, QueryError
from htagraph.model.arrays import I64, Bools, Texts
from htagraph.model.colors import COLORS, Color
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, EdgeKind, EventKind, KernelClass, bound_in_words, in_words
from htagraph.model.labels import name_label, printable, track_name
from htagraph.model.units import human_count, human_duration
from htagraph.writers.output_file import write_text
from htagraph.writers.path_outline import (
    HEIGHT,
    WIDTH,
    Outline,
    PathArrow,
    PathBox,
    Route,
    Slide,
    arranged,
)

_CHARACTER, _LINE_HEIGHT, _LARGEST, _SMALLEST = 0.7, 1.2, 14, 9
"""Mean width and height of text by its points, and its points at most and at least, on a slide."""
_WORD_END = re.compile(r"[a-z0-9](?=[A-Z])|[^A-Za-z0-9](?=[A-Za-z0-9])")
_LANE_CHARACTER = 6.8
_LEAST_ROOM = 20
"""Characters that a line has at least: ``124 ×, 12.3 ms, 10.4%``, of which most are narrow."""
_HIGH, _MARGIN, _INCH = 54, 8, 72
"""Points of a box from which on its name has two lines, around its text, and of an inch."""
_SIZE, _ON_A_SLIDE = f"{WIDTH / _INCH:.3f},{HEIGHT / _INCH:.3f}", 25
"""A slide in inches, and boxes of a graph that are still read on one. Chosen."""
_SMALL = "10.5"
"""Points of what is below the lanes."""
_OTHERS = (310, 34)
"""Points of the box that counts what is left out: less than a third of the slide."""
_NOTE_WIDTH = 440
_NOTE = "From left to right in time. Dashed: back to an earlier box, and how often."
_WAITS = {
    Bound.LAUNCH,
    Bound.KERNEL_GAP,
    Bound.WORK_FROM_BEFORE_THE_PROFILE,
    Bound.UNKNOWN_WAITS,
    Bound.WAITING_FOR_SMS,
    Bound.WAITING_FOR_WORK,
}
"""Bounds of time in which what they are named after does not run yet."""
_LINE, _FAINT, _LANE = "#707b87", "#55606b", "#f2f4f7"
_EVENT_COLORS = {
    EventKind.OP: COLORS[Bound.HOST],
    EventKind.RUNTIME: COLORS[Bound.LAUNCH],
    EventKind.ANNOTATION: COLORS[Bound.UNTRACED_CODE],
    EventKind.KERNEL: COLORS[Bound.COMPUTE],
    EventKind.MEMCPY: COLORS[Bound.MEMORY],
    EventKind.MEMSET: COLORS[Bound.MEMORY],
}
_LANE_LOOK = {
    "style": '"rounded,filled"',
    "color": f'"{_LANE}"',
    "fontname": "Helvetica",
    "fontsize": "12",
    "fontcolor": f'"{_FAINT}"',
    "labeljust": "l",
}
_EVENT_NAME = 28
"""Characters of the name of an event in a drawing of all: a third of a slide has more."""
_PLAIN, _ON_PATH, _BOLD = Color("#ffffff"), "#c0392b", "2.2"
_FONT = {"fontname": "Helvetica", "fontsize": "12"}


def _quoted(text: str) -> str:
    """A text as a DOT string; Graphviz reads HTML entities, so ``&`` is one."""
    lines = (printable(" ".join(line.split())).replace("&", "&amp;") for line in text.split("\n"))
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'


def _digraph(label: str, **look: str) -> Any:  # noqa: ANN401  a class of a package without types
    graph = pydot.Dot("htagraph", graph_type="digraph", bgcolor="white", **look)
    graph.set("label", label)
    graph.set("labelloc", "t")
    graph.set("fontname", "Helvetica")
    graph.set_node_defaults(
        shape="box",
        style=_quoted("rounded,filled"),
        color=_quoted(_LINE),
        margin=_quoted("0.12,0.06"),
        **_FONT,
    )
    graph.set_edge_defaults(
        color=_quoted(_LINE),
        fontcolor=_quoted(_FAINT),
        arrowsize="0.7",
        fontname="Helvetica",
        fontsize="9",
    )
    return graph


def _finish(graph: Any, out: str | Path | None) -> str:  # noqa: ANN401
    text = str(graph.to_string())
    if out is not None:
        write_text(out, text)
    return text


class _Text(NamedTuple):
    """Text in boxes: its points, characters of a line, and lines of a name."""

    points: float
    room: int
    n_lines: int

    @classmethod
    def of(cls, slide: Slide) -> _Text:
        """The largest that fits the boxes of a slide."""
        n_lines = 2 if slide.height >= _HIGH else 1
        fit = (slide.height - _MARGIN) / (n_lines + 2) / _LINE_HEIGHT
        points = min(fit, (slide.width - _MARGIN) / _CHARACTER / _LEAST_ROOM, _LARGEST)
        return cls(points, int((slide.width - _MARGIN) / (_CHARACTER * points)), n_lines)

    def lines(self, text: str, n_lines: int = 0) -> list[str]:
        """A text on so many lines, by default all that it may have."""
        short = name_label(text, width=(n_lines or self.n_lines) * self.room)
        least = len(short) - self.room
        ends = [found.end() for found in _WORD_END.finditer(short)]
        cut = max((at for at in ends if least <= at <= self.room), default=self.room)
        return [short] if least <= 0 else [short[:cut].strip(), short[cut:].strip()]


_as_html = partial(html.escape, quote=False)


def _said(dur_ns: int, path_ns: int, n: int = 1) -> str:
    """How often, how long, and its share."""
    times = f"{n:,} ×, " if n > 1 else ""
    return f"{times}{human_duration(dur_ns)}, <B>{dur_ns / max(path_ns, 1):.1%}</B>"


def _box_label(box: PathBox, text: _Text, path_ns: int) -> str:
    """Name of a box, its bound, and its time."""
    mostly = "mostly " if len(box.bounds) > 1 else ""
    bound, n = f"{mostly}{bound_in_words(box.bounds[0].label)}", box.n_runs
    name = next((name for name in box.names if name[:1] != "("), "")
    head, below = text.lines(name or bound), [bound] if name else []
    if box.n_names > 1 or (name and box.bounds[0] in _WAITS):
        others = f" + {human_count(box.n_names - 1, 'other')}" if box.n_names > 1 else ""
        cut = name_label(name or bound, width=max(text.room - len(others), _LEAST_ROOM // 2))
        head, below, n = text.lines(bound, 1), [f"{cut}{others}"], n if box.n_names == 1 else 1
    lines = [*(f"<B>{_as_html(line)}</B>" for line in head), *map(_as_html, below)]
    return f"<{'<BR/>'.join([*lines, _said(box.dur_ns, path_ns, n)])}>"


def _arrow_label(arrow: PathArrow, route: Route) -> dict[str, str]:
    """Kind and lag of an arrow; how often, if it leads back."""
    kind = in_words(arrow.kind.label) if arrow.kind not in {None, EdgeKind.THREAD} else ""
    lag = human_duration(arrow.lag_ns) if arrow.lag_ns else ""
    words = [f"{arrow.n:,} ×"] if arrow.is_back else [kind, lag]
    lines = [word for word in words if word]
    lines = [" ".join(lines)] if route.is_right and lines else lines
    if not lines:
        return {}
    x, y = route.label
    width = max(map(len, lines)) * _CHARACTER * _SMALLEST
    ground = f'<TABLE BORDER="0" CELLPADDING="0" CELLSPACING="0" BGCOLOR="{_LANE}">'
    return {
        "label": f"<{ground}<TR><TD>{'<BR/>'.join(lines)}</TD></TR></TABLE>>",
        "lp": _quoted(f"{x + (width / 2 if route.is_right else 0):.1f},{y:.1f}"),
    }


def path_dot(outline: Outline, *, out: str | Path | None = None, title: str) -> str:
    """Critical path as DOT of one slide: boxes on lanes, from left to right in time.

    Places are part of the drawing: Graphviz draws every path on the same slide.
    """
    slide = arranged([box.lane for box in outline.boxes])
    if slide is None:
        raise GraphError("the boxes of a drawn path do not fit a slide.")
    graph = _digraph(
        _quoted(f"{title}, {human_duration(outline.dur_ns)}"),
        layout="nop2",
        rankdir="LR",
        dpi="96",
        pad="0",
        size=_quoted(f"{_SIZE}!"),
        fontsize="20",
        lp=_quoted(f"{WIDTH / 2:g},{HEIGHT - 22:g}"),
    )
    for corner in ((0, 0), (WIDTH, HEIGHT)):
        _add_placed(graph, f"corner{corner[0]}", '""', corner, (0, 0), style="invis")
    _add_lanes(graph, outline, slide)
    gaps: Counter[int] = Counter()
    for arrow in sorted(outline.arrows, key=lambda arrow: not arrow.is_back):
        gap = slide.columns[arrow.tail] - arrow.is_back
        route = slide.route(arrow.tail, arrow.head, gaps[gap])
        gaps[gap] += 1
        look = {"style": "dashed", "constraint": "false"} if arrow.is_back else {}
        look |= {"pos": _quoted(route.spline), "fontsize": f"{_SMALLEST}"}
        look |= _arrow_label(arrow, route)
        graph.add_edge(pydot.Edge(f"n{arrow.tail}", f"n{arrow.head}", **look))
    if outline.n_left_out:
        by_bound = ", ".join(
            f"{bound_in_words(bound.label)} {dur_ns / outline.dur_ns:.1%}"
            for bound, dur_ns in outline.left_out
        )
        said = _said(outline.left_out_ns, outline.dur_ns)
        label = f"<<B>… {outline.n_left_out:,} others</B>, {said}<BR/>{by_bound}>"
        look = {"style": _quoted("rounded,filled,dashed"), "fillcolor": _quoted("white")}
        look["fontsize"] = _SMALL
        x = WIDTH - _OTHERS[0] / 2 - 12
        _add_placed(graph, "others", label, (x, 25), _OTHERS, **look)
    note = _quoted(_NOTE)
    look = {"shape": "plaintext", "style": '""', "fontcolor": _quoted(_FAINT), "fontsize": _SMALL}
    _add_placed(graph, "note", note, (_NOTE_WIDTH / 2 + 12, 25), (_NOTE_WIDTH, 20), **look)
    return _finish(graph, out)


def _add_placed(
    graph: Any,  # noqa: ANN401
    name: str,
    label: str,
    center: tuple[float, float],
    size: tuple[float, float],
    **look: str,
) -> None:
    place = {
        "pos": _quoted(f"{center[0]:.1f},{center[1]:.1f}"),
        "width": f"{size[0] / _INCH:.3f}",
        "height": f"{size[1] / _INCH:.3f}",
        "fixedsize": "true",
    }
    graph.add_node(pydot.Node(name, label=label, **place, **look))


def _add_lanes(graph: Any, outline: Outline, slide: Slide) -> None:  # noqa: ANN401
    text = _Text.of(slide)
    for number, (label, bounds) in enumerate(zip(outline.lanes, slide.lanes, strict=True)):
        left, _, _, top = bounds
        lane = pydot.Cluster(
            f"lane{number}",
            label=_quoted(label),
            bb=_quoted(",".join(f"{one:.1f}" for one in bounds)),
            lp=_quoted(f"{left + 8 + len(label) * _LANE_CHARACTER / 2:.1f},{top - 11:.1f}"),
            **_LANE_LOOK,
        )
        for place, box in enumerate(outline.boxes):
            if box.lane == number:
                color = COLORS[box.bounds[0]]
                _add_placed(
                    lane,
                    f"n{place}",
                    _box_label(box, text, outline.dur_ns),
                    slide.boxes[place],
                    (slide.width, slide.height),
                    fillcolor=_quoted(color.fill),
                    fontcolor=_quoted(color.ink),
                    fontsize=f"{text.points:.1f}",
                )
        graph.add_subgraph(lane)


def _graph_boxes(dag: Dag, rows: I64) -> dict[int, int]:
    """Box of each node; start and end of an event share one if an edge joins them."""
    tail, head = dag.edges.tail[rows].astype(np.int64), dag.edges.head[rows].astype(np.int64)
    nodes = np.unique(np.concatenate([tail, head]))
    whole = np.unique(tail[(tail % 2 == 0) & (head == tail + 1)])
    is_end = (nodes % 2 == 1) & np.isin(nodes - 1, whole)
    return dict(zip(nodes.tolist(), np.where(is_end, nodes - 1, nodes).tolist(), strict=True))


def _event_label(dag: Dag, node: int, *, is_whole: bool) -> str:
    events, event = dag.events, node // 2
    name = name_label(events.symbols.texts[events.name[event]], width=_EVENT_NAME)
    duration = human_duration(int(events.dur_ns[event]))
    when = duration if is_whole else "ends" if node % 2 else f"starts, {duration}"
    return _quoted(f"{name}\n{when}")


def _event_color(dag: Dag, event: int) -> Color:
    """Color of the bound that its time has on a path."""
    if dag.classification.kernel_class[event] == KernelClass.COMMUNICATION:
        return COLORS[Bound.COMMUNICATION]
    return _EVENT_COLORS.get(EventKind(int(dag.events.kind[event])), _PLAIN)


def _edge_label(dag: Dag, row: int) -> str:
    edges, slack_ns = dag.edges, int(dag.slack_ns[row])
    kind = in_words(EdgeKind(int(edges.kind[row])).label)
    slack = f"\nslack {human_duration(slack_ns)}" if slack_ns else ""
    return f"{kind} {human_duration(int(edges.lag_ns[row]))}{slack}"


def _is_implied(dag: Dag, rows: I64) -> Bools:
    """Whether other edges to be drawn imply each."""
    from htagraph.arrays.rustworkx_graphs import is_implied  # noqa: PLC0415  deferred: few need it

    ends = np.stack([dag.edges.tail[rows], dag.edges.head[rows]])
    nodes, place = np.unique(ends, return_inverse=True)
    tail, head = place.reshape(2, -1)
    return is_implied(tail, head, len(nodes))


def graph_dot(
    dag: Dag,
    edge_rows: npt.NDArray[np.integer[Any]] | None = None,
    *,
    tracks: Callable[[I64], Texts],
    critical: npt.ArrayLike = (),
    marked: npt.ArrayLike = (),
    reduce: bool = False,
    out: str | Path | None = None,
    max_nodes: int = 300,
    title: str = "",
) -> str:
    """Graph as DOT: a box per event, on the lane of its track, and an arrow per edge.

    An arrow says the kind of its edge, its lag, and its slack if it does not bind; edges that bind
    are bold. Start and end of an event are two boxes if other events lie between them. `reduce`:
    leave out edges that others imply; never those of the critical path.
    """
    rows = np.arange(len(dag.edges)) if edge_rows is None else np.asarray(edge_rows, dtype=np.int64)
    boxes = _graph_boxes(dag, rows)
    drawn = {box: box % 2 == 0 and boxes.get(box + 1, box) == box for box in set(boxes.values())}
    graph = _lanes(dag, drawn, tracks, marked=marked, title=title, max_nodes=max_nodes)
    strong = set(np.asarray(critical, dtype=np.int64).tolist())
    if reduce:
        rows = rows[~_is_implied(dag, rows) | np.isin(rows, [*strong])]
    binds = dag.binding[dag.edges.head[rows]] == rows
    for row, is_binding in zip(rows.tolist(), binds.tolist(), strict=True):
        tail, head = boxes[int(dag.edges.tail[row])], boxes[int(dag.edges.head[row])]
        look = {"penwidth": _BOLD} if is_binding else {}
        look |= {"color": _quoted(_ON_PATH)} if row in strong else {}
        if tail != head:
            _add_edge(graph, tail, head, _edge_label(dag, row), **look)
    return _finish(graph, out)


def links_dot(
    dag: Dag,
    links: Mapping[tuple[int, int], str],
    *,
    tracks: Callable[[I64], Texts],
    out: str | Path | None = None,
    max_nodes: int = 300,
    title: str = "",
) -> str:
    """Events as DOT, each a box on the lane of its track, with an arrow per link and its label."""
    drawn = {2 * event: True for pair in links for event in pair}
    graph = _lanes(dag, drawn, tracks, title=title, max_nodes=max_nodes)
    for (tail, head), label in links.items():
        _add_edge(graph, 2 * tail, 2 * head, label, penwidth=_BOLD)
    return _finish(graph, out)


def _lanes(
    dag: Dag,
    drawn: Mapping[int, bool],
    tracks: Callable[[I64], Texts],
    *,
    marked: npt.ArrayLike = (),
    title: str,
    max_nodes: int,
) -> Any:  # noqa: ANN401
    """Drawing with boxes on lanes; of each, its node, and whether it is the whole event."""
    if len(drawn) > max_nodes:
        hint = "take a shorter window, fewer hops, the critical path alone, or raise max_nodes."
        raise QueryError(
            f"the drawing would have {len(drawn):,} boxes, more than {max_nodes:,}.", hint=hint
        )
    small = {"size": _quoted(_SIZE)} if len(drawn) <= _ON_A_SLIDE else {}
    graph = _digraph(
        _quoted(title), rankdir="LR", nodesep="0.2", ranksep="0.4", fontsize="20", **small
    )
    lanes: dict[str, Any] = {}
    chosen = set(np.asarray(marked, dtype=np.int64).tolist())
    nodes = sorted(drawn, key=lambda node: (dag.events.node_ts_ns[node], node))
    for node, track in zip(nodes, tracks(np.array(nodes, dtype=np.int64) // 2), strict=True):
        label, event = track_name(track), node // 2
        if label not in lanes:
            lanes[label] = pydot.Cluster(f"lane{len(lanes)}", label=_quoted(label), **_LANE_LOOK)
        color = _event_color(dag, event)
        look = {"penwidth": "3", "color": _quoted("black")} if event in chosen else {}
        lanes[label].add_node(
            pydot.Node(
                f"n{node}",
                label=_event_label(dag, node, is_whole=drawn[node]),
                tooltip=_quoted(dag.events.symbols.texts[dag.events.name[event]]),
                fillcolor=_quoted(color.fill),
                fontcolor=_quoted(color.ink),
                **look,
            )
        )
    for lane in lanes.values():
        graph.add_subgraph(lane)
    return graph


def _add_edge(graph: Any, tail: int, head: int, label: str, **look: str) -> None:  # noqa: ANN401
    graph.add_edge(pydot.Edge(f"n{tail}", f"n{head}", label=_quoted(label), **look))
