"""Recorded overhead: whose it is, on which thread it ran, and what the path has of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from htagraph.compiler.passes import compile_events
from htagraph.model.kinds import EventKind
from htagraph.queries.profiler_overhead import profiler_overhead
from htagraph.queries.quality import quality
from htagraph.synth import timeline

_OVERHEAD = (
    "Resource", "Instrumentation", "Buffer Flush", "Activity Buffer Request",
    "Lazy Function Loading", "Command Buffer Full", "CUPTI: Unknown",
    "dlopen(libcuda.so.1)", "dlopen(libcupti.so.11.7)",
)  # fmt: skip
_NO_THREAD = 99
"""What is drawn on this thread stands on Kineto's row of overhead, which names no thread."""


def _asked(drawing: str, question=profiler_overhead) -> pd.DataFrame:
    """The answer about a drawing in which overhead has its kind and its row."""
    events = timeline(drawing)
    is_overhead = np.isin(events.names(), _OVERHEAD)
    rows = [tid == _NO_THREAD for tid in events.lanes.tid]
    lanes = replace(
        events.lanes,
        pid=tuple(-1 if row else pid for row, pid in zip(rows, events.lanes.pid, strict=True)),
        tid=tuple(0 if row else tid for row, tid in zip(rows, events.lanes.tid, strict=True)),
    )
    kind = np.where(is_overhead, EventKind.OVERHEAD, events.kind).astype(np.int8)
    dag = compile_events(replace(events, kind=kind, lanes=lanes))
    return question(dag, dag.span)


def _path_us(drawing: str) -> dict[str, float]:
    """Time of each overhead on the path."""
    found = _asked(drawing)
    return dict(zip(found["name"], found["path_ns"] / 1000, strict=True))


def test_the_innermost_overhead_on_the_thread_of_the_path_counts():
    """`Resource` has 25 us, 14 of them are of what is in it; thread 2 is beside the path."""
    found = _asked("""
        us    |0         10        20        30        40        50
        cpu 1 |[aten::add [Resource [Buffer Flush]]              ]
        cpu 2 |[aten::mul [Resource]      ]
    """)

    assert found[["name", "n_events", "sum_ns", "path_ns", "inside"]].to_numpy().tolist() == [
        ["Buffer Flush", 1, 14_000, 14_000, "aten::add"],
        ["Resource", 2, 35_000, 11_000, "aten::add"],
    ]


def test_overhead_while_the_path_is_on_the_device_is_not_on_the_path():
    """The path leaves the thread at 6, with the launch that the kernel waits for."""
    assert _path_us("""
        us       |0         10        20        30        40
        cpu 1    |[launch >a]  [aten::add [Resource]  ]
        stream 7 |      [kernel <a                           ]
    """) == {"Resource": 0}


def test_overhead_without_a_thread_is_of_the_one_that_is_in_a_call():
    """At 5 only thread 1 is in an operator all the time; at 25 both are, at 45 none is."""
    drawing = """
        us        |0         10        20        30        40        50        60
        cpu 1     |[aten::add           ][aten::mul        ]          [aten::relu]
        cpu 2     |        [aten::t    ][aten::t           ]
        thread 99 |    [Resource]          [Resource]        [Resource]
    """
    found = _asked(drawing)

    assert found[["n_events", "n_placed", "path_ns"]].to_numpy().tolist() == [[3, 1, 10_000]]


def test_who_flushes_buffers_is_not_known_without_a_thread():
    """It may be a thread of the profiler."""
    assert _path_us("""
        us        |0         10        20        30
        cpu 1     |[aten::add                       ]
        thread 99 |    [Buffer Flush]
    """) == {"Buffer Flush": 0}


def test_the_driver_does_its_work_without_a_profiler_too():
    """CUPTI calls it overhead as well, and Nsight Systems the loading of any library."""
    found = _asked("""
        us    |0         10        20        30        40        50        60        70
        cpu 1 |[launch >a [Lazy Function Loading] [Command Buffer Full] [CUPTI: Unknown] ]
        cpu 2 |[aten::add [Activity Buffer Request]]
        cpu 3 |[aten::mul [dlopen(libcuda.so.1)] [dlopen(libcupti.so.11.7)]]
        stream 7 |                                                                        [k <a]
    """)

    assert dict(zip(found["name"], found["source"], strict=True)) == {
        "Lazy Function Loading": "driver",
        "Command Buffer Full": "driver",
        "CUPTI: Unknown": "unknown",
        "Activity Buffer Request": "profiler",
        "dlopen(libcuda.so.1)": "unknown",
        "dlopen(libcupti.so.11.7)": "profiler",
    }


def test_quality_says_how_much_too_long_the_path_is():
    """Ten of forty microseconds; the driver's work is no part of them."""
    checks = _asked(
        """
        us    |0         10        20        30        40        50
        cpu 1 |[aten::add [Resource] [Command Buffer Full]]
        """,
        quality,
    ).set_index("check")
    row = checks.loc["critical path free of the profiler's own work (ns)"]

    assert (row["n_good"], row["n_all"], row["verdict"]) == (34_000, 44_000, "weak")
    assert row["consequence"] == (
        "Times of the path are too long by 10.0 us (22.7%) at least, most in aten::add (Resource); "
        "what it takes to record each event is not recorded."
    )


def test_quality_says_nothing_of_overhead_where_none_was_recorded():
    """Nothing is known of it then."""
    checks = _asked("cpu 1 |[aten::add ]", quality)["check"]

    assert not checks.str.contains("profiler").any()
