"""DOT that Graphviz reads, and that a person can."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pydot
import pytest

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.graph import TraceGraph
from htagraph.model.labels import name_label
from htagraph.writers.dot import graph_dot, path_dot

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* deprecated - use:DeprecationWarning"
)  # pydot's parser

DRAWING = """
  cpu 1    |[aten::linear           ]  [sync                ]  [aten::relu  ]
  cpu 1    |  [launch >a] [launch >b]
  stream 7 |     [kernel <a          ][kernel2 <b    ]
"""


@pytest.fixture
def graph() -> TraceGraph:
    """A rank that launches two kernels and waits for them."""
    return hg.Trace.from_events(hg.synth.timeline(DRAWING)).compile()


def boxes(text: str) -> list[str]:
    """The first line of each box."""
    (drawing,) = pydot.graph_from_dot_data(text)
    found = [
        node
        for node in drawing.get_nodes()
        if node.get_name().startswith("n") and node.get_name()[1:].isdigit()
    ]
    return [node.get_label().strip('"').split("\\n")[0] for node in found]


def arrows(text: str) -> list[tuple[str, str]]:
    """Tail and head of each arrow."""
    (drawing,) = pydot.graph_from_dot_data(text)
    return [(edge.get_source(), edge.get_destination()) for edge in drawing.get_edges()]


def test_a_path_is_a_chain(graph: TraceGraph) -> None:
    """Each box has an arrow to the next, and there is no other."""
    text = graph.critical_path().to_dot()
    assert arrows(text) == [(f"n{k}", f"n{k + 1}") for k in range(len(boxes(text)) - 1)]


def test_a_long_path_keeps_its_longest_segments(graph: TraceGraph) -> None:
    """What lies between them is joined, so that the drawing stays small and nothing is left out."""
    path = graph.critical_path()
    text = path_dot(path.segments, max_nodes=3)
    longest = path.segments.loc[path.segments["dur_ns"].idxmax(), "name"]
    assert len(boxes(text)) <= 3
    assert longest in boxes(text)
    assert any(box.endswith("shorter segments)") for box in boxes(text))


def test_names_with_quotes_and_braces_are_read_back(graph: TraceGraph) -> None:
    """Names are labels, never ids; what DOT would take for syntax is escaped."""
    names = ['say "hi"', "back\\slash", "a->b; {c}", "line\nbreak", "ünïcode"]
    segments = graph.critical_path().segments.head(5).assign(name=names)
    expected = ['say \\"hi\\"', "back\\\\slash", "a->b; {c}", "line break", "ünïcode"]
    assert boxes(path_dot(segments)) == expected


def test_a_graph_has_a_box_per_event_and_marks_the_path(graph: TraceGraph) -> None:
    """Start and end are two boxes only where other events lie between them; kernels are one."""
    text = graph.to_dot()
    assert sorted(boxes(text)).count("kernel") == 1
    assert sorted(boxes(text)).count("aten::linear") == 2
    (drawing,) = pydot.graph_from_dot_data(text)
    assert any(edge.get_penwidth() for edge in drawing.get_edges())


REPLAY = """
  cpu 1    |[graph >g ][sync                 ]
  stream 7 |   [first <g ][second <g][third <g]
"""


def test_a_reduced_graph_has_no_arrow_that_others_imply() -> None:
    """A replay launches three kernels; their stream implies that the second follows the first."""
    graph = hg.Trace.from_events(hg.synth.timeline(REPLAY)).compile()
    whole, reduced = graph.to_dot(), graph.to_dot(reduce=True)

    assert set(arrows(whole)) - set(arrows(reduced)) == {("n0", "n6"), ("n0", "n8")}
    assert {("n0", "n4"), ("n4", "n6"), ("n6", "n8")} < set(arrows(reduced))
    assert boxes(reduced) == boxes(whole)


def test_a_reduced_graph_keeps_the_path() -> None:
    """Also an arrow that others imply."""
    dag = hg.Trace.from_events(hg.synth.timeline(REPLAY)).compile().dag
    (to_third,) = np.flatnonzero((dag.edges.tail == 0) & (dag.edges.head == 8))

    assert ("n0", "n8") in arrows(graph_dot(dag, critical=[to_third], reduce=True))


def test_a_graph_that_nobody_could_read_is_refused(graph: TraceGraph) -> None:
    """The hint tells how to narrow it."""
    with pytest.raises(QueryError, match=r"more than 2\. Hint: take a shorter window"):
        graph.to_dot(max_nodes=2)


def test_a_drawing_is_written_to_a_file(tmp_path: Path, graph: TraceGraph) -> None:
    """What is returned is what is written."""
    text = graph.to_dot(tmp_path / "x.dot")
    assert (tmp_path / "x.dot").read_text() == text


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, 8>(float*, int)",
            "softmax_warp_forward",
        ),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float>(P)",
            "kernel<int>",
        ),
        (
            "void at::native::unrolled<at::copy(bool)::{lambda()#2}::operator()() const::{lam",
            "unrolled",
        ),
        (
            "torch/nn/modules/module.py(1501): _call_impl",
            "torch/nn/modules/module.py(1501): _call_impl",
        ),
        ("x" * 60, "x" * 32 + "…" + "x" * 15),
    ],
)
def test_names_of_kernels_are_short(name: str, short: str) -> None:
    """What a person looks for is the function, not its types."""
    assert name_label(name) == short
