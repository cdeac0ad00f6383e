"""Intervals: nested, tiled, overlapping."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.intervals import Cover, check_tiling, gaps, states, sum_by_code, union
from htagraph.arrays.nesting import nest
from htagraph.arrays.pipelines import FORWARD, PHASES, planned
from htagraph.errors import GraphError
from htagraph.job.pipeline_what_if import SCHEDULES, order_of, round_of

_END = 40
intervals = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 10), st.integers(0, 2)),
    max_size=15,
)


def _columns(drawn):
    group, start, dur, bit = np.array(drawn, dtype=np.int64).reshape(len(drawn), 4).T
    return group, start, start + dur, bit


def _ticks(group, start, end, chosen):
    """Whether a chosen group is busy, for each unit of time."""
    busy = np.zeros(_END, dtype=bool)
    for g, a, b in zip(group, start, end, strict=True):
        if g == chosen:
            busy[a:b] = True
    return busy


@given(drawn=intervals)
def test_a_union_covers_what_its_intervals_cover(drawn):
    """Tick by tick; and its parts neither overlap nor touch."""
    group, start, end, _ = _columns(drawn)
    found = union(group, start, end)
    for chosen in range(3):
        mine = found.group == chosen

        assert _ticks(*found, chosen).tolist() == _ticks(group, start, end, chosen).tolist()
        assert (found.start[mine][1:] > found.end[mine][:-1]).all()


@given(drawn=intervals)
def test_gaps_and_union_tile_the_bounds(drawn):
    """What is not busy is a gap; a group that is never busy is one."""
    group, start, end, _ = _columns(drawn)
    busy = union(group, start, end)
    free = gaps(busy, np.arange(3), 0, _END)
    for chosen in range(3):
        assert (_ticks(*free, chosen) ^ _ticks(*busy, chosen)).all()


@given(drawn=intervals)
def test_states_say_what_runs_at_once(drawn):
    """Each tick has the bits of the classes that run in it."""
    group, start, end, bit = _columns(drawn)
    found = states(group, start, end, bit, 3)
    for chosen in range(3):
        mask = np.zeros(_END, dtype=np.int64)
        for g, a, b, m in zip(*found, strict=True):
            if g == chosen:
                assert (mask[a:b] == 0).all()
                mask[a:b] = m
        expected = sum(
            _ticks(group[bit == b], start[bit == b], end[bit == b], chosen).astype(np.int64) << b
            for b in range(3)
        )

        assert mask.tolist() == np.broadcast_to(expected, _END).tolist()


@given(drawn=intervals, at=st.integers(0, _END), dur=st.integers(0, 20))
def test_a_cover_measures_any_stretch(drawn, at, dur):
    """As many ticks as are busy in it."""
    group, start, end, _ = _columns(drawn)
    group = np.zeros_like(group)
    found = union(group, start, end)
    cover = Cover(found.start, found.end)
    busy = np.append(_ticks(group, start, end, 0), np.zeros(60, dtype=bool))

    assert cover.within(np.array([at]), np.array([at + dur])).tolist() == [
        busy[at : at + dur].sum()
    ]
    assert cover.free_from(np.array([at])).tolist() == [at + int(np.argmin(busy[at:]))]


def test_touching_intervals_are_one():
    """Half-open intervals leave nothing between them."""
    found = union(np.zeros(2, np.int64), np.array([0, 5]), np.array([5, 9]))

    assert (found.start.tolist(), found.end.tolist()) == ([0], [9])


def test_sums_of_large_integers_are_exact():
    """Beyond 2**53 a float has no odd numbers."""
    odd = 2**53 + 1

    assert sum_by_code(np.array([0, 0, 1]), np.array([odd, 2, 3]), 2).tolist() == [odd + 2, 3]


def test_sums_are_those_of_all_blocks():
    """Of more rows than are summed at once, and a code that only the last block has."""
    code = np.append(np.zeros(600_000, dtype=np.int32), 1)

    assert sum_by_code(code, np.ones(600_001, dtype=np.int64), 2).tolist() == [600_000, 1]


def _parents(*intervals: tuple[int, int, str]) -> list[int]:
    """Parent of each interval of one thread; those named ``call`` cannot hold what overhangs."""
    start, end, what = zip(*intervals, strict=True)
    return nest(
        np.zeros(len(start), dtype=np.int32),
        np.array(start, dtype=np.int64),
        np.array(end, dtype=np.int64),
        is_call=np.array([name == "call" for name in what]),
    ).parent.tolist()


def test_a_call_that_an_operator_overhangs_is_not_its_parent():
    """The parent is what encloses both; what the operator calls is still its own."""
    assert _parents((0, 30, "op"), (2, 12, "call"), (10, 25, "op"), (11, 13, "call")) == [
        -1,
        0,
        0,
        2,
    ]


def test_all_calls_that_an_operator_overhangs_are_passed_over():
    """A runtime call and the driver call inside of it."""
    assert _parents((0, 30, "op"), (2, 12, "call"), (3, 11, "call"), (10, 25, "op")) == [
        -1,
        0,
        1,
        0,
    ]


def test_a_call_holds_what_ends_inside_of_it():
    """An annotation within a call, and a call that outlasts a call, which has the same clock."""
    assert _parents((0, 20, "call"), (5, 20, "op")) == [-1, 0]
    assert _parents((0, 20, "call"), (5, 25, "call")) == [-1, 0]


def test_what_ended_below_is_no_parent():
    """The first operator has ended when the third starts, though the call hides its end."""
    assert _parents((0, 8, "op"), (5, 12, "call"), (10, 25, "op")) == [-1, 0, -1]


_INTERVALS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(0, 3)), max_size=8
)


@given(intervals=_INTERVALS)
def test_boundaries_come_as_one_sort_would_have_them(intervals):
    """By lane and time: first what ends (inner ones first), then what starts (outer ones first)."""
    _check_boundaries(intervals)


@pytest.mark.parametrize("longest", [3, 40, 1000])
def test_many_intervals_in_any_order_are_sorted_as_few_are(longest):
    """In the order of their starts but for some, which overlap with few others, or with most."""
    drawn = np.random.default_rng(longest)
    start = np.sort(drawn.integers(0, 1000, 500))
    start[drawn.integers(0, 500, 50)] = drawn.integers(0, 1000, 50)
    columns = (drawn.integers(0, 3, 500), start, drawn.integers(0, longest, 500))
    _check_boundaries(np.stack(columns, axis=1).tolist())


@given(intervals=_INTERVALS, data=st.data())
def test_innermost_and_parent_are_those_of_a_search(intervals, data):
    """What started last and has not ended; a call is no parent of an operator that overhangs it."""
    n = len(intervals)
    columns = np.array(intervals, dtype=np.int64).reshape(-1, 3).T
    lane, start, end = columns[0].astype(np.int32), columns[1], columns[1] + columns[2]
    bits = st.lists(st.booleans(), min_size=n, max_size=n)
    is_call, chosen = (np.array(data.draw(bits), dtype=bool) for _ in range(2))

    found = nest(lane, start, end, is_call=is_call, rows=np.flatnonzero(chosen))

    parent, running, at = np.full(n, -1), [], -1
    for boundary, innermost in zip(found.boundary.tolist(), found.innermost.tolist(), strict=True):
        interval, is_end = divmod(boundary, 2)
        running, at = (running if lane[interval] == at else []), lane[interval]
        if is_end:
            running.remove(interval)
        else:
            above = [
                one
                for one in running
                if not (is_call[one] and not is_call[interval] and end[interval] > end[one])
            ]
            parent[interval] = above[-1] if above else -1
            running.append(interval)
        assert innermost == (running[-1] if running else -1)
    assert found.parent.tolist() == parent.tolist()
    in_lane = [int((lane[chosen] < number).sum()) for number in range(max(lane, default=-1) + 2)]
    assert found.first.tolist() == [2 * before for before in in_lane]


@given(n=st.integers(1, 5), data=st.data())
def test_of_equal_intervals_the_one_of_lower_rank_then_number_is_the_outer_one(n, data):
    lane, time = np.zeros(n, dtype=np.int32), np.zeros(n, dtype=np.int64)
    rank = data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    number = data.draw(st.permutations(range(n)))

    hint = np.array(rank, dtype=np.int8), np.array(number, dtype=np.int64)
    parent = nest(lane, time, time + 9, hint).parent.tolist()

    order = sorted(range(n), key=lambda i: (rank[i], number[i]))
    assert [parent[one] for one in order] == [-1, *order[:-1]]


def _check_boundaries(intervals):
    spans = [(lane, start, start + length) for lane, start, length in intervals]
    by_start = sorted(range(len(spans)), key=lambda i: (*spans[i][:2], -spans[i][2], i))
    rank = {interval: place for place, interval in enumerate(by_start)}
    keys = []
    for i, (lane, start, end) in enumerate(spans):
        keys.append((lane, start, 2 * rank[i], 2 * i))
        keys.append((lane, end, -rank[i] - 1 if end > start else 2 * rank[i] + 1, 2 * i + 1))
    lane, start, end = (
        (np.array(column) for column in zip(*spans, strict=True))
        if spans
        else ((np.empty(0, dtype=np.int64),) * 3)
    )
    assert nest(lane, start, end).boundary.tolist() == [key[-1] for key in sorted(keys)]


@pytest.mark.parametrize(
    ("pieces", "window"),
    [
        ([(0, 4), (4, 9)], (0, 9)),
        ([(0, 4), (4, 4), (4, 9)], (0, 9)),
        ([], (3, 3)),
    ],
)
def test_adjacent_pieces_from_start_to_end_tile(pieces, window):
    start, end = np.array(pieces, dtype=np.int64).reshape(-1, 2).T
    check_tiling("the path", start, end, window)


@pytest.mark.parametrize(
    ("pieces", "window"),
    [
        pytest.param([(0, 4), (5, 9)], (0, 9), id="a gap"),
        pytest.param([(0, 5), (4, 9)], (0, 9), id="an overlap"),
        pytest.param([(1, 9)], (0, 9), id="too late"),
        pytest.param([(0, 8)], (0, 9), id="too early"),
        pytest.param([], (0, 9), id="nothing"),
        pytest.param([(0, 9)], (9, 9), id="something in an empty window"),
    ],
)
def test_what_does_not_tile_is_named(pieces, window):
    start, end = np.array(pieces, dtype=np.int64).reshape(-1, 2).T
    with pytest.raises(GraphError, match="the path does not tile the window from"):
        check_tiling("the path", start, end, window)


def test_each_window_has_pieces_of_its_own():
    start, end, of = np.array([0, 4, 20]), np.array([4, 9, 30]), np.array([0, 0, 2])
    windows = np.array([0, 15, 20]), np.array([9, 15, 30])
    check_tiling("the path", start, end, windows, of)
    with pytest.raises(GraphError, match="from 20 to 30"):
        check_tiling("the path", start, end - (of == 2), windows, of)


SIZES = [(2, 2), (2, 8), (4, 8), (3, 12), (8, 16)]
"""Ranks and micro-batches."""


def told(schedule: str, n_ranks: int, n_batches: int, chunks: int = 1) -> list[str]:
    """The actions of each rank, as PyTorch names them: stage, phase, micro-batch."""
    one = order_of(schedule, n_ranks, n_batches, chunks)
    names = [
        f"{stage}{PHASES[phase]}{number}"
        for stage, phase, number in zip(one.stage, one.phase, one.micro_batch, strict=True)
    ]
    return [" ".join(np.array(names)[one.rank == rank]) for rank in range(n_ranks)]


def bubble(schedule: str, n_ranks: int, n_batches: int, chunks: int = 1) -> float:
    """Share without work if a forward takes 1, a backward 2 or each of its parts 1."""
    order = order_of(schedule, n_ranks, n_batches, chunks)
    one = planned(*order)
    assert one is not None
    weights = 1 if schedule == "zero_bubble" else 2
    dur = np.where(order.phase == FORWARD, 1, weights)[one.order]
    return float(1 - dur.sum() / (n_ranks * one.ends(dur).max()))


def test_one_forward_one_backward() -> None:
    """As in the figure of Narayanan et al., 2021."""
    assert told("1f1b", 3, 3) == [
        "0F0 0F1 0F2 0B0 0B1 0B2",
        "1F0 1F1 1B0 1F2 1B1 1B2",
        "2F0 2B0 2F1 2B1 2F2 2B2",
    ]


def test_gpipe_runs_all_forwards_first() -> None:
    """Backwards in the order of micro-batches, as PyTorch runs them."""
    assert told("gpipe", 2, 3) == ["0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1F1 1F2 1B0 1B1 1B2"]


def test_interleaved_runs_a_round_on_each_chunk() -> None:
    """PyTorch's `ScheduleInterleaved1F1B` has this order."""
    assert told("interleaved", 2, 4, 2) == [
        "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
        "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3",
    ]


