"""FLOW edges between Python threads: locks that are released, threads that start and end."""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.explain.critical_path import critical_path
from htagraph.model.kinds import EdgeKind
from htagraph.synth import timeline

NAMES = {
    "get": "Queue.get (/lib/queue.py:154)",
    "put": "Queue.put (/lib/queue.py:122)",
    "item": "_queue.SimpleQueue.get",
    "give": "_queue.SimpleQueue.put",
    "event": "Event.wait (/lib/threading.py:611)",
    "set": "Event.set (/lib/threading.py:582)",
    "waits": "Condition.wait (/lib/threading.py:295)",
    "all": "Condition.notify_all (/lib/threading.py:402)",
    "notify": "Condition.notify (/lib/threading.py:366)",
    "acquire": "_thread.lock.acquire",
    "release": "_thread.lock.release",
    "remove": "collections.deque.remove",
    "log": "log (/lib/logging.py:9)",
    "run": "run (/program.py:3)",
    "launches": "Thread.start (/lib/threading.py:938)",
    "begin": "_thread.start_new_thread",
    "join": "Thread.join (/lib/threading.py:1080)",
    "state": "Thread._wait_for_tstate_lock (/lib/threading.py:1125)",
    "bootstrap": "Thread._bootstrap_inner (/lib/threading.py:1032)",
}


def drawn(drawing, us_per_column=1):
    """The graph of a drawing with short names."""
    used = {short: full for short, full in NAMES.items() if f"[{short}" in drawing}
    return compile_events(timeline(drawing, names=used, us_per_column=us_per_column))


def handed_over(drawing, us_per_column=1):
    """Threads between which there are edges: who is waited for, and who waits."""
    return [(tail[0], head[0]) for tail, head in edges(drawn(drawing, us_per_column))]


