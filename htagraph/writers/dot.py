"""DOT, the language of Graphviz: a critical path on one slide, and a graph as boxes and arrows."""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.codes import distinct, largest
from htagraph.algorithms.intervals import sum_by_code
from htagraph.errors import QueryError
from htagraph.model.arrays import I8, I64, Bools
from htagraph.model.colors import COLORS, Color
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, EdgeKind, EventKind, bound_in_words
from htagraph.model.labels import name_label, printable
from htagraph.model.step_markers import without_step_number
from htagraph.model.units import human_duration
from htagraph.writers.output_file import write_text

_N_NAMED = 14
"""Names in the drawing of a path (chosen): with a rest of each bound, they fill a slide.

Pinned by `test_dot.py::test_fourteen_names_are_drawn_and_the_rest_by_bound`.
"""
_N_MORE = 3
"""Arrows in it besides those that connect the boxes (chosen): more cross each other."""
_NAME, _TITLE = 36, 90
"""Longest names and titles in it, in characters: they fit into a third of the slide, and on it."""
_SLIDE = "13.33,7.5!"
"""Its size in inches: 1280 x 720 pixels."""
_COLUMNS = (
    (Bound.DATA_LOADING, Bound.UNTRACED_CODE, Bound.HOST, Bound.WAITING_FOR_WORK),
    (Bound.LAUNCH, Bound.SYNC, Bound.UNKNOWN_WAITS),
    (
        Bound.WORK_FROM_BEFORE_THE_PROFILE,
        Bound.MEMORY,
        Bound.KERNEL_GAP,
        Bound.COMPUTE,
        Bound.WAITING_FOR_SMS,
        Bound.COMMUNICATION,
    ),
)
"""Where bounds are drawn: those of the host, those between host and device, those of devices."""
_SMALL, _LARGE, _GROWTH = "13", 14, 14
"""Points of names, of bounds, and how much larger a bound is that has the whole path."""
_LINE, _FAINT = "#8a94a0", "#55606b"
_EVENT_COLORS = {
    EventKind.OP: COLORS[Bound.HOST],
    EventKind.RUNTIME: COLORS[Bound.LAUNCH],
    EventKind.ANNOTATION: COLORS[Bound.UNTRACED_CODE],
    EventKind.KERNEL: COLORS[Bound.COMPUTE],
    EventKind.MEMCPY: COLORS[Bound.MEMORY],
    EventKind.MEMSET: COLORS[Bound.MEMORY],
}
_PLAIN, _ON_PATH = Color("#ffffff"), "#c0392b"
_FONT = {"fontname": "Helvetica", "fontsize": "10"}


def _quoted(text: str) -> str:
    """A text as a DOT string on one line; Graphviz reads HTML entities, so ``&`` is one."""
    plain = printable(" ".join(text.split())).replace("&", "&amp;")
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _as_html(text: str, width: int = _NAME) -> str:
    """A name in a label of HTML."""
    return html.escape(name_label(text, width=width), quote=False)


def _digraph(label: str, **look: str) -> Any:  # noqa: ANN401  a class of a package without types
    import pydot  # noqa: PLC0415  deferred: only this output needs it

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


def _add_node(
    graph: Any,  # noqa: ANN401
    number: int,
    lines: list[str],
    color: Color,
    **more: str,
) -> None:
    import pydot  # noqa: PLC0415  deferred: only this output needs it

    label = "\\n".join(_quoted(line)[1:-1] for line in lines if line)
    look = {"fillcolor": _quoted(color.fill), "fontcolor": _quoted(color.ink)}
    graph.add_node(pydot.Node(f"n{number}", label=f'"{label}"', **look, **more))


def _add_edge(graph: Any, tail: int, head: int, label: str, **more: str) -> None:  # noqa: ANN401
    import pydot  # noqa: PLC0415  deferred: only this output needs it

    graph.add_edge(pydot.Edge(f"n{tail}", f"n{head}", label=_quoted(f" {label} "), **more))


def _finish(graph: Any, out: str | Path | None) -> str:  # noqa: ANN401
    text = str(graph.to_string())
    if out is not None:
        write_text(out, text)
    return text


class PathGroup(NamedTuple):
    """Time of a path on one bound: under one name, or under `n_names` smaller ones (name empty)."""

    bound: Bound
    name: str
    n_names: int
    dur_ns: int


