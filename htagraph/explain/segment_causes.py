"""The main cause of each segment of a critical path, and the code that ran in it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.explain.segments import NO_EVENT_NAMES
from htagraph.model.kinds import Bound
from htagraph.model.schema import categorical

__all__ = ["segment_causes", "segment_code", "with_causes"]


def with_causes(segments: pd.DataFrame, attributed_time: pd.DataFrame) -> pd.DataFrame:
    """Segments with their ``cause``, and in ``code`` what ran between operators."""
    n = len(segments)
    return segments.assign(
        cause=segment_causes(attributed_time, n), code=segment_code(attributed_time, n)
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
    ...     {"segment": [0, 0, 1], "cause": ["host wait", "host", "copies"], "dur_ns": [2, 7, 1]}
    ... )
    >>> list(segment_causes(charged, 2))
    ['host', 'copies']
    """
    segment = attributed_time["segment"].to_numpy(np.int64)
    code, labels = pd.factorize(attributed_time["cause"])
    cause = np.full(n_segments, -1, dtype=np.int64)
    cause[segment] = code
    several = np.flatnonzero(np.bincount(segment, minlength=n_segments)[segment] > 1)
    n, segment, code = len(labels), segment[several], code[several]
    group, row = np.unique(segment * max(n, 1) + code, return_inverse=True)
    total = np.bincount(row, attributed_time["dur_ns"].to_numpy(np.float64)[several], len(group))
    segment, code = np.divmod(group, max(n, 1))
    last = np.lexsort((-code, total, segment))
    cause[segment[last]] = code[last]
    return categorical(cause, labels.tolist())


def segment_code(attributed_time: pd.DataFrame, n_segments: int) -> pd.Categorical[str]:
    """Code between operators, by segment: its frame; else its neighbour, if its range says little.

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
    >>> list(segment_code(gaps.assign(bound="python_gap"), 4))
    ['after aten::mm', nan, 'train.py(7): loss', nan]
    """
    columns = ["segment", "name", "step", "frame", "place"]
    gaps = attributed_time.loc[attributed_time["bound"] == Bound.PYTHON_GAP.label, columns]
    name, step, frame, place = (gaps[one].to_numpy(object) for one in columns[1:])
    is_said = (name != step) & (name != NO_EVENT_NAMES[Bound.PYTHON_GAP])
    text = np.where((frame == "") & ~is_said, place, frame)
    rows = np.flatnonzero(text != "")[::-1]  # the first piece of a segment counts
    codes, labels = pd.factorize(text[rows])
    code = np.full(n_segments, -1, dtype=np.int64)
    code[gaps["segment"].to_numpy(np.int64)[rows]] = codes
    return categorical(code, labels.tolist())
