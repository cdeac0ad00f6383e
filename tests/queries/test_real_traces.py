"""Questions on real traces of many makers; every sum is checked inside."""

from __future__ import annotations

import numpy as np
import pytest

import htagraph as hg
from htagraph.queries.communication import exposed_communication
from htagraph.queries.kernels import kernel_breakdown, kernel_patterns
from htagraph.queries.operators import operator_breakdown
from htagraph.queries.steps import idle_time
from tests.real_traces import TRACES, cases, located

_WITH_COMMUNICATION = (
    "hta/nccl_parser_config/nccl_data.json.gz",
    "hta/df_index_resolver/df_index_resolver.json.gz",
    "hta/trace_diff/control/control.json.gz",
    "hta/negative_queue_length_values_check/rank0.json.gz",
    "hta/timeline_analysis/sampled_rank-0.json.gz",
    "dlrm/worker0_step_12.1694128201545.pt.trace.json",
    *(name for name in TRACES if name.startswith(("torchrec/", "megatron-tp2/"))),
)


def _graph(name: str) -> hg.TraceGraph:
    return hg.load(located(name)).compile()


@pytest.mark.parametrize("name", cases(_WITH_COMMUNICATION))
def test_communication_is_found_where_there_is_some(name):
    """Every one of these jobs has several ranks; each collective says why it is exposed."""
    graph = _graph(name)
    by_class = kernel_breakdown(graph.dag, graph.interval).set_index("group")
    exposed = exposed_communication(graph.dag, graph.interval)

    assert by_class.loc["communication", "sum_ns"] > 0
    assert len(exposed) == by_class.loc["communication", "n_kernels"]
    assert ((exposed["exposed_ns"] > 0) == (exposed["why"] != "none")).all()


@pytest.mark.some(12)
@pytest.mark.parametrize("name", cases(TRACES))
def test_questions_answer_on_every_trace(name):
    """No trace breaks a sum; idle time of a device is never negative."""
    graph = _graph(name)
    idle = idle_time(graph.dag, graph.interval)
    operators = operator_breakdown(graph.dag, graph.interval)

    assert (idle["idle_ns"] > 0).all()
    assert (operators["self_ns"] >= 0).all()
    assert (operators["self_ns"] <= operators["host_ns"]).all()
    assert np.isfinite(kernel_patterns(graph.dag, graph.interval)["share"]).all()


@pytest.mark.public("hta/df_index_resolver/df_index_resolver.json.gz")
def test_most_idle_time_of_a_training_job_has_a_cause():
    """Host work, gaps and launches explain all but a percent where all launches are recorded."""
    graph = _graph("hta/df_index_resolver/df_index_resolver.json.gz")
    idle = idle_time(graph.dag, graph.interval).groupby("cause", observed=True)["idle_ns"].sum()

    assert idle.get("unknown_waits", 0) < idle.sum() / 100
