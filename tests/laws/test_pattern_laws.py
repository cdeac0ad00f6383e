"""Laws of patterns: they find what the graph holds, in whatever order the file lists its events."""

from __future__ import annotations

import json

import numpy as np
import pytest

import htagraph as hg
from htagraph.model.kinds import EdgeKind
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

DEMOS = ("dataloader", "sync_in_loop", "exposed_allreduce", "serving", "captured")
PATTERNS = (
    "op aten::* -LAUNCH> kernel -STREAM> kernel",
    "kernel <STREAM{1,3}- kernel [dur>10us]",
    "host -> any -> any",
    "op -CHILD> op -LAUNCH> kernel [on_path]",
    "runtime -SYNC|THREAD> any",
    "any -THREAD{0,4}> op [under=ProfilerStep*]",
)


@pytest.fixture(scope="module", params=DEMOS)
def graph(request: pytest.FixtureRequest) -> hg.TraceGraph:
    return hg.load(hg.demo_trace(request.param)).compile().window("trace")


@pytest.mark.parametrize("kind", EdgeKind.labels())
def test_a_pattern_of_one_hop_is_the_edges_of_that_kind(graph: hg.TraceGraph, kind: str) -> None:
    """Each edge between two events once; a launch also from what encloses its call."""
    edges = graph.edges
    between = edges[(edges["kind"] == kind) & (edges["tail_event"] != edges["head_event"])]
    forward = graph.match(f"any -{kind}> any").frame
    backward = graph.match(f"any <{kind}- any").frame
    own = forward
    if kind == "launch":
        tails = between.set_index("edge")["tail_event"]
        own = forward[forward["any_event"] == forward["any_2_edge"].map(tails)]

    keys = ["any_event", "any_2_event", "any_2_edge"]
    expected = between[["tail_event", "head_event", "edge"]].to_numpy()
    assert sorted(own[keys].to_numpy().tolist()) == sorted(expected.tolist())
    assert sorted(forward[keys].to_numpy().tolist()) == sorted(
        backward[["any_2_event", "any_event", "any_2_edge"]].to_numpy().tolist()
    )


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("seed", range(2))
def test_matches_do_not_depend_on_the_order_of_the_file(pattern: str, seed: int) -> None:
    """Shuffled events give the same names, times, lags and waits; rows are those of the file."""
    content = simulate(training_rank(steps=2, layers=2)).to_json()
    document = json.loads(content)
    shuffled = np.random.default_rng(seed).permutation(len(document["traceEvents"]))
    document["traceEvents"] = [document["traceEvents"][place] for place in shuffled]
    before, after = (
        hg.load(text).compile().window("trace").match(pattern)
        for text in (content, json.dumps(document).encode())
    )

    assert len(before) > 0
    for one, other in ((before.frame, after.frame), (before.group(), after.group())):
        kept = [name for name in one if not name.endswith(("_event", "_edge"))]
        assert sorted(map(str, one[kept].to_numpy().tolist())) == sorted(
            map(str, other[kept].to_numpy().tolist())
        )
