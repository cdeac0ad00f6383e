"""Selections: sets of events that compose, and chains of patterns."""

from __future__ import annotations

import pytest

import htagraph as hg
from htagraph.errors import QueryError
from tests.synth.simulator import simulate
from tests.synth.training import training_rank


@pytest.fixture(scope="module")
def graph():
    """Two operators that launch one and two kernels; the last one waits for communication."""
    drawing = """
        cpu 1    |{step                                                                   }
        cpu 1    | [linear [L >a]] [relu [L >b ][inner [L >c   ]]][record !r @7][wait ?r @9][L >d]
        stream 7 |            [gemm <a  ]         [relu_k <b ][add_k <c  ]
        stream 9 |                                                                          [N <d  ]
    """
    names = {"L": "cudaLaunchKernel", "N": "ncclDevKernel_AllReduce"}
    return hg.Trace.from_events(hg.synth.timeline(drawing, names=names)).compile()


def _names(selection: hg.Selection) -> list[str]:
    return selection.events["name"].tolist()


def test_kinds_and_names_select(graph):
    """Kinds by label, names by glob; both must hold."""
    assert _names(graph.select(kind="kernel")) == [
        "gemm",
        "relu_k",
        "add_k",
        "ncclDevKernel_AllReduce",
    ]
    assert _names(graph.select(kind="kernel", name="relu*")) == ["relu_k"]


def test_collectives_and_launches_are_kinds_too(graph):
    """What a person asks for most has a name."""
    assert _names(graph.select(kind="collective")) == ["ncclDevKernel_AllReduce"]
    assert len(graph.select(kind="launch")) == 4


def test_streams_threads_and_expressions_select(graph):
    """Where it ran, and any expression over the columns."""
    assert _names(graph.select(stream=9)) == ["ncclDevKernel_AllReduce"]
    assert len(graph.select(thread=2)) == 0
    assert _names(graph.select(kind="kernel", where="9_000 < dur_ns < 12_000")) == ["gemm"]


def test_an_operator_leads_to_all_that_is_launched_under_it(graph):
    """However deep the call that launched it."""
    assert _names(graph.select(name="relu").follow("LAUNCH")) == ["relu_k", "add_k"]


def test_a_kernel_leads_back_to_the_operators_above_its_launch(graph):
    """From the device to the code."""
    above = graph.select(name="add_k").back("LAUNCH") & graph.select(kind="op")

    assert _names(above) == ["relu", "inner"]


def test_under_is_below_in_the_call_tree(graph):
    """Nested host events and the device work launched there."""
    assert _names(
        graph.select(under="relu") & (graph.select(name="inner") | graph.select(name="add_k"))
    ) == [
        "inner",
        "add_k",
    ]


def test_children_and_parents_are_one_level(graph):
    """Directly enclosed, directly enclosing."""
    assert _names(graph.select(name="relu").children()) == ["cudaLaunchKernel", "inner"]
    assert _names(graph.select(name="relu").parents()) == ["step"]
    assert _names(graph.select(name="gemm").parents()) == ["cudaLaunchKernel"]


def test_ancestors_are_what_had_to_begin_before(graph):
    """Through the stream wait, the collective had to wait for the kernels of stream 7."""
    before = graph.select(name="nccl*").ancestors() & graph.select(kind="kernel")

    assert _names(before) == ["gemm", "relu_k", "add_k"]


def test_ancestors_by_one_kind_of_edge(graph):
    """Only along the stream."""
    assert _names(graph.select(name="add_k").ancestors(via=("STREAM", "SPAN"))) == [
        "gemm",
        "relu_k",
    ]


def test_between_is_on_some_way_from_one_to_the_other(graph):
    """The kernel in the middle."""
    middle = graph.select(name="gemm").between(graph.select(name="add_k"))

    assert _names(middle & graph.select(kind="kernel")) == ["relu_k"]


def test_sets_combine(graph):
    """As sets do."""
    kernels, gemm = graph.select(kind="kernel"), graph.select(name="gemm")

    assert kernels == (kernels - gemm) | gemm
    assert len(kernels & ~kernels) == 0
    assert int(gemm.rows[0]) in kernels
    assert gemm == kernels - (kernels ^ gemm)
    assert gemm.sum_ns == 11_000


