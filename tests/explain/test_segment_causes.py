"""The main cause of each part of a run: what its findings are over time."""

from __future__ import annotations

import pandas as pd

from htagraph.explain.segments import main_causes


def charged(*pieces: tuple[str, str, int]) -> pd.DataFrame:
    """Pieces of a path that starts at 100, with cause, bound and length."""
    cause, bound, dur_ns = zip(*pieces, strict=True)
    frame = pd.DataFrame({"cause": cause, "bound": bound, "dur_ns": dur_ns})
    return frame.assign(start_ns=100 + frame["dur_ns"].cumsum() - frame["dur_ns"])


def rows(found: pd.DataFrame) -> list[tuple[int, int, str]]:
    """Start, length and cause of each stretch."""
    return [*found[["start_ns", "dur_ns", "cause"]].itertuples(index=False, name=None)]


def test_a_part_has_the_cause_with_most_time_in_it() -> None:
    """Parts of 10 ns: in the second, loading has 6 of them in two pieces."""
    found = main_causes(
        charged(
            ("compute", "compute", 12),
            ("loading", "host", 3),
            ("compute", "compute", 2),
            ("loading", "host", 3),
            ("compute", "compute", 20),
        ),
        n_parts=4,
    )
    assert rows(found) == [(100, 10, "compute"), (110, 10, "loading"), (120, 20, "compute")]


def test_a_part_is_a_two_hundredth_of_the_run() -> None:
    """A cause of 6 ns in 1,000 fills one part of 5 ns, one of 2 ns none."""
    found = main_causes(
        charged(("a", "host", 100), ("b", "host", 6), ("a", "host", 500), ("c", "host", 2)).pipe(
            lambda frame: pd.concat([frame, charged(("a", "host", 392)).assign(start_ns=708)])
        )
    )
    assert rows(found) == [(100, 100, "a"), (200, 5, "b"), (205, 895, "a")]


def test_a_cause_is_of_the_bound_on_which_it_has_most_time() -> None:
    """In every stretch the same: 30 ns of CPU work run, 20 ns launch."""
    found = main_causes(
        charged(
            ("CPU work", "launch", 20),
            ("compute", "compute", 10),
            ("CPU work", "host", 30),
        )
    )
    assert found["bound"].tolist() == ["host", "compute", "host"]


def test_a_run_shorter_than_its_parts_has_as_many_as_nanoseconds() -> None:
    """No part is empty."""
    assert rows(main_causes(charged(("a", "host", 2), ("b", "host", 1)))) == [
        (100, 2, "a"),
        (102, 1, "b"),
    ]


def test_a_run_without_time_has_none() -> None:
    """Nothing was recorded."""
    assert main_causes(charged(("a", "host", 1)).iloc[:0]).empty