def edges(dag):
    """Edges between threads by their end; each end as a thread and a time in us."""
    events, found = dag.events, dag.edges.take(dag.edges.kind == EdgeKind.FLOW)
    tids = [int(events.lanes.tid[lane]) for lane in events.lane]
    times = (events.node_ts_ns // 1000).tolist()
    ends = zip(found.tail.tolist(), found.head.tolist(), strict=True)
    return [
        ((tids[tail >> 1], times[tail]), (tids[head >> 1], times[head]))
        for tail, head in sorted(ends, key=lambda nodes: times[nodes[1]])
    ]


@pytest.mark.parametrize(
    "drawing",
    [
        """
        cpu 1    |[get [waits [acquire                                      ]]]
        cpu 2    |     [put [notify [release]]]    [put [notify [release]]]
        """,
        """
        cpu 1    |[get [waits                                               ]]
        cpu 2    |     [put [notify]]              [put         [notify  ]]
        """,
        """
        cpu 1    |            [item                                         ]
        cpu 2    |                  [give]                      [give    ]
        """,
    ],
    ids=["functions of C", "without them", "a queue of C"],
)
def test_who_waits_for_an_item_waits_for_who_put_the_last(drawing):
    assert edges(drawn(drawing)) == [((2, 46), (1, 59))]


def test_the_time_of_a_wait_is_that_of_who_releases():
    dag = drawn(
        """
        cpu 1    |[item                                   ][use]
        cpu 2    |[make                            ][give]
    """
    )

    assert critical_path(dag, dag.span)[["name", "dur_ns"]].to_numpy().tolist() == [
        ["make", 34_000],
        ["_queue.SimpleQueue.get", 7_000],
        ["use", 5_000],
    ]


def test_without_functions_of_c_a_wait_is_where_nothing_is_called():
    """After it, ``Condition.wait`` takes a lock again: time of its own."""
    dag = drawn(
        """
        cpu 1    |[get [waits                          [log ]]][use]
        cpu 2    |[make             ][put [notify    ] ]  [more]
    """
    )

    assert edges(dag) == [((2, 24), (1, 37))]
    assert critical_path(dag, dag.span)["name"].tolist() == [
        "make",
        NAMES["put"],
        NAMES["waits"],
        NAMES["log"],
        NAMES["waits"],
        NAMES["get"],
        "use",
    ]


@pytest.mark.parametrize(
    "other",
    [
        "[get [notify [release]]]",
        "[set [all [notify [release]]]]",
        "[bootstrap [set [all [notify [release]]]]]",
        "[log [notify [release]]]",
        "[put [release]]",
        "[release]",
        "[give]",
    ],
)
def test_a_wait_does_not_end_with_a_release_of_another_sort(other):
    drawing = f"""
        cpu 1    |[get [waits [acquire                                         ]]]
        cpu 2    |[make     ] {other}
    """

    assert handed_over(drawing) == []
    assert handed_over(drawing.replace(other, "[put [notify [release]]]")) == [(2, 1)]


def test_a_wait_does_not_end_with_a_release_before_or_after_it():
    assert (
        handed_over(
            """
        cpu 1    |                        [get [waits [acquire      ]]]
        cpu 2    |[put [notify [release]]]   [make                  ]  [put [notify [release]]]
    """
        )
        == []
    )


def test_nobody_ended_a_wait_long_after_the_last_release():
    drawing = """
        cpu 1    |[get [waits [acquire                        ]]]
        cpu 2    |     [put [notify [release]]]
    """

    assert handed_over(drawing) == [(2, 1)]
    assert handed_over(drawing, us_per_column=3000) == []  # 84 ms


def test_nobody_ended_a_wait_whose_time_was_up():
    """The lock of who was not notified is taken from those that are to be released."""
    drawing = """
        cpu 1    |[event [waits [acquire                     ] [remove] ]]
        cpu 2    | [make            ][set [all [notify [release]]]]
    """

    assert handed_over(drawing) == []
    assert handed_over(drawing.replace("[remove]", "[log]   ")) == [(2, 1)]


def test_two_pairs_are_told_apart_where_one_only_releases():
    assert handed_over(
        """
        cpu 1    |[get [waits [acquire            ]]]
        cpu 2    |        [put [notify [release]]]
        cpu 3    |                              [make   ] [get [waits [acquire            ]]]
        cpu 4    |                              [make         ]  [put [notify [release]]]
    """
    ) == [(2, 1), (4, 3)]


def test_two_pairs_at_one_time_look_like_four_threads_and_wait_for_none():
    assert (
        handed_over(
            """
        cpu 1    |[get [waits [acquire                                     ]]]
        cpu 2    |      [put [notify [release]]]
        cpu 3    | [get [waits [acquire                                     ]]]
        cpu 4    |                           [put [notify [release]]]
    """
        )
        == []
    )


@pytest.mark.parametrize(("after", "found"), [("release", [(2, 1)]), ("acquire", []), ("use", [])])
def test_who_got_a_lock_releases_it(after, found):
    assert (
        handed_over(
            f"""
        cpu 1    |[run [acquire                    ] [{after}  ]]
        cpu 2    |[run [make           ] [release]]
    """
        )
        == found
    )


def test_a_lock_is_released_in_the_file_that_takes_it():
    assert (
        handed_over(
            """
        cpu 1    |[run [acquire                    ] [release]]
        cpu 2    |[log [make           ] [release]]
    """
        )
        == []
    )


@pytest.mark.parametrize("start", ["[launches         ]", "[launches [begin ]]"])
@pytest.mark.parametrize(
    "join", ["[join                ]", "[join [state        ]]", "[join [state [acquire]]]"]
)
def test_a_thread_begins_after_its_start_and_its_end_frees_who_joins_it(start, join):
    assert handed_over(
        f"""
        cpu 1    |{start}  {join}[use]
        cpu 2    |              [work                 ]
    """
    )[:2] == [(1, 2), (2, 1)]


@pytest.mark.parametrize(
    ("first_ends", "second_ends", "joined"),
    [(51, 58, [(2, 1), (3, 1)]), (51, 45, [(2, 1)]), (30, 51, [])],
    ids=["one after the other", "both in one wait", "too early for the first join"],
)
def test_threads_are_joined_in_the_order_of_their_starts(first_ends, second_ends, joined):
    """If times allow it: of threads that end in one wait, a join ends right after its own."""
    drawing = f"""
        cpu 1    |[run [launches][launches][join                      ][join]]
        cpu 2    |       {"[work".ljust(first_ends - 8)}]
        cpu 3    |                 {"[work".ljust(second_ends - 18)}]
    """

    assert handed_over(drawing, us_per_column=100) == [(1, 2), (1, 3), *joined]


@pytest.mark.parametrize("name", ["aten::get", "my_lock.acquire_all", "queue.get"])
def test_other_names_are_no_waits(arrows, name):
    drawing = """
        cpu 1    |[item                 ][use]
        cpu 2    |[make         ][give]   [more]
    """
    names = {"item": NAMES["item"], "give": NAMES["give"]}

    assert len(arrows(compile_events(timeline(drawing, names=names)), "flow")) == 1
    other = compile_events(timeline(drawing, names=names | {"item": name}))
    assert arrows(other, "flow") == []
