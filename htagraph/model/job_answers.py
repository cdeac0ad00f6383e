"""Schemas of the answers of a job: that of the question `stragglers` is `STRAGGLERS`, and so on.

`MATCHED_COLLECTIVES` is what `collectives` answers of a job; of a trace it is
`htagraph.model.answers.COLLECTIVES`.
"""

from __future__ import annotations

from htagraph.model import frames
from htagraph.model.schema import (
    EVENT,
    count,
    duration,
    flag,
    identifier,
    instant,
    label,
    name,
    number,
    schema,
    share,
    text,
)

_PARTS = ("host", "replica", "shard", "stage", "expert", "context")

MATCHED_COLLECTIVES = schema(
    "MATCHED_COLLECTIVES",
    "collective operation start_ns end_ns wait_ns last_rank is_certain group",
    match=identifier("number of the collective across ranks"),
    rank=identifier("rank", unit="rank"),
    collective=identifier("position among the collectives of the rank"),
    event=EVENT,
    operation=name("all_reduce, all_to_all …"),
    group=name("communicator, empty if not recorded"),
    start_ns="start of the rank's kernel, in common time",
    arrived_ns=instant("arrival of the rank: that start, or the start of its sending half"),
    end_ns="end of the rank's kernel, in common time",
    wait_ns="from its start until the last rank that it needs has started",
    transfer_ns="from then to its end",
    last_rank=identifier("rank that arrived last; itself if it did not wait", unit="rank"),
    error_ns="the wait may be shorter by this much: clock uncertainty",
    is_certain="the wait is longer than error_ns and the last rank is certain",
    is_partial="a rank that was being recorded lacks it, and may have been last: no blame",
    overrun_ns="the last rank starts this long after this one ends: clocks are wrong",
    matched_by=label("rule that matched the ranks"),
)

STRAGGLERS = schema(
    "STRAGGLERS",
    "rank n_last n_certain caused_wait_ns longest_wait_ns own_wait_ns cause_bound "
    "cause_ns cause_name cause_op",
    dict.fromkeys(
        _PARTS,
        "part n_last n_certain caused_wait_ns own_wait_ns cause_bound cause_ns cause_name cause_op",
    ),
    rank=identifier("rank", unit="rank"),
    n_last=count(
        "collectives at which it arrived last, by the estimated clocks", heading="times last"
    ),
    n_certain=count("those that hold within the clock uncertainty", heading="certain"),
    n_collectives="collectives of the job",
    caused_wait_ns=duration(
        "wait of all others for it, beyond clock uncertainty; concurrent waits once",
        heading="caused wait, all ranks",
    ),
    longest_wait_ns="longest wait of one rank for it",
    own_wait_ns="its own wait for others",
    transfer_ns="its time in collectives once all ranks had arrived",
    cause_bound=label(
        "what made it late, at the highest cost to others", unit="Bound", dtype="object"
    ),
    cause_name=name("event of the cause"),
    cause_op=name("operator or annotation of the cause"),
    cause_ns=duration("extra time over the ranks that arrived earlier", heading="cause dur"),
    n_cause=count("late arrivals with this cause", heading="times"),
    is_recurring="the cause made it late more than once",
    part=name("replica, stage, host … whose ranks these are together; empty for one rank"),
)

DELAY_COSTS = schema(
    "DELAY_COSTS",
    "bound delay_ns share name op direct_ns propagated_ns n_collectives n_ranks",
    dict.fromkeys(
        _PARTS, "part bound delay_ns share name op direct_ns propagated_ns n_collectives n_ranks"
    ),
    rank=identifier("rank that was late, -1 if none can be blamed", unit="rank"),
    bound=label("what took it longer; empty for no rank", unit="Bound", dtype="object"),
    name=name("event that took longer; why no rank can be blamed"),
    op=name("its operator or annotation"),
    direct_ns="waits for this rank because of it",
    propagated_ns="waits for other ranks, late because they had waited for this one",
    delay_ns="both; adds up to all waits of all ranks",
    n_collectives="collectives delayed by it",
    n_ranks="ranks that waited for it there",
    share="delay_ns / all waits",
    part=name("replica, stage, host … of the late ranks; empty if unknown, or for one rank"),
)

