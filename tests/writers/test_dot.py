"""DOT that Graphviz reads, and that a person can."""

from __future__ import annotations

import html
import re
import shutil
import struct
import subprocess
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pydot
import pytest

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.lookup.attribution import track_labels
from htagraph.model.kinds import Bound
from htagraph.model.labels import name_label
from htagraph.run.graph import TraceGraph
from htagraph.writers.dot import graph_dot, path_dot
from htagraph.writers.path_outline import HEIGHT, WIDTH, Outline, PathBox, arranged

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


def drawn(text: str) -> pydot.Dot:
    """A drawing as pydot reads it."""
    (found,) = pydot.graph_from_dot_data(text)
    return found


def boxes(text: str) -> list[str]:
    """The first line of each box."""
    lanes = drawn(text).get_subgraphs()
    labels = [node.get_label() for lane in lanes for node in lane.get_nodes()]
    return [label.strip('"').split("\\n")[0] for label in labels]


def arrows(text: str) -> list[tuple[str, str]]:
    """Tail and head of each arrow."""
    return [(edge.get_source(), edge.get_destination()) for edge in drawn(text).get_edges()]


def lanes(text: str) -> dict[str, list[str]]:
    """The lines of each box, by lane."""
    return {
        lane.get_label().strip('"'): [
            html.unescape(re.sub("<BR/>", " | ", node.get_label()[1:-1]))
            .replace("<B>", "")
            .replace("</B>", "")
            for node in lane.get_nodes()
        ]
        for lane in drawn(text).get_subgraphs()
    }


def box_of(*names: str, bound: Bound = Bound.HOST) -> str:
    """The lines of a box of some names."""
    (box,) = (one for some in lanes(slide_of(*names, bound=bound)).values() for one in some)
    return box


def slide_of(*names: str, bound: Bound = Bound.HOST) -> str:
    """The slide of a path of 1 us on one lane; the first name has twice the time."""
    box = PathBox(0, (bound,), names[:2], len(names), 12, 1_000)
    return path_dot(Outline(("thread 1",), (box,), (), 0, 0, (), 1_000), title="Path")


def test_a_path_is_boxes_on_lanes(graph: TraceGraph) -> None:
    """Each with its name, bound, time and share of the window, in order of time."""
    assert lanes(graph.critical_path().to_dot()) == {
        "thread 1": [
            "aten::linear | CPU operators | 2.00 us, 3.1%",
            "cudaDevice | Synchronize | GPU synchronization | 7.00 us, 10.8%",
            "untraced code | 2.00 us, 3.1%",
            "aten::relu | CPU operators | 14.0 us, 21.5%",
        ],
        "stream 7": [
            "launch latency | kernel | 3.00 us, 4.6%",
            "kernel | GPU compute | 21.0 us, 32.3%",
            "kernel2 | GPU compute | 16.0 us, 24.6%",
        ],
    }


def test_arrows_say_the_kind_of_their_edge(graph: TraceGraph) -> None:
    """From the launch to the kernel, then along the stream, to the wait and along the thread."""
    found = drawn(graph.critical_path().to_dot()).get_edges()
    labels = [re.sub("<[^>]*>", "", (edge.get_label() or "  ")[1:-1]) for edge in found]
    assert labels == ["launch", "stream", "stream", "sync", "", ""]
    assert all(edge.get("pos").startswith('"e,') for edge in found)


def test_what_is_left_out_is_one_box() -> None:
    """It says of which bounds."""
    box = PathBox(0, (Bound.HOST,), ("aten::mm",), 1, 1, 900)
    left_out = ((Bound.LAUNCH, 60), (Bound.KERNEL_GAP, 40))
    text = path_dot(Outline(("thread 1",), (box,), (), 412, 100, left_out, 1_000), title="Path")
    (others,) = drawn(text).get_node("others")
    said = re.sub("<[^>]*>", " ", others.get_label()[1:-1]).split()
    assert " ".join(said) == (
        "… 412 others , 100 ns, 10.0% launch latency 6.0%, gaps between kernels 4.0%"
    )


def test_a_wait_is_named_after_its_bound() -> None:
    """What it waits for does not run yet."""
    assert box_of("gemm", bound=Bound.LAUNCH).startswith("launch latency | gemm | 12 ×, 1.00 us")
    assert box_of("gemm", bound=Bound.COMPUTE).startswith("gemm | GPU compute | 12 ×, 1.00 us")


