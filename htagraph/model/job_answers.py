"""Schemas of the answers of a job: that of the question `stragglers` is `STRAGGLERS`, and so on.

`MATCHED_COLLECTIVES` is what `collectives` answers of a job; of a trace it is
`htagraph.model.answers.COLLECTIVES`.
"""

from __future__ import annotations

from htagraph.model.schema import Column, Schema, count, flag, name, nanoseconds, share

__all__ = [
    "CLOCKS",
    "DELAY_COSTS",
    "MATCHED_COLLECTIVES",
    "PIPELINE_BUBBLES",
    "STRAGGLERS",
]

_EVENT = Column("int64", "event", "row of the event table")

MATCHED_COLLECTIVES = Schema(
    "MATCHED_COLLECTIVES",
    {
        "match": count("number of the collective across ranks"),
        "rank": Column("int64", "rank", "member"),
        "collective": count("position among the collectives of the rank"),
        "event": _EVENT,
        "operation": name("all_reduce, all_to_all …"),
        "group": name("communicator, empty where not recorded"),
        "start_ns": nanoseconds("start of the member's kernel, in common time"),
        "arrived_ns": nanoseconds("when it came: its start, or that of the half that sends"),
        "end_ns": nanoseconds("end of the member's kernel, in common time"),
        "wait_ns": nanoseconds("from its start until the last rank that it needs had started"),
        "transfer_ns": nanoseconds("from then to its end"),
        "last_rank": Column("int64", "rank", "who came last; itself if it did not wait"),
        "error_ns": nanoseconds(
            "by how much the wait may be shorter, as far as the clocks are known"
        ),
        "is_certain": flag("the wait is longer than that, and it is sure who came last"),
        "is_partial": flag("a rank of the communicator has no part in it: nobody is blamed"),
        "overrun_ns": nanoseconds(
            "by how much the last one started after this one had ended: clocks are wrong"
        ),
        "matched_by": Column("category", "name", "rule that matched the members"),
    },
)

STRAGGLERS = Schema(
    "STRAGGLERS",
    {
        "rank": Column("int64", "rank", "who"),
        "n_last": count("collectives to which it came last, by the clocks as they are estimated"),
        "n_certain": count("of these, how many whatever the clocks, as far as they are known"),
        "n_collectives": count("collectives of the job"),
        "caused_wait_ns": nanoseconds(
            "wait of all others for it, where longer than the clocks are uncertain; of collectives "
            "at once, counted once"
        ),
        "longest_wait_ns": nanoseconds("longest wait of one other for it"),
        "own_wait_ns": nanoseconds("its own wait for others"),
        "transfer_ns": nanoseconds("its time in collectives once everybody was there"),
        "cause_bound": Column(
            "object", "Bound", "what made it late, at the highest cost to others"
        ),
        "cause_name": name("event of the cause"),
        "cause_op": name("operator or annotation of the cause"),
        "cause_ns": nanoseconds("by how much longer it took than on those that came before"),
        "n_cause": count("late arrivals with this cause"),
        "is_recurring": flag("the cause made it late more than once"),
    },
)

DELAY_COSTS = Schema(
    "DELAY_COSTS",
    {
        "rank": Column("int64", "rank", "whose delay it was, -1 where nobody can be charged"),
        "bound": Column("object", "Bound", "what took it longer; empty for nobody"),
        "name": name("event of that; for nobody, why"),
        "op": name("operator or annotation of that"),
        "direct_ns": nanoseconds("waits for this rank, in which it was late by that"),
        "propagated_ns": nanoseconds(
            "waits further down: for ranks that were late as they had waited for this one"
        ),
        "delay_ns": nanoseconds("both; adds up to all waits of all ranks"),
        "n_collectives": count("collectives to which that made it late"),
        "n_ranks": count("ranks that waited for it there"),
        "share": share("of all waits"),
    },
)

PIPELINE_BUBBLES = Schema(
    "PIPELINE_BUBBLES",
    {
        "rank": Column("int64", "rank", "receiver"),
        "group": name("communicator"),
        "n_receives": count("receives"),
        "wait_ns": nanoseconds("wait for the sender"),
        "transfer_ns": nanoseconds("time after the sender had started"),
    },
)

CLOCKS = Schema(
    "CLOCKS",
    {
        "rank": Column("int64", "rank", "whose clock"),
        "aligned_with": Column(
            "int64",
            "rank",
            "rank it was aligned with, -1 for the reference and for who shares no collective",
        ),
        "offset_ns": nanoseconds("added to the rank's clock"),
        "drift_ppb": Column("int64", "1e-9", "added per second since its first matched collective"),
        "width_ns": nanoseconds(
            "length of the interval of feasible offsets; negative if no clock fits"
        ),
        "spread_ns": nanoseconds(
            "median distance of the ends of a matched collective after alignment"
        ),
        "n_collectives": count("collectives that the alignment rests on"),
        "is_feasible": flag("some clock brings all matched collectives together"),
    },
)
