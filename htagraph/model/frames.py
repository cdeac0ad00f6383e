"""The schema of every DataFrame that the package returns: column, dtype, unit, meaning.

A schema is the contract of a question: same columns, same dtypes, same order, also when there is
nothing to tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from htagraph.errors import GraphError

__all__ = ["Column", "Schema", "categorical", "labelled"]


def categorical(codes: npt.ArrayLike, labels: Sequence[str]) -> pd.Categorical[str]:
    """Return a column of labels, given by their positions.

    Examples
    --------
    >>> list(categorical([1, 0, 1], ["span", "thread"]))
    ['thread', 'span', 'thread']
    """
    return pd.Categorical.from_codes(np.asarray(codes), categories=pd.Index(list(labels)))


def labelled(values: Sequence[str] | pd.Series[str], labels: Sequence[str]) -> pd.Categorical[str]:
    """Return a column of labels, given as texts.

    Examples
    --------
    >>> labelled(["thread", "span"], ["span", "thread"]).codes.tolist()
    [1, 0]
    """
    return categorical(pd.Index(list(labels)).get_indexer(pd.Index(values)), labels)


@dataclass(frozen=True)
class Column:
    """One column of a schema.

    Parameters
    ----------
    dtype : str
        ``int64``, ``float64``, ``bool``, ``category``, or ``object`` for text and ids of mixed
        type.
    unit : str
        ``ns``, ``share`` (of 1), ``count``, ``event``, ``edge``, ``name`` …
    meaning : str
        One sentence.
    """

    dtype: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Schema:
    """Columns of a frame, in order."""

    name: str
    columns: Mapping[str, Column]

    def frame(self, data: Mapping[str, object]) -> pd.DataFrame:
        """Return a DataFrame of this schema; every column must be given.

        Raises
        ------
        GraphError
            If `data` has other columns than the schema.
        """
        if set(data) != set(self.columns):
            raise GraphError(
                f"{self.name}: columns {sorted(set(data) ^ set(self.columns))} differ from the schema."
            )
        # Typed column by column: what pandas infers from text would be converted twice.
        return pd.DataFrame(
            {
                name: pd.Series(data[name], dtype=column.dtype)
                for name, column in self.columns.items()
            }
        )

    def empty(self) -> pd.DataFrame:
        """Return a frame of this schema without rows."""
        return pd.DataFrame(
            {name: pd.Series([], dtype=column.dtype) for name, column in self.columns.items()}
        )


_EVENT = Column("int64", "event", "row of the event table")
_TRACK = Column("object", "id", "thread id of host work, `stream n` of device work")

EVENTS = Schema(
    "EVENTS",
    {
        "event": _EVENT,
        "ts_ns": Column("int64", "ns", "start"),
        "dur_ns": Column("int64", "ns", "duration"),
        "kind": Column("category", "EventKind", "what the event is"),
        "name": Column("object", "name", "name in the file"),
        "category": Column("object", "name", "category in the file"),
        "pid": Column("object", "id", "process id in the file"),
        "tid": Column("object", "id", "thread id in the file"),
        "device": Column("int64", "id", "device of device work, -1 elsewhere"),
        "stream": Column("int64", "id", "stream of device work, -1 elsewhere"),
        "correlation": Column(
            "int64", "id", "links an API call and the device work it enqueued, -1 for none"
        ),
        "external_id": Column("int64", "id", "links an operator and what ran in it, -1 for none"),
    },
)

ATTRIBUTED_TIME = Schema(
    "ATTRIBUTED_TIME",
    {
        "cause": Column("object", "Cause", "what claims the time"),
        "name": Column("object", "name", "what ran, or for claims of a wait the call that waited"),
        "op": Column("object", "name", "innermost operator or annotation of that"),
        "frame": Column(
            "object",
            "name",
            "innermost Python frame of a host gap, empty elsewhere and where none was recorded",
        ),
        "event": _EVENT,
        "step": Column("object", "name", "step in which the time begins, empty outside of steps"),
        "bound": Column("category", "Bound", "what the time went to"),
        "start_ns": Column("int64", "ns", "start of the claimed time; the end of the one before"),
        "dur_ns": Column("int64", "ns", "claimed time; adds up to the window"),
        "segment": Column("int64", "count", "row of the segment that it is part of"),
    },
)

EDGES = Schema(
    "EDGES",
    {
        "edge": Column("int64", "edge", "row of the edge table"),
        "kind": Column("category", "EdgeKind", "why the head cannot come before the tail"),
        "tail_event": _EVENT,
        "tail_is_end": Column("bool", "flag", "the tail is the end of its event, else the start"),
        "head_event": _EVENT,
        "head_is_end": Column("bool", "flag", "the head is the end of its event, else the start"),
        "tail_ns": Column("int64", "ns", "time of the tail"),
        "dur_ns": Column("int64", "ns", "time from tail to head"),
        "lag_ns": Column("int64", "ns", "least time from tail to head"),
        "slack_ns": Column("int64", "ns", "how much later the edge could arrive before it binds"),
        "is_binding": Column("bool", "flag", "the head waited for this edge"),
        "rule": Column("category", "name", "rule that made the edge"),
    },
)

STEPS = Schema(
    "STEPS",
    {
        "step": Column("int64", "count", "position in time"),
        "name": Column("object", "name", "name of the step"),
        "start_ns": Column("int64", "ns", "start of the host range"),
        "dur_ns": Column("int64", "ns", "length of the host range"),
        "event": _EVENT,
        "found_by": Column(
            "category", "name", "what marks the steps: profiler step, serving marker, annotation"
        ),
    },
)

SEGMENTS = Schema(
    "SEGMENTS",
    {
        "start_ns": Column("int64", "ns", "start of the segment; the end of the one before"),
        "dur_ns": Column("int64", "ns", "length: lag_ns + residual_ns"),
        "bound": Column("category", "Bound", "what the time went to"),
        "kind": Column("category", "EdgeKind", "edge that the segment is part of"),
        "lag_ns": Column("int64", "ns", "part that nothing else could have shortened"),
        "residual_ns": Column("int64", "ns", "part beyond the lag"),
        "event": _EVENT,
        "name": Column("object", "name", "name of the event, or what the gap is"),
        "op": Column(
            "object",
            "name",
            "innermost operator or annotation it happened in, or was launched from",
        ),
        "track": _TRACK,
        "edge": Column("int64", "edge", "row of the edge table, -1 for the window's own ends"),
        "rule": Column("category", "name", "rule that made the edge"),
    },
)

BREAKDOWN = Schema(
    "BREAKDOWN",
    {
        "dur_ns": Column("int64", "ns", "time of the path in this group"),
        "share": Column("float64", "share", "share of the window"),
        "n_segments": Column("int64", "count", "segments of the group"),
    },
)

QUALITY = Schema(
    "QUALITY",
    {
        "check": Column("object", "name", "what was checked"),
        "n_good": Column("int64", "count", "how many pass"),
        "n_all": Column("int64", "count", "of how many"),
        "share": Column("float64", "share", "n_good / n_all, 1 where there is nothing to check"),
        "verdict": Column("category", "name", "good, weak or missing"),
        "consequence": Column(
            "object", "text", "which answers are weaker, and what to do about it"
        ),
    },
)

REPAIRS = Schema(
    "REPAIRS",
    {
        "kind": Column("object", "name", "what was wrong"),
        "n": Column("int64", "count", "how often"),
        "first_offset": Column(
            "int64", "byte", "where first, in the decompressed file; -1 where that has no meaning"
        ),
        "detail": Column("object", "text", "what was done about it"),
    },
)

COLLECTIVES = Schema(
    "COLLECTIVES",
    {
        "collective": Column("int64", "count", "position on this rank, in the order of launches"),
        "event": _EVENT,
        "operation": Column(
            "object",
            "name",
            "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send …",
        ),
        "group": Column(
            "object",
            "name",
            "communicator: ranks or name of the process group, empty where not recorded",
        ),
        "n_elements": Column("int64", "count", "elements sent, -1 where not recorded"),
        "dtype": Column("object", "name", "element type, empty where not recorded"),
        "seq": Column(
            "int64", "count", "sequence number of the communicator, -1 where not recorded"
        ),
        "peer": Column(
            "int64",
            "rank",
            "other side of a send or receive, root of a broadcast or reduce; -1 where not recorded",
        ),
        "start_ns": Column("int64", "ns", "start of the kernel, on the rank's clock"),
        "end_ns": Column("int64", "ns", "end of the kernel, on the rank's clock"),
        "is_rendezvous": Column("bool", "flag", "nobody ends before everybody has started"),
        "found_by": Column("category", "name", "what says which operation it is"),
        "after": Column(
            "int64", "count", "collective whose end the start of this one goes back to, -1 for none"
        ),
    },
)

MATCHED_COLLECTIVES = Schema(
    "MATCHED_COLLECTIVES",
    {
        "match": Column("int64", "count", "number of the collective across ranks"),
        "rank": Column("int64", "rank", "member"),
        "collective": Column("int64", "count", "position among the collectives of the rank"),
        "event": _EVENT,
        "operation": Column("object", "name", "all_reduce, all_to_all …"),
        "group": Column("object", "name", "communicator, empty where not recorded"),
        "start_ns": Column("int64", "ns", "start of the member's kernel, in common time"),
        "end_ns": Column("int64", "ns", "end of the member's kernel, in common time"),
        "wait_ns": Column(
            "int64", "ns", "from its start until the last of those it needs had started"
        ),
        "transfer_ns": Column("int64", "ns", "from then to its end"),
        "last_rank": Column("int64", "rank", "who came last; itself if it did not wait"),
        "error_ns": Column(
            "int64", "ns", "by how much the wait may be shorter, as far as the clocks are known"
        ),
        "is_certain": Column(
            "bool", "flag", "the wait is longer than that, and it is sure who came last"
        ),
        "is_partial": Column(
            "bool", "flag", "a rank of the communicator has no part in it: nobody is blamed"
        ),
        "overrun_ns": Column(
            "int64",
            "ns",
            "by how much the last one started after this one had ended: clocks are wrong",
        ),
        "matched_by": Column("category", "name", "rule that matched the members"),
    },
)

CLOCKS = Schema(
    "CLOCKS",
    {
        "rank": Column("int64", "rank", "whose clock"),
        "aligned_with": Column(
            "int64",
            "rank",
            "rank it was aligned with, -1 for the reference, or for who meets nobody",
        ),
        "offset_ns": Column("int64", "ns", "added to the rank's clock"),
        "drift_ppb": Column("int64", "1e-9", "added per second since its first matched collective"),
        "width_ns": Column(
            "int64", "ns", "length of the interval of feasible offsets; negative if no clock fits"
        ),
        "spread_ns": Column(
            "int64", "ns", "median distance of the ends of a matched collective after alignment"
        ),
        "n_collectives": Column("int64", "count", "collectives that the alignment rests on"),
        "is_feasible": Column("bool", "flag", "some clock brings all matched collectives together"),
    },
)

RANK_SEGMENTS = Schema(
    "RANK_SEGMENTS",
    {
        "rank": Column("int64", "rank", "whose part of the path it is"),
        "start_ns": Column("int64", "ns", "start, in common time"),
        "dur_ns": Column("int64", "ns", "length"),
        "collective": Column(
            "int64", "count", "collective whose transfer it is, -1 for the rank's own path"
        ),
    },
)

PATH_DIFF = Schema(
    "PATH_DIFF",
    {
        "before_ns": Column("int64", "ns", "time of the first path in this group"),
        "after_ns": Column("int64", "ns", "time of the second path in this group"),
        "delta_ns": Column("int64", "ns", "difference; all together the difference of the windows"),
        "delta_share": Column("float64", "share", "difference, as a share of the first window"),
    },
)

FAILURES = Schema(
    "FAILURES",
    {
        "path": Column("object", "text", "file that could not be used"),
        "error": Column("object", "text", "why"),
    },
)

JOB_SEGMENTS = Schema(
    "JOB_SEGMENTS",
    {"rank": Column("int64", "rank", "where the segment is; times are common"), **SEGMENTS.columns},
)

JOB_ATTRIBUTED_TIME = Schema(
    "JOB_ATTRIBUTED_TIME",
    {
        "rank": Column("int64", "rank", "where the claimed time is; times are common"),
        **ATTRIBUTED_TIME.columns,
    },
)

STRAGGLERS = Schema(
    "STRAGGLERS",
    {
        "rank": Column("int64", "rank", "who"),
        "n_last": Column(
            "int64",
            "count",
            "collectives to which it came last, by the clocks as they are estimated",
        ),
        "n_certain": Column(
            "int64", "count", "of these, how many whatever the clocks, as far as they are known"
        ),
        "n_collectives": Column("int64", "count", "collectives of the job"),
        "caused_wait_ns": Column(
            "int64", "ns", "wait of all others for it, where longer than the clocks are uncertain"
        ),
        "longest_wait_ns": Column("int64", "ns", "longest wait of one other for it"),
        "own_wait_ns": Column("int64", "ns", "its own wait for others"),
        "transfer_ns": Column("int64", "ns", "its time in collectives once everybody was there"),
        "cause_bound": Column(
            "object", "Bound", "what made it late, at the highest cost to others"
        ),
        "cause_name": Column("object", "name", "event of the cause"),
        "cause_op": Column("object", "name", "operator or annotation of the cause"),
        "cause_ns": Column(
            "int64", "ns", "by how much longer it took than on those that came before"
        ),
        "n_cause": Column("int64", "count", "late arrivals with this cause"),
        "is_recurring": Column("bool", "flag", "the cause made it late more than once"),
    },
)

BUBBLES = Schema(
    "BUBBLES",
    {
        "rank": Column("int64", "rank", "receiver"),
        "group": Column("object", "name", "communicator"),
        "n_receives": Column("int64", "count", "receives"),
        "wait_ns": Column("int64", "ns", "wait for the sender"),
        "transfer_ns": Column("int64", "ns", "time after the sender had started"),
    },
)
