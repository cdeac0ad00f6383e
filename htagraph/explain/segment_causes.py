"""The main cause of each segment of a critical path, of each part of its run; the code in it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.algorithms.gather import gather
from htagraph.algorithms.intervals import sum_by_code
from htagraph.explain.segments import NO_EVENT_NAMES
from htagraph.model.arrays import Texts
from htagraph.model.kinds import Bound
from htagraph.model.schema import categorical

Codes = npt.NDArray[np.integer]

_N_PARTS = 200
"""Parts of a run, each with one main cause (chosen): on a screen, a few pixels each.

Pinned by `test_segment_causes.py::test_a_part_is_a_two_hundredth_of_the_run`.
"""


def with_causes(segments: pd.DataFrame, attributed_time: pd.DataFrame) -> pd.DataFrame:
    """Segments with their ``cause``, and in ``code`` what ran between operators."""
    n = len(segments)
    return segments.assign(
        cause=segment_causes(attributed_time, n), code=segment_code(attributed_time, n)
    )


def main_causes(attributed_time: pd.DataFrame, n_parts: int = _N_PARTS) -> pd.DataFrame:
    """The cause with the most time in each part of a run; equal neighbors are one row.

    Parameters
    ----------
    attributed_time : DataFrame
        Schema `frames.ATTRIBUTED_TIME` or `frames.JOB_ATTRIBUTED_TIME`; tiles the run.

    Returns
    -------
    DataFrame
        Columns ``start_ns``, ``dur_ns``, ``cause``, and ``bound``, on which the cause has most
        time. Tiles the run.

    Examples
    --------
    >>> charged = pd.DataFrame(
    ...     {"start_ns": [0, 7, 8], "dur_ns": [7, 1, 2], "cause": ["a", "b", "b"], "bound": "host"}
    ... )
    >>> main_causes(charged, 5).to_dict("list")
    {'start_ns': [0, 8], 'dur_ns': [8, 2], 'cause': ['a', 'b'], 'bound': ['host', 'host']}
    """
    start_ns, dur_ns = (attributed_time[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns"))
    (cause, causes), (bound, bounds) = (
        _coded(attributed_time[name]) for name in ("cause", "bound")
    )
    on_bound = sum_by_code(
        cause.astype(np.int64) * len(bounds) + bound, dur_ns, len(causes) * len(bounds)
    )
    bound_of = on_bound.reshape(len(causes), -1).argmax(axis=1) if len(causes) else cause
    ends = [start_ns[0], start_ns[-1] + dur_ns[-1]] if len(start_ns) else [0, 0]
    part_ns = ends[0] + (ends[1] - ends[0]) * np.arange(n_parts + 1) // n_parts
    cut_ns = np.sort(np.concatenate([start_ns, part_ns]), kind="stable")  # two sorted runs
    cut_ns = cut_ns[np.append(np.diff(cut_ns) > 0, True)]
    # Of pieces between two cuts: the row that it is of, and the part that it is in.
    row, part = (np.searchsorted(at, cut_ns[:-1], side="right") - 1 for at in (start_ns, part_ns))
    code = part * len(causes) + cause[row]
    total_ns = sum_by_code(code, np.diff(cut_ns), n_parts * len(causes)).reshape(n_parts, -1)
    filled = np.flatnonzero(np.diff(part_ns))
    main = total_ns[filled].argmax(axis=1) if len(filled) else filled
    first = np.flatnonzero(np.diff(main, prepend=-1))
    begin_ns = part_ns[filled[first]]
    return pd.DataFrame(
        {
            "start_ns": begin_ns,
            "dur_ns": np.diff(begin_ns, append=ends[1]) if len(first) else begin_ns,
            "cause": causes[main[first]],
            "bound": bounds[bound_of[main[first]]],
        }
    )


def segment_causes(attributed_time: pd.DataFrame, n_segments: int) -> pd.Categorical[str]:
    """Label of the cause with the most time in each segment; ties go to the first.

    Parameters
    ----------
    attributed_time : DataFrame
        Schema `frames.ATTRIBUTED_TIME` or `frames.JOB_ATTRIBUTED_TIME`.

    Returns
    -------
    Categorical of length n_segments
        Missing if nothing is charged.

    Examples
    --------
    >>> charged = pd.DataFrame(
    ...     {"segment": [0, 0, 1], "cause": ["a", "CPU work", "GPU copies"], "dur_ns": [2, 7, 1]}
    ... )
    >>> list(segment_causes(charged, 2))
    ['CPU work', 'GPU copies']
    """
    segment = attributed_time["segment"].to_numpy()
    number, labels = _coded(attributed_time["cause"])
    cause = np.full(n_segments, -1, dtype=np.int16)
    cause[segment] = number
    is_several = np.bincount(segment, minlength=n_segments) > 1
    several = np.flatnonzero(gather(is_several, segment))
    n = len(labels)
    segment, code = segment[several].astype(np.int64), number[several].astype(np.int64)
    group, row = np.unique(segment * max(n, 1) + code, return_inverse=True)
    total = np.bincount(row, attributed_time["dur_ns"].to_numpy(np.float64)[several], len(group))
    segment, code = np.divmod(group, max(n, 1))
    last = np.lexsort((-code, total, segment))
    cause[segment[last]] = code[last]
    return categorical(cause, labels.tolist())


def segment_code(attributed_time: pd.DataFrame, n_segments: int) -> pd.Categorical[str]:
    """Untraced code, by segment: its frame; else its neighbour, if its range says little.

    Ranges that say little are steps. Missing for segments that are no such code.

    Parameters
    ----------
    attributed_time : DataFrame
        Schema `frames.ATTRIBUTED_TIME` or `frames.JOB_ATTRIBUTED_TIME`.

    Returns
    -------
    Categorical of length n_segments

    Examples
    --------
    >>> gaps = pd.DataFrame(
    ...     {"segment": [0, 1, 2], "name": ["Step#1", "loss", "loss"], "step": ["Step#1"] * 3,
    ...      "frame": ["", "", "train.py(7): loss"], "place": ["after aten::mm"] * 3}
    ... )
    >>> list(segment_code(gaps.assign(bound="untraced_code"), 4))
    ['after aten::mm', nan, 'train.py(7): loss', nan]
    """
    gaps = attributed_time[attributed_time["bound"] == Bound.UNTRACED_CODE.label]
    (name, names), (frame, frames), (place, places) = (
        _coded(gaps[column]) for column in ("name", "frame", "place")
    )
    says_little = np.isin(names, [*_coded(gaps["step"])[1], NO_EVENT_NAMES[Bound.UNTRACED_CODE]])
    number, labels = pd.factorize(np.concatenate([frames, places]))
    has_frame = (frames != "")[frame]
    code = number[np.where(has_frame, frame, len(frames) + place.astype(np.int64))]
    rows = np.flatnonzero((has_frame | says_little[name]) & (labels != "")[code])
    rows = rows[::-1]  # the first piece of a segment counts
    out = np.full(n_segments, -1, dtype=np.int64)
    out[gaps["segment"].to_numpy(np.int64)[rows]] = code[rows]
    return categorical(out, labels.tolist())


def _coded(column: pd.Series[str]) -> tuple[Codes, Texts]:
    """The code of each row of a column, and the text of each code, in order of appearance."""
    if not isinstance(column.dtype, pd.CategoricalDtype):
        codes, texts = pd.factorize(column)
        return codes, np.asarray(texts, dtype=object)
    found = column.cat.codes.to_numpy()
    order = pd.unique(found)
    number = np.empty(len(column.cat.categories), dtype=found.dtype)
    number[order] = np.arange(len(order))
    return gather(number, found), column.cat.categories.to_numpy(object)[order]
