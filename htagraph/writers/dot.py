"""DOT, the language of Graphviz: a critical path as a chain, and a graph as boxes and arrows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.codes import largest
from htagraph.errors import QueryError
from htagraph.model.arrays import I64, Bools
from htagraph.model.colors import COLORS, Color
from htagraph.model.dag import Dag
from htagraph.model.kinds import Bound, EdgeKind, EventKind, in_words
from htagraph.model.labels import name_label, printable
from htagraph.model.units import human_duration
from htagraph.writers.output_file import write_text

__all__ = ["graph_dot", "path_dot"]

_BOUND_COLORS = {bound.label: color for bound, color in COLORS.items()}
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


def _digraph(title: str) -> Any:  # noqa: ANN401  a class of a package without types
    import pydot  # noqa: PLC0415  deferred: only this output needs it

    graph = pydot.Dot(
        "htagraph",
        graph_type="digraph",
        rankdir="TB",
        nodesep="0.3",
        ranksep="0.3",
        bgcolor="white",
    )
    graph.set("label", _quoted(title))
    graph.set("labelloc", "t")
    graph.set("fontname", "Helvetica")
    graph.set_node_defaults(
        shape="box",
        style=_quoted("rounded,filled"),
        color=_quoted("#8a94a0"),
        margin=_quoted("0.12,0.06"),
        **_FONT,
    )
    graph.set_edge_defaults(
        color=_quoted("#8a94a0"),
        fontcolor=_quoted("#55606b"),
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


def _boxes_of_path(segments: pd.DataFrame, max_nodes: int) -> pd.DataFrame:
    """Merge equal neighbors, then whatever lies between the longest boxes."""
    begins = np.arange(len(segments)) == 0
    for name in ("bound", "name", "track"):
        column = segments[name]
        is_coded = isinstance(column.dtype, pd.CategoricalDtype)
        values = column.cat.codes.to_numpy() if is_coded else column.to_numpy()
        begins[1:] |= values[1:] != values[:-1]
    first = np.flatnonzero(begins)
    joined = is_long = np.zeros(len(first), dtype=bool)
    if len(first) > max_nodes:
        dur_ns = np.add.reduceat(segments["dur_ns"].to_numpy(np.int64), first)
        is_long[largest(dur_ns, max(1, (max_nodes - 1) // 2))] = True
        kept = np.flatnonzero(is_long | np.append(True, is_long[:-1]))
        first, joined = first[kept], np.diff(kept, append=len(first)) > 1
    texts = ["bound", "name", "track", "op", "kind"]
    boxes = segments[texts].iloc[first].astype(object).reset_index(drop=True)
    for name in ("dur_ns", "lag_ns"):
        boxes[name] = np.add.reduceat(segments[name].to_numpy(np.int64), first)
    boxes["residual_ns"] = boxes["dur_ns"] - boxes["lag_ns"]
    boxes["n_segments"] = np.diff(first, append=len(segments))
    boxes.loc[joined, "name"] = [
        f"({n:,} shorter segments)" for n in boxes.loc[joined, "n_segments"].tolist()
    ]
    boxes.loc[joined, ["bound", "op", "kind"]] = ["various", "", "various"]
    return boxes


def _path_label(box: Mapping[Any, Any], window_ns: int) -> list[str]:
    times = f" ×{box['n_segments']}" if box["n_segments"] > 1 and box["bound"] != "various" else ""
    bound = in_words(box["bound"])
    op = "" if not box["op"] or box["op"] == box["name"] else f"in {name_label(box['op'])}"
    share = f"{box['dur_ns'] / window_ns:.1%}" if window_ns else ""
    return [
        name_label(box["name"]) + times,
        f"{bound}, {human_duration(box['dur_ns'])} ({share})",
        op,
    ]


def path_dot(
    segments: pd.DataFrame,
    *,
    out: str | Path | None = None,
    max_nodes: int = 200,
    title: str = "Critical path",
) -> str:
    """Critical path as DOT: a chain of boxes, colored by bound, a column per track.

    Neighboring segments with one bound, name and lane are one box. An arrow shows the kind of edge
    that the path takes, with the lag and residual of the next box.

    Parameters
    ----------
    segments : DataFrame
        Schema `frames.SEGMENTS`; texts may be categories.
    max_nodes : int, default=200
        Most boxes: the longest are drawn, and what lies between them is joined.
    """
    graph = _digraph(title)
    boxes = _boxes_of_path(segments, max_nodes)
    window_ns = int(segments["dur_ns"].sum())
    lanes = pd.factorize(boxes["track"])[0]
    for number, box in enumerate(boxes.to_dict("records")):
        color = _BOUND_COLORS.get(box["bound"], _PLAIN)
        more = {"group": _quoted(f"lane{lanes[number]}"), "tooltip": _quoted(box["name"])}
        _add_node(graph, number, _path_label(box, window_ns), color, **more)
        if number:
            rest = f" + {human_duration(box['residual_ns'])}" if box["residual_ns"] else ""
            _add_edge(
                graph, number - 1, number, f"{box['kind']} {human_duration(box['lag_ns'])}{rest}"
            )
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
    graph, strong = _digraph(title), set(np.asarray(critical, dtype=np.int64).tolist())
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
