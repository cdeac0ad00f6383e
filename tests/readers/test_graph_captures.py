"""Replayed graphs get the operators of their capture: which capture fits, and which is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import htagraph as hg
from htagraph.errors import TraceFormatError
from htagraph.lookup.operator_roofs import operator_work
from htagraph.model.events import EventTable
from htagraph.model.recording import Recording
from htagraph.readers.beside import with_beside
from htagraph.synth import timeline
from tests.real_traces import CAPTURES, located

BLOCK = (("aten::mm", "gemm"), ("aten::relu", "relu"))
HEAD = (("aten::mm", "gemm"), ("aten::softmax", "softmax"))
Graph = tuple[tuple[str, str], ...]


def call(name: str, category: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict:
    event = {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur}
    return {**event, "args": args}


def captured(
    *graphs: Graph,
    of_batch: int = -1,
    ts: float = 0.0,
    rows: int = 64,
    threads: tuple[int, int] = (1, 1),
) -> list[dict]:
    """Captures one after the other: of operators that launch a kernel each, in a module each."""
    begin, events = ts, []
    for layer, graph in enumerate(graphs):
        length = 20.0 * len(graph) + 20
        events += [
            call(f"nn.Module: Layer_{layer}", "python_function", ts, length),
            call("hipStreamBeginCapture", "cuda_runtime", ts + 1, 1),
            call("hipStreamEndCapture", "cuda_runtime", ts + length - 2, 1),
        ]
        for place, (op, kernel) in enumerate(graph):
            at, thread = ts + 5 + 20 * place, threads[place % 2]
            launch = "hipMemcpyAsync" if kernel == "copy" else "hipLaunchKernel"
            args = {} if kernel in ("", "copy") else {"kernel": kernel}
            inputs = {"Input Dims": [[rows, 32], [32, 16]], "Input type": ["float", "float"]}
            events += [
                call(op, "cpu_op", at, 10, thread, **inputs),
                call(launch, "cuda_runtime", at + 2, 5, thread, correlation=len(events), **args),
            ]
        ts += length
    if of_batch >= 0:
        events.append(call(f"capture_{of_batch}_FULL", "user_annotation", begin, ts - begin))
    return events


def written(folder: Path, *events: dict, name: str = "capture.json") -> Path:
    path = folder / name
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))
    return path


def replayed(*graphs: tuple[str, ...], annotation: str = "step") -> EventTable:
    """One graph launch after the other; each replay runs some kernels of 6 us."""
    launches = "".join(f"[graph >{number}]" for number in range(len(graphs)))
    kernels = "".join(
        f"[{kernel} <{number} ]".ljust(14)
        for number, graph in enumerate(graphs)
        for kernel in graph
    )
    width = " " * len(launches)
    return timeline(f"""
        cpu 1    |{{s{width}}}
        cpu 1    | {launches}
        stream 7 | {width}{kernels}
    """, names={"s": annotation})  # fmt: skip


STEP = ("gemm", "relu")
LAST = ("gemm", "softmax")


def joined(events: EventTable, *paths: Path) -> tuple[hg.TraceGraph, str]:
    """The graph, and what was said about the last file."""
    recording = with_beside(Recording(events), paths)
    return hg.Trace(recording).compile(), recording.attached[-1].detail


def by(graph: hg.TraceGraph, what: str) -> dict[str, int]:
    """Kernels of each group."""
    found = graph.kernel_breakdown(by=what)
    return dict(zip(found["group"], found["n_kernels"], strict=True))


def test_kernels_of_each_replay_belong_to_the_operators_that_were_captured(tmp_path):
    graph, said = joined(replayed(STEP, STEP), written(tmp_path, *captured(BLOCK)))
    assert by(graph, "op") == {"aten::mm": 2, "aten::relu": 2}
    assert by(graph, "shape")["aten::mm fp32[64, 32] fp32[32, 16]"] == 2
    assert by(graph, "module") == {"nn.Module: Layer_0": 4}
    assert said.startswith("2 replays of 1 captured graph: all 4 kernels have the same names")


def test_each_replay_is_a_call_that_has_its_work_to_do(tmp_path):
    graph, _ = joined(replayed(STEP, STEP, STEP), written(tmp_path, *captured(BLOCK)))
    found = graph.roofline(by="op").set_index("group")
    assert found.loc["aten::mm", "n_calls"] == 3
    assert found.loc["aten::mm", "gflop"] == pytest.approx(3 * 2 * 64 * 32 * 16 / 1e9)


def test_the_path_and_patterns_name_the_operators_too(tmp_path):
    graph, _ = joined(replayed(STEP, STEP), written(tmp_path, *captured(BLOCK)))
    assert {"aten::mm", "aten::relu"} <= set(graph.critical_path().breakdown(by="op").index)
    found = graph.kernel_patterns(under="aten::mm", min_length=1)
    assert found[["pattern", "op", "n_occurrences", "host_ns"]].to_numpy().tolist() == [
        [("gemm",), "aten::mm", 2, 0]
    ]


def test_captured_operators_choose_work_to_select_and_to_change(tmp_path):
    graph, _ = joined(replayed(STEP, STEP), written(tmp_path, *captured(BLOCK)))
    assert graph.select(under="aten::mm").events["name"].tolist() == ["gemm", "gemm"]
    by_op, by_kernel = (
        hg.what_if(graph, hg.scale(name, by=0.5)).dur_ns for name in ("aten::mm", "gemm")
    )
    assert by_op == by_kernel < graph.dur_ns


def test_nothing_else_changes(tmp_path):
    events = replayed(STEP, STEP)
    alone = hg.Trace.from_events(events).compile()
    graph, _ = joined(events, written(tmp_path, *captured(BLOCK)))
    assert len(graph.dag.events) == len(alone.dag.events)
    for question in ("temporal_breakdown", "operator_breakdown", "quality", "idle_time"):
        assert getattr(graph, question)().equals(getattr(alone, question)()), question
    assert by(graph, "annotation") == by(alone, "annotation") == {"step": 4}
    assert by(alone, "op") == {"step": 4}


@pytest.mark.parametrize(
    ("replay", "share"),
    [
        pytest.param(("gemm", "tanh"), "50%", id="another kernel"),
        pytest.param(("relu", "gemm"), "0%", id="another order"),
        pytest.param(("relu",), "0%", id="the begin is missing"),
        pytest.param(("gemm", "relu", "relu"), "67%", id="one kernel more"),
    ],
)
def test_a_capture_with_other_kernels_is_refused(tmp_path, replay, share):
    graph, said = joined(replayed(replay), written(tmp_path, *captured(BLOCK)))
    assert said.startswith(f"refused: {share} of the {len(replay)} kernels of the longest replay")
    assert "aten::mm" not in by(graph, "op")


def test_a_replay_may_lack_its_end_but_no_more_than_half(tmp_path):
    capture = written(tmp_path, *captured((*BLOCK, *BLOCK, *HEAD)))
    graph, said = joined(replayed(("gemm", "relu", "gemm")), capture)
    assert by(graph, "op") == {"aten::mm": 2, "aten::relu": 1}
    assert "1 replay without the end of the capture (at most 3 kernels)" in said
    assert joined(replayed(("gemm", "relu")), capture)[1].startswith("refused")


def test_the_order_of_launches_tells_layers_with_the_same_kernels_apart(tmp_path):
    capture = written(tmp_path, *captured(HEAD, BLOCK, BLOCK, HEAD[:1]))
    steps = (LAST, STEP, STEP, ("gemm",)) * 2
    graph, _ = joined(replayed(*steps), capture)
    assert by(graph, "module") == {
        f"nn.Module: Layer_{layer}": n for layer, n in enumerate((4, 4, 4, 2))
    }


def test_a_step_that_lost_a_layer_is_refused(tmp_path):
    """A shift by one layer would fit all kernels that are left."""
    capture = written(tmp_path, *captured(HEAD, BLOCK, BLOCK, BLOCK, HEAD[:1]))
    graph, said = joined(replayed(LAST, STEP, STEP, ("gemm",)), capture)
    assert said.startswith("refused")
    assert by(graph, "op") == {"step": 7}


def test_a_step_at_the_begin_or_end_of_the_trace_may_be_in_part(tmp_path):
    capture = written(tmp_path, *captured(HEAD, BLOCK, BLOCK, HEAD[:1]))
    end, begin = (STEP, STEP, ("gemm",)), (LAST, STEP, STEP)
    graph, _ = joined(replayed(*end, *begin), capture)
    assert by(graph, "module") == {
        "nn.Module: Layer_1": 4, "nn.Module: Layer_2": 4, "nn.Module: Layer_0": 2,
        "nn.Module: Layer_3": 1,
    }  # fmt: skip
    _, said = joined(replayed(*end, LAST), capture)
    assert said.endswith("1 replay left that fit no capture")


def test_without_a_graph_like_no_other_a_step_in_part_may_be_any_layer(tmp_path):
    capture = written(tmp_path, *captured(BLOCK, BLOCK, BLOCK, BLOCK))
    assert joined(replayed(STEP, STEP, STEP), capture)[1].startswith(
        "refused: 3 replays fit several"
    )


def test_a_capture_of_a_smaller_batch_is_refused(tmp_path):
    capture = written(tmp_path, *captured(BLOCK, of_batch=32))
    events = replayed(STEP, annotation="execute_64_context_0(0)_generation_64(64)")
    assert joined(events, capture)[1] == (
        "refused: it is of batch size 32, and the trace runs 64; add the capture of that size"
    )


def test_an_engine_pads_to_the_next_batch_that_it_captured(tmp_path):
    files = [
        written(tmp_path, *captured(BLOCK, of_batch=size, rows=size), name=f"{size}.json")
        for size in (128, 64, 32)
    ]
    events = replayed(STEP, annotation="execute_48_context_0(0)_generation_48(48)")
    recording = with_beside(Recording(events), files)
    graph = hg.Trace(recording).compile()
    assert "aten::mm fp32[64, 32] fp32[32, 16]" in by(graph, "shape")
    assert [one.n_matched for one in recording.attached] == [0, 2, 0]
    assert "1 replay of a smaller batch, padded" in recording.attached[1].detail


def test_batch_sizes_may_be_listed_in_the_folder_of_the_captures(tmp_path):
    capture = written(tmp_path, *captured(BLOCK))
    details = [{"file": "capture.json", "batch_size": 32, "mode": "FULL"}]
    (tmp_path / "execution_details.json").write_text(json.dumps(details))
    events = replayed(STEP, annotation="execute_64_context_0(0)_generation_64(64)")
    assert joined(events, capture)[1].startswith("refused: it is of batch size 32")


def test_several_sizes_with_the_same_kernels_are_refused(tmp_path):
    """Without names of ranges, nothing tells which was run."""
    capture = written(tmp_path, *captured(BLOCK), *captured(BLOCK, ts=500, rows=128))
    assert "fit several captures" in joined(replayed(STEP), capture)[1]


def test_one_graph_for_each_size_needs_no_order(tmp_path):
    capture = written(tmp_path, *captured(BLOCK), *captured(HEAD, ts=500, rows=128))
    graph, _ = joined(replayed(LAST, LAST, STEP), capture)
    assert by(graph, "shape")["aten::mm fp32[128, 32] fp32[32, 16]"] == 2


def test_a_graph_without_launches_replays_nothing(tmp_path):
    capture = written(tmp_path, *captured(HEAD, (), BLOCK))
    graph, _ = joined(replayed(LAST, STEP), capture)
    assert by(graph, "module") == {"nn.Module: Layer_0": 2, "nn.Module: Layer_2": 2}
    nothing = written(tmp_path, *captured(()), name="empty.json")
    assert joined(replayed(STEP), nothing)[1].startswith("refused: 0%")


def test_copies_are_nodes_of_a_graph(tmp_path):
    capture = written(tmp_path, *captured((*BLOCK, ("aten::copy_", "copy"))))
    graph, _ = joined(replayed((*STEP, "Memcpy")), capture)
    assert by(graph, "op") == {"aten::mm": 1, "aten::relu": 1, "aten::copy_": 1}


def test_threads_without_a_capture_launch_into_the_one_under_way(tmp_path):
    """As autograd's thread does; what a kernel of its own ran was not captured."""
    ran = call("hipLaunchKernel", "cuda_runtime", 12, 1, 3, correlation=77, kernel="fill")
    fill = call("fill", "kernel", 14, 1, 7, correlation=77, device=0, stream=7)
    capture = written(tmp_path, *captured(BLOCK, threads=(1, 2)), ran, fill)
    assert by(joined(replayed(STEP), capture)[0], "op") == {"aten::mm": 1, "aten::relu": 1}


