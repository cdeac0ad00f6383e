"""Schemas of the answers of a job: that of the question `stragglers` is `STRAGGLERS`, and so on.

`MATCHED_COLLECTIVES` is what `collectives` answers of a job; of a trace it is
`htagraph.model.answers.COLLECTIVES`.
"""

from __future__ import annotations

from htagraph.model.schema import (
    EVENT,
    Schema,
    count,
    duration,
    flag,
    identifier,
    instant,
    label,
    name,
    number,
    share,
)

__all__ = [
    "CLOCKS",
    "DELAY_COSTS",
    "MATCHED_COLLECTIVES",
    "PIPELINE_BUBBLES",
    "STRAGGLERS",
]

MATCHED_COLLECTIVES = Schema(
    "MATCHED_COLLECTIVES",
    {
        "match": identifier("number of the collective across ranks"),
        "rank": identifier("member", unit="rank"),
        "collective": identifier("position among the collectives of the rank"),
        "event": EVENT,
        "operation": name("all_reduce, all_to_all …"),
        "group": name("communicator, empty where not recorded"),
        "start_ns": instant("start of the member's kernel, in common time"),
        "arrived_ns": instant("when it came: its start, or that of the half that sends"),
        "end_ns": instant("end of the member's kernel, in common time"),
        "wait_ns": duration("from its start until the last rank that it needs had started"),
        "transfer_ns": duration("from then to its end"),
        "last_rank": identifier("who came last; itself if it did not wait", unit="rank"),
        "error_ns": duration("by how much the wait may be shorter, as far as the clocks are known"),
        "is_certain": flag("the wait is longer than that, and it is sure who came last"),
        "is_partial": flag("a rank of the communicator has no part in it: nobody is blamed"),
        "overrun_ns": duration(
            "by how much the last one started after this one had ended: clocks are wrong"
        ),
        "matched_by": label("rule that matched the members"),
    },
    first="collective operation start_ns end_ns wait_ns last_rank is_certain group",
)

STRAGGLERS = Schema(
    "STRAGGLERS",
    {
        "rank": identifier("who", unit="rank"),
        "n_last": count(
            "collectives to which it came last, by the clocks as they are estimated",
            heading="times last",
        ),
        "n_certain": count(
            "of these, how many whatever the clocks, as far as they are known", heading="certain"
        ),
        "n_collectives": count("collectives of the job"),
        "caused_wait_ns": duration(
            "wait of all others for it, where longer than the clocks are uncertain; of collectives "
            "at once, counted once",
            heading="caused wait, all ranks",
        ),
        "longest_wait_ns": duration("longest wait of one other for it"),
        "own_wait_ns": duration("its own wait for others"),
        "transfer_ns": duration("its time in collectives once everybody was there"),
        "cause_bound": label(
            "what made it late, at the highest cost to others", unit="Bound", dtype="object"
        ),
        "cause_name": name("event of the cause"),
        "cause_op": name("operator or annotation of the cause"),
        "cause_ns": duration(
            "by how much longer it took than on those that came before", heading="cause dur"
        ),
        "n_cause": count("late arrivals with this cause", heading="times"),
        "is_recurring": flag("the cause made it late more than once"),
    },
    first=(
        "rank n_last n_certain caused_wait_ns longest_wait_ns own_wait_ns cause_bound "
        "cause_ns cause_name cause_op"
    ),
)

DELAY_COSTS = Schema(
    "DELAY_COSTS",
    {
        "rank": identifier("whose delay it was, -1 where nobody can be charged", unit="rank"),
        "bound": label("what took it longer; empty for nobody", unit="Bound", dtype="object"),
        "name": name("event of that; for nobody, why"),
        "op": name("operator or annotation of that"),
        "direct_ns": duration("waits for this rank, in which it was late by that"),
        "propagated_ns": duration(
            "waits further down: for ranks that were late as they had waited for this one"
        ),
        "delay_ns": duration("both; adds up to all waits of all ranks"),
        "n_collectives": count("collectives to which that made it late"),
        "n_ranks": count("ranks that waited for it there"),
        "share": share("of all waits"),
    },
    first="bound delay_ns share name op direct_ns propagated_ns n_collectives n_ranks",
)

PIPELINE_BUBBLES = Schema(
    "PIPELINE_BUBBLES",
    {
        "rank": identifier("receiver", unit="rank"),
        "group": name("communicator"),
        "n_receives": count("receives"),
        "wait_ns": duration("wait for the sender"),
        "transfer_ns": duration("time after the sender had started"),
    },
)

CLOCKS = Schema(
    "CLOCKS",
    {
        "rank": identifier("whose clock", unit="rank"),
        "aligned_with": identifier(
            "rank it was aligned with, -1 for the reference and for who shares no collective",
            unit="rank",
        ),
        "offset_ns": duration("added to the rank's clock"),
        "drift_ppb": number(
            "1e-9", "added per second since its first matched collective", dtype="int64"
        ),
        "width_ns": duration(
            "length of the interval of feasible offsets; negative if no clock fits"
        ),
        "spread_ns": duration(
            "median distance of the ends of a matched collective after alignment"
        ),
        "n_collectives": count("collectives that the alignment rests on"),
        "is_feasible": flag("some clock brings all matched collectives together"),
    },
    first="rank aligned_with offset_ns drift_ppb width_ns spread_ns n_collectives is_feasible",
)