def test_weights_of_zero_bubble_come_later_on_later_ranks() -> None:
    """PyTorch's `ScheduleInterleavedZeroBubble` has this order."""
    assert told("zero_bubble", 2, 3) == [
        "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2",
        "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2",
    ]


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_the_bubble_is_the_textbook_one(p: int, m: int) -> None:
    """Interleaved divides it by chunks; zero bubble (H1) leaves what weights cannot fill."""
    assert bubble("gpipe", p, m) == pytest.approx((p - 1) / (m + p - 1))
    assert bubble("1f1b", p, m) == pytest.approx((p - 1) / (m + p - 1))
    assert bubble("zero_bubble", p, m) == pytest.approx((p - 1) / (3 * m + p - 1))
    for chunks in (2, 3):
        expected = (p - 1) / chunks / (m + (p - 1) / chunks)
        assert bubble("interleaved", p, m, chunks) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_action_is_there_once(schedule: str) -> None:
    """Stages of a rank are as many apart as there are ranks."""
    chunks = 2 if schedule == "interleaved" else 1
    one = order_of(schedule, 4, 8, chunks)
    rows = set(zip(*(column.tolist() for column in one[1:]), strict=True))
    n_phases = 3 if schedule == "zero_bubble" else 2
    assert len(one.rank) == len(rows) == n_phases * 4 * 8 * chunks
    assert (one.stage % 4 == one.rank).all()


@pytest.mark.parametrize(("p", "m", "size"), [(4, 8, 4), (4, 6, 6), (4, 2, 2), (4, 9, 0)])
def test_rounds_are_equal(p: int, m: int, size: int) -> None:
    """Nine micro-batches are no two rounds."""
    assert round_of(p, m) == size


def test_actions_that_wait_for_each_other_are_no_schedule() -> None:
    """A backward before its own forward on the last stage, which the first one's needs."""
    worker, stage = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1])
    phase, none = np.array([1, 0, 0, 1]), np.zeros(4, dtype=np.int64)
    assert planned(worker, stage, phase, none) is None