EXPERTS = schema(
    "EXPERTS",
    "step layer n_tokens load imbalance n_steps_fullest work_ns balanced_saves_ns "
    "capped_saves_ns duplicated_saves_ns dispatch_bytes dispatch_ns combine_ns",
    step=name("step; empty if none is recorded"),
    layer=identifier("number of the pair of dispatch and combine within the step"),
    rank=identifier("rank", unit="rank"),
    group=name("communicator"),
    n_tokens=count("tokens that it receives; -1 if only sizes in elements are recorded"),
    load=number("1", "that, over the mean of the ranks"),
    imbalance=number("1", "largest load of the ranks in this layer and step"),
    n_steps_fullest=count("steps in which it receives most tokens of this layer"),
    work_ns=duration("from the end of its dispatch to the start of its combine"),
    dispatch_bytes=count("bytes that it sends to experts", unit="bytes"),
    dispatch_ns="transfer of the dispatch, after all ranks have come",
    combine_bytes=count("bytes that it sends back", unit="bytes"),
    combine_ns="transfer of the combine, after all ranks have come",
    balanced_saves_ns=(
        "how much earlier the last rank is done if all have the mean; 0 on other rows"
    ),
    capped_saves_ns="likewise if no rank takes more tokens than `capacity` times the mean",
    duplicated_saves_ns="likewise if the fullest rank shares with the emptiest",
)

LAYOUT = schema(
    "LAYOUT",
    rank=identifier("rank", unit="rank"),
    host=name("host; empty if not recorded"),
    replica=identifier("place in its data parallel group, -1 if unknown"),
    shard=identifier("place in its tensor parallel group, -1 if unknown"),
    stage=identifier("place in its pipeline, -1 if unknown"),
    expert=identifier("place in its expert parallel group, -1 if unknown"),
    context=identifier("place in its context parallel group, -1 if unknown"),
    source=name("what tells each of them"),
)

PROCESS_GROUPS = schema(
    "PROCESS_GROUPS",
    group=name("communicator: its ranks"),
    name=name("name of the group"),
    description=name("description that the program gave it"),
    axis=name("replica, shard, stage, expert or context; empty if unknown"),
    source=name("what tells the axis"),
    n_ranks="ranks",
    stride=identifier("distance of its ranks, -1 if they are not evenly spaced"),
    n_collectives="collectives that one rank recorded in it",
    operations=name("their operations"),
)

PIPELINE_BUBBLES = schema(
    "PIPELINE_BUBBLES",
    rank=identifier("receiving rank", unit="rank"),
    group=name("communicator"),
    n_receives="receives",
    wait_ns="wait for the sender",
    transfer_ns="time after the sender has started",
)

PIPELINE = schema(
    "PIPELINE",
    "step rank stages dur_ns forward_ns backward_ns weight_ns transfer_ns between_ns "
    "warm_up_ns stall_ns drain_ns after_ns",
    step=identifier("number of the step"),
    replica=identifier("number of the copy of the pipeline"),
    rank=identifier("rank", unit="rank"),
    stages=text("stages of the rank"),
    dur_ns=duration("from the first action of any rank on; the next nine add up to it"),
    forward_ns=duration("forward of all micro-batches", heading="forward"),
    backward_ns=duration("backward, or gradients of inputs", heading="backward"),
    weight_ns=duration("gradients of weights, if computed apart", heading="weight"),
    transfer_ns=duration("blocked after the input was computed", heading="transfer"),
    between_ns=duration("own time between actions", heading="between"),
    warm_up_ns=duration("from the first action of any rank to its own", heading="warm-up"),
    stall_ns=duration("blocked between actions before the input was there", heading="stall"),
    drain_ns=duration("from its last action to that of any rank", heading="drain"),
    after_ns=duration("from the last action to the end of the step", heading="after"),
    stall_rank_ns=duration("of the stall: gone if a slow rank were as fast as its peers"),
    stall_stage_ns=duration("then gone if stages were equal, where they are not"),
    stall_micro_batch_ns=duration("then gone if micro-batches were equal"),
    stall_action_ns=duration("then gone if the slowest action were as fast as others"),
    stall_transfer_ns=duration("then gone if transfers took no time"),
    stall_between_ns=duration("then gone if ranks took no time between actions"),
    stall_schedule_ns=duration("the rest: the stall that the order of actions makes"),
    blocked_ns=duration("blocked in sends and receives, in all of these parts"),
    ideal_bubble=share("of the step without work if stages were equal, transfers free"),
)

