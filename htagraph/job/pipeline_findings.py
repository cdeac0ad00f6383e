"""What is slow in a pipeline as the first finding of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from htagraph.findings.verdict import Finding, Fix
from htagraph.job.pipeline_causes import PipelineCauses
from htagraph.model.kinds import Cause
from htagraph.model.units import human_duration

_ADVICE = {
    "rank": (
        "Compare the device, host and cores of this rank with those of its peers.",
        "if it were as fast as the other ranks",
    ),
    "stage": (
        "Move layers to the other stages; if stages are equal, check the rank that runs it.",
        "if it were as fast as the other stages",
    ),
    "micro-batch": (
        "Pack samples into micro-batches of equal length.",
        "if it were as fast as the other micro-batches",
    ),
    "action": (
        "Compare what it runs there with other micro-batches: look for code that runs once a step.",
        "if it were as fast as the other micro-batches",
    ),
}
"""What to do about it, and the condition of the run without it, by what is slow."""


def charge_pipeline(attributed_time: pd.DataFrame, pipeline: PipelineCauses) -> pd.DataFrame:
    """Charge to the pipeline what parts of it take longer than their peers.

    As before, the attributed time of the job (`frames.JOB_ATTRIBUTED_TIME`) tiles the path.
    """
    if not pipeline.table["is_cause"].any():
        return attributed_time
    start, dur = (attributed_time[name].to_numpy(np.int64) for name in ("start_ns", "dur_ns"))
    rank = attributed_time["rank"].to_numpy(np.int64)
    excess = np.zeros(len(attributed_time), dtype=np.int64)
    for one in np.unique(rank).tolist():
        mine = np.flatnonzero(rank == one)
        excess[mine] = pipeline.excess_within(one, start[mine], start[mine] + dur[mine])
    slow = attributed_time.assign(dur_ns=excess, cause=Cause.PIPELINE)
    own = attributed_time.assign(start_ns=start + excess, dur_ns=dur - excess)
    both = pd.concat([slow, own], ignore_index=True)
    kept: pd.DataFrame = both[both["dur_ns"] > 0].sort_values(
        "start_ns", kind="stable", ignore_index=True
    )
    return kept


def slow_part(finding: Finding, pipeline: PipelineCauses) -> Finding:
    """The finding on the pipeline, in words: what is slow, and what that costs."""
    asked = pipeline.table[pipeline.table["is_cause"]]
    causes = [{str(name): row[name] for name in row} for row in asked.to_dict("records")]
    first = max(causes, key=lambda row: row["saves_ns"])
    cost_ns = sum(row["saves_ns"] for row in causes) * len(pipeline.pipeline.step_ns)
    do, if_gone = _ADVICE[first["change"]]
    return replace(
        finding,
        title=f"{_who(first)} takes {first['ratio']:.1f} times as long as its peers",
        detail="; ".join([*_spread(first), *(_also(row) for row in causes if row is not first)]),
        fix=Fix(do),
        cost_ns=min(cost_ns, finding.path_ns),
        if_gone=if_gone,
    )


def _who(row: Mapping[str, Any]) -> str:
    """What is slow."""
    if row["change"] == "rank":
        return f"Rank {row['rank']}"
    if row["change"] == "stage":
        return f"Stage {row['stage']}"
    if row["change"] == "micro-batch":
        return f"Micro-batch {row['micro_batch']}" if row["micro_batch"] >= 0 else "A micro-batch"
    return f"Micro-batch {row['micro_batch']} of stage {row['stage']}"


def _spread(row: Mapping[str, Any]) -> list[str]:
    """What the same work saves if spread evenly: its sum rarely gets less."""
    saves_ns = row["spread_ns"]
    return [f"the same work spread evenly: {human_duration(saves_ns)}"] if saves_ns > 0 else []


def _also(row: Mapping[str, Any]) -> str:
    """A further cause."""
    return f"{_who(row)}, {row['ratio']:.1f} times: {human_duration(row['saves_ns'])} more"
