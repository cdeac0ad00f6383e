"""Attention with pages has at most the work that the summed lengths of its step allow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import htagraph as hg
from htagraph.lookup.operator_roofs import Limit, operator_roofs, operator_work
from htagraph.model.devices import DeviceProperties
from htagraph.model.events import SparseColumn
from htagraph.model.symbols import SymbolTable
from htagraph.operators.call import Call, Lengths
from htagraph.operators.work import registered
from htagraph.synth import timeline
from tests.real_traces import located

BF16 = "c10::BFloat16"
DECODE = Call(
    "vllm::unified_attention_with_output",
    [[32, 64, 64], [32, 8, 64], [32, 8, 64], [32, 64, 64]],
    [BF16] * 4,
    lengths=Lengths(32, 55086, 32, 55086),
)


def test_a_decode_reads_the_keys_and_values_of_all_sequences_at_most():
    done = registered(DECODE.name)(DECODE)
    query_and_output = 2 * 32 * 64 * 64 * 2
    assert done.bytes_low == query_and_output
    assert done.bytes_high == query_and_output + 2 * 55086 * 8 * 64 * 2
    assert (done.flops, done.flops_high) == (4 * 64 * 64 * 32, 4 * 64 * 64 * 55086)


def test_a_prompt_does_not_see_what_follows():
    """Four queries at the end of ten keys see 7, 8, 9 and 10."""
    done = registered(DECODE.name)(replace(DECODE, lengths=Lengths(4, 10, 16, 40)))
    assert done.flops_high == 4 * 64 * 64 * 34


def test_without_lengths_or_with_those_of_more_tokens_there_is_no_model():
    model = registered(DECODE.name)
    assert model(replace(DECODE, lengths=None)) is None
    assert model(replace(DECODE, lengths=Lengths(33, 55086, 33, 55086))) is None


def test_a_page_of_the_cache_has_the_heads_of_the_keys():
    pages = [835874, 1, 8, 128]
    call = Call(
        "aiter::paged_attention_ragged",
        [[32, 32, 128], [1 << 20], [32, 32, 128], pages, pages],
        [BF16, "unsigned char", BF16, BF16, BF16],
        lengths=Lengths(32, 32785, 32, 32785),
    )
    done = registered(call.name)(call)
    assert done.bytes_high - done.bytes_low == 2 * 32785 * 8 * 128 * 2
    assert done.flops_high == 537_149_440


def _drawn(step: str) -> hg.TraceGraph:
    """A full layer, and one of a sliding window that takes a tenth of the time."""
    events = timeline("""
        cpu 1    |{s                                                              }
        cpu 1    | [attention [launch >a]] [attention [launch >b]]
        stream 7 |                       [full <a                              ][window <b]
    """, us_per_column=1, names={"s": step, "attention": DECODE.name})  # fmt: skip
    rows = np.flatnonzero(events.names() == DECODE.name)
    lists = (
        "[[32,64,64],[32,8,64],[32,8,64],[32,64,64]]",
        f'["{BF16}","{BF16}","{BF16}","{BF16}"]',
    )
    columns = {
        name: SparseColumn(rows, np.full(len(rows), code, dtype=np.int32))
        for code, name in enumerate(("arg_dims", "arg_types"))
    }
    device = DeviceProperties(0, name="NVIDIA H100 80GB HBM3", n_sms=132, threads_per_sm=2048)
    events = replace(
        events,
        lists=SymbolTable(lists),
        columns={**events.columns, **columns},
        devices=(device,),
    )
    return hg.Trace.from_events(events).compile()


def test_the_roof_is_that_of_most_work_and_never_above_the_time():
    graph = _drawn(
        "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)"
    )
    work = np.flatnonzero(graph.dag.events.is_device)
    roofs = operator_roofs(graph.dag, work, graph.dag.events.dur_ns[work])
    assert roofs.roof_ns == pytest.approx([113_340_416 / 3.35e12 * 1e9, 11_000], rel=1e-3)
    assert roofs.limit.tolist() == [Limit.MEMORY, Limit.MEMORY]
    found = graph.roofline(by="family").set_index("group").loc["attention"]
    assert found["gb_per_s"] < 3350


def test_without_lengths_in_the_name_of_the_step_nothing_is_known():
    graph = _drawn("execute_context_0(0)_generation_32(32)")
    assert len(operator_work(graph.dag, np.flatnonzero(graph.dag.events.is_device)).event) == 0


@pytest.mark.public("tracelens/vllm_piecewise_graph.json.gz")
def test_the_attention_of_a_real_step():
    graph = hg.load(located("tracelens/vllm_piecewise_graph.json.gz")).compile()
    found = graph.roofline(by="family").set_index("group").loc["attention"]
    queries, keys = 8155 + 37, 8430 + 34489
    assert (found["n_calls"], found["n_kernels"]) == (24, 24)
    assert found["bytes_low"] == 24 * 2 * queries * 64 * 64 * 2
    assert found["bytes_high"] - found["bytes_low"] == 24 * 2 * keys * 8 * 64 * 2
