"""FLOW edges between Python threads: locks that are released, threads that start and end."""

from __future__ import annotations

import pytest

from htagraph.compiler.passes import compile_events
from htagraph.explain.critical_path import critical_path
from htagraph.synth import timeline

OF_C = {
    "acquire": "_thread.lock.acquire",
    "release": "_thread.lock.release",
    "start": "_thread.start_new_thread",
}
OF_PYTHON = {
    "acquire": "Condition.wait (/lib/threading.py:295)",
    "release": "Condition.notify (/lib/threading.py:366)",
    "start": "Thread.start (/lib/threading.py:938)",
}


def joined(arrows, drawing, names, us_per_column=1):
    """Edges between threads, by the short names of the drawing."""
    used = {short: full for short, full in names.items() if f"[{short}" in drawing}
    dag = compile_events(timeline(drawing, names=used, us_per_column=us_per_column))
    short = {full: name for name, full in names.items()}
    return [
        tuple(short.get(end[:-1], end[:-1]) + end[-1] for end in (tail, head))
        for tail, head, _ in arrows(dag, "flow")
    ]


@pytest.mark.parametrize("names", [OF_C, OF_PYTHON])
def test_a_thread_that_waits_for_a_lock_waits_for_who_released_it_last(arrows, names):
    assert joined(
        arrows,
        """
        cpu 1    |[acquire                                ][use]
        cpu 2    |[release]            [make][release]  [more]
    """,
        names,
    ) == [("release<", "acquire>")]


@pytest.mark.parametrize("names", [OF_C, OF_PYTHON])
def test_a_thread_begins_after_its_start_and_its_end_frees_who_waits_for_it(arrows, names):
    assert joined(
        arrows,
        """
        cpu 1    |[start][acquire                  ][use]
        cpu 2    |     [work                      ]
    """,
        names,
    ) == [("start<", "work<"), ("work>", "acquire>")]


def test_a_wait_that_ends_long_after_any_release_is_time_of_its_own(arrows):
    """A time limit: the release was 20 ms before."""
    drawing = """
        cpu 1    |[acquire                               ][use]
        cpu 2    |   [release]                                 [more]
    """

    assert joined(arrows, drawing, OF_C, us_per_column=1000) == []
    assert joined(arrows, drawing, OF_C) != []


def test_the_time_of_a_wait_is_that_of_who_releases():
    dag = compile_events(
        timeline(
            """
        cpu 1    |[acquire                                ][use]
        cpu 2    |[make                         ][release]
    """,
            names={short: OF_C[short] for short in ("acquire", "release")},
        )
    )
    segments = critical_path(dag, dag.span)
    assert segments[["name", "dur_ns"]].to_numpy().tolist() == [
        ["make", 31_000],
        ["_thread.lock.release", 9_000],
        ["_thread.lock.acquire", 1_000],
        ["use", 5_000],
    ]


@pytest.mark.parametrize("name", ["aten::acquire", "my_lock.acquire_all"])
def test_other_names_are_no_locks(arrows, name):
    names = OF_C | {"acquire": name}
    drawing = """
        cpu 1    |[acquire              ][use]
        cpu 2    |[make      ][release]   [more]
    """

    assert joined(arrows, drawing, names) == []