PIPELINE_SAVINGS = schema(
    "PIPELINE_SAVINGS",
    change=label("what is made as fast as its peers, after the changes before it"),
    rank=identifier("rank, -1 for several", unit="rank"),
    stage=identifier("stage, -1 for several"),
    micro_batch=identifier("micro-batch, -1 for several"),
    ratio=number("1", "how many times as long as its peers the slowest takes"),
    saves_ns=duration("shorter step, on average"),
    spread_ns=duration("shorter step with the same work spread evenly, 0 if not asked"),
    step_ns=duration("length of the step, on average"),
    share=share("saves_ns / step_ns"),
    is_cause=flag("saves enough to be called a cause"),
)

PIPELINE_SCHEDULE = schema(
    "PIPELINE_SCHEDULE",
    "step rank stage phase micro_batch begin_ns end_ns waited_ns is_critical",
    **frames.PIPELINE_ACTIONS.columns,
    is_critical=flag("the step would be longer if this were"),
)

PIPELINE_WHAT_IF = schema(
    "PIPELINE_WHAT_IF",
    schedule=label("gpipe, 1f1b, interleaved or zero_bubble"),
    chunks=count("stages of each rank", unit="stages"),
    n_micro_batches=count("micro-batches of a step", unit="micro-batches"),
    is_recorded=flag("this is what was recorded"),
    step_ns=duration("length of the recorded step, on average"),
    least_ns=duration("length of the step with this schedule", heading="at least"),
    most_ns=duration(
        "the same; where work is split otherwise, it is open whether transfers, the time "
        "between actions, and that in Python are split with it",
        heading="at most",
    ),
    ideal_bubble=share("of this step without work if stages were equal, transfers free"),
)

CLOCKS = schema(
    "CLOCKS",
    "rank aligned_with offset_ns drift_ppb width_ns spread_ns n_collectives is_feasible",
    rank=identifier("rank", unit="rank"),
    aligned_with=identifier(
        "rank that it is aligned with, -1 for the reference, or no shared collective", unit="rank"
    ),
    offset_ns="added to the rank's clock",
    drift_ppb=number("1e-9", "added per second since its first matched collective", dtype="int64"),
    width_ns="width of the interval of possible offsets; negative if no clock fits",
    spread_ns="median distance between ends of a collective after alignment",
    n_collectives="collectives that the alignment uses",
    is_feasible="some clock is consistent with all matched collectives",
)

BANDWIDTHS = schema(
    "BANDWIDTHS",
    "operation n_bytes n_collectives sum_ns transfer_ns wait_ns busbw_gb_per_s "
    "fitted_gb_per_s limit last_rank group",
    operation=name("all_reduce, all_to_all …"),
    group=name("communicator, empty if not recorded"),
    n_bytes=count("size, -1 if not recorded", unit="bytes"),
    n_ranks="ranks that take part: as recorded, else those that were matched",
    n_matched="ranks that were matched, at least",
    match=identifier("number of the collective across ranks, -1 for all of one size"),
    n_collectives="collectives of this size",
    sum_ns="their durations, mean of the ranks",
    transfer_ns="median of the shortest durations of all ranks",
    wait_ns="median of the mean durations beyond that",
    algbw_gb_per_s=number("GB/s", "n_bytes by transfer_ns; GB = 1e9 bytes"),
    busbw_gb_per_s=number("GB/s", "what each link carries, by NCCL's tests"),
    latency_ns=duration("fitted time of a transfer of nothing; NaN without a fit", dtype="float64"),
    fitted_gb_per_s=number("GB/s", "fitted bandwidth of large transfers; NaN without a fit"),
    fit_error_share="median deviation from the fit; NaN without one",
    last_rank=identifier(
        "rank that most waiting is for, as its collectives are the shortest; -1 for none",
        unit="rank",
    ),
    limit=label("what limits it: late rank, latency, bandwidth, congestion or unknown"),
)
