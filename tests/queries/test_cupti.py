"""Hardware counters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.errors import QueryError
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window
from htagraph.queries.cupti_counters import cupti_counters
from htagraph.queries.cupti_rates import cupti_rates
from htagraph.synth import timeline

_FMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
_ADD = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"


def _counted(drawing: str):
    """Return the graph of a drawing whose kernels are ranges of the counting profiler."""
    events = timeline(drawing)
    ranges = np.where(events.is_device, EventKind.COUNTER_RANGE, events.kind).astype(np.int8)
    return compile_events(replace(events, kind=ranges))


_DAG = _counted("""
    cpu 1    |[aten::linear [aten::mm [launch][launch]]]
    stream 7 |                                          [gemm    ][gemm    ]
""")
_ALL = Window(0, 100_000, "all")
_VALUES = {_FMA: 400.0, _ADD: 200.0, "dram__bytes.sum": 500.0, "note": "text is no counter"}


def _args(events):
    return [_VALUES for _ in events]


def test_the_nth_range_belongs_to_the_nth_launch():
    """Kernels run one by one while they are counted."""
    frame = cupti_counters(_DAG, _ALL, args=_args)

    assert len(frame) == 2 * 3
    assert frame.drop_duplicates("event")[["name", "op", "top_op"]].to_numpy().tolist() == [
        ["gemm", "aten::mm", "aten::linear"],
        ["gemm", "aten::mm", "aten::linear"],
    ]
    assert frame.drop_duplicates("event")["launch"].is_unique


def test_a_fused_multiply_add_is_two_operations():
    """Twice 400 * 2 + 200, and 500 bytes, in 20 us: 100 MFLOP/s, two operations a byte."""
    frame = cupti_rates(_DAG, _ALL, args=_args)

    assert frame.iloc[0].tolist() == ["gemm", 2, 20_000, 2_000.0, 1_000.0, 1e8, 5e7, 2.0]


def test_what_was_not_counted_is_not_a_number():
    """Operations without traffic have no intensity."""
    frame = cupti_rates(_DAG, _ALL, args=lambda events: [{_FMA: 1.0} for _ in events], by="op")

    assert frame["name"].tolist() == ["aten::mm"]
    assert frame["flop"].tolist() == [4.0]
    assert frame[["bytes", "bytes_per_s", "flop_per_byte"]].isna().all(axis=None)


def test_without_as_many_launches_as_ranges_nothing_is_guessed():
    """One launch, two ranges: who knows which."""
    dag = _counted("cpu 1 |[aten::mm [launch]]\nstream 7 |                      [gemm][gemm]")
    frame = cupti_counters(dag, _ALL, args=_args)

    assert set(frame["launch"]) == {-1}
    assert set(frame["op"]) == {""}


def test_args_must_be_given_for_every_range():
    """Half an answer would be a wrong one."""
    with pytest.raises(QueryError, match="1 of 2 events"):
        cupti_counters(_DAG, _ALL, args=lambda _: [_VALUES])
