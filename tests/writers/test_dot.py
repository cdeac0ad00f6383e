"""DOT that Graphviz reads, and that a person can."""

from __future__ import annotations

import html
import re
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pydot
import pytest

import htagraph as hg
from htagraph.errors import QueryError
from htagraph.graph import TraceGraph
from htagraph.model.kinds import Bound
from htagraph.model.labels import name_label
from htagraph.writers.dot import PathGroup, graph_dot, path_dot, path_groups

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


def cards(text: str) -> list[list[str]]:
    """The lines of each box of a path."""
    (drawing,) = pydot.graph_from_dot_data(text)
    labels = [node.get_label() for node in drawing.get_nodes() if node.get_label()]
    return [
        [
            html.unescape(" ".join(re.sub(r"<[^>]*>", " ", row).split()))
            for row in re.findall(r"<TR>(.*?)</TR>", label)
        ]
        for label in labels
    ]


def test_a_path_has_a_box_per_bound_with_its_names(graph: TraceGraph) -> None:
    """Each with its time and its share of the window, the longest first."""
    assert cards(graph.critical_path().to_dot()) == [
        ["GPU compute 37.0 us 56.9%", "kernel 21.0 us 32.3%", "kernel2 16.0 us 24.6%"],
        ["CPU operators 16.0 us 24.6%", "aten::relu 14.0 us 21.5%", "aten::linear 2.00 us 3.1%"],
        ["GPU synchronization 7.00 us 10.8%", "cudaDeviceSynchronize 7.00 us 10.8%"],
        ["launch latency 3.00 us 4.6%", "kernel 3.00 us 4.6%"],
        ["untraced code 2.00 us 3.1%", "(host gap) 2.00 us 3.1%"],
    ]


def test_arrows_count_how_often_the_path_passes(graph: TraceGraph) -> None:
    """From host to device and back, once each: drawn from the host's side to the device's."""
    (drawing,) = pydot.graph_from_dot_data(graph.critical_path().to_dot())
    found = {
        (edge.get_source(), edge.get_destination()): (
            edge.get("dir"),
            re.sub("<[^>]*>", "", edge.get_label()[1:-1]),
        )
        for edge in drawing.get_edges()
    }
    assert found == {
        ("host", "launch"): ("forward", "1×"),
        ("launch", "compute"): ("forward", "1×"),
        ("sync", "compute"): ("back", "1×"),
        ("untraced_code", "sync"): ("back", "1×"),
        ("untraced_code", "host"): ("forward", "1×"),
    }


def path_of(*segments: tuple[Bound, str, int]) -> tuple[list[str], tuple[np.ndarray, ...]]:
    """Texts, and bounds, names and durations of a path, as `path_dot` takes them."""
    texts = [name for _, name, _ in segments]
    bounds = np.array([bound for bound, _, _ in segments], dtype=np.int8)
    dur_ns = np.array([dur for _, _, dur in segments], dtype=np.int64)
    return texts, (bounds, np.arange(len(texts)), dur_ns)


def test_fourteen_names_are_drawn_and_the_rest_by_bound() -> None:
    """Of 20 operators and 2 copies; a rest of one name has it."""
    operators = [(Bound.HOST, f"aten::op{number}", 100 - number) for number in range(20)]
    copies = [(Bound.MEMORY, "Memcpy HtoD", 5), (Bound.MEMORY, "Memcpy HtoD", 6)]
    texts, (bounds, names, dur_ns) = path_of(*operators, *copies)

    named = [PathGroup(bound, name, 1, dur) for bound, name, dur in operators[:14]]
    assert path_groups(bounds, names, texts, dur_ns) == [
        *named,
        PathGroup(Bound.MEMORY, "Memcpy HtoD", 1, 11),
        PathGroup(Bound.HOST, "", 6, sum(range(81, 87))),
    ]
    assert cards(path_dot(bounds, names, texts, dur_ns))[0][-1] == "6 others 501 ns 27.5%"


def test_steps_are_one_name() -> None:
    """Their numbers are left out, and only theirs."""
    texts, (bounds, names, dur_ns) = path_of(
        (Bound.UNTRACED_CODE, "ProfilerStep#1", 3),
        (Bound.UNTRACED_CODE, "ProfilerStep#2", 4),
        (Bound.UNTRACED_CODE, "layer#2", 1),
    )
    assert path_groups(bounds, names, texts, dur_ns) == [
        PathGroup(Bound.UNTRACED_CODE, "ProfilerStep", 1, 7),
        PathGroup(Bound.UNTRACED_CODE, "layer#2", 1, 1),
    ]


def test_rare_passages_are_drawn_only_where_they_connect() -> None:
    """All pairs of five bounds occur; four arrows connect them, three more are the next ones."""
    shown = [Bound.HOST, Bound.LAUNCH, Bound.COMPUTE, Bound.SYNC, Bound.MEMORY]
    tour = [shown[at] for at in (0, 1, 2, 3, 4, 0, 2, 4, 1, 3, 0)]
    texts, (bounds, names, dur_ns) = path_of(*((bound, "x", 1) for bound in tour))
    assert len(arrows(path_dot(bounds, names, texts, dur_ns))) == 4 + 3


def test_names_with_quotes_and_braces_are_read_back() -> None:
    """Names are labels, never ids; what DOT and HTML would take for syntax is escaped."""
    said = ['say "hi"', "back\\slash", "a->b; {c}", "line\nbreak", "ünïcode", "a<b>&amp;"]
    texts, (bounds, names, dur_ns) = path_of(*((Bound.HOST, name, 9) for name in said))
    (card,) = cards(path_dot(bounds, names, texts, dur_ns))
    assert [line.removesuffix(" 9 ns 16.7%") for line in card[1:]] == [
        'say "hi"',
        "back\\slash",
        "a->b; {c}",
        "line break",
        "ünïcode",
        "a<b>&amp;",
    ]


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
