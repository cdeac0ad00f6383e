"""What the quality table says of drawn traces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.model.events import EventTable
from htagraph.queries.quality import quality
from htagraph.synth import timeline

_DRAWING = """
    cpu 1    |[launch >a][launch >b][record     ]
    stream 7 |     [K <a ]  [gemm <b]
"""


def _counts(events: EventTable, check: str) -> tuple[int, int, str]:
    """Good, all and verdict of a check."""
    dag = compile_events(events)
    row = quality(dag, dag.span).set_index("check").loc[check]
    return int(row["n_good"]), int(row["n_all"]), str(row["verdict"])


def test_kernels_that_a_rule_names_are_counted():
    """One of two: the gemm counts as compute because nothing says otherwise."""
    events = timeline(_DRAWING, names={"K": "ncclDevKernel_AllReduce"})

    assert _counts(events, "kernels named by a rule (the others count as compute)") == (
        1,
        2,
        "good",
    )


def test_ids_that_several_calls_carry_are_reported():
    """The earliest call is taken as the launch; that is a guess, and a guess is reported."""
    events = timeline(_DRAWING)
    correlation = np.array(events.correlation)
    assert _counts(events, "correlation ids name one call") == (2, 2, "good")

    correlation[2] = correlation[1]
    twice = replace(events, correlation=correlation)

    assert _counts(twice, "correlation ids name one call") == (1, 2, "weak")


@pytest.mark.parametrize(("n_linked", "verdict"), [(19, "good"), (18, "weak")])
def test_a_check_is_good_up_to_one_in_twenty(n_linked, verdict):
    """Kernels that have a launch."""
    host = "".join(f"[launch >{number:02}]" for number in range(n_linked))
    work = "".join(f"[k <{number:02}   ]" if number < n_linked else "[k]" for number in range(20))
    events = timeline(f"cpu 1    |{host}\nstream 7 |     {work}")

    assert _counts(events, "device work linked to its launch") == (n_linked, 20, verdict)


@pytest.mark.parametrize(("n_worked", "verdict"), [(19, "good"), (18, "weak")])
def test_launches_without_device_work_are_reported(n_worked, verdict):
    """Kernels that were recorded, of twenty that were launched."""
    host = "".join(f"[launch >{n:02}]" if n < n_worked else "[launch]" for n in range(20))
    work = "".join(f"[k <{number:02}   ]" for number in range(n_worked))
    events = timeline(f"cpu 1    |{host}\nstream 7 |     {work}")

    assert _counts(events, "launches with their device work") == (n_worked, 20, verdict)


def test_clocks_that_no_shift_makes_agree_are_reported():
    """The launch keeps the clock where it is, so the wait ends 2 us before the copy."""
    events = timeline(
        """
        cpu 1    |[launch >a][copy >m              ]
        stream 7 |[k1 <a                  ][M <m     ]
        """,
        names={"M": "Memcpy DtoH (Device -> Pageable)"},
    )

    assert _counts(events, "device clock agrees with host clock") == (1, 1, "good")
    assert _counts(events, "waits end after what they waited for") == (0, 1, "missing")


def test_ranges_of_collectives_that_were_recorded_as_ending_too_late_are_reported():
    """The caller of the first continues 6 us before its end, that of the second right after."""
    events = timeline(
        f"""
        cpu 1    |[c10d::allreduce_]{"":76}[copies 1  ][c10d::allreduce_]{"":76}[copies 2]
        cpu 2    |                {{gloo:all_reduce{"":66}}}{"":23}{{gloo:all_reduce{"":57}}}
        """
    )

    assert _counts(events, "host collectives end before their callers continue") == (1, 2, "weak")


def test_work_that_no_edge_joins_to_the_rest_is_reported():
    """A thread of its own: two operators of four events."""
    check = "operators and device work joined by edges"
    joined = """
        cpu 1    |[op    ][launch >a][op    ]
        stream 7 |            [gemm <a ]
    """
    apart = timeline(joined + "    cpu 2    |[other ]    [other ]\n")

    assert _counts(timeline(joined), check) == (3, 3, "good")
    assert _counts(apart, check) == (3, 5, "weak")
    dag = compile_events(apart)
    (said,) = quality(dag, dag.span).query("check == @check")["consequence"]
    assert said.startswith("No edge joins 2 events (2 on thread 2) to the rest")


def test_threads_that_only_poll_need_not_be_joined():
    """A watchdog asks whether work is done; it has no operators."""
    events = timeline("""
        cpu 1    |[op    ][launch >a][op    ]
        cpu 2    |[cudaEventQuery] [cudaEventQuery]
        stream 7 |            [gemm <a ]
    """)

    assert _counts(events, "operators and device work joined by edges") == (3, 3, "good")