def test_without_names_of_kernels_no_capture_is_known_to_fit(tmp_path):
    capture = written(tmp_path, *captured((("aten::mm", ""),)))
    with pytest.raises(TraceFormatError, match="1 of 1 captured launches have no kernel name"):
        joined(replayed(STEP), capture)


def test_a_trace_without_a_capture_cannot_be_added(tmp_path):
    trace = written(tmp_path, call("aten::mm", "cpu_op", 0, 5))
    with pytest.raises(TraceFormatError, match="no capture of a graph"):
        joined(replayed(STEP), trace)


def test_without_replays_there_is_nothing_to_join(tmp_path):
    events = timeline("cpu 1 |[aten::mm ]")
    assert joined(events, written(tmp_path, *captured(BLOCK)))[1].startswith("nothing to join")


def test_a_saved_graph_keeps_its_captured_calls(tmp_path):
    graph, _ = joined(replayed(STEP), written(tmp_path, *captured(BLOCK)))
    again = hg.TraceGraph.open(graph.save(tmp_path / "graph.npz"))
    assert again.roofline(by="shape").equals(graph.roofline(by="shape"))


@pytest.mark.public("tracelens/sglang_Qwen3-8B_decode.json.gz")
@pytest.mark.public("tracelens/vllm_piecewise_graph.json.gz")
@pytest.mark.public("tracelens/vllm_piecewise_graph_capture.pt.trace.json.gz")
def test_the_operators_of_a_real_piecewise_graph():
    """Eight operators that take most of the replayed time, as joined apart from the package."""
    file, capture = (
        located(f"tracelens/vllm_piecewise_graph{name}")
        for name in (".json.gz", "_capture.pt.trace.json.gz")
    )
    trace = hg.load(file, beside=[capture])
    graph = trace.compile()
    (one,) = trace.recording.attached
    assert (one.n, one.n_matched) == (361, 361)
    found = _replayed_operators(graph)
    with (CAPTURES.parent / "graph_join.csv").open(newline="") as rows:
        expected = [
            (row["op"], row["input_dims"], int(row["kernels"]), row["kernel_us"], row["percent"])
            for row in csv.DictReader(rows)
        ]
    assert found[:8] == expected
    work = graph.dag.events.columns["captured_launch"].event
    dur_ns, modelled = graph.dag.events.dur_ns[work], operator_work(graph.dag, work).call >= 0
    assert dur_ns[modelled].sum() / dur_ns.sum() == pytest.approx(0.163, abs=5e-4)
    wrong = with_beside(
        hg.load(located("tracelens/sglang_Qwen3-8B_decode.json.gz")).recording, [capture]
    )
    assert wrong.attached[0].detail.startswith("refused: 0% of the ")


def _replayed_operators(graph: hg.TraceGraph) -> list[tuple[str, str, int, str, str]]:
    """Operators by inputs: kernels, their time, and its share of all replayed time; most first."""
    calls, events = graph.dag.unrolled, graph.dag.events
    work = events.columns["captured_launch"].event
    op = calls.parent[calls.launch[work]]
    dims = calls.events.column("arg_dims")[op]
    keys = np.stack([calls.events.name[op].astype(np.int64), dims])
    _, first, code = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    dur_ns = np.bincount(code.reshape(-1), weights=events.dur_ns[work])
    total = dur_ns.sum()
    return [
        (
            str(calls.events.names(op[[first[row]]])[0]),
            json.dumps(json.loads(events.lists.texts[dims[first[row]]])),
            int((code == row).sum()),
            str(dur_ns[row] / 1e3),
            f"{100 * dur_ns[row] / total:.2f}".rstrip("0"),
        )
        for row in np.argsort(-dur_ns).tolist()
    ]
