"""Which parts of a path are tried as changes."""

from __future__ import annotations

import pandas as pd
import pytest

from htagraph.model.kinds import Bound, Cause
from htagraph.replay.candidates import of_parts

_N = 25


def _of_kind(kind: str, segments: pd.DataFrame, cause: str = "", **options) -> set[str]:
    """Targets of a kind, if all of a path is charged to a cause."""
    names = segments["name"]
    charged = pd.DataFrame(
        {
            "segment": range(len(segments)),
            "dur_ns": segments["dur_ns"],
            "cause": cause or Cause.UNKNOWN_WAITS.value,
            "name": names,
            "op": names,
            "place": names,
            "frame": "",
        }
    )
    found = of_parts(segments, charged, **options)
    return {one.target for one in found if one.kind == kind}


def _path(bound: Bound, dur_ns: list[int]) -> pd.DataFrame:
    rows = range(len(dur_ns))
    names = [f"name {row}" for row in rows]
    return pd.DataFrame(
        {"name": names, "bound": bound.label, "dur_ns": dur_ns, "event": rows, "edge": rows}
    )


@pytest.mark.parametrize(("is_large", "n_names"), [(False, 10), (True, 4)])
def test_the_names_with_the_most_time_are_tried(is_large, n_names):
    for kind, bound in (("kernel", Bound.COMPUTE), ("operator", Bound.HOST)):
        segments = _path(bound, [1_000 - row for row in range(_N)])

        assert _of_kind(kind, segments, is_large=is_large) == set(segments["name"][:n_names])


@pytest.mark.parametrize(
    ("kind", "cause"), [("Python code", Cause.HOST_CODE), ("wait", Cause.GPU_SYNCHRONIZATION)]
)
def test_eight_places_are_tried(kind, cause):
    segments = _path(Bound.HOST, [1_000 - row for row in range(_N)])

    assert _of_kind(kind, segments, cause) == set(segments["name"][:8])


def test_less_than_a_thousandth_of_the_path_is_not_tried():
    segments = _path(Bound.COMPUTE, [997_800, 1_500, 700])

    assert _of_kind("kernel", segments) == {"name 0", "name 1"}
