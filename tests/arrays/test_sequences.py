"""Sequences: matched, folded, and what repeats in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import rustworkx
from hypothesis import given
from hypothesis import strategies as st

from htagraph.arrays.binding import bind, topological_order
from htagraph.arrays.codes import distinct, gather, is_in
from htagraph.arrays.matching import group_starts, last_before, match_keys, running_latest
from htagraph.arrays.sequences import Timed, align, likely_offsets, repeats
from htagraph.writers.path_outline import folded


def _words(text: str, *, min_length: int = 1, max_length: int = 8) -> dict[str, int]:
    """How often each repeated sequence of letters occurs; a space begins another lane."""
    letters = [letter for letter in text if letter != " "]
    lane = np.array(
        [text[:i].count(" ") for i, letter in enumerate(text) if letter != " "], dtype=np.int64
    )
    code = np.array([ord(letter) for letter in letters], dtype=np.int64)
    found = repeats(code, lane, min_length=min_length, max_length=max_length)
    rows = zip(found.start.tolist(), found.length.tolist(), strict=True)
    words = ["".join(letters[a : a + n]) for a, n in rows]
    number = {word: number for number, word in enumerate(dict.fromkeys(words))}
    assert found.sequence.tolist() == [number[word] for word in words]
    return {word: words.count(word) for word in words}


def test_what_occurs_once_is_not_there():
    """Nothing repeats in a word of different letters."""
    assert _words("abcdef") == {}


def test_a_sequence_that_is_always_part_of_a_longer_one_is_left_out():
    """B and ab and bc occur only in abc."""
    assert _words("abcxabcyabc") == {"abc": 3}


def test_parts_of_a_sequence_that_is_too_long_are_left_out_with_it():
    """Abc has three letters, and two are the most."""
    assert _words("abcxabc", max_length=2) == {}
    assert _words("abcxabc", max_length=3) == {"abc": 2}


def test_a_part_that_also_occurs_elsewhere_is_kept():
    """Ab occurs four times, abc three."""
    assert _words("abcxabcyabczab") == {"ab": 4, "abc": 3}


def test_a_sequence_repeated_is_the_sequence():
    """Abab is ab twice, and counts as that."""
    assert _words("ababababab") == {"ab": 5}


def test_occurrences_do_not_overlap():
    """Aba in ababa begins twice, but only one fits."""
    assert "aba" not in _words("ababa")


def test_sequences_do_not_cross_lanes():
    """The last of one stream and the first of another are no neighbors."""
    assert _words("ab ab") == {"ab": 2}
    assert _words("xa bx", min_length=2) == {}
    assert _words("a ba b", min_length=2) == {}


@given(text=st.text("ab ", max_size=30))
def test_every_sequence_occurs_as_often_as_a_search_finds_it(text):
    """`str.count` counts from the left without overlap, lane by lane."""
    for word, n in _words(text).items():
        assert sum(lane.count(word) for lane in text.split(" ")) == n >= 2


MS = 1_000_000


def timed(
    *ends_ms: float,
    symbol: int | Sequence[int] = 0,
    size: int | Sequence[int] = 0,
    dur_ms: float = 0.5,
    waits: bool = True,
    is_awaited: bool = True,
) -> Timed:
    """Events by their ends; all members meet unless told otherwise."""
    n = len(ends_ms)
    end = (np.array(ends_ms) * MS).astype(np.int64)
    columns = (np.broadcast_to(np.asarray(one, dtype=np.int64), n) for one in (symbol, size))
    return Timed(*columns, end - int(dur_ms * MS), end, np.full(n, waits), np.full(n, is_awaited))


def places(own: Timed, other: Timed, *, scale_ms: float = 0.1, slack_ms: float = 1) -> list[int]:
    """The place of each event, -1 where there is none or it is in doubt."""
    place, doubtful = align(own, other, int(scale_ms * MS), int(slack_ms * MS))
    return np.where(doubtful, -1, place).tolist()


def test_equal_sequences_are_aligned_element_by_element() -> None:
    """Even where all are alike, and ends come late by more than the next one."""
    assert places(timed(1, 2, 3.9, 4), timed(1, 2, 3, 4)) == [0, 1, 2, 3]


def test_times_tell_what_is_missing_of_equal_events() -> None:
    """The first, the last, and one in between."""
    whole = timed(10, 20, 30, 40)
    assert places(timed(20.1, 30.1, 40.1), whole) == [1, 2, 3]
    assert places(timed(10.1, 20.1, 30.1), whole) == [0, 1, 2]
    assert places(timed(10.1, 20.1, 40.1), whole) == [0, 1, 3]


def test_both_may_lack_some() -> None:
    """The first has no second, the other one no third."""
    assert places(timed(10, 30, 40, 50), timed(10, 20, 40, 50)) == [0, -1, 2, 3]


def test_what_the_other_one_lacks_has_no_place() -> None:
    """It has another symbol, or is somewhere else in time."""
    assert places(timed(10, 20, symbol=[0, 1]), timed(10, 20)) == [0, -1]
    assert places(timed(10, 90), timed(10, 20)) == [0, -1]


def test_one_pair_that_is_far_apart_is_none() -> None:
    """The end of one comes 1 ms late, or 40 ms."""
    assert places(timed(10), timed(11, 90, dur_ms=45)) == [0]
    assert places(timed(10), timed(50, 90, dur_ms=45)) == [-1]


def test_one_that_is_missing_among_many_at_once_leaves_a_doubt() -> None:
    """Three within less than their ends differ by: any may be missing. The others are sure."""
    assert places(timed(10, 20.1, 20.2, 30), timed(10, 20, 20.1, 20.2, 30), scale_ms=1) == [
        *(0, -1, -1, 4),
    ]


def test_sizes_tell_what_times_do_not() -> None:
    """The second of three is missing."""
    whole = timed(20, 20.1, 20.2, size=[1, 2, 3])
    assert places(timed(20.1, 20.2, size=[1, 3]), whole, scale_ms=1) == [0, 2]


def test_sizes_may_differ() -> None:
    """Uneven splits: each rank sends another size."""
    assert places(timed(10, 20, 30, size=7), timed(10, 20, 30, size=8)) == [0, 1, 2]


def test_none_of_those_that_meet_ends_before_another_begins() -> None:
    """5 ms are little for a busy machine, but the clock is known to 1 ms."""
    assert places(timed(10), timed(15, dur_ms=2), scale_ms=2) == [-1]
    assert places(timed(10), timed(15, dur_ms=5), scale_ms=2) == [0]


def test_what_was_sent_before_is_received_at_once() -> None:
    """A receiver that waited long did not wait for what had been sent before."""
    sent = timed(30, 100, dur_ms=0.2, waits=False)
    assert places(sent, timed(30.5, 65, 100.5, dur_ms=29, is_awaited=False)) == [0, 2]
    assert places(sent, timed(45, 110, dur_ms=0.2, is_awaited=False)) == [0, 1]


@given(
    steps=st.lists(st.integers(5, 40), min_size=1, max_size=30),
    lost=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    late_us=st.integers(-100, 100),
)
def test_a_run_that_is_lost_is_found(steps: list[int], lost: tuple[int, int], late_us: int) -> None:
    """Law: wherever it is, and however long, if what is left is clear in time."""
    ends = np.cumsum(steps)
    kept = np.flatnonzero((np.arange(len(ends)) < min(lost)) | (np.arange(len(ends)) >= max(lost)))
    part = timed(*(ends[kept] + late_us / 1_000))
    assert places(part, timed(*ends)) == kept.tolist()


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=12),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=12),
)
def test_aligned_elements_are_equal_and_in_order(
    own: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    """Law: places rise, and symbols are equal."""
    first, second = (
        timed(*(end for _, end in rows), symbol=[symbol for symbol, _ in rows])
        for rows in (own, other)
    )
    place, _ = align(first, second, MS, MS)
    used = place[place >= 0]
    assert (np.diff(used) > 0).all()
    assert (second.symbol[used] == first.symbol[place >= 0]).all()


def test_offsets_are_proposed_that_bring_most_together() -> None:
    """5 s, not the length of a step."""
    other = np.cumsum([50, 60, 70, 80, 90]) * MS
    same = np.zeros(5, dtype=np.int64)
    found = likely_offsets(same[1:], other[1:] - 5_000 * MS, same, other)
    assert found[0] == 5_000 * MS


def test_nothing_is_proposed_without_equal_symbols() -> None:
    """One rank gathers, the other one scatters."""
    one = np.ones(1, dtype=np.int64)
    assert likely_offsets(one, one, 2 * one, one) == []


_POINTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6)), max_size=12)


@given(rows=_POINTS, queries=_POINTS)
def test_the_last_row_before_a_time_is_found_whatever_the_order_of_the_queries(rows, queries):
    """In order, each query goes on from the one before; out of order, it starts anew."""
    rows.sort()
    columns = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    asked = np.array(queries, dtype=np.int64).reshape(-1, 2).T
    fits = [
        [at for at, (group, time) in enumerate(rows) if group == of and time < until]
        for of, until in queries
    ]
    assert last_before(*columns, *asked).tolist() == [max(each, default=-1) for each in fits]


@given(codes=st.lists(st.integers(0, 9)), wanted=st.lists(st.integers(0, 9)))
def test_marks_answer_what_sorted_sets_do(codes, wanted):
    """Numbers that occur, and which are wanted."""
    column, some = (np.array(each, dtype=np.int32) for each in (codes, wanted))
    assert distinct(column).tolist() == np.unique(column).tolist()
    assert is_in(column, some).tolist() == np.isin(column, some).tolist()


_keys = st.lists(st.integers(0, 5), max_size=8)


@given(keys=_keys, table=_keys)
def test_a_key_is_matched_with_its_first_occurrence(keys, table):
    found = match_keys(np.array(keys, dtype=np.int64), np.array(table, dtype=np.int64))
    assert found.tolist() == [table.index(key) if key in table else -1 for key in keys]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 3)), max_size=9))
def test_groups_start_where_a_key_changes_and_have_a_largest_value_so_far(rows):
    """The later of equal ones."""
    rows.sort(key=lambda row: row[:2])
    first, second, value = np.reshape(np.array(rows, dtype=np.int64), (-1, 3)).T
    starts = group_starts(first, second)
    assert starts.tolist() == [
        not at or rows[at][:2] != rows[at - 1][:2] for at in range(len(rows))
    ]
    best = []
    for at, (*group, _) in enumerate(rows):
        so_far = [one for one in range(at + 1) if [*rows[one][:2]] == group]
        best.append(max(so_far, key=lambda one: (rows[one][2], one)))
    assert running_latest(value, starts).tolist() == best


@given(values=st.lists(st.integers(0, 99), max_size=5), rows=st.lists(st.integers(-2, 9)))
def test_rows_of_nothing_get_the_default(values, rows):
    """A column of any type; rows may have any shape."""
    rows = [row if row < len(values) else -1 for row in rows]
    column, of = np.array(values, dtype=np.int16), np.array(rows, dtype=np.int32)
    expected = [values[row] if row >= 0 else 7 for row in rows]
    assert gather(column, of, 7).tolist() == expected
    assert gather(column, of.reshape(1, -1), 7).tolist() == [expected]
    assert gather(column, of).dtype == np.int16


def _parents(text: str, longest: int = 8) -> list[int]:
    return folded(np.array([ord(letter) for letter in text], dtype=np.int64), longest).tolist()


def _folded(text: str, longest: int = 8) -> str:
    """The letters that are left."""
    return "".join(text[at] for at in sorted(set(_parents(text, longest))))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("", ""),
        ("abc", "abc"),
        ("aaaa", "a"),
        ("abababc", "abc"),
        ("xabcabcabcy", "xabcy"),
    ],
)
def test_a_cycle_is_left_once(text: str, left: str) -> None:
    """What comes once stays."""
    assert _folded(text) == left


def test_the_beginning_of_one_more_cycle_is_folded_too() -> None:
    """The third cycle stops after its first letter."""
    assert _folded("abcabcax") == "abcx"
    assert _parents("abcabcax")[6] == 0


def test_cycles_of_cycles_are_folded() -> None:
    """A layer runs more often in one step than in the other; the steps are still one."""
    assert _folded("ababab" + "s" + "abab" + "s") == "abs"


def test_a_letter_that_comes_again_elsewhere_is_another_place() -> None:
    """Nothing repeats at once."""
    assert _folded("abcabd") == "abcabd"
    assert _folded("abca") == "abca"


def test_longer_cycles_than_asked_for_stay() -> None:
    """Three letters, and two are the most."""
    assert _folded("abcabc", longest=2) == "abcabc"


@given(st.text(alphabet="abc", max_size=40))
def test_every_place_is_folded_onto_an_earlier_one_of_its_letter(text: str) -> None:
    """Which itself stays; and what is left has no cycle any more."""
    parents, left = _parents(text), _folded(text)
    for at, parent in enumerate(parents):
        assert parent <= at
        assert text[parent] == text[at]
        assert parents[parent] == parent
    assert _folded(left) == left


_N_NODES = 6
_edges = st.lists(
    st.tuples(*(st.integers(0, last) for last in (_N_NODES - 1, _N_NODES - 1, 2, 3))), max_size=12
)
_numbers = st.lists(st.integers(0, 3), min_size=_N_NODES, max_size=_N_NODES)


@pytest.mark.parametrize("nodes_of_one", [1, 2])
@given(edges=_edges, times=_numbers, tiebreak=_numbers)
def test_the_last_arrival_binds_and_ties_go_by_time_kind_and_rank(
    nodes_of_one, edges, times, tiebreak
):
    """Ranks are of nodes or, two nodes each, of events; the first of equal edges stays."""
    tail, head, kind, lag = (np.array(column) for column in np.reshape(edges, (-1, 4)).T)
    rank, node_ts = np.array(tiebreak[: _N_NODES // nodes_of_one]), 10 * np.array(times)

    binding = bind(
        tail.astype(np.int32), head.astype(np.int32), kind.astype(np.int8), lag, node_ts, rank
    )

    for node in range(_N_NODES):
        into = [
            (node_ts[a] + by, node_ts[a], of, rank[a // nodes_of_one], -row)
            for row, (a, b, of, by) in enumerate(edges)
            if b == node
        ]
        best = max(into, default=None)
        assert binding[node] == (-1 if best is None else -best[-1])


@pytest.mark.parametrize(("ranks", "best"), [((7, 5), 0), ((5, 7), 1), ((7, 7), 0)])
@pytest.mark.parametrize("nodes_of_one", [1, 2])
def test_of_edges_alike_but_for_their_tails_the_one_of_larger_rank_binds(nodes_of_one, ranks, best):
    """Node 4 and node 6 lead to node 9; all are at one time."""
    rank = np.arange(10 // nodes_of_one)[::-1].copy()
    rank[[4 // nodes_of_one, 6 // nodes_of_one]] = ranks
    tail, head = np.array([4, 6], dtype=np.int32), np.array([9, 9], dtype=np.int32)
    same = np.zeros(2, dtype=np.int8), np.zeros(2, dtype=np.int64)

    binding = bind(tail, head, *same, np.zeros(10, dtype=np.int64), rank)

    assert binding[9] == best


@given(edges=st.lists(st.tuples(*[st.integers(0, _N_NODES - 1)] * 2), max_size=10), times=_numbers)
def test_a_topological_order_keeps_time_and_edges_that_take_none(edges, times):
    """Edges among nodes on, or behind, a cycle are named; nodes may be a part of all."""
    edges = [(a, b) for a, b in edges if times[a] <= times[b]]
    tail, head = (np.array(side, dtype=np.int32) for side in np.reshape(edges, (-1, 2)).T)
    is_node = np.arange(_N_NODES) > 0

    order, cyclic = topological_order(tail, head, np.array(times), is_node)

    instant = [(a, b) for a, b in edges if times[a] == times[b]]
    graph = rustworkx.PyDiGraph()
    graph.add_nodes_from(range(_N_NODES))
    graph.add_edges_from_no_data(instant)
    circles = {
        node
        for group in rustworkx.strongly_connected_components(graph)
        for node in group
        if len(group) > 1 or (node, node) in instant
    }
    behind = circles.union(*(rustworkx.descendants(graph, node) for node in circles))
    assert cyclic.tolist() == [
        times[a] == times[b] and a in behind and b in behind for a, b in edges
    ]
    assert sorted(order.tolist()) == np.flatnonzero(is_node).tolist()
    assert [times[node] for node in order] == sorted(
        times[node] for node in np.flatnonzero(is_node)
    )
    place = {node: at for at, node in enumerate(order.tolist())}
    assert all(
        place[a] < place[b] for a, b in edges if min(a, b) > 0 and b not in behind and a != b
    )


def test_an_edge_that_leads_to_a_cycle_is_not_on_it():
    """0 leads to the cycle of 1 and 2, which leads to 3."""
    tail, head = (np.array(side, dtype=np.int32) for side in ([0, 1, 2, 2], [1, 2, 1, 3]))

    _, cyclic = topological_order(tail, head, np.zeros(4, np.int64))

    assert cyclic.tolist() == [False, True, True, True]
