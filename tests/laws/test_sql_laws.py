"""Laws of SQL: the path adds up, and nothing depends on the order of the file."""

from __future__ import annotations

import json

import numpy as np
import pytest

import htagraph as hg
from tests.synth.simulator import simulate
from tests.synth.training import training_rank

pytest.importorskip("duckdb")

DEMOS = (
    *("dataloader", "sync_in_loop", "small_kernels", "exposed_allreduce", "synchronous_copy"),
    *("none", "serving", "compiled", "captured"),
)
QUERIES = (
    "SELECT bound, sum(dur_ns) AS sum_ns FROM segments GROUP BY ALL ORDER BY ALL",
    "SELECT name, count(*) AS n, sum(dur_ns) AS sum_ns FROM events GROUP BY ALL ORDER BY ALL",
    """SELECT a.name, b.name AS after, sum(lag_ns) AS lag_ns FROM edges
    JOIN events a ON a.event = tail_event JOIN events b ON b.event = head_event
    WHERE edges.kind = 'stream' GROUP BY ALL ORDER BY ALL""",
    "SELECT op, sum(launch_delay_ns) AS sum_ns FROM launches GROUP BY ALL ORDER BY ALL",
)


@pytest.mark.some(2)
@pytest.mark.parametrize("name", DEMOS)
def test_segments_add_up_to_the_window(name: str) -> None:
    """Of each trace, and of each of its steps."""
    graph = hg.load(hg.demo_trace(name)).compile()
    for window in (graph, graph.window("trace"), graph.window("last")):
        (found,) = window.sql("SELECT sum(dur_ns) AS dur_ns FROM segments")["dur_ns"]

        assert found == window.dur_ns


def test_segments_of_a_job_add_up_to_the_window() -> None:
    """On whatever rank they are."""
    job = hg.load_job(hg.demo_trace("job"))
    (found,) = job.sql("SELECT sum(dur_ns) AS dur_ns FROM segments")["dur_ns"]

    assert found == job.critical_path().dur_ns


@pytest.mark.parametrize("query", QUERIES)
def test_answers_do_not_depend_on_the_order_of_the_file(query: str) -> None:
    """Shuffled events give the same sums."""
    content = simulate(training_rank(steps=2, layers=2)).to_json()
    document = json.loads(content)
    shuffled = np.random.default_rng(0).permutation(len(document["traceEvents"]))
    document["traceEvents"] = [document["traceEvents"][place] for place in shuffled]
    before, after = (
        hg.load(text).compile().sql(query).plain
        for text in (content, json.dumps(document).encode())
    )

    assert len(before)
    assert before.equals(after)
