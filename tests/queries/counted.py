"""A drawn trace of the counting profiler, for the questions on hardware counters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from htagraph.compiler.passes import compile_events
from htagraph.model.dag import Dag
from htagraph.model.kinds import EventKind
from htagraph.model.window import Window
from htagraph.synth import timeline

FMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
ADD = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"


def counted(drawing: str) -> Dag:
    """Graph of a drawing whose kernels are ranges of the counting profiler."""
    events = timeline(drawing)
    ranges = np.where(events.is_device, EventKind.COUNTER_RANGE, events.kind).astype(np.int8)
    return compile_events(replace(events, kind=ranges))


TWO_KERNELS = counted("""
    cpu 1    |[aten::linear [aten::mm [launch][launch]]]
    stream 7 |                                          [gemm    ][gemm    ]
""")
ALL = Window(0, 100_000, "all")
VALUES = {FMA: 400.0, ADD: 200.0, "dram__bytes.sum": 500.0, "note": "text is no counter"}


def args(events: np.ndarray) -> list[dict[str, object]]:
    """The same counters for every range."""
    return [VALUES for _ in events]