def test_boxes_do_not_overlap_and_are_on_the_slide() -> None:
    """Whatever their number: no box is wider than a third, and its text is 11 pixels high."""
    for n_lanes, n in ((1, 24), (2, 14), (5, 5)):
        slide = arranged([at % n_lanes for at in range(n)])
        if slide is None:
            continue
        assert slide.width <= WIDTH / 3
        boxes = sorted(slide.boxes)
        for (x, y), (other_x, other_y) in combinations(boxes, 2):
            assert abs(x - other_x) >= slide.width or abs(y - other_y) >= slide.height
        for x, y in boxes:
            assert slide.width / 2 <= x <= WIDTH - slide.width / 2
            assert slide.height / 2 <= y <= HEIGHT - slide.height / 2


def test_names_with_quotes_and_braces_are_read_back() -> None:
    """Names are labels, never ids; what DOT and HTML would take for syntax is escaped."""
    for said, shown in (
        ('say "hi"', 'say "hi"'),
        ("back\\slash", "back\\slash"),
        ("a->b; {c}", "a->b; {c}"),
        ("line\nbreak", "line break"),
        ("ünïcode", "ünïcode"),
        ("a<b>&amp;", "a<b>&amp;"),
    ):
        assert box_of(said).partition(" | ")[0] == shown


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws_a_path_on_a_slide(tmp_path: Path, graph: TraceGraph) -> None:
    """About 16:9, and no more than 1280 x 720 pixels and a margin."""
    file = tmp_path / "path.dot"
    graph.critical_path().to_dot(file)
    drawn = subprocess.run(["dot", "-Tpng", str(file)], capture_output=True, check=True)
    width, height = struct.unpack(">2I", drawn.stdout[16:24])

    assert not drawn.stderr
    assert 1100 < width <= 1310
    assert 640 < height <= 750


def test_a_graph_has_a_box_per_event_and_marks_the_path(graph: TraceGraph) -> None:
    """Start and end are two boxes only where other events lie between them; kernels are one."""
    text = graph.to_dot()
    assert sorted(boxes(text)).count("kernel") == 1
    assert sorted(boxes(text)).count("aten::linear") == 2
    assert any(edge.get("color") for edge in drawn(text).get_edges())


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

    tracks = partial(track_labels, dag)
    text = graph_dot(dag, tracks=tracks, critical=[to_third], reduce=True)
    assert ("n0", "n8") in arrows(text)


def test_edges_that_bind_are_bold_and_others_say_their_slack(graph: TraceGraph) -> None:
    """The second kernel waits for its stream, not for its launch, which came 9 us before."""
    second = graph.find("kernel2")
    found = drawn(second.around().to_dot(marked=second)).get_edges()
    into = {edge.get_label().strip('"'): edge.get("penwidth") for edge in found}
    assert into == {
        "launch 3.00 us\\nslack 9.00 us": None,
        "stream 0 ns": "2.2",
        "sync 0 ns": "2.2",
    }


def test_an_event_is_marked_among_those_around_it(graph: TraceGraph) -> None:
    """Its box has a thick border, and those of one hop are drawn."""
    second = graph.find("kernel2")
    text = second.around().to_dot(marked=second)
    nodes = [node for lane in drawn(text).get_subgraphs() for node in lane.get_nodes()]
    thick = [node.get_label() for node in nodes if node.get("penwidth")]
    assert thick == ['"kernel2\\n16.0 us"']
    assert set(boxes(text)) == {"cudaLaunchKernel", "kernel", "kernel2", "cudaDeviceSynchronize"}


def test_matches_are_boxes_with_an_arrow_per_hop(graph: TraceGraph) -> None:
    """An operator passes the second kernel to the device, which waits for the first one there."""
    text = graph.match("op aten::linear -LAUNCH> kernel -STREAM> kernel").to_dot()
    found = drawn(text)
    assert boxes(text) == ["aten::linear", "kernel", "kernel2"]
    assert [edge.get_label() for edge in found.get_edges()] == ['"launch 3.00 us"', '"stream 0 ns"']
    assert '"1 match of op aten::linear -LAUNCH> kernel -STREAM> kernel"' in text


def test_matches_of_nesting_have_arrows_without_a_label(graph: TraceGraph) -> None:
    """It is no edge, and has no lag."""
    (arrow,) = drawn(graph.match("op -CHILD> launch").to_dot()).get_edges()[:1]
    assert arrow.get_label() == '""'


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
