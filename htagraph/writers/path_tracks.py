"""The critical path as slices: the path itself, and below it a summary track per bound.

The path of a job has a summary track per rank instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.model.kinds import Bound, in_words
from htagraph.writers.slices import Arg, Flows, Slices, Strings
from htagraph.writers.tracks import Tracks

__all__ = ["path_slices"]

I64 = npt.NDArray[np.int64]

_TEXTS = ("bound", "kind", "rule", "op", "track")
_NUMBERS = ("rank", "lag_ns", "residual_ns", "event")


class _Runs(NamedTuple):
    """Maximal runs of neighboring segments with one bound."""

    first: npt.NDArray[np.intp]
    n_segments: I64
    dur_ns: I64


def _runs(bound: I64, dur_ns: I64) -> _Runs:
    """Find the runs."""
    first = np.flatnonzero(np.diff(bound, prepend=-1))
    return _Runs(
        first, np.diff(first, append=len(bound)).astype(np.int64), np.add.reduceat(dur_ns, first)
    )


def _text_arg(name: str, values: pd.Series[Any], strings: Strings) -> Arg:
    """Annotation of those slices for which there is a text."""
    at = np.flatnonzero(values.notna() & (values != ""))
    return Arg(name, at, strings.add(values.iloc[at]), "text")


def _number_arg(name: str, values: I64) -> Arg:
    """Annotation of those slices for which there is a number."""
    at = np.flatnonzero(values >= 0)
    return Arg(name, at, values[at], "int")


def _bound_tracks(tracks: Tracks, root: int, labels: Sequence[str], total: npt.NDArray[Any]) -> I64:
    """Make a track per bound, the one with most time first."""
    place = np.argsort(np.argsort(-total, kind="stable"))
    return np.array(
        [
            tracks.child(in_words(label), root, order)
            for label, order in zip(labels, place.tolist(), strict=True)
        ]
    )


def path_slices(
    segments: pd.DataFrame,
    ts_ns: I64,
    tracks: Tracks,
    strings: Strings,
    *,
    flows: Flows,
    description: str,
) -> list[Slices]:
    """Path as slices, and below it the summary of each bound, or rank.

    Parameters
    ----------
    segments : DataFrame
        Schema `frames.SEGMENTS`: summed up per bound; or `frames.JOB_SEGMENTS`: per rank.
    ts_ns : ndarray of shape (n_segments,), dtype=int64, unit=ns
        Starts in the time of the file.
    tracks, strings
        Get what is new.
    flows : Flows
        Ends of arrows at segments.
    description : str
        Help text of the path's track.

    Returns
    -------
    list of Slices
        Empty where there are no segments.
    """
    if segments.empty:
        return []
    dur_ns = segments["dur_ns"].to_numpy(np.int64)
    texts = {name: segments[name].astype(object) for name in _TEXTS}
    texts["evidence"] = segments["is_inferred"].map({True: "inferred", False: ""})
    # The slice of a full device is about the kernel that fills it; what waits comes next.
    waiting = segments["name"].astype(object).shift(-1, fill_value="")
    texts["waiting"] = waiting.where(segments["bound"] == Bound.DEVICE_FULL.label, "")
    category, color = strings.add(["critical_path"]), strings.add(texts["bound"])
    root = tracks.root("Critical path", description)
    path = Slices.disjoint(
        ts_ns,
        dur_ns,
        track=np.array([root]),
        name=strings.add(segments["name"].astype(object)),
        category=category,
        color=color,
        args=[_text_arg(name, values, strings) for name, values in texts.items()]
        + [
            _number_arg(name, segments[name].to_numpy(np.int64))
            for name in _NUMBERS
            if name in segments
        ],
        flows=flows,
    )
    of_job = "rank" in segments
    group, labels = pd.factorize(
        "rank " + segments["rank"].astype(str) if of_job else texts["bound"]
    )
    runs = _runs(group.astype(np.int64), dur_ns)
    summary_name = strings.add([in_words(label) for label in labels])[group[runs.first]]
    summary = Slices.disjoint(
        ts_ns[runs.first],
        runs.dur_ns,
        track=_bound_tracks(
            tracks, root, labels.tolist(), np.bincount(group, dur_ns.astype(np.float64))
        )[group[runs.first]],
        name=summary_name,
        category=category,
        color=summary_name if of_job else color[runs.first],
        args=[_number_arg("n_segments", runs.n_segments)],
    )
    return [path, summary]
