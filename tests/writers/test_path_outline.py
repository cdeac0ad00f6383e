"""Paths in a few boxes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htagraph as hg
from htagraph.model.kinds import Bound, EdgeKind
from htagraph.writers.path_outline import MOST_BOXES, Column, Outline, arranged, path_outline
from tests.event_rows import taken

_HOST, _GPU, _LAUNCH = "thread 1", "stream 7", EdgeKind.LAUNCH


@dataclass(frozen=True)
class _Part:
    """A segment of a path."""

    name: str
    dur_ns: int
    lane: str = _GPU
    bound: Bound = Bound.COMPUTE
    kind: EdgeKind = EdgeKind.SPAN


def _host(name: str, dur_ns: int) -> _Part:
    return _Part(name, dur_ns, _HOST, Bound.HOST, EdgeKind.THREAD)


def _launch(dur_ns: int, name: str = "gemm") -> _Part:
    return _Part(name, dur_ns, _GPU, Bound.LAUNCH, _LAUNCH)


def _outline(*parts: _Part) -> Outline:
    lane, name = (
        Column(codes, texts.tolist())
        for codes, texts in (
            pd.factorize(np.array([getattr(part, of) for part in parts], dtype=object))
            for of in ("lane", "name")
        )
    )
    bound, kind = (
        np.array([getattr(part, of) for part in parts], dtype=np.int8) for of in ("bound", "kind")
    )
    dur_ns = np.array([part.dur_ns for part in parts], dtype=np.int64)
    return path_outline(lane, bound, name, kind, dur_ns)


def _boxes(outline: Outline) -> list[tuple[str, str, int, int]]:
    """Lane, name, how often and how long of each box."""
    return [
        (outline.lanes[box.lane], box.names[0], box.n_runs, box.dur_ns) for box in outline.boxes
    ]


def test_a_layer_that_runs_often_is_drawn_once() -> None:
    """Four layers of two kernels, then the loss; threads are above streams."""
    layer = [_Part("gemm", 100), _Part("relu", 40)]
    found = _outline(_host("aten::mm", 50), *layer * 4, _Part("loss", 30))
    assert _boxes(found) == [
        (_HOST, "aten::mm", 1, 50),
        (_GPU, "gemm", 4, 400),
        (_GPU, "relu", 4, 160),
        (_GPU, "loss", 1, 30),
    ]


def test_arrows_say_how_a_box_is_first_reached_and_how_most_often() -> None:
    """The gemm follows the operator once, and the relu three times."""
    layer = [_Part("gemm", 100), _Part("relu", 40)]
    found = _outline(_host("aten::mm", 50), *layer * 4)
    assert [(one.tail, one.head, one.n, one.is_back) for one in found.arrows] == [
        (0, 1, 1, False),
        (2, 1, 3, True),
        (1, 2, 4, False),
    ]


def test_a_latency_that_is_left_out_is_the_lag_of_its_arrow() -> None:
    """Two launches of 4 and 6 ns between 1 us of work: 5 ns on average."""
    step = [_host("aten::mm", 500), _launch(4), _Part("gemm", 500)]
    again = [_host("aten::mm", 500), _launch(6), _Part("gemm", 500)]
    found = _outline(*step, *again)
    (launch,) = [arrow for arrow in found.arrows if arrow.kind is _LAUNCH]
    assert (launch.n, launch.lag_ns) == (2, 5)
    assert (found.n_left_out, found.left_out_ns) == (2, 10)
    assert found.left_out[0] == (Bound.LAUNCH, 10)


def test_a_long_latency_is_a_box() -> None:
    """It has most of the path, and its arrow no lag besides."""
    found = _outline(_host("aten::mm", 100), _launch(900), _Part("gemm", 100))
    assert [box.bounds for box in found.boxes] == [(Bound.HOST,), (Bound.LAUNCH,), (Bound.COMPUTE,)]
    assert [(arrow.kind, arrow.lag_ns) for arrow in found.arrows] == [
        (_LAUNCH, 0),
        (EdgeKind.STREAM, 0),
    ]


def test_what_is_below_one_percent_is_counted() -> None:
    """Of 1,000 ns, 10 are drawn, 9 are not."""
    for dur_ns, n in ((10, 2), (9, 1)):
        found = _outline(_Part("gemm", 1_000 - dur_ns), _Part("relu", dur_ns))
        assert len(found.boxes) == n
        assert found.left_out_ns == (0 if n == 2 else dur_ns)


def test_many_names_are_one_box_with_the_longest_of_them() -> None:
    """A hundred operators, each 1% of the path, between two kernels."""
    ops = [_host(f"aten::op{number}", 10 + (number == 7)) for number in range(100)]
    found = _outline(_Part("first", 500), *ops, _Part("last", 500))
    first, many, last = found.boxes
    assert (first.names, last.names) == (("first",), ("last",))
    assert (many.n_names, many.names[0], many.dur_ns) == (100, "aten::op7", 1_001)


def test_bounds_of_a_lane_share_a_box_if_too_much_were_left_out() -> None:
    """Operators and code between them alternate without a cycle; so do two threads."""
    random = np.random.default_rng(1)
    parts = [
        _Part(f"op{name}", int(dur_ns), f"thread {turn % 2}", bound, EdgeKind.THREAD)
        for turn in range(8)
        for name, dur_ns, bound in zip(
            random.integers(0, 200, 100),
            random.integers(1, 9, 100),
            random.choice(np.array([Bound.HOST, Bound.SYNC, Bound.DATA_LOADING]), 100),
            strict=True,
        )
        for bound in [Bound(bound)]
    ]
    found = _outline(*parts)
    assert [(box.lane, len(box.bounds)) for box in found.boxes] == [(0, 3), (1, 3)]
    assert found.left_out_ns == 0


def test_numbers_of_steps_are_no_names() -> None:
    """Steps of the profiler and of serving engines are the same work, layers may not be."""
    for names, n in (
        (("ProfilerStep#1", "ProfilerStep#2"), 1),
        (("step[DECODE bs=32] 1", "step[DECODE bs=32] 2"), 1),
        (("layer#1", "layer#2"), 2),
    ):
        assert len(_outline(*(_host(name, 100) for name in names)).boxes) == n


def test_a_segment_of_no_lane_is_on_that_of_the_one_before() -> None:
    """And at the beginning on the first one."""
    nowhere = _Part("(unknown wait)", 50, "", Bound.UNKNOWN_WAITS, EdgeKind.SOURCE)
    found = _outline(nowhere, _host("aten::mm", 100), nowhere)
    assert [outline_lane for outline_lane, *_ in _boxes(found)] == [_HOST] * 3


def test_lanes_are_in_order_of_ranks_devices_and_streams() -> None:
    """Threads come first, in the order of the path."""
    lanes = (
        "rank 10 · thread 1",
        "rank 2 · gpu 1 stream 7",
        "rank 2 · gpu 0 stream 20",
        "rank 2 · thread 9",
        "rank 2 · thread 1",
    )
    found = _outline(*(_Part("gemm", 100, lane) for lane in lanes))
    assert found.lanes == (
        "rank 2 · thread 9",
        "rank 2 · thread 1",
        "rank 2 · gpu 0 stream 20",
        "rank 2 · gpu 1 stream 7",
        "rank 10 · thread 1",
    )


def test_a_path_of_nothing_has_no_box() -> None:
    """As that of a window of no length."""
    assert _outline().boxes == ()


_PARTS = st.lists(
    st.builds(
        _Part,
        st.sampled_from(["gemm", "relu", "aten::mm", "(host gap)"]),
        st.integers(1, 1_000),
        st.sampled_from(["", *(f"thread {number}" for number in range(7)), _GPU]),
        st.sampled_from(Bound),
        st.sampled_from(EdgeKind),
    ),
    max_size=200,
)


@given(_PARTS)
def test_boxes_fit_a_slide_and_add_up_to_the_path(parts: list[_Part]) -> None:
    """Whatever the path; arrows join boxes, and all but the first are reached."""
    found = _outline(*parts)
    assert sum(box.dur_ns for box in found.boxes) + found.left_out_ns == found.dur_ns
    assert found.dur_ns == sum(part.dur_ns for part in parts)
    assert len(found.boxes) <= MOST_BOXES
    assert arranged([box.lane for box in found.boxes]) is not None
    assert {arrow.head for arrow in found.arrows} >= set(range(1, len(found.boxes)))
    assert all(arrow.tail < len(found.boxes) for arrow in found.arrows)


@pytest.mark.parametrize("demo", ["dataloader", "exposed_allreduce", "serving"])
def test_the_order_of_events_in_the_file_changes_no_box(demo: str) -> None:
    """The path is the same, so its drawing is."""
    events = hg.load(hg.demo_trace(demo)).recording.events
    order = np.random.default_rng(41).permutation(len(events))
    drawn, again = (
        hg.Trace.from_events(one).compile().critical_path().outline
        for one in (events, taken(events, order))
    )
    assert drawn == again
