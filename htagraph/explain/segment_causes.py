"""The main cause of each segment of a critical path."""

from __future__ import annotations

import numpy as np
import pandas as pd

from htagraph.model.schema import categorical

__all__ = ["segment_causes"]


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
