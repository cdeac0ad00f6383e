"""Matches: what `graph.match` answers with."""

from __future__ import annotations

import re

import pytest

import htagraph as hg
from htagraph.errors import QueryError


@pytest.fixture(scope="module")
def graph() -> hg.TraceGraph:
    """Two operators that launch one and two kernels; communication waits for the last."""
    drawing = """
        cpu 1    |{step                                                                   }
        cpu 1    | [linear [L >a]] [relu [L >b ][inner [L >c   ]]][record !r @7][wait ?r @9][L >d]
        stream 7 |            [gemm <a  ]         [relu_k <b ][add_k <c  ]
        stream 9 |                                                                          [N <d  ]
    """
    names = {"L": "cudaLaunchKernel", "N": "ncclDevKernel_AllReduce"}
    return hg.Trace.from_events(hg.synth.timeline(drawing, names=names)).compile()


def found(graph: hg.TraceGraph, pattern: str) -> list[list[str]]:
    """The names of each match."""
    matches = graph.match(pattern)
    return matches.frame[list(matches.found.names)].to_numpy().tolist()


def test_a_text_and_its_objects_match_the_same(graph):
    """Both are one mechanism."""
    text = graph.match("op relu -LAUNCH> kernel -STREAM> kernel")
    objects = graph.match(hg.op("relu"), "LAUNCH", hg.kernel(), hg.hop("STREAM"), hg.kernel())

    assert text.frame.equals(objects.frame)
    assert text.frame[["op", "kernel", "kernel_2"]].to_numpy().tolist() == [
        ["relu", "relu_k", "add_k"]
    ]
    assert text.found.pattern == objects.found.pattern


def test_arrows_lead_backward(graph):
    """From device work to what launched it, and to the work before it."""
    assert found(graph, "kernel add_k <LAUNCH- op") == [["add_k", "relu"], ["add_k", "inner"]]
    assert found(graph, "add_k <STREAM- kernel") == [["add_k", "relu_k"]]


def test_arrows_of_any_kind(graph):
    """All edges that leave, whatever their kind; each match says which it was."""
    matches = graph.match("kernel add_k -> any")

    assert matches.frame[["any_edge_kind", "any"]].to_numpy().tolist() == [
        ["sync", "ncclDevKernel_AllReduce"]
    ]
    assert found(graph, "kernel add_k -STREAM|SYNC> kernel") == [
        ["add_k", "ncclDevKernel_AllReduce"]
    ]


def test_conditions(graph):
    """Times with units, columns, names of what is above, and the path."""
    assert found(graph, "kernel [dur<12us, stream=7]") == [["gemm"]]
    assert found(graph, "kernel [stream=9|11]") == [["ncclDevKernel_AllReduce"]]
    assert found(graph, "kernel [stream!=7|9]") == []
    assert found(graph, "kernel [under=inner|linear]") == [["gemm"], ["add_k"]]
    assert found(graph, "kernel /^(gemm|add)/") == [["gemm"], ["add_k"]]
    assert found(graph, "host|kernel gemm|inner") == [["gemm"], ["inner"]]
    on, off = found(graph, "kernel [on_path]"), found(graph, "kernel [!on_path]")
    assert len(on) + len(off) == 4
    assert on == [
        [name] for name in graph.select(kind="kernel", on_path=True).events["name"].tolist()
    ]
    assert found(graph, "host [tid=1, category!=cpu_op]") != []


def test_lag_and_wait_are_those_of_the_edge(graph):
    """Together they are the time from tail to head."""
    matches = graph.match("launch -LAUNCH> kernel")
    frame, edges = matches.frame, matches.edges

    assert len(edges) == len(frame) == 4
    assert (edges["lag_ns"] + frame["kernel_wait_ns"]).tolist() == edges["dur_ns"].tolist()
    assert frame["kernel_edge"].tolist() == edges["edge"].tolist()
    assert frame["launch_ts_ns"].tolist() == sorted(frame["launch_ts_ns"])


def test_nesting_has_no_edge(graph):
    """So a match has no columns of one; of several kinds of hops, they are empty."""
    assert "op_2_edge" not in graph.match("op -CHILD> op").frame
    mixed = graph.match("op relu -CHILD|THREAD> op").frame
    assert mixed[["op_2", "op_2_edge_kind", "op_2_wait_ns"]].iloc[-1].isna().sum() == 1


def test_groups_count_each_event_once(graph):
    """An operator with two kernels is in two matches, and its time counts once."""
    groups = graph.match("op relu|linear -LAUNCH> kernel").group("op")

    assert groups[["op", "n_matches"]].to_numpy().tolist() == [["relu", 2], ["linear", 1]]
    durations = dict(graph.select(kind="op").events[["name", "dur_ns"]].to_numpy().tolist())
    assert groups["op_dur_ns"].tolist() == [durations["relu"], durations["linear"]]


def test_groups_by_name_and_by_any_columns(graph):
    """By names of all events unless columns are given."""
    matches = graph.match("op relu|linear -LAUNCH> kernel")

    assert len(matches.group()) == 3
    by_kind = matches.group(["kernel_edge_kind"])
    assert by_kind["n_matches"].tolist() == [3]
    assert by_kind["kernel_dur_ns"].tolist() == [
        int(matches.select("kernel").events["dur_ns"].sum())
    ]
    with pytest.raises(QueryError, match=r"no column 'kernels'.*did you mean 'kernel'"):
        matches.group("kernels")


def test_matches_are_a_set_of_events(graph):
    """Of all places of the pattern, or of one."""
    matches = graph.match("op relu -LAUNCH> kernel -STREAM> kernel")

    assert matches.select().events["name"].tolist() == ["relu", "relu_k", "add_k"]
    assert matches.select("kernel_2").events["name"].tolist() == ["add_k"]
    with pytest.raises(QueryError, match=r"no 'kernel_3'.*did you mean 'kernel_2'"):
        matches.select("kernel_3")


def test_what_is_printed(graph):
    """The pattern, the number of matches, names, durations and waits."""
    matches = graph.match("op linear -LAUNCH> kernel")

    assert repr(matches).startswith(
        "1 match of op linear -LAUNCH> kernel\nop      kernel  op_dur_ns"
    )
    assert "<b>1 match of op linear -LAUNCH&gt; kernel</b>" in matches._repr_html_()
    assert re.search("0 matches of .*No rows", repr(graph.match("op nothing")), re.DOTALL)


def test_a_pattern_of_nothing_keeps_its_columns(graph):
    """The same contract as of every table."""
    some, none = graph.match("op -LAUNCH> kernel"), graph.match("op nothing -LAUNCH> kernel")

    assert some.frame.dtypes.equals(none.frame.dtypes)
    assert some.group().dtypes.equals(none.group().dtypes)
    assert len(none) == len(none.select()) == len(none.edges) == 0
