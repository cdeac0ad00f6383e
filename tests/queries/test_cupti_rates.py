"""Rates from hardware counters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from htagraph.compiler.passes import compile_events
from htagraph.model.events import SparseColumn
from htagraph.queries.cupti import cupti_rates
from htagraph.synth import timeline
from tests.queries.counted import ALL, FMA, TWO_KERNELS, args


def test_a_fused_multiply_add_is_two_operations():
    """Twice 400 * 2 + 200, and 500 bytes, in 20 us: 100 MFLOP/s, two operations a byte."""
    frame = cupti_rates(TWO_KERNELS, ALL, args=args)

    assert frame.iloc[0].tolist() == ["gemm", 2, 20_000, 2_000.0, 1_000.0, 1e8, 5e7, 2.0]


def test_a_sum_and_a_product_are_one_operation_each():
    """Of single, double and half precision; 3 + 5 of each of two kernels."""
    for kind in "fdh":
        counter = f"smsp__sass_thread_inst_executed_op_{kind}{{}}_pred_on.sum"
        values = {counter.format("add"): 3.0, counter.format("mul"): 5.0}
        frame = cupti_rates(TWO_KERNELS, ALL, args=lambda events, of=values: [of for _ in events])

        assert frame["flop"].tolist() == [16.0]


def test_what_was_not_counted_is_not_a_number():
    """Operations without traffic have no intensity."""
    frame = cupti_rates(TWO_KERNELS, ALL, args=lambda events: [{FMA: 1.0} for _ in events], by="op")

    assert frame["name"].tolist() == ["aten::mm"]
    assert frame["flop"].tolist() == [4.0]
    assert frame[["bytes", "bytes_per_s", "flop_per_byte"]].isna().all(axis=None)


def test_rates_of_nsight_compute_are_multiplied_with_the_time_that_it_measured():
    """2 FLOP a cycle at 1 GHz, and 3 GB/s, for 4 us: 16 kFLOP, 12 kB; in 10 us of the trace."""
    events = timeline("stream 7 |[gemm    ]")
    metrics = {
        "gpu__time_duration.sum": 4_000.0,
        "smsp__cycles_elapsed.avg.per_second": 1e9,
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed": 2.0,
        "dram__bytes.sum.per_second": 3e9,
    }
    columns = {
        f"ncu.{name}": SparseColumn(np.array([0]), np.array([value]))
        for name, value in metrics.items()
    }
    frame = cupti_rates(compile_events(replace(events, columns=columns)), ALL, args=args)

    assert frame.iloc[0].tolist() == ["gemm", 1, 10_000, 16_000, 12_000, 1.6e9, 1.2e9, 4 / 3]


def test_traffic_that_is_counted_twice_counts_once():
    """Total, and read and written, of one kernel."""
    values = {"dram__bytes.sum": 500.0, "dram__bytes_read.sum": 300.0, "dram__bytes_write.sum": 200}
    frame = cupti_rates(TWO_KERNELS, ALL, args=lambda events: [values for _ in events])

    assert frame["bytes"].tolist() == [1_000.0]
