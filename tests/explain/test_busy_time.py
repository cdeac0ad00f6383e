"""How long devices and host must run, whatever waits for what."""

from __future__ import annotations

from htagraph.compiler.passes import compile_events
from htagraph.explain.busy_time import BusyTime, busy_time
from htagraph.model.window import Window
from htagraph.synth import timeline


def busy_us(drawing: str, at: tuple[int, int] | None = None, **names: str) -> tuple[int, int, int]:
    """Compute, device and host, in us, of a drawn trace or of a part of it."""
    dag = compile_events(timeline(drawing, names=names))
    found = busy_time(dag, dag.span if at is None else Window(*at, "part"))
    assert isinstance(found, BusyTime)
    return found.compute_ns // 1000, found.device_ns // 1000, found.host_ns // 1000


def test_the_busiest_device_and_the_busiest_thread_count() -> None:
    """Device 1 computes for 21 us, device 0 for 6; thread 2 works for 12 us, thread 1 for 5."""
    assert busy_us("""
        cpu 1          |[one]
        cpu 2          |[two       ]
        stream 7       |[k   ]
        gpu 1 stream 7 |[k        ]  [k       ]
    """) == (21, 21, 12)


def test_copies_keep_a_device_busy_and_communication_may_only_wait() -> None:
    """10 us of compute, 5 more of copies next to it, 18 of communication that do not count."""
    assert busy_us(
        """
        stream 7 |[k       ]
        stream 8 |     [Memcpy  ]
        stream 9 |             [nccl            ]
        """,
        nccl="ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    ) == (10, 15, 0)


def test_work_on_two_streams_is_counted_once() -> None:
    """16 us, of which two kernels run at once for 4."""
    assert busy_us("""
        stream 7 |[k       ]
        stream 9 |      [k       ]
    """) == (16, 16, 0)


def test_gaps_and_calls_that_may_wait_are_not_work_of_the_host() -> None:
    """An operator and a launch: 10 and 11 us. A gap of 9 us and a wait of 14 us are not."""
    assert busy_us("""
        cpu 1    |[aten::mm]         [launch >a][sync        ]
        stream 7 |                          [k <a          ]
    """) == (16, 16, 21)


def test_time_of_nested_events_is_counted_once() -> None:
    """22 us of an operator with a call of 12 us in it; the range around it is not work."""
    assert busy_us("cpu 1 |{step [outer [cudaMalloc]  ]  }") == (0, 0, 22)


def test_of_a_window_only_the_part_inside_counts() -> None:
    """From 4 to 12 us: 6 of 10 us on the device, 3 of 7 us on the host."""
    assert busy_us(
        """
        cpu 1    |[op   ]
        stream 7 |[k       ]
        """,
        at=(4_000, 12_000),
    ) == (6, 6, 3)


def test_an_empty_trace_is_never_busy() -> None:
    assert busy_us("") == (0, 0, 0)