def test_selections_of_two_graphs_do_not_combine(graph):
    """Rows of one table mean nothing in another."""
    other = hg.Trace.from_events(hg.synth.timeline("cpu 1 |[aten::mm]")).compile()

    with pytest.raises(QueryError, match="different graphs"):
        graph.select() & other.select()


def test_an_unknown_kind_lists_those_there_are(graph):
    """A typo should cost seconds."""
    with pytest.raises(QueryError, match=r"kernle.*kernel"):
        graph.select(kind="kernle")


def test_a_wrong_expression_names_the_columns(graph):
    """Nobody remembers them all."""
    with pytest.raises(QueryError, match="dur_ns"):
        graph.select(where="duration > 5")


def test_match_gives_one_row_a_match(graph):
    """From an operator over its kernels to the next kernel of the stream."""
    found = graph.match(hg.op("relu"), "LAUNCH", hg.kernel(), "STREAM", hg.kernel())

    assert len(found) == 1
    assert found.frame[["op", "kernel", "kernel_2"]].to_numpy().tolist() == [
        ["relu", "relu_k", "add_k"]
    ]


def test_match_can_take_several_hops(graph):
    """One to two steps along the stream from the first kernel."""
    found = graph.match(hg.kernel("gemm"), hg.hop("STREAM", at_most=2), hg.kernel())

    assert found.frame["kernel_2"].tolist() == ["relu_k", "add_k"]


def test_match_by_call_tree(graph):
    """CHILD is one level of nesting."""
    found = graph.match(hg.op("relu"), "CHILD", hg.op())

    assert found.frame["op_2"].tolist() == ["inner"]


def test_match_needs_patterns_and_edges_in_turn(graph):
    """Said at once, with an example."""
    with pytest.raises(QueryError, match="alternate"):
        graph.match(hg.op(), hg.kernel())


def test_what_is_on_the_path(graph):
    """The critical path as a set of events."""
    on, off = graph.select(kind="kernel", on_path=True), graph.select(kind="kernel", on_path=False)

    assert graph.select(kind="kernel") == on | off
    assert len(on & off) == 0


def test_a_selection_draws_itself(graph):
    """DOT of the events and the edges among them; and a rustworkx graph of as many nodes."""
    kernels = graph.select(kind="kernel", stream=7)

    assert "gemm" in kernels.to_dot()
    dag = kernels.to_rustworkx()
    assert [(node.name, node.kind, node.event) for node in dag.nodes()] == [
        *zip(kernels.events["name"], ["kernel"] * 3, kernels.rows.tolist(), strict=True)
    ]
    assert [(edge["kind"], edge["lag_ns"] >= 0) for edge in dag.edges()] == [("stream", True)] * 2


def test_nodes_of_a_rustworkx_graph_say_what_they_are(graph):
    """Each event has two; the last two are where the window begins and ends."""
    window = graph.window("trace")
    *nodes, source, sink = window.to_rustworkx().nodes()

    assert {node.at for node in nodes} == {"start", "end"}
    assert [window.dag.events.names([node.event])[0] for node in nodes] == [
        node.name for node in nodes
    ]
    assert (source.name, sink.name, sink.ts_ns - source.ts_ns) == ("source", "sink", window.dur_ns)


def test_a_selection_is_written_as_a_smaller_trace(tmp_path):
    """Each event equals the original, and launches stay linked."""
    content = simulate(training_rank(steps=1, layers=2)).to_json()
    graph = hg.load(content).compile()
    step = graph.select(under="aten::linear") | graph.select(name="aten::linear")
    again = hg.load(step.to_chrome_json(tmp_path / "linear.json.gz"))

    assert len(again.recording.events) == len(step)
    assert again.events["name"].tolist() == step.events["name"].tolist()
    assert again.recording.events.ts_ns.tolist() == graph.dag.events.ts_ns[step.rows].tolist()
    assert again.rank == graph.rank
    launches = again.compile().window("trace").select(kind="launch")
    assert len(launches) == len(step & graph.select(kind="launch"))


def test_a_condition_reaches_columns_only(graph):
    """No module of this package, and none that those have imported."""
    with pytest.raises(QueryError, match="is not a condition"):
        graph.select(where="@pd.io.common.os.getcwd() == name")
