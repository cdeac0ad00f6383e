"""The collectives of one rank; those of many, matched, are in tests/job/test_collectives.py."""

from __future__ import annotations

import pandas as pd
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.model.window import Window
from htagraph.queries.collectives import collectives
from htagraph.synth import timeline


def _asked(drawing: str, window: Window | None = None, **options) -> pd.DataFrame:
    dag = compile_events(timeline(drawing, **options))
    return collectives(dag, window or dag.span)


def _rows(frame: pd.DataFrame, *names: str) -> list[list]:
    return frame[list(names)].to_numpy().tolist()


def test_collectives_are_those_launched_in_the_capture_in_the_order_of_launches():
    """The first kernel has no launch; the one of stream 9 was launched last, and ran first."""
    frame = _asked("""
        us       |0         10        20        30        40        50
        cpu 1    |           [launch >a][launch >b]
        stream 7 |[ncclAllReduce]                      [ncclAllReduce <a ]
        stream 9 |                            [ncclAllReduce <b ]
    """)

    assert _rows(frame, "collective", "start_ns") == [[0, 37_000], [1, 28_000]]


@pytest.mark.parametrize(
    ("host", "kernel", "found"),
    [
        ("[launch >a]", "ncclAllReduce", ["all_reduce", "kernel name"]),
        ("{nccl:all_to_all [launch >a]}", "ncclSendRecv", ["all_to_all", "annotation"]),
        ("[op [launch >a]]", "ncclSendRecv", ["all_gather", "operator metadata"]),
    ],
)
def test_an_operation_is_named_by_metadata_else_by_an_annotation_else_by_the_kernel(
    host, kernel, found
):
    """A kernel that is called SendRecv may do anything."""
    recorded = {"collective": {"op": "_allgather_base"}} if "[op" in host else {}
    frame = _asked(
        f"""
        cpu 1    |{host}
        stream 7 |{" " * len(host)}[{kernel} <a ]
        """,
        columns=recorded,
    )

    assert _rows(frame, "operation", "found_by") == [found]


def test_an_annotation_says_who_sends_to_whom():
    """The peer of a send is who receives."""
    frame = _asked(
        """
        cpu 1    |{to [launch >a]}
        stream 7 |                [ncclSendRecv <a ]
        """,
        names={"to": "nccl:send 0->1"},
    )

    assert _rows(frame, "operation", "peer") == [["send", 1]]


def test_a_collective_goes_back_to_the_one_that_its_stream_had_to_finish():
    """The second starts when the first has ended."""
    frame = _asked("""
        cpu 1    |[launch >a][launch >b]
        stream 7 |      [ncclAllReduce <a        ] [ncclAllReduce <b ]
    """)

    assert frame["after"].tolist() == [-1, 0]


def test_a_window_keeps_the_numbers_of_the_whole():
    """From 40 on, only the second runs."""
    frame = _asked(
        """
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a][launch >b]
        stream 7 |      [ncclAllReduce <a        ] [ncclAllReduce <b ]
        """,
        Window(40_000, 50_000, "late"),
    )

    assert frame["collective"].tolist() == [1]