def path_groups(
    bounds: I8, names: npt.NDArray[np.integer[Any]], texts: Sequence[str], dur_ns: I64
) -> list[PathGroup]:
    """Group segments by bound and name without step number: the longest, and the rest by bound.

    Parameters
    ----------
    bounds, names, dur_ns : ndarray of shape (n,)
        Of each segment; names are rows of `texts`.
    """
    n, bare = len(Bound), np.array([*map(without_step_number, texts)], dtype=object)
    number, shared = pd.factorize(bare)
    code = number[names] * n + bounds
    total_ns = sum_by_code(code, dur_ns, n * len(shared))
    groups = distinct(code)
    longest = groups[largest(total_ns[groups], _N_NAMED)]
    rest = np.setdiff1d(groups, longest)
    parts = [longest[at : at + 1] for at in range(len(longest))]
    parts += [own for bound in Bound if len(own := rest[rest % n == bound])]
    return [
        PathGroup(
            Bound(own[0] % n),
            shared[own[0] // n] if len(own) == 1 else "",
            len(own),
            int(total_ns[own].sum()),
        )
        for own in parts
    ]


def _card(bound: Bound, groups: Sequence[PathGroup], path_ns: int) -> str:
    """Bound with its time, and a row for each of its names."""
    color, dur_ns = COLORS[bound], sum(group.dur_ns for group in groups)
    share = dur_ns / max(path_ns, 1)
    head = f"<B>{bound_in_words(bound.label)}</B>  {human_duration(dur_ns)}  <B>{share:.1%}</B>"
    font = f'COLOR="{color.ink}" POINT-SIZE="{_LARGE + _GROWTH * share:.0f}"'
    cell = f'COLSPAN="3" ALIGN="LEFT" BGCOLOR="{color.fill}"'
    rows = [f"<TR><TD {cell}><FONT {font}>{head}</FONT></TD></TR>"]
    for group in groups:
        name = _as_html(group.name) if group.name else f"{group.n_names:,} others"
        times = human_duration(group.dur_ns), f"{group.dur_ns / max(path_ns, 1):.1%}"
        if group.name or len(groups) > 1:
            right = "".join(f'<TD ALIGN="RIGHT">{text}</TD>' for text in times)
            rows.append(f'<TR><TD ALIGN="LEFT">{name}</TD>{right}</TR>')
    table = 'BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="3"'
    return f"<<TABLE {table}>{''.join(rows)}</TABLE>>"


def _passages(bounds: I8) -> dict[tuple[Bound, Bound], tuple[int, int]]:
    """How often a path passes between two bounds, there and back: the most frequent passages."""
    n, at = len(Bound), np.flatnonzero(np.diff(bounds))
    pairs = bounds[at].astype(np.int64) * n + bounds[at + 1]
    times = np.bincount(pairs, minlength=n * n).reshape(n, n)
    place = {bound: number for number, bound in enumerate(chain(*_COLUMNS))}
    found = [
        (first, second)
        for first, second in combinations(sorted(Bound, key=place.__getitem__), 2)
        if times[first, second] + times[second, first]
    ]
    found.sort(key=lambda pair: -int(times[pair] + times[pair[::-1]]))
    connects: list[tuple[Bound, Bound]] = []
    more: list[tuple[Bound, Bound]] = []
    part = np.arange(n)
    for pair in found:
        first, second = part[[*pair]]
        (more if first == second else connects).append(pair)
        part[part == second] = first
    kept = [*connects, *more[:_N_MORE]]
    return {pair: (int(times[pair]), int(times[pair[::-1]])) for pair in kept}


def path_dot(
    bounds: I8,
    names: npt.NDArray[np.integer[Any]],
    texts: Sequence[str],
    dur_ns: I64,
    *,
    out: str | Path | None = None,
    title: str = "Critical path",
) -> str:
    """Critical path as DOT that fills a slide: a box per bound, with time and share of its names.

    Arrows count how often the path passes from one bound to another: the most frequent passages,
    and those that connect all boxes. Boxes of the host are on the left, those of devices on the
    right.

    Parameters
    ----------
    bounds, names, dur_ns : ndarray of shape (n,)
        Of each segment; names are rows of `texts`.
    """
    import pydot  # noqa: PLC0415  deferred: only this output needs it

    path_ns = int(dur_ns.sum())
    small = f'<FONT POINT-SIZE="{_SMALL}" COLOR="{_FAINT}">'
    graph = _digraph(
        f"<{_as_html(f'{title}, {human_duration(path_ns)}', width=_TITLE)}<BR/>{small}"
        "Arrows count how often the path passes from one to the other.</FONT>>",
        rankdir="LR",
        ratio="fill",
        pad="0.15",
        size=_quoted(_SLIDE),
        fontsize="20",
    )
    cards: dict[Bound, list[PathGroup]] = {}
    for group in path_groups(bounds, names, texts, dur_ns):
        cards.setdefault(group.bound, []).append(group)
    for bound, groups in cards.items():
        look = {"fillcolor": _quoted("white"), "margin": _quoted("0.03"), "fontsize": _SMALL}
        graph.add_node(pydot.Node(bound.label, label=_card(bound, groups, path_ns), **look))
    columns = [shown for column in _COLUMNS if (shown := [one for one in column if one in cards])]
    if len(columns) == 1:
        largest_one = max(cards, key=lambda bound: sum(group.dur_ns for group in cards[bound]))
        columns = [[bound for bound in columns[0] if bound is not largest_one]]
    for column in columns:
        together = pydot.Subgraph(rank="same")
        for bound in column:
            together.add_node(pydot.Node(bound.label))
        graph.add_subgraph(together)
    for (first, second), (there, back) in _passages(bounds).items():
        style = {
            "dir": "both" if there and back else "forward" if there else "back",
            "penwidth": f"{1 + np.log10(there + back):.1f}",
            "fontsize": _SMALL,
        }
        label = f'<<TABLE BORDER="0" BGCOLOR="white"><TR><TD>{there + back:,}×</TD></TR></TABLE>>'
        graph.add_edge(pydot.Edge(first.label, second.label, label=label, **style))
    return _finish(graph, out)


def _graph_boxes(dag: Dag, rows: I64) -> dict[int, int]:
    """Box of each node; start and end of an event share one if an edge joins them."""
    tail, head = dag.edges.tail[rows].astype(np.int64), dag.edges.head[rows].astype(np.int64)
    nodes = np.unique(np.concatenate([tail, head]))
    whole = np.unique(tail[(tail % 2 == 0) & (head == tail + 1)])
    is_end = (nodes % 2 == 1) & np.isin(nodes - 1, whole)
    return dict(zip(nodes.tolist(), np.where(is_end, nodes - 1, nodes).tolist(), strict=True))


def _event_label(dag: Dag, node: int, *, is_whole: bool) -> list[str]:
    events, event = dag.events, node // 2
    name = name_label(events.symbols.texts[events.name[event]])
    duration = human_duration(int(events.dur_ns[event]))
    if not is_whole:
        return [name, "ends" if node % 2 else f"starts, {duration}"]
    stream = int(events.stream[event])
    return [name, f"{duration}, stream {stream}" if stream >= 0 else duration]


def _edge_label(dag: Dag, row: int) -> str:
    edges, slack_ns = dag.edges, int(dag.slack_ns[row])
    kind = EdgeKind(int(edges.kind[row])).label
    slack = f", slack {human_duration(slack_ns)}" if slack_ns else ""
    return f"{kind} {human_duration(int(edges.lag_ns[row]))}{slack}"


def _is_implied(dag: Dag, rows: I64) -> Bools:
    """Whether other edges to be drawn imply each."""
    from htagraph.algorithms.reach import is_implied  # noqa: PLC0415  deferred: few need it

    ends = np.stack([dag.edges.tail[rows], dag.edges.head[rows]])
    nodes, place = np.unique(ends, return_inverse=True)
    tail, head = place.reshape(2, -1)
    return is_implied(tail, head, len(nodes))


def graph_dot(
    dag: Dag,
    edge_rows: npt.NDArray[np.integer[Any]] | None = None,
    *,
    critical: npt.ArrayLike = (),
    reduce: bool = False,
    out: str | Path | None = None,
    max_nodes: int = 300,
    title: str = "",
) -> str:
    """Graph as DOT: a box per event, and an arrow per edge with its kind, lag and slack.

    Start and end of an event are two boxes if other events lie between them.

    Parameters
    ----------
    edge_rows : ndarray of int, optional
        Edges to draw, with the events they join; all by default.
    critical : array_like of int
        Edges to highlight: those of the critical path.
    reduce : bool, default=False
        Whether to leave out edges that others imply; never those of the critical path.
    """
    rows = np.arange(len(dag.edges)) if edge_rows is None else np.asarray(edge_rows, dtype=np.int64)
    boxes = _graph_boxes(dag, rows)
    drawn = sorted(set(boxes.values()))
    if len(drawn) > max_nodes:
        hint = "take a shorter window, draw the critical path alone, or raise max_nodes."
        raise QueryError(
            f"the drawing would have {len(drawn):,} boxes, more than {max_nodes:,}.", hint=hint
        )
    graph, strong = (
        _digraph(_quoted(title), nodesep="0.3", ranksep="0.3"),
        set(np.asarray(critical, dtype=np.int64).tolist()),
    )
    for node in drawn:
        is_whole = node % 2 == 0 and boxes.get(node + 1, node) == node
        color = _EVENT_COLORS.get(EventKind(int(dag.events.kind[node // 2])), _PLAIN)
        tooltip = _quoted(dag.events.symbols.texts[dag.events.name[node // 2]])
        _add_node(graph, node, _event_label(dag, node, is_whole=is_whole), color, tooltip=tooltip)
    if reduce:
        rows = rows[~_is_implied(dag, rows) | np.isin(rows, [*strong])]
    for row in rows.tolist():
        tail, head = boxes[int(dag.edges.tail[row])], boxes[int(dag.edges.head[row])]
        style = {"color": _quoted(_ON_PATH), "penwidth": "2.2"} if row in strong else {}
        if tail != head:
            _add_edge(graph, tail, head, _edge_label(dag, row), **style)
    return _finish(graph, out)
