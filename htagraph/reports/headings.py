"""Columns of tables for people: their headings, and which hold names, sentences and times."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import pandas as pd

from htagraph.model.kinds import in_words

__all__ = ["NONE_IS_NEGATIVE", "SENTENCES", "TIMES", "heading", "holds_names", "is_share"]

SENTENCES = frozenset(
    {
        "check",
        "consequence",
        "detail",
        "advice",
        "meaning",
        "options",
        "error",
        "said",
        "bounds",
        "reading",
        "change",
    }
)
"""Columns of prose, which may go on in the next line."""
NONE_IS_NEGATIVE = frozenset(
    {
        "device",
        "stream",
        "peer",
        "seq",
        "n_bytes",
        "n_elements",
        "parent",
        "late_rank",
        "shares_with",
        "aligned_with",
        "next_event",
        "launch",
        "correlation",
    }
)
"""Columns in which -1 stands for none, which people see as nothing."""
TIMES = frozenset({"start_ns", "end_ns", "ts_ns"})
"""Columns of points in time; others that end in ``_ns`` are durations."""
_SHARES = frozenset(
    {"share", "chance", "gpu_utilization", "sm_activity", "sm_occupancy", "tensor_activity"}
)
_LABELS = frozenset(
    {"bound", "next_bound", "cause_bound", "cause", "class", "kind", "use", "verdict"}
)

_HEADINGS = {
    "n_last": "times last",
    "n_certain": "certain",
    "cause_ns": "cause dur",
    "n_cause": "times",
    "caused_wait_ns": "caused wait, all ranks",
    "saves_share": "share",
    "low_ns": "at least",
    "high_ns": "at most",
    "alone_ns": "alone",
    "n_blocked": "blocked calls",
    "n_fit": "fit on an SM",
    "gpu_utilization": "GPU utilization",
    "sm_share": "SM share",
    "sm_activity": "SM activity",
    "sm_occupancy": "SM occupancy",
    "sampled_gpu_utilization": "sampled GPU utilization",
    "sampled_sm_activity": "sampled SM activity",
    "sampled_sm_occupancy": "sampled SM occupancy",
}
"""Headings of columns whose name says too little without its unit."""


def is_share(column: str) -> bool:
    """Whether a column holds parts of 1, which people read in percent.

    Examples
    --------
    >>> is_share("idle_share"), is_share("sampled_sm_activity"), is_share("n_gaps")
    (True, True, False)
    """
    ends = column.endswith(("_share", "_coverage"))
    return ends or column.removeprefix("sampled_") in _SHARES


def heading(column: str) -> str:
    """Heading of a column: its name in words, without the unit.

    Examples
    --------
    >>> heading("n_segments"), heading("bound_share"), heading("n_last")
    ('segments', 'bound share', 'times last')
    """
    return _HEADINGS.get(column) or in_words(column.removesuffix("_ns")).removeprefix("n ")


def holds_names(column: str, values: pd.Series | npt.NDArray[Any]) -> bool:
    """Whether a column holds names of the trace, which may be shortened, unlike figures and labels.

    Examples
    --------
    >>> names = pd.Series(["aten::mm"])
    >>> holds_names("op", names), holds_names("bound", names)
    (True, False)
    """
    if column in SENTENCES or column in _LABELS:
        return False
    return values.dtype.kind in "OU" and str(values.dtype) != "category"
